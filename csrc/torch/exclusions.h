// Operators that the boxed function is not registered for, although their schemas would allow it.
#pragma once

namespace torch_tpu {

struct Exclusion {
    const char *name;  // with overload; a trailing * stands for anything; the first that fits decides
    const char *reason;
};

inline constexpr Exclusion kExclusions[] = {
    {"aten::_pack_padded_sequence*", "composed: its lengths are a CPU tensor"},
    {"aten::_pad_packed_sequence*", "composed: its batch sizes are a CPU tensor"},
    {"aten::_local_scalar_dense*", "copy to the host"},
    {"aten::_copy_from*", "copy"},
    {"aten::copy", "copy"},
    {"aten::copy_", "copy"},
    {"aten::copy.out", "copy"},
    {"aten::_to_copy*", "copy"},
    {"aten::clone", "copy: keeps the storage's typed base"},
    {"aten::clone.out", "copy"},
    {"aten::lift*", "moves between levels of functorch, computes nothing"},
    {"aten::set_*", "storage"},
    {"aten::set.*", "storage"},
    {"aten::_unsafe_view", "view that autograd does not follow: what is written into it is in its operand"},
    {"aten::unsafe_split*", "views that autograd does not follow"},
    {"aten::view_copy", "composed: copies whatever it cannot view"},
    {"aten::as_strided_", "view in place: new geometry, same storage"},
    {"aten::squeeze_*", "view in place"},
    {"aten::t_", "view in place"},
    {"aten::transpose_", "view in place"},
    {"aten::unsqueeze_", "view in place"},
    {"aten::resize*", "storage"},
    {"aten::_resize_output*", "storage"},
    {"aten::record_stream", "stream: there is one"},
    {"aten::is_pinned", "host memory"},
    {"aten::_pin_memory*", "host memory"},
    {"aten::empty*", "factory"},
    {"aten::new_empty*", "factory"},
    {"aten::_efficientzerotensor*", "factory of the zero-tensor key"},
    {"aten::_fw_primal*", "forward-mode autograd's level, computes nothing"},
    {"aten::_make_dual*", "forward-mode autograd's level, computes nothing"},
    {"aten::_has_same_storage_numel", "metadata"},
    {"aten::is_same_size", "metadata"},
    {"aten::sparse_dim", "metadata of sparse tensors"},
    {"aten::dense_dim", "metadata of sparse tensors"},
    {"aten::is_coalesced", "metadata of sparse tensors"},
    {"aten::allclose", "composed: answers with a number"},
    {"aten::_foobar*", "PyTorch's own test"},
    {"aten::_test_*", "PyTorch's own test"},
    {"aten::_assert_scalar*", "composed: checks on the host"},
    {"aten::_assert_tensor_metadata*", "composed: checks on the host"},
    {"aten::_linalg_check_errors", "composed: raises on the host"},
    {"aten::_sparse_*", "sparse layouts"},
    {"aten::_nested_*", "nested tensors"},
    {"aten::_mkldnn*", "CPU library"},
    {"aten::mkldnn*", "CPU library"},
    {"aten::cudnn*", "CUDA library"},
    {"aten::_cudnn*", "CUDA library"},
    {"aten::miopen*", "ROCm library"},
    {"aten::_cslt*", "CUDA library"},
};

}  // namespace torch_tpu
