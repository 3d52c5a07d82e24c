"""The extension module (csrc/python): its functions carry their own docstrings."""

from typing import Any

def __getattr__(name: str) -> Any: ...
