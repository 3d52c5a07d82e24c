// The headers of libtorch that every file of the bridge includes, parsed once for the build.
#include <torch/csrc/python_headers.h>

#include <ATen/core/Tensor.h>
#include <torch/library.h>
