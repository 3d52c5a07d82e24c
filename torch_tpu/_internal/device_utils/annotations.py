"""Decorators that mark a function as a stage of a program, for profiles."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TypeVar

import torch

_Function = TypeVar("_Function", bound=Callable)


def stage(name: str) -> Callable[[_Function], _Function]:
    """Calls of the decorated function show as the range `name` in PyTorch's profiler."""

    def decorate(function: _Function) -> _Function:
        @functools.wraps(function)
        def call(*args, **kwargs):
            with torch.profiler.record_function(name):
                return function(*args, **kwargs)

        return call  # type: ignore[return-value]

    return decorate
