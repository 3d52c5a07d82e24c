/* Compiling one program for a slice, into files. Called in a process of its own: libtpu ends the process on programs
 * and options that it dislikes, and may wait for ever. */
#ifndef AOT_COMPILE_H
#define AOT_COMPILE_H

#include "base/status.h"
#include "pjrt/pjrt.h"

typedef struct aot_request {
    const char *plugin;    /* path */
    const char *topology;  /* "v5e:2x2" */
    const char *program;   /* path of StableHLO text */
    const char *directory; /* where result.json, optimized.hlo.txt and executable.bin go */
    bool store;            /* put the executable into the disk cache as well */
    pjrt_compile_options options;
    int costliest; /* how many operations result.json lists */
} aot_request;
status *aot_compile(const aot_request *r);

#endif
