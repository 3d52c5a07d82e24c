/* What the files of the graph room share. */
#ifndef GRAPH_INTERNAL_H
#define GRAPH_INTERNAL_H

#include "graph/graph.h"

struct graph {
    arena *arena;
    graph_node *nodes;
    tensor_type *types; /* of values */
    int32_t *inputs, *outputs;
    int n_nodes, n_values, n_inputs, n_outputs;
    int node_capacity, value_capacity, input_capacity, output_capacity;
    status *error;
    _Atomic int references;
};

#endif
