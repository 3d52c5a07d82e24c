// PyTorch runs the backward of a device other than the CPU on a thread of that device. backward() returns when the
// result is there, and the thread drops what the task held a moment later. Some of that is Python's, so the thread asks
// for the interpreter's lock; when the interpreter is ending by then, it ends the thread inside a destructor, and with
// it the process ("terminate called without an active exception"). So the end of the process first waits for those
// threads.
#include <torch/csrc/autograd/autograd.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <future>
#include <thread>

#include "torch/runtime.h"

namespace torch_tpu {

namespace {

std::atomic<pid_t> worker_process{0};  // the process whose threads have used the device: a child has none of them

// A task of a thread that holds nothing of Python's: when it has run, the device's thread has dropped all before it. It
// has no elements, so nothing is compiled or launched.
void pass_through_backward(c10::DeviceIndex device) {
    const auto options = at::TensorOptions().device(at::Device(kDevice, device)).dtype(at::kFloat);
    const at::Tensor x = at::empty({0}, options).set_requires_grad(true);
    torch::autograd::grad({x.view({0})}, {x}, {at::empty({0}, options)});
}

}  // namespace

void note_worker_thread() noexcept {
    static thread_local bool noted = false;
    if (noted) return;
    noted = true;
    if (gettid() != getpid()) worker_process = getpid();
}

void settle_autograd_threads() {
    constexpr auto kLongest = std::chrono::seconds(5);  // a thread that never ends must not keep the process
    if (worker_process != getpid() || !runtime_initialized()) return;
    std::promise<void> promise;
    std::future<void> done = promise.get_future();
    std::thread([promise = std::move(promise)]() mutable {
        try {
            for (int device = 0; device < runtime_device_count(); device++)
                pass_through_backward(static_cast<c10::DeviceIndex>(device));
            promise.set_value();
        } catch (...) {
            promise.set_exception(std::current_exception());
        }
    }).detach();
    if (done.wait_for(kLongest) == std::future_status::ready) done.get();
}

}  // namespace torch_tpu
