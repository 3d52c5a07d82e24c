"""``torch.tpu.pallas``: see torch_tpu.pallas."""

from torch_tpu.pallas import JaxOp, custom_jax_kernel, get_pallas_mesh, jax_op

__all__ = ["JaxOp", "custom_jax_kernel", "get_pallas_mesh", "jax_op"]
