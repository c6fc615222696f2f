export type Expression = number | string | [string, Expression, Expression];
export type DType = "f32" | "i32" | "u32" | "bool";
export type Place = {
    name: string;
    buffer: number;
    dtype: DType;
    shape: Expression[];
    room: number[];
};
export type Variable = {
    name: string;
    low: number;
    high: number;
    example: number;
};
export type Binding = [number: number, slot: number, offset: number, length: number, written: number];
export type Kernel = {
    name: string;
    source: number;
    bindings: Binding[];
    variables: string[];
};
export type Call = [kernel: number, buffers: number[], grid: [number, number, number], needed?: Expression];
export type Fn = {
    inputs: Place[];
    outputs: Place[];
    variables: Variable[];
    calls: Call[];
    copies: [number, number][];
};
export type Program = {
    profile: string;
    /** whether it is for adapters that run kernels on the CPU */
    software: boolean;
    /** programs of one number have the same calls */
    plan: number;
    limits: Record<string, number>;
    features: string[];
    /** the least threads of a subgroup that kernels rely on; 0: they use none */
    subgroup: number;
    buffers: number[];
    weights: Record<string, number>;
    state: string[];
    kernels: Kernel[];
    functions: Record<string, Fn>;
};
/** Of a value that a kernel writes: dtype (null: it is not compared), elements, a weighted sum, how far that may be off, and the places that it is of, if not of all. */
export type Digest = [dtype: DType | null, size: number, sum: number, off: number, places?: number[]];
export type Plan = {
    name: string;
    made_by: string;
    piece: number;
    files: Record<string, {
        bytes: number;
        sha256: string[];
    }>;
    sources: [number, number][];
    forms: Record<string, "f16" | "int8">;
    /** the shapes of tensors that no file of the export has: the visitor brings them */
    wanted: Record<string, number[]>;
    zeros: Record<string, [dtype: string, shape: number[]]>;
    programs: Program[];
    /** of each function, by plan: how far each result may be off, and what each call writes */
    check: Record<string, {
        bounds: number[][];
        calls: Digest[][][];
    }>;
    page: {
        kind: string;
    } & Record<string, unknown>;
};
/** A fault of a page, of what it is given, or of where it runs, in words for its visitor. */
export declare class PageError extends Error {
    name: string;
}
export declare function insist(holds: unknown, text: string): asserts holds;
/** The plan that model.json has; a PageError names what is wrong with it. */
export declare function readPlan(text: string): Plan;
/** The value of a size for values of its variables. */
export declare function evaluate(e: Expression, values: Record<string, number>): number;

/** A place that has files by name. */
export type Source = {
    read(name: string): Promise<ReadableStream<Uint8Array>>;
};
/** The files of the folder at `base`. */
export declare function folder(base: URL): Source;
/** The files that stand in the document itself, in base64. */
export declare function embedded(root: Document): Source;
/** A file of the plan as a blob, piece by piece; `told` hears of the bytes that have come. */
export declare function fetched(source: Source, plan: Plan, name: string, told: (bytes: number) => void): Promise<Blob>;
/** The text of model.json, of the given hash if there is one. */
export declare function planText(source: Source, expected?: string): Promise<string>;
export type Entry = {
    dtype: string;
    shape: number[];
    start: number;
    end: number;
};
/** A safetensors file: where each tensor is, and its bytes. */
export declare class Tensors {
    readonly blob: Blob;
    readonly entries: Map<string, Entry>;
    private readonly others;
    private constructor();
    /** Tensors of another file by names of this one, some of them with rows and columns exchanged. */
    add(other: Tensors, from: string, as: string, transposed: boolean): void;
    /** Add tensors of zeros, which no file has. */
    addZeros(zeros: Plan["zeros"]): Tensors;
    static open(blob: Blob, name: string): Promise<Tensors>;
    bytes(name: string): Promise<ArrayBuffer>;
    /** The numbers of a tensor of 32-bit numbers, or of what is widened to floats. */
    array(name: string): Promise<Float32Array | Int32Array | Uint32Array>;
}
/** A safetensors file of tensors of 32-bit numbers. */
export declare function packed(tensors: Map<string, {
    dtype: string;
    shape: number[];
    data: ArrayBuffer;
}>): Blob;

export type Numbers = Float32Array | Int32Array | Uint32Array;
/** An array of a result: its numbers, row after row, and its shape. */
export type NDArray = {
    data: Numbers;
    shape: number[];
};
/** What WebGPU says is wrong with what `make` makes, as an error; `what` names it. */
export declare function sound<T>(device: GPUDevice, what: string, make: () => T | Promise<T>): Promise<T>;
export declare class Engine {
    readonly device: GPUDevice;
    readonly program: Program;
    readonly buffers: GPUBuffer[];
    readonly memory: number;
    private readonly pipelines;
    private readonly layouts;
    private readonly groups;
    private readonly tables;
    private readonly staging;
    private constructor();
    /** Buffers and pipelines of a program; the pipelines are made side by side. */
    static make(device: GPUDevice, program: Program, sources: string[], told: (kernels: number) => void): Promise<Engine>;
    private layout;
    /** The memory from which a kernel reads the values of variables. */
    private table;
    private group;
    /** Put numbers into a buffer; where rows are shorter than there is room for, each into its place. */
    write(place: Place, data: Numbers, values: Record<string, number>): void;
    setVariables(values: Record<string, number>): void;
    /** Record calls in one pass. */
    record(encoder: GPUCommandEncoder, calls: Call[], values: Record<string, number>): void;
    /** Run a function, in one submission; the numbers of what is `read`, when they have come back. */
    run(f: Fn, values: Record<string, number>, read: Place[]): Promise<NDArray[]>;
    /** Submit what is recorded, and read places back through memory that is kept for the next time. */
    readBack(encoder: GPUCommandEncoder, read: Place[], values: Record<string, number>): Promise<NDArray[]>;
    destroy(): void;
}
export declare function numbersOf(place: Place, given: unknown, values: Record<string, number>, of: string): Numbers;

export type Input = number | ArrayLike<number> | NDArray;
export type Progress = {
    part: "weights" | "kernels";
    done: number;
    of: number;
};
export type Options = {
    /** hears how far loading has come */
    progress?: (now: Progress) => void;
    /** base64 of the SHA-256 of model.json */
    integrity?: string | undefined;
    /** the program of this profile, in the place of the first that the adapter can run */
    profile?: string;
    /** adds the tensors that the plan wants and no file of the export has: `Tensors.add` */
    visitor?: (plan: Plan, weights: Tensors) => Promise<void>;
    /** hears that the GPU was lost, and that the model runs again */
    lost?: (state: "lost" | "restored" | "gone") => void;
};
export type Checked = {
    ok: boolean;
    /** the error that is worst beside what its result may be off, and that, as parts of its largest magnitude */
    worst: number;
    allowed: number;
    /** the function and its result */
    where: string;
    /** the first kernel that leaves other values than it should, where results differ */
    kernel?: string;
};
/** A model that was exported, on this machine's GPU. */
export declare class Model {
    readonly plan: Plan;
    private readonly sources;
    private readonly source;
    private weights;
    private readonly options;
    private engine;
    private info;
    private ready;
    private closed;
    private kept;
    private constructor();
    /** A model of a folder's address, or of another source of its files. */
    static load(from: string | URL | Source, options?: Options): Promise<Model>;
    private open;
    /** Put weights onto the GPU: as they were kept last, or as the file has them. */
    private fill;
    private recover;
    /** The names of the functions. */
    get functions(): string[];
    /** The adapter, the profile that its kernels are made for, and the bytes that the model holds on the GPU. */
    get about(): {
        adapter: string;
        profile: string;
        memory: number;
    };
    /** The tensors that outlive a run, by name. */
    get tensors(): string[];
    private function;
    /** Run the first function. Results that are not in `read` are not read back; by default all are. */
    run(inputs?: Record<string, Input>, read?: string[]): Promise<Record<string, NDArray>>;
    /** Run a function by its name; sizes that vary are numbers among the inputs. */
    call(name: string, inputs?: Record<string, Input>, read?: string[]): Promise<Record<string, NDArray>>;
    private guarded;
    /** The numbers of a tensor that outlives runs. */
    read(name: string): Promise<Float32Array>;
    /** Change a tensor that outlives runs, as one changes a learning rate or a temperature. */
    write(name: string, data: ArrayLike<number>): Promise<void>;
    /** What runs have changed, as a safetensors file; what is lost with a GPU comes back as it was saved last. */
    save(): Promise<Blob>;
    /** Go on from a file that `save`, or anneal, wrote. */
    restore(file: Blob): Promise<void>;
    /** Go back to the tensors that were exported. */
    reset(): Promise<void>;
    /** A file of the export, beside those of the model: "data.safetensors". */
    file(name: string): Promise<Tensors>;
    /** Run the example of every function, and compare the results with those that were exported. Tensors that outlive
     * runs are then as they were exported. */
    check(): Promise<Checked>;
    /** The inputs of a function's example. */
    example(name: string, examples?: Tensors): Promise<Record<string, Input>>;
    /** The first kernel of a function that writes other values than those that were found when it was exported. */
    private firstWrong;
    /** Free the GPU's memory. */
    destroy(): void;
}
/** The largest difference, and the largest magnitude. */
export declare function difference(a: ArrayLike<number>, b: ArrayLike<number>): [number, number];
/** A model of a folder's address, or of another source of its files. */
export declare const load: (from: string | URL | Source, options?: Options) => Promise<Model>;
