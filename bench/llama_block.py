"""A Llama-style block, written once in PyTorch and once in JAX, compiled for TPUs that are not attached.

    python bench/llama_block.py [--topology v5e:1x1]... [--json]

Both programs go through the same compiler; the table shows its cost and temporaries for each and their ratio. The
block: hidden 2048, 16 heads of 128, 4 KV heads, SwiGLU 5632, RoPE, RMSNorm, bfloat16, batch 4, sequence 2048. "train":
forward, backward and plain SGD with the parameters in place.
"""

from __future__ import annotations

import argparse
import json
import os

import torch

from torch_tpu._trace import trace
from torch_tpu.tpu import aot

HIDDEN, HEADS, KV_HEADS, HEAD, INNER, BATCH, SEQ, RATE = 2048, 16, 4, 128, 5632, 4, 2048, 0.1
TOPOLOGIES = ("v5e:1x1", "v6e:1x1", "tpu7x:1x1x1")

# ---- PyTorch ----


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat([-b, a], -1) * sin


def angles(device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    frequency = 1.0 / 10000 ** (torch.arange(0, HEAD, 2, device=device, dtype=torch.float32) / HEAD)
    angle = torch.arange(SEQ, device=device, dtype=torch.float32)[:, None] * frequency
    angle = torch.cat([angle, angle], -1)
    return angle.cos().to(torch.bfloat16), angle.sin().to(torch.bfloat16)


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1 = torch.nn.RMSNorm(HIDDEN, eps=1e-5)
        self.norm2 = torch.nn.RMSNorm(HIDDEN, eps=1e-5)
        self.q = torch.nn.Linear(HIDDEN, HEADS * HEAD, bias=False)
        self.k = torch.nn.Linear(HIDDEN, KV_HEADS * HEAD, bias=False)
        self.v = torch.nn.Linear(HIDDEN, KV_HEADS * HEAD, bias=False)
        self.o = torch.nn.Linear(HEADS * HEAD, HIDDEN, bias=False)
        self.gate = torch.nn.Linear(HIDDEN, INNER, bias=False)
        self.up = torch.nn.Linear(HIDDEN, INNER, bias=False)
        self.down = torch.nn.Linear(INNER, HIDDEN, bias=False)

    def attention(self, x: torch.Tensor) -> torch.Tensor:
        b, s, _ = x.shape
        q = self.q(x).view(b, s, HEADS, HEAD).transpose(1, 2)
        k = self.k(x).view(b, s, KV_HEADS, HEAD).transpose(1, 2)
        v = self.v(x).view(b, s, KV_HEADS, HEAD).transpose(1, 2)
        cos, sin = angles(x.device)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.o(out.transpose(1, 2).reshape(b, s, HEADS * HEAD))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        y = self.norm2(x)
        return x + self.down(torch.nn.functional.silu(self.gate(y)) * self.up(y))


def ours(train: bool, topology: str) -> aot.Compiled:
    with torch.device("meta"):
        block = Block().to(torch.bfloat16)
        x = torch.empty(BATCH, SEQ, HIDDEN, dtype=torch.bfloat16)
    traced = trace(
        block,
        (x,),
        {},
        train=train,
        loss=lambda out: out.float().square().mean(),
        optimizer=(lambda p: torch.optim.SGD(p, lr=RATE)) if train else None,
    )
    return aot.compile_traced(traced, topology)


# ---- JAX ----


def jax_text(train: bool) -> str:
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    import jax
    import jax.numpy as jnp

    def norm(x, w):
        y = x.astype(jnp.float32)
        return (y * jax.lax.rsqrt(jnp.mean(y * y, -1, keepdims=True) + 1e-5)).astype(x.dtype) * w

    def turn(x, cos, sin):
        a, b = jnp.split(x, 2, -1)
        return x * cos + jnp.concatenate([-b, a], -1) * sin

    def attention(p, x):
        b, s, _ = x.shape
        q = (x @ p["q"].T).reshape(b, s, HEADS, HEAD)
        k = (x @ p["k"].T).reshape(b, s, KV_HEADS, HEAD)
        v = (x @ p["v"].T).reshape(b, s, KV_HEADS, HEAD)
        frequency = 1.0 / 10000 ** (jnp.arange(0, HEAD, 2, dtype=jnp.float32) / HEAD)
        angle = jnp.arange(s, dtype=jnp.float32)[:, None] * frequency
        angle = jnp.concatenate([angle, angle], -1)
        cos, sin = (f(angle).astype(x.dtype)[None, :, None] for f in (jnp.cos, jnp.sin))
        out = jax.nn.dot_product_attention(turn(q, cos, sin), turn(k, cos, sin), v, is_causal=True)
        return out.reshape(b, s, HEADS * HEAD) @ p["o"].T

    def forward(p, x):
        x = x + attention(p, norm(x, p["norm1"]))
        y = norm(x, p["norm2"])
        return x + (jax.nn.silu(y @ p["gate"].T) * (y @ p["up"].T)) @ p["down"].T

    def step(p, x):
        value, grads = jax.value_and_grad(lambda q: jnp.mean(jnp.square(forward(q, x).astype(jnp.float32))))(p)
        return value, jax.tree.map(lambda w, g: w - RATE * g, p, grads)

    sizes = {"norm1": (HIDDEN,), "norm2": (HIDDEN,), "q": (HEADS * HEAD, HIDDEN), "k": (KV_HEADS * HEAD, HIDDEN),
             "v": (KV_HEADS * HEAD, HIDDEN), "o": (HIDDEN, HEADS * HEAD), "gate": (INNER, HIDDEN),
             "up": (INNER, HIDDEN), "down": (HIDDEN, INNER)}  # fmt: skip
    p = {k: jax.ShapeDtypeStruct(v, jnp.bfloat16) for k, v in sizes.items()}
    x = jax.ShapeDtypeStruct((BATCH, SEQ, HIDDEN), jnp.bfloat16)
    function = jax.jit(step, donate_argnums=0) if train else jax.jit(forward)
    return function.trace(p, x).lower(lowering_platforms=("tpu",)).as_text()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topology", action="append")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    lines = []
    for topology in options.topology or TOPOLOGIES:
        for train in (False, True):
            mine, theirs = ours(train, topology), aot.compile_text(jax_text(train), topology)
            lines.append({
                "topology": topology, "program": "train" if train else "forward",
                "ours_ms": mine.seconds * 1e3, "jax_ms": theirs.seconds * 1e3, "ratio": mine.seconds / theirs.seconds,
                "ours_cycles_ms": mine.cycle_seconds * 1e3, "jax_cycles_ms": theirs.cycle_seconds * 1e3,
                "ours_temporaries_MB": mine.memory.temporaries / 1e6,
                "jax_temporaries_MB": theirs.memory.temporaries / 1e6,
                "temporaries_ratio": mine.memory.temporaries / max(theirs.memory.temporaries, 1),
            })  # fmt: skip
            if not options.json:
                r = lines[-1]
                print(
                    f"{topology:12} {r['program']:8} ours {r['ours_ms']:7.3f} ms, JAX {r['jax_ms']:7.3f} ms, ratio"
                    f" {r['ratio']:.3f}; by cycles {r['ours_cycles_ms']:.3f} and {r['jax_cycles_ms']:.3f};"
                    f" temporaries {r['ours_temporaries_MB']:.0f} and {r['jax_temporaries_MB']:.0f} MB",
                    flush=True,
                )
    if options.json:
        print(json.dumps(lines, indent=1))


if __name__ == "__main__":
    main()
