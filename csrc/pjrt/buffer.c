/* Reference-counted device arrays: their life, and when they are ready. */
#include "base/alloc.h"
#include "pjrt/internal.h"

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

/* ---- readiness ---- */

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

bool pjrt_buffer_failed(pjrt_buffer *b) {
    if (!pjrt_buffer_is_ready(b)) return false;
    status *s = pjrt_buffer_wait(b);
    status_free(s);
    return s != NULL;
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
