/* A status is its code and its message in one allocation; the one for "no memory" is static, so that it can always be
 * given. */
#include "base/status.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

struct status {
    status_code code;
    const char *message; /* text, or a literal for the static status */
    char text[];
};

static status out_of_host_memory = {.code = STATUS_OUT_OF_MEMORY, .message = "out of host memory"};

/* A status with room for `length` characters, or NULL. */
static status *status_with_room(status_code code, size_t length) {
    status *s = mem_alloc(sizeof(status) + length + 1);
    if (!s) return NULL;
    s->code = code;
    s->message = s->text;
    return s;
}

status *status_newv(status_code code, const char *format, va_list args) {
    va_list again;
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    status *s = status_with_room(code, length < 0 ? strlen(format) : (size_t)length);
    if (s && length >= 0)
        vsnprintf(s->text, (size_t)length + 1, format, again);
    else if (s)
        memcpy(s->text, format, strlen(format)); /* the arguments cannot be printed: the format says the most */
    va_end(again);
    return s ? s : &out_of_host_memory;
}

status *status_new(status_code code, const char *format, ...) {
    va_list args;
    va_start(args, format);
    status *s = status_newv(code, format, args);
    va_end(args);
    return s;
}

status *status_no_memory(void) { return &out_of_host_memory; }

status *status_prefix(status *s, const char *format, ...) {
    if (!s) return NULL;
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    size_t message_length = strlen(s->message);
    status *longer = length < 0 ? NULL : status_with_room(s->code, (size_t)length + 2 + message_length);
    if (longer) {
        vsnprintf(longer->text, (size_t)length + 1, format, again);
        memcpy(longer->text + length, ": ", 2);
        memcpy(longer->text + length + 2, s->message, message_length);
        status_free(s);
    }
    va_end(again);
    va_end(args);
    return longer ? longer : s; /* without memory the cause is worth more than where it happened */
}

status_code status_get_code(const status *s) { return s->code; }

const char *status_message(const status *s) { return s->message; }

void status_free(status *s) {
    if (s != &out_of_host_memory) mem_free(s);
}
