// Counter-based random numbers depend on (seed, offset) alone, so a generator is those two numbers and needs no device.
#include <torch/csrc/python_headers.h>

#include "torch/generator.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <c10/core/GeneratorImpl.h>
#include <pybind11/pybind11.h>
#include <torch/csrc/Device.h>

#include <cstring>
#include <map>

#include "torch/runtime.h"

namespace torch_tpu {

namespace {

// The bytes of get_state: seed then offset, each 8 bytes, as CUDA's generators have them.
constexpr int64_t kStateBytes = 16;

class Generator final : public c10::GeneratorImpl {
   public:
    struct Numbers : c10::intrusive_ptr_target {
        uint64_t seed = c10::default_rng_seed_val;
        uint64_t offset = 0;
    };

    explicit Generator(c10::DeviceIndex device, c10::intrusive_ptr<Numbers> numbers = c10::make_intrusive<Numbers>())
        : c10::GeneratorImpl({kDevice, device}, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
          numbers_(std::move(numbers)) {}

    static c10::DeviceType device_type() { return kDevice; }

    void set_current_seed(uint64_t seed) override {
        numbers_->seed = seed;
        numbers_->offset = 0;
    }
    uint64_t current_seed() const override { return numbers_->seed; }
    void set_offset(uint64_t offset) override { numbers_->offset = offset; }
    uint64_t get_offset() const override { return numbers_->offset; }

    uint64_t seed() override {
        const uint64_t random = c10::detail::getNonDeterministicRandom();
        set_current_seed(random);
        return random;
    }

    c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
        at::Tensor state = at::detail::empty_cpu({kStateBytes}, at::kByte);
        auto *bytes = state.mutable_data_ptr<uint8_t>();
        std::memcpy(bytes, &numbers_->seed, 8);
        std::memcpy(bytes + 8, &numbers_->offset, 8);
        return state.getIntrusivePtr();
    }

    void set_state(const c10::TensorImpl &state) override {
        TORCH_CHECK_TYPE(state.device_type() == at::kCPU && state.layout() == at::kStrided &&
                             state.dtype() == caffe2::TypeMeta::Make<uint8_t>(),
                         "RNG state must be a torch.ByteTensor");
        TORCH_CHECK(state.numel() == kStateBytes && state.is_contiguous(), "RNG state is wrong size: expected ",
                    kStateBytes, " bytes, got ", state.numel());
        const auto *bytes = static_cast<const uint8_t *>(state.data());
        std::memcpy(&numbers_->seed, bytes, 8);
        std::memcpy(&numbers_->offset, bytes + 8, 8);
    }

    // Graph-safe: another generator object over the same numbers, so that a captured program keeps its place.
    void graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl> &state) override {
        auto *other = dynamic_cast<Generator *>(state.get());
        TORCH_CHECK(other, "expected the state of a tpu generator");
        numbers_ = other->numbers_;
    }
    c10::intrusive_ptr<c10::GeneratorImpl> graphsafe_get_state() const override {
        return c10::make_intrusive<Generator>(device_.index(), numbers_);
    }

   private:
    Generator *clone_impl() const override {
        auto numbers = c10::make_intrusive<Numbers>();
        numbers->seed = numbers_->seed;
        numbers->offset = numbers_->offset;
        return new Generator(device_.index(), std::move(numbers));
    }

    c10::intrusive_ptr<Numbers> numbers_;
};

// Whether torch.set_default_device or a torch.device block made this device the one of calls that name none. PyTorch's
// samplers (torch/utils/data/sampler.py) then give the CPU generators they make to calls that land here; such a
// generator seeds the call.
bool is_default_device() {
    const pybind11::gil_scoped_acquire gil;
    const pybind11::object current = pybind11::module_::import("torch.utils._device").attr("CURRENT_DEVICE");
    return THPDevice_Check(current.ptr()) && reinterpret_cast<THPDevice *>(current.ptr())->device.type() == kDevice;
}

}  // namespace

const at::Generator &generator_default(c10::DeviceIndex device) {
    // std::map: references stay valid. Leaked, as libtorch keeps references past static destruction.
    static auto *generators = new std::map<c10::DeviceIndex, at::Generator>;
    static std::mutex mutex;
    device = checked_device_index(device);
    const std::lock_guard<std::mutex> lock(mutex);
    auto found = generators->find(device);
    if (found == generators->end()) found = generators->emplace(device, at::make_generator<Generator>(device)).first;
    return found->second;
}

at::Generator generator_new(c10::DeviceIndex device) {
    return at::make_generator<Generator>(checked_device_index(device));
}

void generator_next(const std::optional<at::Generator> &generator, int device, uint64_t uses, uint64_t *seed,
                    uint64_t *offset) {
    const bool given = generator.has_value() && generator->defined();
    at::Generator chosen = given ? *generator : generator_default(static_cast<c10::DeviceIndex>(device));
    if (chosen.device().is_cpu() && is_default_device()) {
        const std::lock_guard<std::mutex> lock(chosen.mutex());
        *seed = at::check_generator<at::CPUGeneratorImpl>(chosen)->random64();
        *offset = 0;
        return;
    }
    TORCH_CHECK(chosen.device().type() == kDevice, "Expected a 'tpu' device type for generator but found '",
                chosen.device().type(), "'");
    const std::lock_guard<std::mutex> lock(chosen.mutex());
    *seed = chosen.current_seed();
    *offset = chosen.get_offset();
    chosen.unsafeGetGeneratorImpl()->set_offset(*offset + uses);
}

}  // namespace torch_tpu
