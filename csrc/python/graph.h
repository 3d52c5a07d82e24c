/* torch_tpu._C.Graph: graph.h's graphs for Python (decompositions, torch.compile). */
#ifndef PYTHON_GRAPH_H
#define PYTHON_GRAPH_H

#include <Python.h>

#include "graph/graph.h"

/* Adds the type Graph and the function has_row(name) -> bool to the module. 0, or -1 with an exception set. */
int python_graph_init(PyObject *module);
/* Takes the graph out of a Graph object, which is empty afterwards; NULL with an exception set when it is none or has
 * an error. */
graph *python_graph_take(PyObject *object);
/* A geometry from (dtype name, sizes, strides, offset, conj, neg). 0, or -1 with an exception set. */
int python_geometry(PyObject *object, geometry *out);
/* Adds program_text to the module. */
int python_program_init(PyObject *module);

#endif
