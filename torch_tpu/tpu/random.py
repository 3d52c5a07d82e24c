"""Random numbers: one generator a device, seeded and saved as torch.cuda's are. Needs no client."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from torch_tpu import _C

from .devices import _device_index


def default_generators() -> tuple[torch.Generator, ...]:
    return tuple(_C.default_generator(i) for i in range(_C.device_count()))


def _get_generator(device: torch.device) -> torch.Generator:
    return _C.default_generator(_device_index(device))


def get_rng_state(device: Any = "tpu") -> torch.Tensor:
    """The state of a device's default generator: 16 bytes, seed then offset, as a uint8 CPU tensor."""
    return _C.default_generator(_device_index(device)).get_state()


def set_rng_state(new_state: torch.Tensor, device: Any = "tpu") -> None:
    _C.default_generator(_device_index(device)).set_state(new_state)


def get_rng_state_all() -> list[torch.Tensor]:
    return [generator.get_state() for generator in default_generators()]


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


def manual_seed(seed: int) -> None:
    """Seeds the current device's default generator."""
    _C.default_generator(-1).manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seeds the default generators of all devices."""
    for generator in default_generators():
        generator.manual_seed(int(seed))


def seed() -> int:
    """Seeds the current device's default generator with a random number, and returns it."""
    return _C.default_generator(-1).seed()


def seed_all() -> None:
    """Seeds all devices with one random number."""
    manual_seed_all(seed())


def initial_seed() -> int:
    """The current device's seed."""
    return _C.default_generator(-1).initial_seed()
