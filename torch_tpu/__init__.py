"""TorchTPU: the PyTorch device ``"tpu"``.

PyTorch finds this package by its ``torch.backends`` entry point, so ``import torch`` is enough. Importing it by name
does the same.
"""

__version__ = "0.1.0"


def _autoload() -> None:
    """What ``import torch`` calls. Leaves a machine alone that has another accelerator and no TPU."""
    from torch_tpu import _loader

    _loader.autoload()


# After _autoload: when this package is imported first, torch's own import calls it while this line runs.
import torch  # noqa: E402

if not getattr(torch.__spec__, "_initializing", False):  # imported by name, not by torch's autoloading
    from torch_tpu import _loader

    _loader.load()
