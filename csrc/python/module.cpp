// The extension module torch_tpu._C: the runtime for Python, and the one call that registers the device with libtorch.
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/Generator.h>
#include <torch/csrc/python_headers.h>
#include <torch/csrc/utils/object_ptr.h>
#include <torch/csrc/utils/pybind.h>

#include <ATen/Context.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <atomic>
#include <cstdio>
#include <mutex>
#include <string>

#include "python/graph_call.h"
#include "torch/boxed.h"
#include "torch/generator.h"
#include "torch/runtime.h"

extern "C" {
#include "python/graph.h"
}

namespace {

using namespace torch_tpu;

// Runs a core function without the GIL, and raises its status.
template <typename Function>
void without_gil(Function function) {
    status *failed = nullptr;
    Py_BEGIN_ALLOW_THREADS failed = function();
    Py_END_ALLOW_THREADS check(failed);
}

pjrt_client *client() {
    check_not_forked();
    pjrt_client *c = nullptr;
    without_gil([&] { return runtime_client(&c); });
    return c;
}

// -1 stands for the current device. Throws python_error when it is no integer.
c10::DeviceIndex device_argument(PyObject *object) {
    const long value = PyLong_AsLong(object);
    if (value == -1 && PyErr_Occurred()) throw python_error();
    TORCH_CHECK(value >= -1 && value < 128, "invalid device ordinal ", value);
    return checked_device_index(static_cast<c10::DeviceIndex>(value));
}

const c10::impl::DeviceGuardImplInterface &guard() { return *c10::impl::getDeviceGuardImpl(kDevice); }

PyObject *none() { Py_RETURN_NONE; }

// NULL for None; throws python_error when the object is no text.
const char *text_or_null(PyObject *object) {
    if (object == Py_None) return nullptr;
    const char *text = PyUnicode_AsUTF8(object);
    if (!text) throw python_error();
    return text;
}

PyObject *dictionary(std::initializer_list<std::pair<const char *, int64_t>> entries) {
    THPObjectPtr result(PyDict_New());
    if (!result) throw python_error();
    for (const auto &[name, value] : entries) {
        THPObjectPtr number(PyLong_FromLongLong(value));
        if (!number || PyDict_SetItemString(result, name, number) != 0) throw python_error();
    }
    return result.release();
}

// ---- registration ----

PyObject *register_device(PyObject *module, PyObject * /*unused*/) {
    HANDLE_TH_ERRORS
    static bool registered = false;
    if (registered) return none();
    static auto *aten =
        new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
    register_allocator();
    register_guard();
    register_hooks();
    register_factories(*aten);
    register_views(*aten);
    register_copies(*aten);
    register_nested(*aten);
    register_sparse(*aten);
    register_autocast();
    register_meta();
    if (python_boxed_init(module) != 0) throw python_error();
    registered = true;
    return none();
    END_HANDLE_TH_ERRORS
}

// ---- plugin and client ----

PyObject *tpu_attached(PyObject * /*module*/, PyObject * /*unused*/) { return PyBool_FromLong(pjrt_tpu_attached()); }

PyObject *set_plugin_candidates(PyObject * /*module*/, PyObject *args) {
    HANDLE_TH_ERRORS
    PyObject *cpu = nullptr, *tpu = nullptr;
    if (!PyArg_ParseTuple(args, "OO", &cpu, &tpu)) return nullptr;
    runtime_set_plugin_candidates(text_or_null(cpu), text_or_null(tpu));
    return none();
    END_HANDLE_TH_ERRORS
}

PyObject *plugin_path(PyObject * /*module*/, PyObject * /*unused*/) {
    HANDLE_TH_ERRORS
    strbuf path;
    strbuf_init(&path);
    status *failed = runtime_choose_plugin(&path);
    const std::string text = strbuf_text(&path);
    strbuf_free(&path);
    check(failed);
    return PyUnicode_FromStringAndSize(text.data(), static_cast<Py_ssize_t>(text.size()));
    END_HANDLE_TH_ERRORS
}

PyObject *initialize(PyObject * /*module*/, PyObject * /*unused*/) {
    HANDLE_TH_ERRORS
    client();
    at::globalContext().lazyInitDevice(kDevice);
    return none();
    END_HANDLE_TH_ERRORS
}

PyObject *lazy_init(PyObject * /*module*/, PyObject * /*unused*/) {
    HANDLE_TH_ERRORS
    check_not_forked();
    at::globalContext().lazyInitDevice(kDevice);
    return none();
    END_HANDLE_TH_ERRORS
}

PyObject *is_initialized(PyObject * /*module*/, PyObject * /*unused*/) {
    return PyBool_FromLong(runtime_initialized());
}

PyObject *is_in_bad_fork(PyObject * /*module*/, PyObject * /*unused*/) { return PyBool_FromLong(in_bad_fork()); }

PyObject *platform(PyObject * /*module*/, PyObject * /*unused*/) {
    HANDLE_TH_ERRORS
    return PyUnicode_FromString(pjrt_client_platform(client()));
    END_HANDLE_TH_ERRORS
}

PyObject *platform_version(PyObject * /*module*/, PyObject * /*unused*/) {
    HANDLE_TH_ERRORS
    return PyUnicode_FromString(pjrt_client_platform_version(client()));
    END_HANDLE_TH_ERRORS
}

PyObject *device_kind(PyObject * /*module*/, PyObject *device) {
    HANDLE_TH_ERRORS
    return PyUnicode_FromString(pjrt_device_kind(client(), device_argument(device)));
    END_HANDLE_TH_ERRORS
}

PyObject *device_description(PyObject * /*module*/, PyObject *device) {
    HANDLE_TH_ERRORS
    return PyUnicode_FromString(pjrt_device_description(client(), device_argument(device)));
    END_HANDLE_TH_ERRORS
}

PyObject *device_memory(PyObject * /*module*/, PyObject *device) {
    HANDLE_TH_ERRORS
    pjrt_memory_stats m{-1, -1, -1};
    check(pjrt_device_memory_stats(client(), device_argument(device), &m));
    return dictionary(
        {{"bytes_in_use", m.bytes_in_use}, {"peak_bytes_in_use", m.peak_bytes_in_use}, {"bytes_limit", m.bytes_limit}});
    END_HANDLE_TH_ERRORS
}

// ---- devices ----

PyObject *device_count(PyObject * /*module*/, PyObject * /*unused*/) { return PyLong_FromLong(guard().deviceCount()); }

PyObject *get_device(PyObject * /*module*/, PyObject * /*unused*/) { return PyLong_FromLong(current_device()); }

PyObject *set_device(PyObject * /*module*/, PyObject *device) {
    HANDLE_TH_ERRORS
    guard().setDevice({kDevice, device_argument(device)});
    return none();
    END_HANDLE_TH_ERRORS
}

PyObject *exchange_device(PyObject * /*module*/, PyObject *device) {
    HANDLE_TH_ERRORS
    const c10::DeviceIndex wanted = device_argument(device);  // a negative one changes nothing
    return PyLong_FromLong(guard().exchangeDevice({kDevice, wanted}).index());
    END_HANDLE_TH_ERRORS
}

PyObject *settle_threads(PyObject * /*module*/, PyObject * /*none*/) {
    HANDLE_TH_ERRORS {
        pybind11::gil_scoped_release released;
        settle_autograd_threads();
    }
    return none();
    END_HANDLE_TH_ERRORS
}

PyObject *synchronize(PyObject * /*module*/, PyObject *device) {
    HANDLE_TH_ERRORS
    const c10::DeviceIndex index = device_argument(device);
    check_not_forked();
    if (runtime_initialized()) without_gil([&] { return runtime_synchronize(index); });
    return none();
    END_HANDLE_TH_ERRORS
}

PyObject *default_generator(PyObject * /*module*/, PyObject *device) {
    HANDLE_TH_ERRORS
    return THPGenerator_Wrap(generator_default(device_argument(device)));
    END_HANDLE_TH_ERRORS
}

// ---- execution ----

PyObject *get_eager_mode(PyObject * /*module*/, PyObject * /*unused*/) { return PyLong_FromLong(exec_get_mode()); }

PyObject *set_eager_mode(PyObject * /*module*/, PyObject *mode) {
    HANDLE_TH_ERRORS
    const long value = PyLong_AsLong(mode);
    if (value == -1 && PyErr_Occurred()) throw python_error();
    TORCH_CHECK_VALUE(value >= MODE_STRICT && value <= MODE_FUSED, "no eager mode has the number ", value);
    without_gil([&]() -> status * {
        exec_set_mode(static_cast<eager_mode>(value));
        return nullptr;
    });
    return none();
    END_HANDLE_TH_ERRORS
}

PyObject *flush(PyObject * /*module*/, PyObject * /*unused*/) {
    HANDLE_TH_ERRORS
    if (exec_get_mode() == MODE_FUSED) without_gil([] { return exec_flush(); });
    return none();
    END_HANDLE_TH_ERRORS
}

PyObject *hold(PyObject * /*module*/, PyObject *held) {
    HANDLE_TH_ERRORS
    const int value = PyObject_IsTrue(held);
    if (value < 0) throw python_error();
    exec_hold(value != 0);
    return none();
    END_HANDLE_TH_ERRORS
}

PyObject *is_held(PyObject * /*module*/, PyObject * /*unused*/) { return PyBool_FromLong(exec_held()); }

PyObject *get_precision(PyObject * /*module*/, PyObject * /*unused*/) { return PyLong_FromLong(exec_get_precision()); }

PyObject *set_precision(PyObject * /*module*/, PyObject *precision) {
    HANDLE_TH_ERRORS
    const long value = PyLong_AsLong(precision);
    if (value == -1 && PyErr_Occurred()) throw python_error();
    TORCH_CHECK_VALUE(value >= HLO_PRECISION_DEFAULT && value <= HLO_PRECISION_HIGHEST, "no precision has the number ",
                      value);
    exec_set_precision(static_cast<hlo_precision>(value));
    return none();
    END_HANDLE_TH_ERRORS
}

PyObject *options_intern(PyObject * /*module*/, PyObject *lines) {
    HANDLE_TH_ERRORS
    const char *text = PyUnicode_AsUTF8(lines);
    if (!text) throw python_error();
    int number = 0;
    check(exec_options_intern(text, &number));
    return PyLong_FromLong(number);
    END_HANDLE_TH_ERRORS
}

PyObject *get_options(PyObject * /*module*/, PyObject * /*unused*/) { return PyLong_FromLong(exec_get_options()); }

PyObject *set_options(PyObject * /*module*/, PyObject *number) {
    HANDLE_TH_ERRORS
    const long value = PyLong_AsLong(number);
    if (value == -1 && PyErr_Occurred()) throw python_error();
    without_gil([&] { return exec_set_options(static_cast<int>(value)); });
    return none();
    END_HANDLE_TH_ERRORS
}

PyObject *check_options(PyObject * /*module*/, PyObject *number) {
    HANDLE_TH_ERRORS
    const long value = PyLong_AsLong(number);
    if (value == -1 && PyErr_Occurred()) throw python_error();
    client();
    without_gil([&] { return exec_check_options(static_cast<int>(value)); });
    return none();
    END_HANDLE_TH_ERRORS
}

PyObject *options_text(PyObject * /*module*/, PyObject *number) {
    HANDLE_TH_ERRORS
    const long value = PyLong_AsLong(number);
    if (value == -1 && PyErr_Occurred()) throw python_error();
    return PyUnicode_FromString(exec_options_text(static_cast<int>(value)));
    END_HANDLE_TH_ERRORS
}

PyObject *compile_program(PyObject * /*module*/, PyObject *args) {
    HANDLE_TH_ERRORS
    const char *mlir = nullptr;
    Py_ssize_t size = 0;
    int options = 0;
    if (!PyArg_ParseTuple(args, "s#i", &mlir, &size, &options)) return nullptr;
    client();
    without_gil([&] { return exec_compile_text(mlir, static_cast<size_t>(size), options); });
    return none();
    END_HANDLE_TH_ERRORS
}

PyObject *counters(PyObject * /*module*/, PyObject * /*unused*/) {
    HANDLE_TH_ERRORS
    exec_counters e{};
    exec_counters_read(&e);
    for (const auto &[name, times] : cpu_fallbacks()) e.cpu_fallbacks += times;
    pjrt_counters p{};
    pjrt_counters_read(&p);
    return dictionary({{"calls", e.calls},
                       {"cache_requests", e.cache_requests},
                       {"cache_hits", e.cache_hits},
                       {"disk_hits", e.disk_hits},
                       {"compiles", e.compiles},
                       {"compile_ns", e.compile_ns},
                       {"launches", e.launches},
                       {"decomposed", e.decomposed},
                       {"cpu_fallbacks", e.cpu_fallbacks},
                       {"promotions", e.promotions},
                       {"entries", e.entries},
                       {"bytes_live", e.bytes_live},
                       {"bytes_peak", e.bytes_peak},
                       {"storages", e.storages},
                       {"host_to_device", p.host_to_device},
                       {"device_to_host", p.device_to_host},
                       {"host_to_device_bytes", p.host_to_device_bytes},
                       {"device_to_host_bytes", p.device_to_host_bytes},
                       {"live_buffers", p.live_buffers},
                       {"live_bytes", p.live_bytes},
                       {"peak_bytes", p.peak_bytes}});
    END_HANDLE_TH_ERRORS
}

PyObject *cache_clear(PyObject * /*module*/, PyObject * /*unused*/) {
    exec_cache_clear();
    return none();
}

// ---- programs as text ----

std::mutex dump_mutex;
std::string dump_directory;
std::atomic<int> dump_count{0};

void dump_program(const char *name, const char *mlir, size_t size) {
    std::string file;
    {
        const std::lock_guard<std::mutex> lock(dump_mutex);
        file = dump_directory;
    }
    char number[16];
    std::snprintf(number, sizeof number, "/%05d-", dump_count.fetch_add(1));
    file += number;
    for (const char *c = name; *c; c++) file += std::isalnum(static_cast<unsigned char>(*c)) || *c == '.' ? *c : '_';
    file += ".mlir";
    std::FILE *out = std::fopen(file.c_str(), "w");
    const bool written = out && std::fwrite(mlir, 1, size, out) == size;
    if ((out && std::fclose(out) != 0) || !written) {
        TORCH_WARN_ONCE("cannot write the program ", file);
    }
}

PyObject *set_dump_directory(PyObject * /*module*/, PyObject *directory) {
    HANDLE_TH_ERRORS
    const char *path = text_or_null(directory);
    {
        const std::lock_guard<std::mutex> lock(dump_mutex);
        dump_directory = path ? path : "";
    }
    exec_set_program_sink(path ? dump_program : nullptr);
    return none();
    END_HANDLE_TH_ERRORS
}

PyObject *set_ahead(PyObject * /*module*/, PyObject *ahead) {
    const int value = PyObject_IsTrue(ahead);
    return value < 0 ? nullptr : PyBool_FromLong(attention_set_ahead(value != 0));
}

PyMethodDef methods[] = {
    {"_register", register_device, METH_NOARGS, "Registers device tpu with libtorch. Idempotent."},
    {"tpu_attached", tpu_attached, METH_NOARGS, "Whether this machine has a TPU, from device files alone."},
    {"set_ahead", set_ahead, METH_O, "(bool): this thread records programs for a TPU elsewhere; gives what held."},
    {"set_plugin_candidates", set_plugin_candidates, METH_VARARGS, "(cpu_plugin, libtpu): paths or None."},
    {"plugin_path", plugin_path, METH_NOARGS, "The path of the plugin that is or would be loaded."},
    {"initialize", initialize, METH_NOARGS, "Creates the client, if there is none yet."},
    {"lazy_init", lazy_init, METH_NOARGS,
     "What PyTorch calls before it asks about or uses the device: creates no client."},
    {"is_initialized", is_initialized, METH_NOARGS, "Whether the client exists."},
    {"is_in_bad_fork", is_in_bad_fork, METH_NOARGS, "Whether this is a fork of a process that had used the device."},
    {"platform", platform, METH_NOARGS, "The client's platform: 'cpu', 'tpu'."},
    {"platform_version", platform_version, METH_NOARGS, "The client's platform version, as the plugin tells it."},
    {"device_kind", device_kind, METH_O, "(index): the kind of a device, such as 'TPU v5 lite'."},
    {"device_description", device_description, METH_O, "(index): the plugin's description of a device."},
    {"device_memory", device_memory, METH_O, "(index): the plugin's own memory statistics; -1 where unknown."},
    {"device_count", device_count, METH_NOARGS, "Number of devices; creates no client."},
    {"get_device", get_device, METH_NOARGS, "Index of this thread's current device."},
    {"set_device", set_device, METH_O, "(index): makes a device current in this thread."},
    {"exchange_device", exchange_device, METH_O,
     "(index): set_device that returns the previous index; -1 changes nothing."},
    {"settle_autograd_threads", settle_threads, METH_NOARGS,
     "Waits until autograd's threads are idle, before the end."},
    {"synchronize", synchronize, METH_O, "(index): waits for everything launched on a device; -1 for the current one."},
    {"default_generator", default_generator, METH_O, "(index): a device's default generator."},
    {"get_eager_mode", get_eager_mode, METH_NOARGS, "0 strict, 1 debug, 2 fused."},
    {"set_eager_mode", set_eager_mode, METH_O, "(mode)"},
    {"flush", flush, METH_NOARGS, "Fused mode: runs what has gathered; a no-op in the other modes."},
    {"hold", hold, METH_O, "(held): fused mode: whether calls gather without a limit of their number."},
    {"is_held", is_held, METH_NOARGS, "What hold() set last."},
    {"get_precision", get_precision, METH_NOARGS, "Of matrix products and convolutions: 0 default, 1 high, 2 highest."},
    {"set_precision", set_precision, METH_O, "(precision)"},
    {"options_intern", options_intern, METH_O,
     "('name=value' lines, sorted) -> the number of this set of XLA options."},
    {"options_text", options_text, METH_O, "(number) -> the lines of a set of XLA options."},
    {"get_options", get_options, METH_NOARGS, "The number of the set of XLA options that programs are compiled with."},
    {"set_options", set_options, METH_O, "(number): the set of XLA options for programs compiled from now on."},
    {"check_options", check_options, METH_O, "(number): compiles an empty program with a set of XLA options."},
    {"compile_program", compile_program, METH_VARARGS, "(StableHLO text, options number): compiles and drops it."},
    {"counters", counters, METH_NOARGS, "Counts of calls, compiles, launches, transfers and bytes."},
    {"cache_clear", cache_clear, METH_NOARGS, "Forgets all compiled programs in memory."},
    {"set_dump_directory", set_dump_directory, METH_O,
     "(directory or None): where each compiled program is written as text."},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef definition = {PyModuleDef_HEAD_INIT, "torch_tpu._C", "Native part of torch_tpu.", -1, methods};

}  // namespace

PyMODINIT_FUNC PyInit__C() {
    PyObject *module = PyModule_Create(&definition);
    if (!module) return nullptr;
    if (python_graph_init(module) != 0 || python_graph_call_init(module) != 0) {
        Py_DECREF(module);
        return nullptr;
    }
    return module;
}
