/* Reads JSON (RFC 8259) into an arena. For manifests and safetensors headers: integers are exact, nesting is limited,
 * and strings with a NUL inside are refused, so that they are C strings. */
#ifndef RUN_JSON_H
#define RUN_JSON_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"

typedef enum { JSON_NULL, JSON_BOOL, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT } json_kind;

typedef struct json {
    json_kind kind;
    const char *key;    /* its name, where it is a member of an object */
    const char *string; /* JSON_STRING, UTF-8 */
    bool boolean;       /* JSON_BOOL */
    bool is_integer;    /* JSON_NUMBER that int64 holds */
    int64_t integer;
    double number;
    int count; /* elements of an array, members of an object */
    const struct json *first, *next;
} json;

/* The document's value lives as long as the arena. Errors (STATUS_VALUE) tell line and column. */
status *json_parse(arena *a, const char *text, size_t size, const json **out);
const json *json_member(const json *object, const char *key); /* the first of this name; NULL: none, or no object */
/* NULL where the value is missing or of another kind. */
const char *json_string(const json *v);
const json *json_array(const json *v);
bool json_integer(const json *v, int64_t *out); /* false where it is no integer */

#endif
