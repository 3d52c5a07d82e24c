/* What a program says, as a number, of values that it was given and that are not good. */
#ifndef OPS_FAULT_H
#define OPS_FAULT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef enum {
    FAULT_INDEX = 1,    /* the text is the name of an operator: an index was out of range */
    FAULT_VALUE = 2,    /* likewise: another value was */
    FAULT_ASSERTION = 3 /* the text is what the error says */
} fault_kind;

/* Positive. The same for the same kind and text in every process, so that programs may be kept on disk. */
int32_t fault_code(fault_kind kind, const char *text);
/* Keeps the text of an assertion for fault_status. The room is limited: an old text may make way. */
void fault_remember(const char *text);
/* The error of a code: STATUS_INDEX for an index, else STATUS_RUNTIME. */
status *fault_status(int32_t code);

#endif
