/* Errors as values. A function that can fail returns `status *`: NULL is success, anything else is owned by the
 * caller, who passes it up or frees it. The code says which Python exception it becomes. */
#ifndef BASE_STATUS_H
#define BASE_STATUS_H

#include <stdarg.h>
#include <stddef.h>

typedef enum {
    STATUS_RUNTIME,         /* RuntimeError: wrong shapes, a failed compile or launch */
    STATUS_INDEX,           /* IndexError */
    STATUS_TYPE,            /* TypeError */
    STATUS_VALUE,           /* ValueError */
    STATUS_NOT_IMPLEMENTED, /* NotImplementedError: names the operator, the reason, and what to do */
    STATUS_OUT_OF_MEMORY,   /* torch.OutOfMemoryError, or MemoryError for the host's */
    STATUS_INTERNAL,        /* RuntimeError: a fault of ours */
    STATUS_NOT_FOUND        /* RuntimeError: no plugin, no device, no file */
} status_code;

typedef struct status status;

/* Never returns NULL: with no memory left it returns a static "out of host memory" status, which status_free accepts.
 */
status *status_new(status_code code, const char *format, ...) __attribute__((format(printf, 2, 3)));
status *status_newv(status_code code, const char *format, va_list args);
status *status_no_memory(void);
/* Puts "text: " before the message; consumes s. NULL stays NULL. */
status *status_prefix(status *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
status_code status_get_code(const status *s);
const char *status_message(const status *s);
void status_free(status *s); /* NULL is fine */

#define STATUS_TRY(expression)               \
    do {                                     \
        status *status_try_ = (expression);  \
        if (status_try_) return status_try_; \
    } while (0)

#endif
