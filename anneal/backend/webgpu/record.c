/* Records dispatches by the functions of webgpu.h: one call for a pass, where Python needs three for each dispatch.
   WebGPU's objects are plain pointers here. */
#include <stddef.h>
#include <stdint.h>

struct functions {
    void *(*encoder)(void *device, const void *descriptor);
    void *(*begin)(void *encoder, const void *descriptor);
    void (*set_pipeline)(void *pass, void *pipeline);
    void (*set_group)(void *pass, uint32_t index, void *group, size_t count, const uint32_t *offsets);
    void (*dispatch)(void *pass, uint32_t x, uint32_t y, uint32_t z);
    void (*end)(void *pass);
    void (*release_pass)(void *pass);
};

struct dispatch {
    void *pipeline, *group;
    uint32_t x, y, z;
};

/* An encoder, with one pass over dispatches. */
void *record(const struct functions *f, void *device, const struct dispatch *d, int64_t count)
{
    void *encoder = f->encoder(device, NULL), *pass = f->begin(encoder, NULL), *last = NULL;
    for (int64_t i = 0; i < count; i++) {
        if (d[i].pipeline != last)
            f->set_pipeline(pass, last = d[i].pipeline);
        f->set_group(pass, 0, d[i].group, 0, NULL);
        f->dispatch(pass, d[i].x, d[i].y, d[i].z);
    }
    f->end(pass);
    f->release_pass(pass);
    return encoder;
}
