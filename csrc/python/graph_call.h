// torch_tpu._C.graph_operator: a whole graph as one operator, for torch.compile.
#pragma once

#include <Python.h>

// Adds the type GraphOperator and the function graph_operator to the module. 0, or -1 with an exception set.
int python_graph_call_init(PyObject *module);
