/* From the plugin's errors and events to statuses. */
#define _GNU_SOURCE /* memmem */
#include <string.h>

#include "pjrt/internal.h"

/* XLA's CPU plugin says that an execution had no memory as an internal error, and so says each one that needed its
 * result: the text is all there is to know it by. */
#define DISPATCHING "Error dispatching computation: "
#define NO_MEMORY "Out of memory allocating"

static status_code code_of(const PJRT_Api *api, const PJRT_Error *error) {
    PJRT_Error_GetCode_Args args = PJRT_ARGS(PJRT_Error_GetCode, .error = error);
    if (!PJRT_HAS(api, PJRT_Error_GetCode)) return STATUS_RUNTIME;
    PJRT_Error *failed = api->PJRT_Error_GetCode(&args);
    if (failed) {
        PJRT_Error_Destroy_Args destroy = PJRT_ARGS(PJRT_Error_Destroy, .error = failed);
        if (PJRT_HAS(api, PJRT_Error_Destroy)) api->PJRT_Error_Destroy(&destroy);
        return STATUS_RUNTIME;
    }
    switch (args.code) {
        case PJRT_Error_Code_RESOURCE_EXHAUSTED:
            return STATUS_OUT_OF_MEMORY;
        case PJRT_Error_Code_UNIMPLEMENTED:
            return STATUS_NOT_IMPLEMENTED;
        default:
            return STATUS_RUNTIME;
    }
}

/* The length of a message without the white space at its end. */
static int trimmed_length(const char *text, size_t size) {
    while (size && (text[size - 1] == '\n' || text[size - 1] == ' ')) size--;
    return (int)size;
}

status *pjrt_status_from_error(const PJRT_Api *api, PJRT_Error *error, const char *function) {
    PJRT_Error_Message_Args message = PJRT_ARGS(PJRT_Error_Message, .error = error);
    if (PJRT_HAS(api, PJRT_Error_Message)) api->PJRT_Error_Message(&message);
    const char *text = message.message ? message.message : "";
    size_t size = message.message ? message.message_size : 0;
    while (size > 2 * strlen(DISPATCHING) && !memcmp(text, DISPATCHING DISPATCHING, 2 * strlen(DISPATCHING))) {
        text += strlen(DISPATCHING);
        size -= strlen(DISPATCHING);
    }
    status_code code = code_of(api, error);
    if (code == STATUS_RUNTIME && memmem(text, size, NO_MEMORY, strlen(NO_MEMORY))) code = STATUS_OUT_OF_MEMORY;
    status *s = status_new(code, "%.*s (%s)", trimmed_length(text, size), text, function);
    PJRT_Error_Destroy_Args destroy = PJRT_ARGS(PJRT_Error_Destroy, .error = error);
    if (PJRT_HAS(api, PJRT_Error_Destroy)) api->PJRT_Error_Destroy(&destroy);
    return s;
}

status *pjrt_status_missing(const char *function) {
    return status_new(STATUS_NOT_IMPLEMENTED, "the PJRT plugin has no %s", function);
}

void pjrt_event_destroy(const PJRT_Api *api, PJRT_Event *event) {
    PJRT_Event_Destroy_Args args = PJRT_ARGS(PJRT_Event_Destroy, .event = event);
    if (event) status_free(PJRT_CALL(api, PJRT_Event_Destroy, &args)); /* nothing can be done about it */
}

status *pjrt_event_finish(const PJRT_Api *api, PJRT_Event *event) {
    if (!event) return NULL;
    PJRT_Event_Await_Args args = PJRT_ARGS(PJRT_Event_Await, .event = event);
    status *s = PJRT_CALL(api, PJRT_Event_Await, &args);
    pjrt_event_destroy(api, event);
    return s;
}
