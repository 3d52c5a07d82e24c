/* Reference-counted device arrays: their life, and when they are ready. */
#include "base/alloc.h"
#include "pjrt/internal.h"

/* ---- life ---- */

pjrt_buffer *pjrt_buffer_new(pjrt_client *c, dtype type, int rank, int64_t bytes) {
    pjrt_buffer *b = mem_alloc(sizeof *b);
    if (!b) return NULL;
    atomic_init(&b->references, 1);
    b->client = c;
    b->type = type;
    b->rank = rank;
    b->bytes = bytes;
    return b;
}

void pjrt_buffer_book(pjrt_buffer *b) {
    b->booked = true;
    pjrt_count_buffer(b->bytes);
}

void pjrt_buffer_unbook(pjrt_buffer *b) {
    if (b->booked) pjrt_count_buffer_gone(b->bytes);
    b->booked = false;
}

void pjrt_buffer_destroy(pjrt_buffer *b) {
    PJRT_Buffer_Destroy_Args args = PJRT_ARGS(PJRT_Buffer_Destroy, .buffer = b->buffer);
    if (b->buffer) status_free(PJRT_CALL(b->client->api, PJRT_Buffer_Destroy, &args));
    status_free(b->error);
    mem_free(b);
}

pjrt_buffer *pjrt_buffer_retain(pjrt_buffer *b) {
    atomic_fetch_add_explicit(&b->references, 1, memory_order_relaxed);
    return b;
}

void pjrt_buffer_release(pjrt_buffer *b) {
    if (!b || atomic_fetch_sub_explicit(&b->references, 1, memory_order_acq_rel) != 1) return;
    pjrt_buffer_unbook(b); /* as of now, whenever the plugin's buffer goes */
    if (pjrt_queue_passed(b->made) && pjrt_queue_passed(b->used))
        pjrt_buffer_destroy(b);
    else
        pjrt_queue_drop(b);
}

int pjrt_buffer_references(const pjrt_buffer *b) {
    return atomic_load_explicit(&((pjrt_buffer *)b)->references, memory_order_acquire);
}

int64_t pjrt_buffer_bytes(const pjrt_buffer *b) { return b->bytes; }
dtype pjrt_buffer_dtype(const pjrt_buffer *b) { return b->type; }

/* ---- readiness ---- */

status *pjrt_buffer_error(const pjrt_buffer *b) {
    return b->error ? status_new(status_get_code(b->error), "%s", status_message(b->error)) : NULL;
}

status *pjrt_buffer_settle(pjrt_buffer *b) {
    STATUS_TRY(pjrt_queue_reach(b->made));
    return pjrt_buffer_error(b);
}

static status *ready_event(pjrt_buffer *b, PJRT_Event **out) {
    PJRT_Buffer_ReadyEvent_Args args = PJRT_ARGS(PJRT_Buffer_ReadyEvent, .buffer = b->buffer);
    status *s = PJRT_CALL(b->client->api, PJRT_Buffer_ReadyEvent, &args);
    *out = args.event;
    return s;
}

status *pjrt_buffer_wait(pjrt_buffer *b) {
    PJRT_Event *event = NULL;
    STATUS_TRY(pjrt_buffer_settle(b));
    STATUS_TRY(ready_event(b, &event));
    return pjrt_event_finish(b->client->api, event);
}

bool pjrt_buffer_is_ready(pjrt_buffer *b) {
    if (!pjrt_queue_passed(b->made)) return false;
    if (b->error) return true;
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
    STATUS_TRY(pjrt_buffer_settle(b));
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
