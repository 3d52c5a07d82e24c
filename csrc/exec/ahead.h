/* Programs for machines that are not this one: the text that a call of a graph compiles there, with no device, and the
 * entry of the disk cache in which that machine will look for it. */
#ifndef EXEC_AHEAD_H
#define EXEC_AHEAD_H

#include "exec/exec.h"

typedef struct ahead_result {
    int input;         /* it is written to this input, or -1: */
    geometry geometry; /* of the new tensor */
} ahead_result;

typedef struct ahead_call {
    graph *graph; /* borrowed */
    int n_inputs, n_results;
    const geometry *inputs; /* each a storage of its own, that it covers */
    const ahead_result *results;
    hlo_precision precision;
    node_line *lines; /* room for one a node of the graph, or NULL */
    int n_lines;      /* filled in */
} ahead_call;
/* The text of the program that exec_call compiles when it is called with such tensors. */
status *ahead_program(ahead_call *c, strbuf *text);

/* Puts a program compiled for such devices into the disk cache, where a process that has one, with the same plugin and
 * options, finds it. `path` gets the entry's; it stays empty when the cache is off. */
status *ahead_store(const char *plugin, const pjrt_topology_info *devices, const char *mlir, size_t size,
                    const pjrt_compile_options *options, const strbuf *executable, strbuf *path);

#endif
