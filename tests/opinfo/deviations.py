"""Where an operator of PyTorch's database does not do what it does on the CPU, and why. A case that starts to agree fails its test."""

# (operator, dtype or "*"): reason
KNOWN = {
    ("chalf", "*"): "XLA has no complex numbers of half precision; the error says so",
}

# Compared by device, dtype and shape alone: the values are whatever memory holds, or another device's random numbers.
VALUES_DIFFER = {
    *("empty", "empty_like", "new_empty", "empty_permuted", "empty_strided", "new_empty_strided"),
    *("bernoulli", "cauchy", "exponential", "geometric", "log_normal", "multinomial", "normal", "normal.in_place", "normal.number_mean"),
    *("nn.functional.multi_head_attention_forward", "rand_like", "randint", "randint_like", "randn", "randn_like", "uniform", "nn.functional.rrelu"),
    # which the database seeds, so that the CPU repeats itself
    *("nn.functional.dropout2d", "nn.functional.dropout3d", "nn.functional.feature_alpha_dropout.with_train", "svd_lowrank"),
}  # fmt: skip

# The same of some samples only, by their keyword arguments.
RANDOM_SAMPLES = {
    "nn.functional.dropout": lambda p=0.5, training=True, **_: training and 0 < p < 1,
    "nn.functional.alpha_dropout": lambda p=0.5, training=True, **_: training and 0 < p < 1,
    "nn.functional.scaled_dot_product_attention": lambda dropout_p=0.0, **_: dropout_p > 0,
    "nn.functional.fractional_max_pool2d": lambda _random_samples=None, **_: _random_samples is None,
    "nn.functional.fractional_max_pool3d": lambda _random_samples=None, **_: _random_samples is None,
}

# Their saved mean and inverse deviation of half-precision operands are float32, as CUDA's are: the backward divides by
# them. The CPU rounds them to the operand's type, where its kernel is not given float32 parameters.
SAVED_STATISTICS = {"_native_batch_norm_legit", "_batch_norm_with_update", "native_batch_norm", "native_layer_norm"}

# The CPU's kernels refuse operands laid out in some ways; here, as the operators' documentation has it, any will do, and
# the result is that of a contiguous copy.
ANY_LAYOUT = {"native_group_norm", "nn.functional.max_pool3d"}

# (operator): (rtol, atol) where float32 arithmetic in another order moves the result more than the usual tolerance.
TOLERANCES = {}

# Whose indices of equal elements are any order's; the dimension from the arguments behind the operand.
TIES = {
    "sort": lambda dim=-1, descending=False, **_: dim,
    "argsort": lambda dim=-1, descending=False, **_: dim,
    "topk": lambda k, dim=-1, *_, **__: dim,
    "kthvalue": lambda k, dim=-1, *_, **__: dim,
}

# Compared, in bfloat16 and float16, with the CPU's result in float32: the CPU's kernel rounds after each of several
# steps, or adds up in the narrow type; the device computes in float32 and rounds once.
ROUNDED_OFTEN = {
    *("grid_sampler_2d", "nn.functional.grid_sample", "_unsafe_masked_index_put_accumulate"),
    *("nn.functional.conv_transpose1d", "nn.functional.conv_transpose2d", "nn.functional.conv_transpose3d"),
    *("nn.functional.binary_cross_entropy_with_logits", "matrix_exp"),  # whose squarings in bfloat16 give NaN
    "nn.functional.soft_margin_loss",  # whose exponential is infinite in float16
}

# The CPU gives their out= another shape without PyTorch's warning about it; the device warns.
OUT_WITHOUT_WARNING = {
    *("addbmm", "baddbmm", "narrow_copy", "nn.functional.linear", "nn.functional.logsigmoid"),
}

# PyTorch's own Python code copies into out= tensors, whatever device they are on.
OUT_IN_PYTHON = {"lu"}

# How many of an operator's wrong arguments may raise nothing in strict mode: indices and probabilities that only the
# device knows, which debug mode reads back, and numbers that have become run-time inputs of a program.
WRONG_VALUES = {"multinomial": 14}

# An index out of range is an IndexError here, whichever operator it is an argument of; these raise RuntimeError on the CPU.
INDEX_ERRORS = {"gather", "scatter", "scatter_add"}

# (operator, check of its forms): how many samples fail.
FORMS = {
    ("fft.ihfftn", "out_forms"): 2,  # the CPU leaves the conjugation out, of an empty out= everything
}

# Modules of which a few gradients in bfloat16 are further from float32's than the CPU's are, and why. The root mean
# square of the error must be within ROUNDING of the largest element, five steps of bfloat16.
STEP_BY_STEP = "PyTorch multiplies the input step by step on any device but the CPU, and adds up gradients in bfloat16"
RECTIFIED = "the gradient passes a rectifier or not, whose operand is within rounding of zero"
ROUNDED_MODULES = {
    "nn.GRU": STEP_BY_STEP,
    "nn.TransformerEncoder": RECTIFIED,
    "nn.TransformerDecoderLayer": RECTIFIED,
}
ROUNDING = 5 * 2**-8
