// Random number generators of this device: (seed, offset), kept on the host.
#pragma once

#include <ATen/core/Generator.h>

#include <optional>

namespace torch_tpu {

// Takes `uses` numbers of the generator's sequence: what a random operator gives its program. Without a generator, the
// device's default one; where tpu is PyTorch's default device, a CPU generator gives a seed. Thread-safe.
void generator_next(const std::optional<at::Generator> &generator, int device, uint64_t uses, uint64_t *seed,
                    uint64_t *offset);
// One for each device, seeded alike until somebody seeds them. -1: the current device.
const at::Generator &generator_default(c10::DeviceIndex device);
at::Generator generator_new(c10::DeviceIndex device);

}  // namespace torch_tpu
