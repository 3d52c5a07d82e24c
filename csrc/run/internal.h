/* What the files of this room share. */
#ifndef RUN_INTERNAL_H
#define RUN_INTERNAL_H

#include "run/artefact.h"
#include "run/json.h"

struct artefact {
    arena *arena;
    const char *folder;
    const json *manifest;
    safetensors *weights;
    artefact_program *programs;
    int n_programs;
};

char *artefact_path(const artefact *a, arena *mem, const char *file); /* NULL with no memory */
/* An array of a value's type; bytes is SIZE_MAX where the type is impossible. */
host_array value_array(const artefact_value *v, const void *data);
bool value_fits(const artefact_value *v, const host_array *array); /* the same type */

#endif
