"""The short public interface."""

from __future__ import annotations

import torch


def tpu_device() -> torch.device:
    """The first device of this process."""
    return torch.device("tpu", 0)
