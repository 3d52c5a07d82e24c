/* Reference-counted device arrays and their copies from and to the host. */
#include "base/alloc.h"
#include "pjrt/internal.h"

enum { MAX_RANK = 64 }; /* as in PyTorch (at::dim_bitset_size) */

/* ---- life ---- */

pjrt_buffer *pjrt_buffer_new(pjrt_client *c) {
    pjrt_buffer *b = mem_alloc(sizeof *b);
    if (!b) return NULL;
    atomic_init(&b->references, 1);
    b->client = c;
    return b;
}

void pjrt_buffer_fill(pjrt_buffer *b, PJRT_Buffer *buffer, dtype type, int rank, int64_t bytes) {
    b->buffer = buffer;
    b->type = type;
    b->rank = rank;
    b->bytes = bytes;
    pjrt_count_buffer(bytes);
}

status *pjrt_buffer_fill_by_asking(pjrt_buffer *b, PJRT_Buffer *buffer) {
    const PJRT_Api *api = b->client->api;
    pjrt_buffer_fill(b, buffer, DTYPE_INVALID, 0, 0); /* from here on a release destroys it */
    PJRT_Buffer_ElementType_Args type = PJRT_ARGS(PJRT_Buffer_ElementType, .buffer = buffer);
    STATUS_TRY(PJRT_CALL(api, PJRT_Buffer_ElementType, &type));
    PJRT_Buffer_Dimensions_Args dims = PJRT_ARGS(PJRT_Buffer_Dimensions, .buffer = buffer);
    STATUS_TRY(PJRT_CALL(api, PJRT_Buffer_Dimensions, &dims));
    int64_t bytes = 0;
    dtype t = pjrt_type_to_dtype(type.type);
    if (!pjrt_dense_bytes(t, (int)dims.num_dims, dims.dims, &bytes))
        return status_new(STATUS_INTERNAL, "the PJRT plugin tells impossible dimensions of a buffer");
    pjrt_count_buffer_gone(0);
    pjrt_buffer_fill(b, buffer, t, (int)dims.num_dims, bytes);
    return NULL;
}

void pjrt_buffer_mark_donated(pjrt_buffer *b) {
    if (b->donated) return;
    b->donated = true;
    pjrt_count_buffer_gone(b->bytes);
}

pjrt_buffer *pjrt_buffer_retain(pjrt_buffer *b) {
    atomic_fetch_add_explicit(&b->references, 1, memory_order_relaxed);
    return b;
}

void pjrt_buffer_release(pjrt_buffer *b) {
    if (!b || atomic_fetch_sub_explicit(&b->references, 1, memory_order_acq_rel) != 1) return;
    if (b->buffer) {
        PJRT_Buffer_Destroy_Args args = PJRT_ARGS(PJRT_Buffer_Destroy, .buffer = b->buffer);
        status_free(PJRT_CALL(b->client->api, PJRT_Buffer_Destroy, &args));
        if (!b->donated) pjrt_count_buffer_gone(b->bytes);
    }
    mem_free(b);
}

int pjrt_buffer_references(const pjrt_buffer *b) {
    return atomic_load_explicit(&((pjrt_buffer *)b)->references, memory_order_acquire);
}

int64_t pjrt_buffer_bytes(const pjrt_buffer *b) { return b->bytes; }
dtype pjrt_buffer_dtype(const pjrt_buffer *b) { return b->type; }

/* ---- copies ---- */

status *pjrt_buffer_from_host(pjrt_client *c, int device, const void *data, dtype t, int rank, const int64_t *dims, pjrt_buffer **out) {
    static const int64_t nothing; /* what an empty array points at: plugins refuse NULL */
    *out = NULL;
    int64_t bytes = 0;
    PJRT_Client_BufferFromHostBuffer_Args args =
        PJRT_ARGS(PJRT_Client_BufferFromHostBuffer, .client = c->client, .data = data ? data : &nothing,
                  .type = pjrt_type_from_dtype(t), .dims = dims, .num_dims = (size_t)rank,
                  .host_buffer_semantics = PJRT_HostBufferSemantics_kImmutableOnlyDuringCall);
    STATUS_TRY(pjrt_client_device(c, device, &args.device));
    if (args.type == PJRT_Buffer_Type_INVALID) return status_new(STATUS_TYPE, "a buffer needs a dtype");
    if (rank < 0 || rank > MAX_RANK) return status_new(STATUS_VALUE, "a buffer of %d dimensions: 0 to %d are possible", rank, MAX_RANK);
    if (!pjrt_dense_bytes(t, rank, dims, &bytes)) return status_new(STATUS_VALUE, "a dimension is negative, or the buffer too large");
    if (!data && bytes) return status_new(STATUS_VALUE, "no host memory given for a buffer of %lld bytes", (long long)bytes);

    pjrt_buffer *b = pjrt_buffer_new(c);
    if (!b) return status_no_memory();
    status *s = PJRT_CALL(c->api, PJRT_Client_BufferFromHostBuffer, &args);
    if (s) {
        pjrt_buffer_release(b);
        return s;
    }
    pjrt_event_destroy(c->api, args.done_with_host_buffer); /* the call itself has read the data */
    pjrt_buffer_fill(b, args.buffer, t, rank, bytes);
    pjrt_count_host_to_device(bytes);
    *out = b;
    return NULL;
}

static status *ready_event(pjrt_buffer *b, PJRT_Event **out) {
    PJRT_Buffer_ReadyEvent_Args args = PJRT_ARGS(PJRT_Buffer_ReadyEvent, .buffer = b->buffer);
    status *s = PJRT_CALL(b->client->api, PJRT_Buffer_ReadyEvent, &args);
    *out = args.event;
    return s;
}

status *pjrt_buffer_wait(pjrt_buffer *b) {
    PJRT_Event *event = NULL;
    STATUS_TRY(ready_event(b, &event));
    return pjrt_event_finish(b->client->api, event);
}

bool pjrt_buffer_is_ready(pjrt_buffer *b) {
    PJRT_Event *event = NULL;
    PJRT_Event_IsReady_Args args = PJRT_ARGS(PJRT_Event_IsReady, );
    status *s = ready_event(b, &event);
    args.event = event;
    if (!s && event) s = PJRT_CALL(b->client->api, PJRT_Event_IsReady, &args);
    bool ready = s || !event || args.is_ready; /* an error is not worth waiting for: the next wait tells it */
    status_free(s);
    pjrt_event_destroy(b->client->api, event);
    return ready;
}

status *pjrt_buffer_to_host(pjrt_buffer *b, void *data, size_t size) {
    if (size != (size_t)b->bytes)
        return status_new(STATUS_INTERNAL, "a copy of %zu bytes from a buffer of %lld", size, (long long)b->bytes);
    if (size == 0) return pjrt_buffer_wait(b);
    /* A device may keep dimensions in another order than the host; without a layout the plugin would copy in its own. */
    int64_t minor_to_major[MAX_RANK];
    PJRT_Buffer_MemoryLayout row_major = {
        .struct_size = PJRT_Buffer_MemoryLayout_STRUCT_SIZE,
        .type = PJRT_Buffer_MemoryLayout_Type_Tiled,
        .tiled = {.struct_size = PJRT_Buffer_MemoryLayout_Tiled_STRUCT_SIZE,
                  .minor_to_major = minor_to_major,
                  .minor_to_major_size = (size_t)b->rank},
    };
    for (int i = 0; i < b->rank && i < MAX_RANK; i++) minor_to_major[i] = b->rank - 1 - i;
    PJRT_Buffer_ToHostBuffer_Args args = PJRT_ARGS(PJRT_Buffer_ToHostBuffer, .src = b->buffer, .dst = data, .dst_size = size,
                                                   .host_layout = b->rank > 1 && b->rank <= MAX_RANK ? &row_major : NULL);
    STATUS_TRY(PJRT_CALL(b->client->api, PJRT_Buffer_ToHostBuffer, &args));
    STATUS_TRY(pjrt_event_finish(b->client->api, args.event));
    pjrt_count_device_to_host(b->bytes);
    return NULL;
}

status *pjrt_buffer_copy_to_device(pjrt_buffer *b, int device, pjrt_buffer **out) {
    *out = NULL;
    PJRT_Buffer_CopyToDevice_Args args = PJRT_ARGS(PJRT_Buffer_CopyToDevice, .buffer = b->buffer);
    STATUS_TRY(pjrt_client_device(b->client, device, &args.dst_device));
    pjrt_buffer *copy = pjrt_buffer_new(b->client);
    if (!copy) return status_no_memory();
    status *s = PJRT_CALL(b->client->api, PJRT_Buffer_CopyToDevice, &args);
    if (s) {
        pjrt_buffer_release(copy);
        return s;
    }
    pjrt_buffer_fill(copy, args.dst_buffer, b->type, b->rank, b->bytes);
    *out = copy;
    return NULL;
}

status *pjrt_buffer_unsafe_pointer(pjrt_buffer *b, void **out) {
    *out = NULL;
    PJRT_Buffer_UnsafePointer_Args args = PJRT_ARGS(PJRT_Buffer_UnsafePointer, .buffer = b->buffer);
    if (!PJRT_HAS(b->client->api, PJRT_Buffer_UnsafePointer)) return NULL;
    status *s = PJRT_CALL(b->client->api, PJRT_Buffer_UnsafePointer, &args);
    if (!s) {
        *out = (void *)args.buffer_pointer;
    } else if (status_get_code(s) == STATUS_NOT_IMPLEMENTED) {
        status_free(s);
        s = NULL;
    }
    return s;
}
