"""Where an operator of PyTorch's database does not do what it does on the CPU, and why. A case that starts to agree fails its test."""

# (operator, dtype or "*"): reason
KNOWN = {}

# Compared by device, dtype and shape alone, because the values are whatever memory holds.
UNINITIALISED = {"empty", "empty_like", "new_empty", "empty_permuted", "empty_strided", "new_empty_strided"}

# (operator): (rtol, atol) where float32 arithmetic in another order moves the result more than the usual tolerance.
TOLERANCES = {}
