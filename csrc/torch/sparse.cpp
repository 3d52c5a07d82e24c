// Sparse tensors: their indices and values are dense tensors of this device, and what is said of them is said by
// PyTorch's own SparseTensorImpl and SparseCsrTensorImpl.
//
// PyTorch's kernels for the keys SparseCPU and SparseCsrCPU are, most of them, compositions of operators on indices and
// values, the same ones that it registers for CUDA; they are called here too. The others read memory. The most used of
// these are composed here; what is left runs on the CPU, with the usual warning.
#include <ATen/SparseTensorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ExpandUtils.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_convert_indices_from_csr_to_coo.h>
#include <ATen/ops/_sparse_coo_tensor_with_dims_and_tensors.h>
#include <ATen/ops/_sparse_csr_tensor_unsafe.h>
#include <ATen/ops/_unique2.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/result_type.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "torch/boxed.h"
#include "torch/runtime.h"

namespace torch_tpu {

namespace {

using Sizes = std::vector<int64_t>;

bool is_coo(const at::Tensor &t) { return t.layout() == at::kSparse; }
bool is_csr(const at::Tensor &t) { return t.layout() == at::kSparseCsr; }
bool is_dense(const at::Tensor &t) { return t.layout() == at::kStrided; }

// ---- coordinates ----

at::Tensor coo(const at::Tensor &indices, const at::Tensor &values, const at::Tensor &like, bool coalesced) {
    return at::_sparse_coo_tensor_with_dims_and_tensors(like.sparse_dim(), like.dense_dim(), like.sizes(), indices,
                                                        values, values.options().layout(at::kSparse), coalesced);
}

// The place in a row-major order of the sparse dimensions of each element; [nnz], int64.
at::Tensor flat_places(const at::Tensor &indices, at::IntArrayRef sizes) {
    at::Tensor flat = at::zeros({indices.size(1)}, indices.options());
    for (int64_t d = 0; d < indices.size(0); d++) flat = flat * sizes[d] + indices[d];
    return flat;
}

// [dimensions, nnz]
at::Tensor places_unflattened(const at::Tensor &flat, at::IntArrayRef sizes, int64_t dims) {
    if (dims == 0) return flat.new_empty({0, flat.numel()});
    std::vector<at::Tensor> rows(dims);
    at::Tensor left = flat;
    for (int64_t d = dims - 1; d >= 0; d--) {
        rows[d] = left.remainder(std::max<int64_t>(sizes[d], 1));
        left = left.floor_divide(std::max<int64_t>(sizes[d], 1));
    }
    return at::stack(rows);
}

// Duplicates added up, in row-major order. How many elements are left depends on the indices' values.
at::Tensor coalesced(const at::Tensor &self) {
    const at::Tensor indices = self._indices(), values = self._values();
    if (self._nnz() < 2) return coo(indices.clone(), values.clone(), self, true);
    auto [places, inverse, counts] = at::_unique2(flat_places(indices, self.sizes()), true, true);
    Sizes sizes = values.sizes().vec();
    sizes[0] = places.numel();
    const bool truth = values.scalar_type() == at::kBool;  // whose sum is whether there is one
    at::Tensor sums = at::zeros(sizes, truth ? values.options().dtype(at::kInt) : values.options());
    sums = sums.index_add(0, inverse, truth ? values.to(at::kInt) : values);
    return coo(places_unflattened(places, self.sizes(), self.sparse_dim()), truth ? sums.to(at::kBool) : sums, self,
               true);
}

// What indexes a dense tensor's elements at the coordinates.
c10::List<std::optional<at::Tensor>> index_list(const at::Tensor &indices) {
    c10::List<std::optional<at::Tensor>> list;
    for (int64_t d = 0; d < indices.size(0); d++) list.push_back(indices[d]);
    return list;
}

at::Tensor gathered(const at::Tensor &dense, const at::Tensor &indices) {
    if (indices.size(0) == 0) {
        Sizes sizes = dense.sizes().vec();
        sizes.insert(sizes.begin(), indices.size(1));
        return dense.unsqueeze(0).expand(sizes);
    }
    return dense.index(index_list(indices));
}

// Makes a sparse result of an out= or in-place form what `t` is.
at::Tensor &become(at::Tensor &out, const at::Tensor &t) {
    TORCH_CHECK(is_coo(out), "expected an output of layout torch.sparse_coo, but got ", out.layout());
    auto *impl = static_cast<at::SparseTensorImpl *>(out.unsafeGetTensorImpl());
    impl->raw_resize_(t.sparse_dim(), t.dense_dim(), t.sizes());
    impl->set_indices_and_values_unsafe(t._indices(), t._values().to(out.scalar_type()));
    impl->set_coalesced(t.is_coalesced());
    return out;
}

// ---- operators: each takes what it computes from the stack and leaves its result there; false: not such operands, and
// nothing has been touched ----

const at::Tensor &tensor_at(const torch::jit::Stack &stack, size_t i, size_t n) {
    return torch::jit::peek(stack, i, n).toTensor();
}

bool give(torch::jit::Stack *stack, size_t n, const at::Tensor &result) {
    torch::jit::drop(*stack, n);
    stack->emplace_back(result);
    return true;
}

// The result of an out= or in-place form.
bool write(torch::jit::Stack *stack, size_t n, size_t target, const at::Tensor &result) {
    at::Tensor out = tensor_at(*stack, target, n);
    if (is_coo(out)) {
        become(out, result);
    } else {
        at::native::resize_output(out, result.sizes());
        out.copy_(result);
    }
    return give(stack, n, out);
}

bool coalesce(torch::jit::Stack *stack) { return give(stack, 1, coalesced(tensor_at(*stack, 0, 1))); }

// ---- sums ----

at::Tensor scaled(const at::Tensor &t, const at::Scalar &by) { return by.equal(1) ? t : (t * by).to(t.scalar_type()); }

at::Tensor sum_with_dense(const at::Tensor &dense, const at::Tensor &sparse, const at::Scalar &alpha,
                          at::ScalarType type) {
    const at::Tensor values = scaled(sparse._values().to(type), alpha);
    if (sparse.sparse_dim() == 0) return dense.to(type) + values.sum(0);
    return dense.to(type).index_put(index_list(sparse._indices()), values, true);
}

at::Tensor sum(const at::Tensor &self, const at::Tensor &other, const at::Scalar &alpha, at::ScalarType type) {
    const at::Tensor values = at::cat({self._values().to(type), scaled(other._values().to(type), alpha)});
    const at::Tensor all = coo(at::cat({self._indices(), other._indices()}, 1), values, self, false);
    return self.is_coalesced() && other.is_coalesced() ? all.coalesce() : all;
}

// add.out(self, other, *, alpha, out)
bool add_out(torch::jit::Stack *stack) {
    const at::Tensor self = tensor_at(*stack, 0, 4), other = tensor_at(*stack, 1, 4), out = tensor_at(*stack, 3, 4);
    const at::Scalar alpha = torch::jit::peek(*stack, 2, 4).toScalar();
    const at::ScalarType type = at::result_type(self, other);
    if (!is_coo(other) || self.sizes() != other.sizes() || !at::canCast(type, out.scalar_type())) return false;
    if (is_dense(self)) return is_dense(out) && write(stack, 4, 3, sum_with_dense(self, other, alpha, type));
    if (!is_coo(self) || !is_coo(out) || self.sparse_dim() != other.sparse_dim()) return false;
    return write(stack, 4, 3, sum(self, other, alpha, type));
}

// ---- products by element ----

// mul.out(self, other, *, out), with a number or a dense tensor of the same sizes
bool mul_out(torch::jit::Stack *stack) {
    const at::Tensor self = tensor_at(*stack, 0, 3), other = tensor_at(*stack, 1, 3), out = tensor_at(*stack, 2, 3);
    const at::Tensor &sparse = is_coo(self) ? self : other, &factor = is_coo(self) ? other : self;
    if (!is_coo(sparse) || !is_dense(factor) || !is_coo(out)) return false;
    if (factor.dim() && factor.sizes() != sparse.sizes()) return false;
    if (!at::canCast(at::result_type(self, other), out.scalar_type())) return false;
    const at::Tensor indices = sparse._indices();
    const at::Tensor values = sparse._values() * (factor.dim() ? gathered(factor, indices) : factor);
    return write(stack, 3, 2, coo(indices, values, sparse, sparse.is_coalesced()));
}

// ---- matrix products ----

bool is_product(const at::Tensor &mat1, const at::Tensor &mat2) {
    const bool matrices = mat1.dim() == 2 && mat2.dim() == 2 && (is_csr(mat1) || (is_coo(mat1) && !mat1.dense_dim()));
    return matrices && is_dense(mat2) && mat1.size(1) == mat2.size(0) && mat1.scalar_type() == mat2.scalar_type() &&
           mat1.scalar_type() != at::kBool;
}

// mat1 mat2: row i is the sum of mat2's rows that mat1's elements in row i choose and weigh.
at::Tensor product(const at::Tensor &mat1, const at::Tensor &mat2) {
    const bool csr = is_csr(mat1);
    const at::Tensor places =
        csr ? at::_convert_indices_from_csr_to_coo(mat1.crow_indices(), mat1.col_indices()) : mat1._indices();
    const at::Tensor rows = mat2.index_select(0, places[1]) * (csr ? mat1.values() : mat1._values()).unsqueeze(1);
    return at::zeros({mat1.size(0), mat2.size(1)}, mat2.options()).index_add(0, places[0], rows);
}

// addmm, addmm_ and addmm.out: (self, mat1, mat2, *, beta, alpha[, out])
template <int n, int target>
bool addmm(torch::jit::Stack *stack) {
    const at::Tensor self = tensor_at(*stack, 0, n), mat1 = tensor_at(*stack, 1, n), mat2 = tensor_at(*stack, 2, n);
    const at::Scalar beta = torch::jit::peek(*stack, 3, n).toScalar(),
                     alpha = torch::jit::peek(*stack, 4, n).toScalar();
    if (!is_dense(self) || self.scalar_type() != mat2.scalar_type() || !is_product(mat1, mat2)) return false;
    if (!at::is_expandable_to(self.sizes(), {mat1.size(0), mat2.size(1)})) return false;
    at::Tensor result = scaled(product(mat1, mat2), alpha);
    if (!beta.equal(0)) result = result + scaled(self.expand(result.sizes()), beta);
    return target < 0 ? give(stack, n, result) : write(stack, n, target, result);
}

// bmm(self, mat2[, *, out])
template <int n>
bool bmm(torch::jit::Stack *stack) {
    const at::Tensor self = tensor_at(*stack, 0, n), mat2 = tensor_at(*stack, 1, n);
    if (!is_coo(self) || self.dim() != 3 || self.dense_dim() || !is_dense(mat2) || mat2.dim() != 3) return false;
    if (self.size(0) != mat2.size(0) || self.size(2) != mat2.size(1) || self.scalar_type() != mat2.scalar_type())
        return false;
    const at::Tensor places = self._indices(), rows = places[0] * self.size(1) + places[1];
    const at::Tensor chosen = mat2.flatten(0, 1).index_select(0, places[0] * self.size(2) + places[2]);
    const at::Tensor sums = at::zeros({self.size(0) * self.size(1), mat2.size(2)}, mat2.options())
                                .index_add(0, rows, chosen * self._values().unsqueeze(1));
    const at::Tensor result = sums.view({self.size(0), self.size(1), mat2.size(2)});
    return n == 2 ? give(stack, n, result) : write(stack, n, 2, result);
}

// sparse_sampled_addmm(self, mat1, mat2, *, beta, alpha): beta self + alpha (mat1 mat2) where self, a CSR matrix or a
// batch of them, has elements
bool sampled_addmm(torch::jit::Stack *stack) {
    const at::Tensor self = tensor_at(*stack, 0, 5), mat1 = tensor_at(*stack, 1, 5), mat2 = tensor_at(*stack, 2, 5);
    const at::Scalar beta = torch::jit::peek(*stack, 3, 5).toScalar(),
                     alpha = torch::jit::peek(*stack, 4, 5).toScalar();
    if (!is_csr(self) || !is_dense(mat1) || !is_dense(mat2) || self.dense_dim()) return false;
    const int64_t dims = self.dim();
    for (const at::Tensor &m : {mat1, mat2}) {
        if (m.dim() != dims || m.scalar_type() != self.scalar_type()) return false;
        if (m.sizes().slice(0, dims - 2) != self.sizes().slice(0, dims - 2)) return false;
    }
    if (mat1.size(-1) != mat2.size(-2) || self.size(-2) != mat1.size(-2) || self.size(-1) != mat2.size(-1))
        return false;
    const at::Tensor crow = self.crow_indices(), col = self.col_indices(), values = self.values();
    const at::Tensor places = at::_convert_indices_from_csr_to_coo(crow, col);
    const bool batched = places.size(0) > 2;
    auto chosen = [&](const at::Tensor &rows, int64_t coordinate) {
        const at::Tensor place = places[coordinate];
        return rows.flatten(0, -2).index_select(0, batched ? places[0] * rows.size(-2) + place : place);
    };
    at::Tensor dots = (chosen(mat1, -2) * chosen(mat2.transpose(-1, -2), -1)).sum(1);
    dots = scaled(dots, alpha).view(values.sizes());
    if (!beta.equal(0)) dots = dots + scaled(values, beta);
    return give(stack, 5,
                at::_sparse_csr_tensor_unsafe(crow, col, dots, self.sizes(), self.scalar_type(), at::kSparseCsr,
                                              self.device(), std::nullopt));
}

struct Composed {
    const char *name;
    bool (*run)(torch::jit::Stack *);
};

constexpr Composed kComposed[] = {
    {"aten::_coalesce", coalesce}, {"aten::add.out", add_out},    {"aten::mul.out", mul_out},
    {"aten::addmm", addmm<5, -1>}, {"aten::addmm_", addmm<5, 0>}, {"aten::addmm.out", addmm<6, 5>},
    {"aten::bmm", bmm<2>},         {"aten::bmm.out", bmm<3>},     {"aten::sparse_sampled_addmm", sampled_addmm},
};

// ---- compressed indices ----

at::Tensor compressed(const at::Tensor &rows, int64_t size, bool out_int32) {
    const at::Tensor starts = at::arange(size + 1, rows.options());
    return at::searchsorted(rows, starts).to(out_int32 ? at::kInt : at::kLong);
}

at::Tensor uncompressed(const at::Tensor &crow, const at::Tensor &col, bool out_int32, bool transpose) {
    const at::ScalarType type = out_int32 ? at::kInt : at::kLong;
    const int64_t dims = crow.dim();
    const at::Tensor starts = dims > 1 ? crow.flatten(0, -2) : crow.unsqueeze(0);
    const at::Tensor columns = dims > 1 ? col.flatten(0, -2) : col.unsqueeze(0);
    const int64_t batch = starts.size(0), n = columns.size(1);
    const at::Tensor places = at::arange(n, starts.options()).expand({batch, n}).contiguous();
    const at::Tensor rows = at::searchsorted(starts.contiguous(), places, false, true).sub(1).to(type);
    const at::Tensor across = columns.to(type).reshape({-1}), down = rows.reshape({-1});
    const at::Tensor pair = transpose ? at::stack({across, down}) : at::stack({down, across});
    if (dims == 1) return pair;
    const at::Tensor batches = at::arange(batch, pair.options()).unsqueeze(1).expand({batch, n}).reshape({1, -1});
    return at::cat({batches, pair});
}

// ---- the dispatcher ----

// PyTorch's kernels that read memory, beside those that say so themselves by asking for a kernel of this device, and
// those of kComposed, with operands that are not composed here.
constexpr const char *kReadMemory[] = {
    "aten::_sparse_sparse_matmul",
    "aten::_sparse_sum_backward",
    "aten::_sparse_softmax",
    "aten::_sparse_softmax_backward_data",
    "aten::_sparse_log_softmax",
    "aten::_sparse_log_softmax_backward_data",
    "aten::_sparse_csr_sum.dim_dtype",
    "aten::_sparse_csr_prod.dim_dtype",
    "aten::_sparse_mm_reduce_impl",
    "aten::_sparse_mm_reduce_impl_backward",
    "aten::addmv.out",
    "aten::hspmm",
    "aten::hspmm.out",
    "aten::index_select",
    "aten::sparse_sampled_addmm.out",
    "aten::sspaddmm.out",
    "aten::triangular_solve.X",
};

// A kernel of PyTorch's for the CPU that works on whatever its operands are made of. false: it does not, and has done
// nothing.
bool call_shared(const c10::OperatorHandle &op, c10::DispatchKey key, torch::jit::Stack *stack) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    const torch::jit::Stack arguments = torch::jit::last(*stack, op.schema().arguments().size()).vec();
    const size_t below = stack->size() - arguments.size();
    try {
        op.redispatchBoxed(c10::DispatchKeySet(key), stack);
        return true;
    } catch (const c10::Error &e) {
        if (e.msg().find("DispatchStub: missing kernel") == std::string::npos) throw;
    }
    stack->resize(below);
    stack->insert(stack->end(), arguments.begin(), arguments.end());
    return false;
}

// Numbers may be anywhere, and copies go from one device to another.
void check_devices(const c10::OperatorHandle &op, const std::string &name, const torch::jit::Stack &stack) {
    if (name.find("copy") != std::string::npos || name == "aten::resize_as_sparse_") return;
    for (const c10::IValue &value : torch::jit::last(stack, op.schema().arguments().size()))
        each_tensor(value, [&](const at::Tensor &t) {
            TORCH_CHECK(is_tpu(t) || t.dim() == 0, name, ": Expected all tensors to be on the same device, but found ",
                        "one on ", t.device(), " beside those on device tpu");
        });
}

void run_sparse(const c10::OperatorHandle &op, c10::DispatchKey key, torch::jit::Stack *stack) {
    check_not_forked();
    const std::string name = qualified_name(op.operator_name());
    check_devices(op, name, *stack);
    TORCH_CHECK_NOT_IMPLEMENTED(op.hasKernelForDispatchKey(key), "operator ", name,
                                " is not available for sparse tensors on device tpu: PyTorch has no kernel for this "
                                "layout; convert them with .to_dense()");
    bool shared = true;
    for (const Composed &composed : kComposed)
        if (name == composed.name) {
            at::AutoDispatchBelowADInplaceOrView below_autograd;
            if (composed.run(stack)) return;
            shared = false;
        }
    for (const char *listed : kReadMemory) shared = shared && name != listed;
    if (shared && call_shared(op, key, stack)) return;
    run_on_cpu(plan_of(op), stack, "PyTorch's kernel for sparse tensors reads memory");
}

class SparseOperator final : public c10::OperatorKernel {
   public:
    explicit SparseOperator(c10::DispatchKey shared) : shared_(shared) {}
    void operator()(const c10::OperatorHandle &op, c10::DispatchKeySet, torch::jit::Stack *stack) {
        run_sparse(op, shared_, stack);
    }

   private:
    c10::DispatchKey shared_;
};

// Dense tensors made sparse.
class Sparsifier final : public c10::OperatorKernel {
   public:
    void operator()(const c10::OperatorHandle &op, c10::DispatchKeySet, torch::jit::Stack *stack) {
        run_sparse(op, c10::DispatchKey::CPU, stack);
    }
};

// A fallback alone would come after compositions that are meant for dense tensors.
void share_kernels(c10::DispatchKey key, c10::DispatchKey shared) {
    auto &dispatcher = c10::Dispatcher::singleton();
    auto kernel = [&] { return c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<SparseOperator>(shared)); };
    static auto *handles = new std::vector<c10::RegistrationHandleRAII>;
    for (const c10::OperatorName &name : dispatcher.getAllOpNames()) {
        auto op = dispatcher.findSchema(name);
        if (op && op->hasKernelForDispatchKey(shared) && !op->hasKernelForDispatchKey(key))
            handles->push_back(dispatcher.registerImpl(name, key, kernel(), std::nullopt, nullptr, "torch_tpu"));
    }
    handles->push_back(dispatcher.registerFallback(key, kernel(), "torch_tpu"));
}

}  // namespace

void register_sparse(torch::Library &aten) {
    aten.impl("_convert_indices_from_coo_to_csr", &compressed);
    aten.impl("_convert_indices_from_csr_to_coo", &uncompressed);
    for (const char *name : {"_to_sparse", "_to_sparse.sparse_dim", "_to_sparse_csr", "_to_sparse_csc",
                             "_to_sparse_bsr", "_to_sparse_bsc"})
        aten.impl(name, torch::CppFunction::makeFromBoxedFunctor(std::make_unique<Sparsifier>()));
    constexpr std::pair<c10::DispatchKey, c10::DispatchKey> kKeys[] = {
        {c10::DispatchKey::SparsePrivateUse1, c10::DispatchKey::SparseCPU},
        {c10::DispatchKey::SparseCsrPrivateUse1, c10::DispatchKey::SparseCsrCPU},
    };
    for (auto [key, shared] : kKeys) share_kernels(key, shared);
}

}  // namespace torch_tpu
