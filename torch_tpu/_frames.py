"""The user's line: what warnings and messages point at."""

from __future__ import annotations

import functools
import linecache
import os
import sys
import types
import warnings

# Code without a file of its own that a user can have typed; other names in brackets are generated code and importers.
_TYPED = ("<string>", "<stdin>")


@functools.cache
def _libraries() -> tuple[str, ...]:
    import torch

    return tuple(os.path.dirname(os.path.abspath(file)) + os.sep for file in (__file__, torch.__file__))


def user_frame() -> types.FrameType | None:
    """The innermost frame whose code is neither ours nor PyTorch's."""
    libraries = _libraries()
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith(libraries) and (not name.startswith("<") or name in _TYPED):
            return frame
        frame = frame.f_back
    return None


def user_line() -> str:
    """Its place, as "model.py:12", relative to the working directory where it is inside; "" where there is none."""
    frame = user_frame()
    if frame is None:
        return ""
    name = frame.f_code.co_filename
    return f"{os.path.relpath(name) if name.startswith(os.getcwd() + os.sep) else name}:{frame.f_lineno}"


def line_text(place: str) -> str:
    """The source text of a place that user_line() gave; "" where it cannot be read."""
    name, _, number = place.rpartition(":")
    return linecache.getline(name, int(number)).strip() if number.isdigit() else ""


def warn(message: str) -> None:
    """A UserWarning at the user's line. (warnings.warn has skip_file_prefixes only from Python 3.12 on, and its
    stacklevel counts no frames of importers.)"""
    frame = user_frame()
    if frame is None:
        warnings.warn(message, UserWarning, stacklevel=2)
        return
    warnings.warn_explicit(
        message,
        UserWarning,
        frame.f_code.co_filename,
        frame.f_lineno,
        module=frame.f_globals.get("__name__", "<unknown>"),
        registry=frame.f_globals.setdefault("__warningregistry__", {}),
    )
