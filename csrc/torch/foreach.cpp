// _foreach_* operators whose lists share memory.
#include <ATen/EmptyTensor.h>

#include <algorithm>
#include <tuple>

#include "torch/boxed.h"
#include "torch/boxed_special.h"

namespace torch_tpu {

namespace {

using torch::jit::Stack;

// A storage that tensors of different places in the lists have: seldom, so looked for in the quickest way.
bool storage_shared(const OperatorPlan &plan, Stack *stack) {
    thread_local std::vector<std::pair<const c10::StorageImpl *, size_t>> table;
    size_t count = 0;
    for (const c10::IValue &value : torch::jit::last(*stack, plan.stack_size))
        if (value.isTensorList()) count += value.toListRef().size();
    size_t room = 16;
    while (room < 2 * count) room *= 2;
    table.assign(room, {nullptr, 0});
    for (const c10::IValue &value : torch::jit::last(*stack, plan.stack_size)) {
        if (!value.isTensorList()) continue;
        size_t place = 0;
        for (const c10::IValue &entry : value.toListRef()) {
            place++;
            if (!entry.isTensor() || !entry.toTensor().defined() || !entry.toTensor().has_storage()) continue;
            const c10::StorageImpl *storage = entry.toTensor().storage().unsafeGetStorageImpl();
            size_t at = (reinterpret_cast<uintptr_t>(storage) >> 4) * 0x9E3779B97F4A7C15u >> 20 & (room - 1);
            while (table[at].first && table[at].first != storage) at = (at + 1) & (room - 1);
            if (table[at].first && table[at].second != place) return true;
            table[at] = {storage, place};
        }
    }
    return false;
}

// What of a storage a tensor of the lists spans.
struct Span {
    const c10::StorageImpl *storage;
    const char *begin, *end;
    size_t place;
    bool written;
};

void add_spans(const c10::IValue &list, bool written, std::vector<Span> &spans) {
    size_t place = 0;
    for (const c10::IValue &entry : list.toListRef()) {
        place++;
        const at::Tensor *t = entry.isTensor() ? &entry.toTensor() : nullptr;
        if (!t || !t->defined() || t->numel() == 0 || !t->has_storage()) continue;
        const auto *begin = static_cast<const char *>(t->const_data_ptr());
        spans.push_back({t->storage().unsafeGetStorageImpl(), begin,
                         begin + at::detail::computeStorageNbytes(t->sizes(), t->strides(), t->element_size()), place,
                         written});
    }
}

// A part that tensors of different places have, one of which is written.
bool overlap_across(std::vector<Span> &spans) {
    std::sort(spans.begin(), spans.end(),
              [](const Span &a, const Span &b) { return std::tie(a.storage, a.begin) < std::tie(b.storage, b.begin); });
    for (size_t i = 0; i < spans.size(); i++)
        for (size_t j = i + 1; j < spans.size() && spans[j].storage == spans[i].storage; j++) {
            if (spans[j].begin >= spans[i].end) break;
            if (spans[i].place != spans[j].place && (spans[i].written || spans[j].written)) return true;
        }
    return false;
}

}  // namespace

bool foreach_shared(const OperatorPlan &plan, Stack *stack) {
    if (!plan.writes || !plan.composite || !storage_shared(plan, stack)) return false;
    const auto &arguments = plan.called.schema().arguments();
    thread_local std::vector<Span> spans;
    spans.clear();
    for (int i = 0; i < plan.stack_size; i++) {
        const c10::IValue &value = torch::jit::peek(*stack, i, plan.stack_size);
        if (value.isTensorList()) add_spans(value, is_written(arguments[i]), spans);
    }
    return overlap_across(spans) && compose(plan, stack);
}

}  // namespace torch_tpu
