/* torch_tpu._C.program_text: what a compiled graph's call compiles, with no device. */
#include "exec/ahead.h"
#include "python/graph.h"

static PyObject *raise_status(status *s) {
    status_code code = status_get_code(s);
    PyErr_SetString(code == STATUS_NOT_IMPLEMENTED ? PyExc_NotImplementedError
                    : code == STATUS_OUT_OF_MEMORY ? PyExc_MemoryError
                                                   : PyExc_RuntimeError,
                    status_message(s));
    status_free(s);
    return NULL;
}

static bool parse_result(PyObject *item, int n_inputs, ahead_result *out) {
    out->input = -1;
    if (!PyLong_Check(item)) return python_geometry(item, &out->geometry) == 0;
    out->input = (int)PyLong_AsLong(item);
    if (out->input >= 0 && out->input < n_inputs) return true;
    PyErr_Format(PyExc_ValueError, "a result is written to input %d of %d", out->input, n_inputs);
    return false;
}

static PyObject *lines_of(const ahead_call *c) {
    PyObject *list = PyList_New(c->n_lines);
    for (int i = 0; list && i < c->n_lines; i++) {
        PyObject *pair = Py_BuildValue("(ii)", c->lines[i].line, c->lines[i].node);
        if (!pair)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, i, pair);
    }
    return list;
}

static PyObject *text_of(ahead_call *c) {
    strbuf text;
    strbuf_init(&text);
    status *s = ahead_program(c, &text);
    PyObject *lines = s ? NULL : lines_of(c);
    PyObject *result = s       ? raise_status(s)
                       : lines ? Py_BuildValue("(s#N)", strbuf_text(&text), (Py_ssize_t)text.size, lines)
                               : NULL;
    strbuf_free(&text);
    return result;
}

/* The call's parts from Python lists. */
static PyObject *call_of(graph *g, PyObject *inputs, PyObject *results, int precision) {
    Py_ssize_t n = PySequence_Fast_GET_SIZE(inputs), m = PySequence_Fast_GET_SIZE(results);
    if (n != graph_input_count(g) || m != graph_output_count(g))
        return PyErr_Format(PyExc_ValueError, "%zd inputs and %zd results of a graph of %d and %d", n, m,
                            graph_input_count(g), graph_output_count(g));
    geometry *given = PyMem_Calloc((size_t)n + 1, sizeof *given);
    ahead_result *made = PyMem_Calloc((size_t)m + 1, sizeof *made);
    node_line *lines = PyMem_Calloc((size_t)graph_node_count(g) + 1, sizeof *lines);
    bool ok = given && made && lines;
    if (!ok) PyErr_NoMemory();
    for (Py_ssize_t i = 0; ok && i < n; i++) ok = python_geometry(PySequence_Fast_GET_ITEM(inputs, i), &given[i]) == 0;
    for (Py_ssize_t k = 0; ok && k < m; k++) ok = parse_result(PySequence_Fast_GET_ITEM(results, k), (int)n, &made[k]);
    ahead_call c = {g, (int)n, (int)m, given, made, (hlo_precision)precision, lines, 0};
    PyObject *result = ok ? text_of(&c) : NULL;
    PyMem_Free(given);
    PyMem_Free(made);
    PyMem_Free(lines);
    return result;
}

static PyObject *program_text(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *object, *inputs, *results;
    int precision;
    if (!PyArg_ParseTuple(args, "OOOi", &object, &inputs, &results, &precision)) return NULL;
    inputs = PySequence_Fast(inputs, "inputs is no list");
    results = inputs ? PySequence_Fast(results, "results is no list") : NULL;
    graph *g = results ? python_graph_take(object) : NULL;
    PyObject *result = g ? call_of(g, inputs, results, precision) : NULL;
    if (g) graph_destroy(g);
    Py_XDECREF(inputs);
    Py_XDECREF(results);
    return result;
}

static PyMethodDef functions[] = {
    {"program_text", program_text, METH_VARARGS,
     "program_text(graph, inputs, results, precision) -> (text, lines)\n\nThe StableHLO that a call of the graph "
     "compiles"
     " (a call of graph_operator's object). Takes the graph. inputs: geometries. results: for each output the input "
     "that"
     " it is written to, or the geometry of a new tensor. lines: (line of the text, node of the graph) in order."},
    {0},
};

int python_program_init(PyObject *module) { return PyModule_AddFunctions(module, functions); }
