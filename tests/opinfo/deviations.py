"""Where an operator of PyTorch's database does not do what it does on the CPU, and why. A case that starts to agree fails its test."""

# (operator, dtype or "*"): reason
KNOWN = {
    ("chalf", "*"): "XLA has no complex numbers of half precision; the error says so",
}

# Compared by device, dtype and shape alone: the values are whatever memory holds, or another device's random numbers.
VALUES_DIFFER = {
    *("empty", "empty_like", "new_empty", "empty_permuted", "empty_strided", "new_empty_strided"),
    *("bernoulli", "cauchy", "exponential", "geometric", "log_normal", "multinomial", "normal", "normal.in_place", "normal.number_mean"),
    *("rand_like", "randint", "randint_like", "randn", "randn_like", "uniform", "nn.functional.rrelu"),
}  # fmt: skip

# (operator): (rtol, atol) where float32 arithmetic in another order moves the result more than the usual tolerance.
TOLERANCES = {}
