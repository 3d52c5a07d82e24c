"""Checks of what users pass, by tables: what each argument of a function can be, in types and in words."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

Test = Callable[[Any], bool]


class Wanted(NamedTuple):
    words: str  # "a positive number of seconds"
    types: tuple[Any, ...]
    valid: Test = lambda value: True  # of a value of these types
    optional: bool = False  # None is taken as well


def check(call: str, wanted: Mapping[str, Wanted], given: Mapping[str, Any]) -> None:
    """Raises TypeError, or ValueError for a value of a right type, that names the call and the argument.

    A bool is no number here. `given` may have more names than `wanted`.
    """
    for name, (words, types, valid, optional) in wanted.items():
        value = given[name]
        if value is None and optional:
            continue
        must = f"{call}: {name} must be {'None or ' if optional else ''}{words}"
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            raise TypeError(f"{must}, not {type(value).__name__}")
        if not valid(value):
            raise ValueError(f"{must}, not {' '.join(reprlib.repr(value).split())}")
