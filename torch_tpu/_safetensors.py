"""Writes safetensors files: 8 bytes of header length, a JSON header, then the tensors' bytes.

Format: https://github.com/huggingface/safetensors, section "Format".
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

import torch

_DTYPES = {
    torch.bool: "BOOL",
    torch.uint8: "U8",
    torch.int8: "I8",
    torch.uint16: "U16",
    torch.int16: "I16",
    torch.uint32: "U32",
    torch.int32: "I32",
    torch.uint64: "U64",
    torch.int64: "I64",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.float8_e4m3fnuz: "F8_E4M3FNUZ",
    torch.float8_e5m2fnuz: "F8_E5M2FNUZ",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float32: "F32",
    torch.float64: "F64",
    torch.complex64: "C64",
    torch.complex128: "C128",
}
_ALIGNMENT = 8


def save(path: str | os.PathLike[str], tensors: Mapping[str, torch.Tensor]) -> None:
    """Writes tensors of any device, one after the other, row-major. Raises TypeError for a dtype the format lacks."""
    header, offset = {}, 0
    # Wide elements first: then each tensor lies at a multiple of its element's size.
    order = sorted(tensors, key=lambda name: -tensors[name].element_size())
    for name in order:
        t = tensors[name]
        if t.dtype not in _DTYPES:
            raise TypeError(f"{name}: safetensors files hold no {t.dtype}")
        end = offset + t.numel() * t.element_size()
        header[name] = {"dtype": _DTYPES[t.dtype], "shape": list(t.size()), "data_offsets": [offset, end]}
        offset = end
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % _ALIGNMENT)
    with open(path, "wb") as file:
        file.write(len(encoded).to_bytes(8, "little") + encoded)
        for name in order:
            t = tensors[name].detach().cpu().resolve_conj().resolve_neg().contiguous()
            file.write(t.reshape(-1).view(torch.uint8).numpy().data if t.numel() else b"")
