// What the parts of the bridge share about storages, devices and processes.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Storage.h>
#include <torch/library.h>

#include "torch/tensor.h"

namespace torch_tpu {

// ---- storages (allocator.cpp) ----
// The pointer libtorch keeps for a storage: its reserved address as data, the storage itself as context. Takes `s`.
at::DataPtr storage_to_data_ptr(storage *s);
// NULL when the pointer was made by somebody else.
storage *storage_from_data_ptr(const at::DataPtr &p);
c10::Storage storage_wrap(storage *s);
c10::Allocator *allocator_get();
// Changes the size, keeping the common prefix, and the books and the pointer with it.
void storage_resize_bytes(const c10::Storage &s, size_t bytes);

// ---- process ----
// Throws in a child made by fork after its parent had used the device: PJRT clients do not survive fork.
void check_not_forked();
bool in_bad_fork() noexcept;

// ---- autograd's threads (autograd.cpp) ----
// Says that a thread other than the first uses the device.
void note_worker_thread() noexcept;
// Returns when autograd's threads have dropped the tasks they have run, or after some seconds. Called without the
// interpreter's lock when the interpreter begins to end.
void settle_autograd_threads();

// ---- attention (attention.cpp) ----
// Whether this thread records programs for a TPU that is not attached; returns what it was.
bool attention_set_ahead(bool ahead);

// ---- devices and streams (guard.cpp) ----
c10::DeviceIndex current_device() noexcept;
// Throws unless 0 <= index < device count; -1 means the current device.
c10::DeviceIndex checked_device_index(c10::DeviceIndex index);

// ---- copies (copy.cpp) ----
// dst's elements become src's, converted and broadcast; both of this device.
void copy_on_device(const at::Tensor &dst, const at::Tensor &src);
void copy_from_host(const at::Tensor &dst, const at::Tensor &src);
void copy_to_host(const at::Tensor &dst, const at::Tensor &src);

// ---- registration: called once, from register.cpp ----
void register_allocator();
void register_guard();
void register_hooks();
void register_factories(torch::Library &aten);
void register_views(torch::Library &aten);
void register_copies(torch::Library &aten);
void register_nested(torch::Library &aten);
void register_sparse(torch::Library &aten);
void register_autocast();
void register_meta();

}  // namespace torch_tpu
