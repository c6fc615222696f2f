// WebGPU's names of flags, which the DOM's types lack.
declare const GPUBufferUsage: { readonly MAP_READ: 1; readonly COPY_SRC: 4; readonly COPY_DST: 8; readonly STORAGE: 128 };
declare const GPUMapMode: { readonly READ: 1 };
declare const GPUShaderStage: { readonly COMPUTE: 4 };
