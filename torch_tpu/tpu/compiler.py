"""torch.tpu.compiler: how programs are compiled."""

from __future__ import annotations

# Options of torch.compile(options=...) that the backend "tpu" has: name -> what it does.
OPTIONS: dict[str, str] = {}
