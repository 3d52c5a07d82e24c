"""Decompositions of our own, for operators where PyTorch has none or one that does not suit a compiler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

table: dict[torch._ops.OpOverload, Callable[..., Any]] = {}


def register(*ops: torch._ops.OpOverload) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def add(f: Callable[..., Any]) -> Callable[..., Any]:
        for op in ops:
            table[op] = f
        return f

    return add
