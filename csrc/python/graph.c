/* torch_tpu._C.Graph. Arguments of a call come encoded, so that this file needs no schema: None, or a tuple
 *
 *     (ARG_VALUE, value id)        (ARG_NUMBER, number[, dtype name])   (ARG_INT, int)       (ARG_DTYPE, dtype name)
 *     (ARG_STRING, str)            (ARG_INTS, ints)                     (ARG_NUMBERS, numbers)
 *     (ARG_VALUES, list of None, (ARG_VALUE, ...) or (ARG_NUMBER, ...))
 *
 * with the tags of ops/call.h. A number without a dtype is a Python number: it promotes by category only. */
#include "python/graph.h"

#include <string.h>

#include "base/arena.h"

typedef struct {
    PyObject_HEAD graph *graph; /* NULL when it was taken */
} graph_object;

static PyTypeObject *graph_type;

/* ---- errors ---- */

static PyObject *exception_of(status_code code) {
    switch (code) {
        case STATUS_INDEX:
            return PyExc_IndexError;
        case STATUS_TYPE:
            return PyExc_TypeError;
        case STATUS_VALUE:
            return PyExc_ValueError;
        case STATUS_NOT_IMPLEMENTED:
            return PyExc_NotImplementedError;
        case STATUS_OUT_OF_MEMORY:
            return PyExc_MemoryError;
        default:
            return PyExc_RuntimeError;
    }
}

static PyObject *raise_status(const status *s) {
    if (!s)
        PyErr_SetString(PyExc_RuntimeError, "graph: failed without saying why");
    else
        PyErr_SetString(exception_of(status_get_code(s)), status_message(s));
    return NULL;
}

static graph *graph_of(PyObject *self) {
    graph *g = ((graph_object *)self)->graph;
    if (!g) PyErr_SetString(PyExc_RuntimeError, "this Graph was handed over and is empty");
    return g;
}

/* ---- from Python ---- */

static bool parse_dtype(PyObject *o, dtype *out) {
    const char *name = PyUnicode_Check(o) ? PyUnicode_AsUTF8(o) : NULL;
    for (int t = DTYPE_INVALID + 1; name && t < DTYPE_COUNT; t++) {
        if (strcmp(name, dtype_torch_name((dtype)t))) continue;
        *out = (dtype)t;
        return true;
    }
    if (!PyErr_Occurred()) PyErr_Format(PyExc_TypeError, "device tpu has no dtype %R", o);
    return false;
}

static bool parse_ints(arena *a, PyObject *o, int *count, const int64_t **out) {
    PyObject *items = PySequence_Fast(o, "expected a list of integers");
    if (!items) return false;
    Py_ssize_t n = PySequence_Fast_GET_SIZE(items);
    int64_t *values = ARENA_NEW(a, int64_t, n);
    if (!values) PyErr_NoMemory();
    for (Py_ssize_t i = 0; values && i < n; i++) {
        values[i] = PyLong_AsLongLong(PySequence_Fast_GET_ITEM(items, i));
        if (values[i] == -1 && PyErr_Occurred()) values = NULL;
    }
    Py_DECREF(items);
    *count = (int)n;
    *out = values;
    return values != NULL;
}

static bool parse_dims(arena *a, PyObject *o, int *rank, const int64_t **dims) {
    if (!parse_ints(a, o, rank, dims)) return false;
    if (*rank <= VIEW_MAX_RANK) return true;
    PyErr_Format(PyExc_RuntimeError, "tensors of %d dimensions are not supported (at most %d)", *rank, VIEW_MAX_RANK);
    return false;
}

/* A Python number, or the value of a tensor element of type `t` when it is not DTYPE_INVALID. */
static bool parse_number(PyObject *o, dtype t, number *out) {
    out->wrapped = t == DTYPE_INVALID;
    if (PyComplex_Check(o)) {
        out->dtype = out->wrapped ? DTYPE_C128 : t;
        out->v.f[0] = PyComplex_RealAsDouble(o);
        out->v.f[1] = PyComplex_ImagAsDouble(o);
    } else if (PyFloat_Check(o)) {
        out->dtype = out->wrapped ? DTYPE_F64 : t;
        out->v.f[0] = PyFloat_AsDouble(o);
        out->v.f[1] = 0;
    } else if (PyLong_Check(o)) {
        out->dtype = !out->wrapped ? t : PyBool_Check(o) ? DTYPE_BOOL : DTYPE_I64;
        out->v.i = PyLong_AsLongLong(o);
    } else {
        PyErr_Format(PyExc_TypeError, "expected a number, got %.100s", Py_TYPE(o)->tp_name);
    }
    return !PyErr_Occurred();
}

static bool parse_numbers(arena *a, PyObject *o, int32_t *count, const number **out) {
    PyObject *items = PySequence_Fast(o, "expected a list of numbers");
    if (!items) return false;
    Py_ssize_t n = PySequence_Fast_GET_SIZE(items);
    number *values = ARENA_NEW(a, number, n);
    if (!values) PyErr_NoMemory();
    for (Py_ssize_t i = 0; values && i < n; i++)
        if (!parse_number(PySequence_Fast_GET_ITEM(items, i), DTYPE_INVALID, &values[i])) values = NULL;
    Py_DECREF(items);
    *count = (int32_t)n;
    *out = values;
    return values != NULL;
}

static bool parse_argument(arena *a, PyObject *o, argument *out);

static bool parse_arguments(arena *a, PyObject *o, int32_t *count, argument **out) {
    PyObject *items = PySequence_Fast(o, "expected a list of arguments");
    if (!items) return false;
    Py_ssize_t n = PySequence_Fast_GET_SIZE(items);
    argument *values = ARENA_NEW(a, argument, n);
    if (!values) PyErr_NoMemory();
    for (Py_ssize_t i = 0; values && i < n; i++)
        if (!parse_argument(a, PySequence_Fast_GET_ITEM(items, i), &values[i])) values = NULL;
    Py_DECREF(items);
    *count = (int32_t)n;
    *out = values;
    return values != NULL;
}

static bool parse_string(arena *a, PyObject *o, const char **out) {
    Py_ssize_t size;
    const char *text = PyUnicode_AsUTF8AndSize(o, &size);
    if (!text) return false;
    *out = arena_copy(a, text, (size_t)size + 1);
    if (!*out) PyErr_NoMemory();
    return *out != NULL;
}

static bool parse_number_entry(PyObject *entry, number *out) {
    dtype t = DTYPE_INVALID;
    if (PyTuple_GET_SIZE(entry) > 2 && !parse_dtype(PyTuple_GET_ITEM(entry, 2), &t)) return false;
    if (!parse_number(PyTuple_GET_ITEM(entry, 1), t, out)) return false;
    bool is_integer = !dtype_is_float(out->dtype) && !dtype_is_complex(out->dtype);
    if (is_integer == (bool)PyLong_Check(PyTuple_GET_ITEM(entry, 1))) return true;
    PyErr_Format(PyExc_TypeError, "%R is no value of type %s", PyTuple_GET_ITEM(entry, 1),
                 dtype_torch_name(out->dtype));
    return false;
}

static bool parse_argument(arena *a, PyObject *o, argument *out) {
    memset(out, 0, sizeof *out);
    if (o == Py_None) return true;
    if (!PyTuple_Check(o) || PyTuple_GET_SIZE(o) < 2) {
        PyErr_Format(PyExc_TypeError, "an argument is None or (tag, value), not %R", o);
        return false;
    }
    long tag = PyLong_AsLong(PyTuple_GET_ITEM(o, 0));
    if (tag == -1 && PyErr_Occurred()) return false;
    PyObject *value = PyTuple_GET_ITEM(o, 1);
    int count = 0;
    argument *list = NULL;
    out->tag = (arg_tag)tag;
    switch (tag) {
        case ARG_VALUE:
            out->u.value = (int32_t)PyLong_AsLong(value);
            return !PyErr_Occurred();
        case ARG_NUMBER:
            return parse_number_entry(o, &out->u.number);
        case ARG_INT:
            out->u.i = PyLong_AsLongLong(value);
            return !PyErr_Occurred();
        case ARG_DTYPE:
            return parse_dtype(value, &out->u.dtype);
        case ARG_STRING:
            return parse_string(a, value, &out->u.string);
        case ARG_INTS:
            if (!parse_ints(a, value, &count, &out->u.ints)) return false;
            out->count = count;
            return true;
        case ARG_NUMBERS:
            return parse_numbers(a, value, &out->count, &out->u.numbers);
        case ARG_VALUES:
            if (!parse_arguments(a, value, &out->count, &list)) return false;
            out->u.list = list;
            return true;
        default:
            PyErr_Format(PyExc_ValueError, "there is no argument tag %ld", tag);
            return false;
    }
}

/* (dtype name, dims), or None for a result that nobody wants. */
static bool parse_type(arena *a, PyObject *o, tensor_type *out) {
    memset(out, 0, sizeof *out);
    if (o == Py_None) return true;
    PyObject *name, *dims;
    return PyArg_ParseTuple(o, "OO;a type is (dtype name, dims)", &name, &dims) && parse_dtype(name, &out->dtype) &&
           parse_dims(a, dims, &out->rank, &out->dims);
}

static bool parse_types(arena *a, PyObject *o, int *count, tensor_type **out) {
    PyObject *items = PySequence_Fast(o, "expected a list of types");
    if (!items) return false;
    Py_ssize_t n = PySequence_Fast_GET_SIZE(items);
    tensor_type *types = ARENA_NEW(a, tensor_type, n);
    if (!types) PyErr_NoMemory();
    for (Py_ssize_t i = 0; types && i < n; i++) {
        PyObject *item = PySequence_Fast_GET_ITEM(items, i);
        if (item != Py_None && !PyTuple_Check(item)) PyErr_SetString(PyExc_TypeError, "a type is (dtype name, dims)");
        if (PyErr_Occurred() || !parse_type(a, item, &types[i])) types = NULL;
    }
    Py_DECREF(items);
    *count = (int)n;
    *out = types;
    return types != NULL;
}

/* (dtype name, sizes, strides, offset, conj, neg) */
static bool parse_geometry(arena *a, PyObject *o, geometry *out) {
    PyObject *name, *sizes, *strides;
    long long offset;
    int conj, neg, rank, n_strides;
    const int64_t *dims, *steps;
    if (!PyTuple_Check(o)) {
        PyErr_SetString(PyExc_TypeError, "a geometry is (dtype name, sizes, strides, offset, conj, neg)");
        return false;
    }
    if (!PyArg_ParseTuple(o, "OOOLpp", &name, &sizes, &strides, &offset, &conj, &neg)) return false;
    memset(out, 0, sizeof *out);
    if (!parse_dtype(name, &out->dtype) || !parse_dims(a, sizes, &rank, &dims)) return false;
    if (!parse_dims(a, strides, &n_strides, &steps)) return false;
    bool valid = n_strides == rank && offset >= 0;
    for (int d = 0; valid && d < rank; d++) valid = dims[d] >= 0 && steps[d] >= 0;
    if (!valid) {
        PyErr_SetString(PyExc_ValueError, "a geometry needs one stride a size, and nothing negative");
        return false;
    }
    out->rank = rank;
    out->offset = offset;
    out->conj = conj;
    out->neg = neg;
    for (int d = 0; d < rank; d++) {
        out->sizes[d] = dims[d];
        out->strides[d] = steps[d];
    }
    return true;
}

int python_geometry(PyObject *object, geometry *out) {
    arena *a = arena_create();
    if (!a) {
        PyErr_NoMemory();
        return -1;
    }
    bool parsed = parse_geometry(a, object, out);
    arena_destroy(a);
    return parsed ? 0 : -1;
}

/* ---- methods ---- */

static PyObject *value_or_error(const graph *g, int32_t value) {
    return value < 0 ? raise_status(graph_status(g)) : PyLong_FromLong(value);
}

static arena *scratch(void) {
    arena *a = arena_create();
    if (!a) PyErr_NoMemory();
    return a;
}

static PyObject *method_input(PyObject *self, PyObject *args) {
    graph *g = graph_of(self);
    arena *a = g ? scratch() : NULL;
    if (!a) return NULL;
    tensor_type t;
    PyObject *result = parse_type(a, args, &t) ? value_or_error(g, graph_input(g, t.dtype, t.rank, t.dims)) : NULL;
    arena_destroy(a);
    return result;
}

static PyObject *ids_from(int32_t first, int n) {
    PyObject *ids = PyTuple_New(n);
    for (int k = 0; ids && k < n; k++) {
        PyObject *id = PyLong_FromLong(first + k);
        if (!id)
            Py_CLEAR(ids);
        else
            PyTuple_SET_ITEM(ids, k, id);
    }
    return ids;
}

static PyObject *call_row(graph *g, arena *a, const char *name, PyObject *arguments, PyObject *types) {
    const op_row *row = op_find(name);
    if (!row) return PyErr_Format(PyExc_NotImplementedError, "%s has no lowering", name);
    int32_t n_args;
    int n_results;
    argument *parsed;
    tensor_type *results;
    if (!parse_arguments(a, arguments, &n_args, &parsed) || !parse_types(a, types, &n_results, &results)) return NULL;
    int32_t first = graph_call(g, row, n_args, parsed, n_results, results);
    return first < 0 ? raise_status(graph_status(g)) : ids_from(first, n_results);
}

static PyObject *method_call(PyObject *self, PyObject *args) {
    const char *name;
    PyObject *arguments, *types;
    if (!PyArg_ParseTuple(args, "sOO", &name, &arguments, &types)) return NULL;
    graph *g = graph_of(self);
    arena *a = g ? scratch() : NULL;
    if (!a) return NULL;
    PyObject *result = call_row(g, a, name, arguments, types);
    arena_destroy(a);
    return result;
}

static PyObject *method_read(PyObject *self, PyObject *args) {
    int base;
    PyObject *view;
    if (!PyArg_ParseTuple(args, "iO", &base, &view)) return NULL;
    graph *g = graph_of(self);
    arena *a = g ? scratch() : NULL;
    if (!a) return NULL;
    geometry parsed;
    PyObject *result = parse_geometry(a, view, &parsed) ? value_or_error(g, graph_read(g, base, &parsed)) : NULL;
    arena_destroy(a);
    return result;
}

static PyObject *write_value(graph *g, arena *a, PyObject *base, PyObject *view, int source) {
    geometry parsed;
    if (!parse_geometry(a, view, &parsed)) return NULL;
    if (base == Py_None) return value_or_error(g, graph_write_fresh(g, &parsed, source));
    long id = PyLong_AsLong(base);
    if (id == -1 && PyErr_Occurred()) return NULL;
    return value_or_error(g, graph_write(g, (int32_t)id, &parsed, source));
}

static PyObject *method_write(PyObject *self, PyObject *args) {
    int source;
    PyObject *base, *view;
    if (!PyArg_ParseTuple(args, "OOi", &base, &view, &source)) return NULL;
    graph *g = graph_of(self);
    arena *a = g ? scratch() : NULL;
    if (!a) return NULL;
    PyObject *result = write_value(g, a, base, view, source);
    arena_destroy(a);
    return result;
}

static PyObject *method_output(PyObject *self, PyObject *value) {
    graph *g = graph_of(self);
    if (!g) return NULL;
    int32_t id = value == Py_None ? GRAPH_NO_OUTPUT : (int32_t)PyLong_AsLong(value);
    if (PyErr_Occurred()) return NULL;
    graph_output(g, id);
    if (graph_status(g)) return raise_status(graph_status(g));
    Py_RETURN_NONE;
}

/* ---- calling a graph: its nodes are copied, so that neither graph depends on the other's life ---- */

static int32_t renamed(const int32_t *names, int32_t value) { return value < 0 ? value : names[value]; }

static const argument *rename_arguments(arena *a, int n, const argument *from, const int32_t *names) {
    argument *to = ARENA_NEW(a, argument, n);
    for (int i = 0; to && i < n; i++) {
        to[i] = from[i];
        if (from[i].tag == ARG_VALUE) to[i].u.value = renamed(names, from[i].u.value);
        if (from[i].tag == ARG_VALUES && !(to[i].u.list = rename_arguments(a, from[i].count, from[i].u.list, names)))
            return NULL;
    }
    return to;
}

static int32_t copy_node(graph *g, arena *a, const graph_node *n, const int32_t *names) {
    switch (n->kind) {
        case NODE_READ:
            return graph_read(g, renamed(names, n->base), n->view);
        case NODE_WRITE:
            if (n->base < 0) return graph_write_fresh(g, n->view, renamed(names, n->source));
            return graph_write(g, renamed(names, n->base), n->view, renamed(names, n->source));
        case NODE_OP:
        case NODE_GRAPH:
        case NODE_CASE:
        case NODE_WHILE:
        case NODE_FUNCTION:
            break;
    }
    const argument *arguments = rename_arguments(a, n->n_args, n->args, names);
    if (!arguments) return -1;
    if (n->kind == NODE_OP) return graph_call(g, n->row, n->n_args, arguments, n->n_results, n->result_types);
    int32_t *ids = ARENA_NEW(a, int32_t, n->n_args);
    for (int i = 0; ids && i < n->n_args; i++) ids[i] = arguments[i].u.value;
    if (!ids) return -1;
    if (n->kind == NODE_FUNCTION)
        return graph_call_function(g, n->function, n->text, n->n_args, ids, n->n_results, n->result_types);
    if (n->kind == NODE_CASE) return graph_call_case(g, ids[0], n->n_subs, n->subs, n->n_args - 1, ids + 1);
    if (n->kind == NODE_WHILE) return graph_call_while(g, n->subs[0], n->subs[1], n->n_args, ids);
    return graph_call_graph(g, n->sub, n->n_args, ids);
}

/* The value ids are dense and in program order: inputs and results number graph_value_count of them. */
static int value_count(const graph *g) {
    int count = graph_input_count(g);
    for (int i = 0; i < graph_node_count(g); i++) count += graph_node_at(g, i)->n_results;
    return count;
}

static PyObject *splice(graph *g, arena *a, const graph *sub, PyObject *values) {
    int n;
    const int64_t *ids;
    if (!parse_ints(a, values, &n, &ids)) return NULL;
    if (n != graph_input_count(sub))
        return PyErr_Format(PyExc_ValueError, "a graph of %d inputs is called with %d", graph_input_count(sub), n);
    int32_t *names = ARENA_NEW(a, int32_t, value_count(sub));
    if (!names) return PyErr_NoMemory();
    for (int i = 0; i < n; i++) names[graph_input_at(sub, i)] = (int32_t)ids[i];
    for (int i = 0; i < graph_node_count(sub); i++) {
        const graph_node *node = graph_node_at(sub, i);
        int32_t first = copy_node(g, a, node, names);
        if (first < 0) return arena_failed(a) ? PyErr_NoMemory() : raise_status(graph_status(g));
        for (int k = 0; k < node->n_results; k++) names[node->first_result + k] = first + k;
    }
    PyObject *results = PyTuple_New(graph_output_count(sub));
    for (int k = 0; results && k < graph_output_count(sub); k++) {
        int32_t value = graph_output_at(sub, k);
        PyObject *id = value < 0 ? Py_NewRef(Py_None) : PyLong_FromLong(names[value]);
        if (!id)
            Py_CLEAR(results);
        else
            PyTuple_SET_ITEM(results, k, id);
    }
    return results;
}

static PyObject *method_call_graph(PyObject *self, PyObject *args) {
    PyObject *sub, *values;
    if (!PyArg_ParseTuple(args, "O!O", graph_type, &sub, &values)) return NULL;
    graph *g = graph_of(self), *called = g ? graph_of(sub) : NULL;
    if (called == g && g) {
        PyErr_SetString(PyExc_ValueError, "a graph cannot call itself");
        return NULL;
    }
    arena *a = called ? scratch() : NULL;
    if (!a) return NULL;
    PyObject *result = splice(g, a, called, values);
    arena_destroy(a);
    return result;
}

/* ---- functions in StableHLO ---- */

static PyObject *add_function(graph *g, arena *a, const char *name, const char *text, PyObject *values,
                              PyObject *types) {
    int n, n_results;
    const int64_t *ids;
    tensor_type *results;
    if (!parse_ints(a, values, &n, &ids) || !parse_types(a, types, &n_results, &results)) return NULL;
    int32_t *args = ARENA_NEW(a, int32_t, n);
    if (!args) return PyErr_NoMemory();
    for (int i = 0; i < n; i++) args[i] = (int32_t)ids[i];
    int32_t first = graph_call_function(g, name, text, n, args, n_results, results);
    return first < 0 ? raise_status(graph_status(g)) : ids_from(first, n_results);
}

static PyObject *method_call_function(PyObject *self, PyObject *args) {
    const char *name, *text;
    PyObject *values, *types;
    if (!PyArg_ParseTuple(args, "ssOO", &name, &text, &values, &types)) return NULL;
    graph *g = graph_of(self);
    arena *a = g ? scratch() : NULL;
    if (!a) return NULL;
    PyObject *result = add_function(g, a, name, text, values, types);
    arena_destroy(a);
    return result;
}

/* ---- control flow: the graphs are taken ---- */

static bool take_graphs(PyObject *list, arena *a, int *count, graph ***out) {
    PyObject *items = PySequence_Fast(list, "expected a list of graphs");
    if (!items) return false;
    Py_ssize_t n = PySequence_Fast_GET_SIZE(items);
    *out = ARENA_NEW(a, graph *, n + 1);
    *count = 0;
    for (Py_ssize_t i = 0; *out && i < n; i++) {
        graph *taken = python_graph_take(PySequence_Fast_GET_ITEM(items, i));
        if (!taken) break;
        (*out)[(*count)++] = taken;
    }
    Py_DECREF(items);
    if (!*out) PyErr_NoMemory();
    return *out && *count == n;
}

/* Results of a node just made; with the kind's function behind it. */
static PyObject *control_results(const graph *g, int32_t first, int n) {
    return first < 0 ? raise_status(graph_status(g)) : ids_from(first, n);
}

static bool parse_ids(arena *a, PyObject *o, int *n, int32_t **out) {
    const int64_t *ids;
    if (!parse_ints(a, o, n, &ids) || !(*out = ARENA_NEW(a, int32_t, *n + 1))) return false;
    for (int i = 0; i < *n; i++) (*out)[i] = (int32_t)ids[i];
    return true;
}

static PyObject *add_control(graph *g, arena *a, int index, PyObject *graphs, PyObject *values, bool loop) {
    int n, count = 0;
    int32_t *ids;
    graph **taken = NULL;
    PyObject *result = NULL;
    if (parse_ids(a, values, &n, &ids) && take_graphs(graphs, a, &count, &taken)) {
        int n_results = count ? graph_output_count(taken[count - 1]) : 0;
        if (loop && count != 2)
            PyErr_SetString(PyExc_ValueError, "a loop has two graphs: its condition and its body");
        else if (loop)
            result = control_results(g, graph_call_while(g, taken[0], taken[1], n, ids), n_results);
        else
            result = control_results(g, graph_call_case(g, index, count, taken, n, ids), n_results);
    }
    for (int i = 0; i < count; i++) graph_destroy(taken[i]);
    return result;
}

static PyObject *method_call_case(PyObject *self, PyObject *args) {
    int index;
    PyObject *graphs, *values;
    if (!PyArg_ParseTuple(args, "iOO", &index, &graphs, &values)) return NULL;
    graph *g = graph_of(self);
    arena *a = g ? scratch() : NULL;
    if (!a) return NULL;
    PyObject *result = add_control(g, a, index, graphs, values, false);
    arena_destroy(a);
    return result;
}

static PyObject *method_call_while(PyObject *self, PyObject *args) {
    PyObject *graphs, *values;
    if (!PyArg_ParseTuple(args, "OO", &graphs, &values)) return NULL;
    graph *g = graph_of(self);
    arena *a = g ? scratch() : NULL;
    if (!a) return NULL;
    PyObject *result = add_control(g, a, 0, graphs, values, true);
    arena_destroy(a);
    return result;
}

/* ---- looking at a graph ---- */

static PyObject *type_to_python(tensor_type t) {
    if (t.dtype == DTYPE_INVALID) Py_RETURN_NONE;
    PyObject *dims = PyTuple_New(t.rank);
    for (int d = 0; dims && d < t.rank; d++) {
        PyObject *size = PyLong_FromLongLong(t.dims[d]);
        if (!size)
            Py_CLEAR(dims);
        else
            PyTuple_SET_ITEM(dims, d, size);
    }
    return dims ? Py_BuildValue("(sN)", dtype_torch_name(t.dtype), dims) : NULL;
}

static PyObject *method_value_type(PyObject *self, PyObject *value) {
    graph *g = graph_of(self);
    long id = PyLong_AsLong(value);
    if (!g || (id == -1 && PyErr_Occurred())) return NULL;
    return type_to_python(graph_value_type(g, (int32_t)id));
}

static PyObject *method_input_type(PyObject *self, PyObject *position) {
    graph *g = graph_of(self);
    long i = PyLong_AsLong(position);
    if (!g || (i == -1 && PyErr_Occurred())) return NULL;
    if (i >= 0 && i < graph_input_count(g)) return type_to_python(graph_value_type(g, graph_input_at(g, (int)i)));
    PyErr_Format(PyExc_IndexError, "a graph of %d inputs has no input %ld", graph_input_count(g), i);
    return NULL;
}

static PyObject *method_output_type(PyObject *self, PyObject *position) {
    graph *g = graph_of(self);
    long k = PyLong_AsLong(position);
    if (!g || (k == -1 && PyErr_Occurred())) return NULL;
    if (k >= 0 && k < graph_output_count(g)) return type_to_python(graph_value_type(g, graph_output_at(g, (int)k)));
    PyErr_Format(PyExc_IndexError, "a graph of %d outputs has no output %ld", graph_output_count(g), k);
    return NULL;
}

static PyObject *method_key(PyObject *self, PyObject *ignored) {
    (void)ignored;
    graph *g = graph_of(self);
    if (!g) return NULL;
    strbuf key;
    strbuf_init(&key);
    graph_key(g, &key);
    PyObject *result =
        strbuf_failed(&key) ? PyErr_NoMemory() : PyBytes_FromStringAndSize(key.data, (Py_ssize_t)key.size);
    strbuf_free(&key);
    return result;
}

static PyObject *graph_str(PyObject *self) {
    graph *g = graph_of(self);
    if (!g) return NULL;
    strbuf text;
    strbuf_init(&text);
    graph_print(g, &text);
    PyObject *result = strbuf_failed(&text) ? PyErr_NoMemory() : PyUnicode_FromString(strbuf_text(&text));
    strbuf_free(&text);
    return result;
}

/* For each input the output that it is donated to, or -1: `count` of them in the arena. */
static bool parse_donations(arena *a, PyObject *o, const graph *g, const int32_t **out) {
    int n;
    const int64_t *values;
    *out = NULL;
    if (!o || o == Py_None) return true;
    if (!parse_ints(a, o, &n, &values)) return false;
    int32_t *donate = ARENA_NEW(a, int32_t, n);
    if (!donate) return PyErr_NoMemory() != NULL;
    for (int i = 0; i < n; i++) donate[i] = (int32_t)values[i];
    *out = donate;
    if (n == graph_input_count(g)) return true;
    PyErr_Format(PyExc_ValueError, "donations for %d inputs of a graph of %d", n, graph_input_count(g));
    return false;
}

static PyObject *lower_text(const graph *g, const char *name, int precision, const int32_t *donate) {
    strbuf text;
    strbuf_init(&text);
    lower_request request;
    lower_request_init(&request, (hlo_precision)precision);
    status *s = graph_lower(g, name, &request, donate, &text);
    int words = request.random_parameter >= 0 ? graph_random_count(g) : 0;
    PyObject *result = s ? raise_status(s) : Py_BuildValue("(s#i)", strbuf_text(&text), (Py_ssize_t)text.size, words);
    status_free(s);
    lower_request_free(&request);
    strbuf_free(&text);
    return result;
}

static PyObject *method_lower(PyObject *self, PyObject *args) {
    const char *name;
    int precision;
    PyObject *donations = NULL;
    if (!PyArg_ParseTuple(args, "si|O", &name, &precision, &donations)) return NULL;
    graph *g = graph_of(self);
    if (!g) return NULL;
    if (graph_status(g)) return raise_status(graph_status(g));
    arena *a = scratch();
    if (!a) return NULL;
    const int32_t *donate;
    PyObject *result = parse_donations(a, donations, g, &donate) ? lower_text(g, name, precision, donate) : NULL;
    arena_destroy(a);
    return result;
}

static PyObject *method_stablehlo(PyObject *self, PyObject *args) {
    const char *name = "main";
    if (!PyArg_ParseTuple(args, "|s", &name)) return NULL;
    graph *g = graph_of(self);
    if (!g) return NULL;
    if (graph_status(g)) return raise_status(graph_status(g));
    strbuf text;
    strbuf_init(&text);
    lower_request request;
    lower_request_init(&request, HLO_PRECISION_DEFAULT);
    status *s = graph_lower(g, name, &request, NULL, &text);
    PyObject *result = s ? raise_status(s) : PyUnicode_FromStringAndSize(strbuf_text(&text), (Py_ssize_t)text.size);
    status_free(s);
    lower_request_free(&request);
    strbuf_free(&text);
    return result;
}

static PyObject *get_input_count(PyObject *self, void *closure) {
    (void)closure;
    graph *g = graph_of(self);
    return g ? PyLong_FromLong(graph_input_count(g)) : NULL;
}

static PyObject *get_output_count(PyObject *self, void *closure) {
    (void)closure;
    graph *g = graph_of(self);
    return g ? PyLong_FromLong(graph_output_count(g)) : NULL;
}

static PyObject *get_node_count(PyObject *self, void *closure) {
    (void)closure;
    graph *g = graph_of(self);
    return g ? PyLong_FromLong(graph_node_count(g)) : NULL;
}

/* ---- the type ---- */

static PyObject *graph_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    (void)args;
    (void)keywords;
    graph_object *self = (graph_object *)type->tp_alloc(type, 0);
    if (!self) return NULL;
    self->graph = graph_create();
    if (self->graph) return (PyObject *)self;
    Py_DECREF(self);
    return PyErr_NoMemory();
}

static void graph_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    graph_destroy(((graph_object *)self)->graph);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMethodDef graph_methods[] = {
    {"input", method_input, METH_VARARGS, "input(dtype name, dims) -> value id"},
    {"call", method_call, METH_VARARGS, "call(row name, encoded arguments, result types) -> value ids"},
    {"read", method_read, METH_VARARGS, "read(base, geometry) -> value id"},
    {"write", method_write, METH_VARARGS, "write(base or None, geometry, source) -> value id of the new base"},
    {"call_graph", method_call_graph, METH_VARARGS, "call_graph(graph, value ids) -> value ids (None: absent)"},
    {"call_case", method_call_case, METH_VARARGS,
     "call_case(index, [graphs], value ids) -> value ids: the branch of this number; takes the graphs"},
    {"call_while", method_call_while, METH_VARARGS,
     "call_while([condition, body], value ids) -> value ids: a loop; takes the graphs"},
    {"call_function", method_call_function, METH_VARARGS,
     "call_function(name, StableHLO text, value ids, result types) -> value ids: the text holds private functions; the"
     " name is the called one's and the text's identity"},
    {"output", method_output, METH_O, "output(value id or None)"},
    {"value_type", method_value_type, METH_O, "value_type(value id) -> (dtype name, dims), or None"},
    {"input_type", method_input_type, METH_O, "input_type(i) -> (dtype name, dims)"},
    {"output_type", method_output_type, METH_O, "output_type(k) -> (dtype name, dims), or None when absent"},
    {"key", method_key, METH_NOARGS, "key() -> bytes, equal for equal graphs only"},
    {"lower", method_lower, METH_VARARGS,
     "lower(name, precision, donations=None) -> (text, random words): the program that it lowers to. donations: for"
     " each input the output that its memory goes to, or -1. Random words, where there are any, are one more"
     " parameter ui64[words] after the inputs."},
    {"stablehlo", method_stablehlo, METH_VARARGS, "stablehlo(name='main') -> text of the program it lowers to"},
    {0},
};

static PyGetSetDef graph_properties[] = {
    {"n_inputs", get_input_count, NULL, "how many inputs", NULL},
    {"n_outputs", get_output_count, NULL, "how many outputs", NULL},
    {"n_nodes", get_node_count, NULL, "how many nodes", NULL},
    {0},
};

static PyType_Slot graph_slots[] = {
    {Py_tp_new, graph_new},
    {Py_tp_dealloc, graph_dealloc},
    {Py_tp_str, graph_str},
    {Py_tp_methods, graph_methods},
    {Py_tp_getset, graph_properties},
    {Py_tp_doc, (void *)"A graph of ATen operators that have a lowering."},
    {0, NULL},
};

static PyType_Spec graph_spec = {"torch_tpu._C.Graph", sizeof(graph_object), 0, Py_TPFLAGS_DEFAULT, graph_slots};

static PyObject *has_row(PyObject *module, PyObject *name) {
    (void)module;
    const char *text = PyUnicode_AsUTF8(name);
    return text ? PyBool_FromLong(op_find(text) != NULL) : NULL;
}

static PyMethodDef functions[] = {
    {"has_row", has_row, METH_O, "has_row(name) -> whether \"aten::add.Tensor\" has a lowering"},
    {0},
};

int python_graph_init(PyObject *module) {
    graph_type = (PyTypeObject *)PyType_FromSpec(&graph_spec);
    if (!graph_type) return -1;
    if (PyModule_AddObjectRef(module, "Graph", (PyObject *)graph_type) < 0) return -1;
    return PyModule_AddFunctions(module, functions);
}

graph *python_graph_take(PyObject *object) {
    if (!PyObject_TypeCheck(object, graph_type)) {
        PyErr_Format(PyExc_TypeError, "expected a Graph, got %.100s", Py_TYPE(object)->tp_name);
        return NULL;
    }
    graph *g = graph_of(object);
    if (!g) return NULL;
    if (graph_status(g)) {
        raise_status(graph_status(g));
        return NULL;
    }
    ((graph_object *)object)->graph = NULL;
    return g;
}
