/* A stand-in for ggml-cuda.so: a true backend of ggml whose devices are the cards of the driver.

   Its memory is the host's, and it computes nothing: ggml's scheduler gives all work to the CPU.
   STANDIN_NO_DEVICES: it finds no card at all. */
#include "ggml-backend-impl.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX = 16 };

struct card {
    char name[16], description[128];
    size_t memory;
    struct ggml_backend_buffer_type type;
    struct ggml_backend_device device;
};

static struct card cards[MAX];
static int count;

static const char *type_name(ggml_backend_buffer_type_t type)
{
    return ((struct card *)type->context)->name;
}

static ggml_backend_buffer_t type_alloc(ggml_backend_buffer_type_t type, size_t size)
{
    ggml_backend_buffer_t buffer =
        ggml_backend_buft_alloc_buffer(ggml_backend_cpu_buffer_type(), size);
    if (buffer)
        buffer->buft = type;
    return buffer;
}

static size_t type_alignment(ggml_backend_buffer_type_t type)
{
    (void)type;
    return 64;
}

static bool type_is_host(ggml_backend_buffer_type_t type)
{
    (void)type;
    return true;
}

static const char *backend_name(ggml_backend_t backend)
{
    return ((struct card *)backend->context)->name;
}

static void backend_free(ggml_backend_t backend)
{
    free(backend);
}

static enum ggml_status backend_compute(ggml_backend_t backend, struct ggml_cgraph *graph)
{
    (void)backend;
    (void)graph;
    return GGML_STATUS_SUCCESS; /* views at most */
}

static const char *device_name(ggml_backend_dev_t device)
{
    return ((struct card *)device->context)->name;
}

static const char *device_description(ggml_backend_dev_t device)
{
    return ((struct card *)device->context)->description;
}

static void device_memory(ggml_backend_dev_t device, size_t *free_bytes, size_t *total)
{
    *free_bytes = *total = ((struct card *)device->context)->memory;
}

static enum ggml_backend_dev_type device_type(ggml_backend_dev_t device)
{
    (void)device;
    return GGML_BACKEND_DEVICE_TYPE_GPU;
}

static void device_props(ggml_backend_dev_t device, struct ggml_backend_dev_props *props)
{
    memset(props, 0, sizeof *props);
    props->name = device_name(device);
    props->description = device_description(device);
    props->type = GGML_BACKEND_DEVICE_TYPE_GPU;
    device_memory(device, &props->memory_free, &props->memory_total);
}

static ggml_backend_t device_init(ggml_backend_dev_t device, const char *params)
{
    static uint8_t guid[16] = "stand-in backend";
    ggml_backend_t backend = calloc(1, sizeof *backend);
    (void)params;
    backend->guid = &guid;
    backend->iface.get_name = backend_name;
    backend->iface.free = backend_free;
    backend->iface.graph_compute = backend_compute;
    backend->device = device;
    backend->context = device->context;
    return backend;
}

static ggml_backend_buffer_type_t device_buffer_type(ggml_backend_dev_t device)
{
    return &((struct card *)device->context)->type;
}

static bool device_supports_op(ggml_backend_dev_t device, const struct ggml_tensor *op)
{
    (void)device;
    (void)op;
    return false;
}

static bool device_supports_type(ggml_backend_dev_t device, ggml_backend_buffer_type_t type)
{
    return type == device_buffer_type(device);
}

static const char *reg_name(ggml_backend_reg_t reg)
{
    (void)reg;
    return "CUDA";
}

static size_t reg_count(ggml_backend_reg_t reg)
{
    (void)reg;
    return (size_t)count;
}

static ggml_backend_dev_t reg_device(ggml_backend_reg_t reg, size_t index)
{
    (void)reg;
    return &cards[index].device;
}

static void *reg_address(ggml_backend_reg_t reg, const char *name)
{
    (void)reg;
    (void)name;
    return NULL;
}

static void ask_driver(ggml_backend_reg_t reg)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!driver || getenv("STANDIN_NO_DEVICES"))
        return;
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(driver, "cuInit");
    int (*number)(int *) = (int (*)(int *))dlsym(driver, "cuDeviceGetCount");
    int (*name)(char *, int, int) = (int (*)(char *, int, int))dlsym(driver, "cuDeviceGetName");
    int (*memory)(size_t *, int) = (int (*)(size_t *, int))dlsym(driver, "cuDeviceTotalMem_v2");
    if (init(0) || number(&count))
        count = 0;
    for (int i = 0; i < count; i++) {
        struct card *card = &cards[i];
        snprintf(card->name, sizeof card->name, "CUDA%d", i);
        name(card->description, sizeof card->description, i);
        memory(&card->memory, i);
        card->type.iface.get_name = type_name;
        card->type.iface.alloc_buffer = type_alloc;
        card->type.iface.get_alignment = type_alignment;
        card->type.iface.is_host = type_is_host;
        card->type.device = &card->device;
        card->type.context = card;
        card->device.iface.get_name = device_name;
        card->device.iface.get_description = device_description;
        card->device.iface.get_memory = device_memory;
        card->device.iface.get_type = device_type;
        card->device.iface.get_props = device_props;
        card->device.iface.init_backend = device_init;
        card->device.iface.get_buffer_type = device_buffer_type;
        card->device.iface.supports_op = device_supports_op;
        card->device.iface.supports_buft = device_supports_type;
        card->device.reg = reg;
        card->device.context = card;
    }
}

ggml_backend_reg_t ggml_backend_init(void)
{
    static struct ggml_backend_reg reg = {
        GGML_BACKEND_API_VERSION, {reg_name, reg_count, reg_device, reg_address}, NULL};
    static bool asked;
    if (!asked)
        ask_driver(&reg);
    asked = true;
    return &reg;
}
