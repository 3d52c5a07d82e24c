/* Environment variables as C reads them. A value that means nothing is as if unset; the package warns of it when it is
 * loaded (torch_tpu/_environment.py declares them all). */
#ifndef BASE_ENVIRONMENT_H
#define BASE_ENVIRONMENT_H

#include <stdbool.h>
#include <stdint.h>

const char *environment_text(const char *name);                 /* NULL: unset or empty */
bool environment_flag(const char *name, bool otherwise);        /* 1, true, yes, on; 0, false, no, off */
int64_t environment_count(const char *name, int64_t otherwise); /* a whole number, at least 1 */

#endif
