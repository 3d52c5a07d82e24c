/* Copies of device arrays from and to the host, and between devices. */
#include <string.h>

#include "pjrt/internal.h"

enum { MAX_RANK = 64 }; /* as in PyTorch (at::dim_bitset_size) */

/* Arrays of this size and above go to a plugin for CPUs in memory that it takes over. */
#define LARGE ((int64_t)4 << 20)

static void give_block(PJRT_Error *error, void *context) {
    host_block *block = context;
    PJRT_Error_Destroy_Args args = PJRT_ARGS(PJRT_Error_Destroy, .error = error);
    if (error) block->api->PJRT_Error_Destroy(&args);
    host_block_give(block);
}

/* The block is free again when the plugin has dropped the array, which may be at once. */
static void give_when_done(const PJRT_Api *api, PJRT_Event *done, host_block *block) {
    block->api = api;
    PJRT_Event_OnReady_Args args =
        PJRT_ARGS(PJRT_Event_OnReady, .event = done, .callback = give_block, .user_arg = block);
    status_free(PJRT_CALL(api, PJRT_Event_OnReady, &args)); /* refused: the memory stays the array's for good */
}

status *pjrt_buffer_from_host(pjrt_client *c, int device, const void *data, dtype t, int rank, const int64_t *dims,
                              pjrt_buffer **out) {
    static const int64_t nothing; /* what an empty array points at: plugins refuse NULL */
    *out = NULL;
    int64_t bytes = 0;
    PJRT_Client_BufferFromHostBuffer_Args args =
        PJRT_ARGS(PJRT_Client_BufferFromHostBuffer, .client = c->client, .data = data ? data : &nothing,
                  .type = pjrt_type_from_dtype(t), .dims = dims, .num_dims = (size_t)rank,
                  .host_buffer_semantics = PJRT_HostBufferSemantics_kImmutableOnlyDuringCall);
    STATUS_TRY(pjrt_client_device(c, device, &args.device));
    if (args.type == PJRT_Buffer_Type_INVALID) return status_new(STATUS_TYPE, "a buffer needs a dtype");
    if (rank < 0 || rank > MAX_RANK)
        return status_new(STATUS_VALUE, "a buffer of %d dimensions: 0 to %d are possible", rank, MAX_RANK);
    if (!pjrt_dense_bytes(t, rank, dims, &bytes))
        return status_new(STATUS_VALUE, "a dimension is negative, or the buffer too large");
    if (!data && bytes)
        return status_new(STATUS_VALUE, "no host memory given for a buffer of %lld bytes", (long long)bytes);

    pjrt_buffer *b = pjrt_buffer_new(c, t, rank, bytes);
    if (!b) return status_no_memory();
    host_block *block = bytes >= LARGE && !strcmp(c->platform, "cpu") ? host_block_take((size_t)bytes) : NULL;
    if (block) {
        args.data = memcpy(block->memory, data, (size_t)bytes);
        args.host_buffer_semantics = PJRT_HostBufferSemantics_kMutableZeroCopy;
    }
    status *s = PJRT_CALL(c->api, PJRT_Client_BufferFromHostBuffer, &args);
    if (s) {
        if (block) host_block_give(block);
        pjrt_buffer_release(b);
        return s;
    }
    if (block) give_when_done(c->api, args.done_with_host_buffer, block);
    pjrt_event_destroy(c->api, args.done_with_host_buffer); /* without a block the call itself has read the data */
    b->buffer = args.buffer;
    pjrt_buffer_book(b);
    pjrt_count_host_to_device(bytes);
    *out = b;
    return NULL;
}

static status *copy_by_plugin(pjrt_buffer *b, void *data, size_t size) {
    /* A device may keep dimensions in another order than the host; without a layout the plugin would copy in its own.
     */
    int64_t minor_to_major[MAX_RANK];
    PJRT_Buffer_MemoryLayout row_major = {
        .struct_size = PJRT_Buffer_MemoryLayout_STRUCT_SIZE,
        .type = PJRT_Buffer_MemoryLayout_Type_Tiled,
        .tiled = {.struct_size = PJRT_Buffer_MemoryLayout_Tiled_STRUCT_SIZE,
                  .minor_to_major = minor_to_major,
                  .minor_to_major_size = (size_t)b->rank},
    };
    for (int i = 0; i < b->rank && i < MAX_RANK; i++) minor_to_major[i] = b->rank - 1 - i;
    PJRT_Buffer_ToHostBuffer_Args args =
        PJRT_ARGS(PJRT_Buffer_ToHostBuffer, .src = b->buffer, .dst = data, .dst_size = size,
                  .host_layout = b->rank > 1 && b->rank <= MAX_RANK ? &row_major : NULL);
    STATUS_TRY(PJRT_CALL(b->client->api, PJRT_Buffer_ToHostBuffer, &args));
    return pjrt_event_finish(b->client->api, args.event);
}

static bool is_row_major(pjrt_buffer *b) {
    if (b->rank < 2) return true;
    PJRT_Buffer_GetMemoryLayout_Args args = PJRT_ARGS(PJRT_Buffer_GetMemoryLayout, .buffer = b->buffer);
    status *s = PJRT_CALL(b->client->api, PJRT_Buffer_GetMemoryLayout, &args);
    const PJRT_Buffer_MemoryLayout_Tiled *layout = &args.layout.tiled;
    bool row_major = !s && args.layout.type == PJRT_Buffer_MemoryLayout_Type_Tiled && layout->num_tiles == 0 &&
                     layout->minor_to_major_size == (size_t)b->rank;
    for (int i = 0; row_major && i < b->rank; i++) row_major = layout->minor_to_major[i] == b->rank - 1 - i;
    status_free(s);
    return row_major;
}

static bool is_host_memory(pjrt_buffer *b) {
    PJRT_Buffer_IsOnCpu_Args args = PJRT_ARGS(PJRT_Buffer_IsOnCpu, .buffer = b->buffer);
    status *s = PJRT_CALL(b->client->api, PJRT_Buffer_IsOnCpu, &args);
    bool on_cpu = !s && args.is_on_cpu;
    status_free(s);
    return on_cpu && is_row_major(b);
}

/* Keeps the memory where it is while another thread may give the buffer away. */
static bool hold_memory(pjrt_buffer *b) {
    PJRT_Buffer_IncreaseExternalReferenceCount_Args args =
        PJRT_ARGS(PJRT_Buffer_IncreaseExternalReferenceCount, .buffer = b->buffer);
    status *s = PJRT_CALL(b->client->api, PJRT_Buffer_IncreaseExternalReferenceCount, &args);
    status_free(s);
    return !s;
}

static void let_memory_go(pjrt_buffer *b) {
    PJRT_Buffer_DecreaseExternalReferenceCount_Args args =
        PJRT_ARGS(PJRT_Buffer_DecreaseExternalReferenceCount, .buffer = b->buffer);
    status_free(PJRT_CALL(b->client->api, PJRT_Buffer_DecreaseExternalReferenceCount, &args));
}

/* Reads a ready array where it lies in host memory: a plugin's copy goes through its thread pool, which takes a hundred
 * times as long as the few bytes that most reads want. False when the plugin does not let us; nothing has happened
 * then. */
static bool copy_in_place(pjrt_buffer *b, void *data, size_t size) {
    if (!hold_memory(b)) return false;
    void *memory = NULL;
    status_free(pjrt_buffer_unsafe_pointer(b, &memory));
    if (memory) memcpy(data, memory, size);
    let_memory_go(b);
    return memory != NULL;
}

status *pjrt_buffer_to_host(pjrt_buffer *b, void *data, size_t size) {
    if (size != (size_t)b->bytes)
        return status_new(STATUS_INTERNAL, "a copy of %zu bytes from a buffer of %lld", size, (long long)b->bytes);
    STATUS_TRY(pjrt_buffer_settle(b));
    bool in_place = size > 0 && is_host_memory(b);
    if (in_place || size == 0) STATUS_TRY(pjrt_buffer_wait(b));
    if (size == 0) return NULL;
    if (!in_place || !copy_in_place(b, data, size)) STATUS_TRY(copy_by_plugin(b, data, size));
    pjrt_count_device_to_host(b->bytes);
    return NULL;
}

status *pjrt_buffer_copy_to_device(pjrt_buffer *b, int device, pjrt_buffer **out) {
    *out = NULL;
    STATUS_TRY(pjrt_buffer_settle(b));
    PJRT_Buffer_CopyToDevice_Args args = PJRT_ARGS(PJRT_Buffer_CopyToDevice, .buffer = b->buffer);
    STATUS_TRY(pjrt_client_device(b->client, device, &args.dst_device));
    pjrt_buffer *copy = pjrt_buffer_new(b->client, b->type, b->rank, b->bytes);
    if (!copy) return status_no_memory();
    status *s = PJRT_CALL(b->client->api, PJRT_Buffer_CopyToDevice, &args);
    if (s) {
        pjrt_buffer_release(copy);
        return s;
    }
    copy->buffer = args.dst_buffer;
    pjrt_buffer_book(copy);
    *out = copy;
    return NULL;
}
