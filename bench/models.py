"""Models written once in PyTorch and once in JAX, compiled for TPUs that are not attached.

    python bench/models.py [--model llama_block]... [--topology v5e:1x1]... [--json]

Both programs go through the same compiler; the table shows its cost and temporaries for each and their ratio.

- llama_block: hidden 2048, 16 heads of 128, 4 KV heads, SwiGLU 5632, RoPE, RMSNorm, batch 4, sequence 2048
- bert_base: 12 layers of width 768, 12 heads, 3072 inside, norms after, batch 32, sequence 512, no embeddings
- resnet50: batch 32 of 3 x 224 x 224, norms from the batch

All in bfloat16. "train": forward, backward and plain SGD with the parameters in place. Attention is what each framework
does by itself: `scaled_dot_product_attention` here, which is a kernel on a TPU, and `jax.nn.dot_product_attention`;
"JAX, kernel" is JAX's flash attention in its place.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from torch_tpu.tpu import aot

RATE = 0.1
TOPOLOGIES = ("v5e:1x1", "v6e:1x1", "tpu7x:1x1x1")
HEADS, KV_HEADS, HEAD, INNER, HIDDEN = 16, 4, 128, 5632, 2048
BERT_LAYERS, BERT_WIDTH, BERT_HEADS = 12, 768, 12
STAGES = ((3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2))  # blocks, width, stride
SHAPES = {"llama_block": (4, 2048, HIDDEN), "bert_base": (32, 512, BERT_WIDTH), "resnet50": (32, 3, 224, 224)}

# ---- PyTorch ----


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat([-b, a], -1) * sin


def angles(length: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    frequency = 1.0 / 10000 ** (torch.arange(0, HEAD, 2, device=device, dtype=torch.float32) / HEAD)
    angle = torch.arange(length, device=device, dtype=torch.float32)[:, None] * frequency
    angle = torch.cat([angle, angle], -1)
    return angle.cos().to(torch.bfloat16), angle.sin().to(torch.bfloat16)


class LlamaBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(HIDDEN, eps=1e-5), nn.RMSNorm(HIDDEN, eps=1e-5)
        self.q = nn.Linear(HIDDEN, HEADS * HEAD, bias=False)
        self.k = nn.Linear(HIDDEN, KV_HEADS * HEAD, bias=False)
        self.v = nn.Linear(HIDDEN, KV_HEADS * HEAD, bias=False)
        self.o = nn.Linear(HEADS * HEAD, HIDDEN, bias=False)
        self.gate = nn.Linear(HIDDEN, INNER, bias=False)
        self.up = nn.Linear(HIDDEN, INNER, bias=False)
        self.down = nn.Linear(INNER, HIDDEN, bias=False)

    def attention(self, x: torch.Tensor) -> torch.Tensor:
        b, s, _ = x.shape
        q = self.q(x).view(b, s, HEADS, HEAD).transpose(1, 2)
        k = self.k(x).view(b, s, KV_HEADS, HEAD).transpose(1, 2)
        v = self.v(x).view(b, s, KV_HEADS, HEAD).transpose(1, 2)
        cos, sin = angles(s, x.device)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.o(out.transpose(1, 2).reshape(b, s, HEADS * HEAD))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class BertLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        width = BERT_WIDTH
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, s, width = x.shape
        q, k, v = (f(x).view(b, s, BERT_HEADS, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, s, width)
        x = self.norm1(x + self.o(mixed))
        return self.norm2(x + self.narrow(F.gelu(self.wide(x))))


def convolution(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False)


def batch_norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, track_running_stats=False)


class Bottleneck(nn.Module):
    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(
            [convolution(inputs, width, 1), convolution(width, width, 3, stride), convolution(width, 4 * width, 1)]
        )
        self.norms = nn.ModuleList(batch_norm(n) for n in (width, width, 4 * width))
        self.side = None
        if stride > 1 or inputs != 4 * width:
            self.side = nn.Sequential(convolution(inputs, 4 * width, 1, stride), batch_norm(4 * width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x
        for i, (c, n) in enumerate(zip(self.convolutions, self.norms, strict=True)):
            y = n(c(y))
            if i < 2:
                y = F.relu(y)
        return F.relu(y + (x if self.side is None else self.side(x)))


class ResNet50(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = convolution(3, 64, 7, 2), batch_norm(64)
        blocks, channels = [], 64
        for count, width, stride in STAGES:
            for i in range(count):
                blocks.append(Bottleneck(channels, width, stride if i == 0 else 1))
                channels = 4 * width
        self.blocks, self.head = nn.Sequential(*blocks), nn.Linear(channels, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.relu(self.norm(self.stem(x))), 3, 2, 1)
        return self.head(self.blocks(x).mean((2, 3)))


def module(model: str) -> nn.Module:
    if model == "bert_base":
        return nn.Sequential(*(BertLayer() for _ in range(BERT_LAYERS)))
    return LlamaBlock() if model == "llama_block" else ResNet50()


def ours(model: str, train: bool, topology: str) -> aot.Compiled:
    with torch.device("meta"):
        made = module(model).to(torch.bfloat16)
        x = torch.empty(SHAPES[model], dtype=torch.bfloat16)
    if not train:
        return aot.compile(made, (x,), topology=topology)
    return aot.compile(
        made, (x,), topology=topology, train=True, loss=lambda out: out.float().square().mean(),
        optimizer=lambda p: torch.optim.SGD(p, lr=RATE),
    )  # fmt: skip


# ---- JAX ----


def jax_attention(q: Any, k: Any, v: Any, causal: bool, kernel: bool) -> Any:
    """[batch, length, heads, width]"""
    import jax
    import jax.numpy as jnp

    if not kernel:
        return jax.nn.dot_product_attention(q, k, v, is_causal=causal)
    from jax.experimental.pallas.ops.tpu.flash_attention import BlockSizes, flash_attention

    group = q.shape[2] // k.shape[2]
    q, k, v = (jnp.swapaxes(t, 1, 2) for t in (q, jnp.repeat(k, group, 2), jnp.repeat(v, group, 2)))
    n = 512
    blocks = BlockSizes(
        block_q=n, block_k_major=n, block_k=n, block_b=1, block_q_major_dkv=n, block_k_major_dkv=n, block_k_dkv=n,
        block_q_dkv=n, block_k_major_dq=n, block_k_dq=n, block_q_dq=n,
    )  # fmt: skip
    out = flash_attention(q, k, v, causal=causal, sm_scale=q.shape[-1] ** -0.5, block_sizes=blocks)
    return jnp.swapaxes(out, 1, 2)


def jax_llama(kernel: bool) -> tuple[Any, Any]:
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
        k, v = ((x @ p[n].T).reshape(b, s, KV_HEADS, HEAD) for n in "kv")
        frequency = 1.0 / 10000 ** (jnp.arange(0, HEAD, 2, dtype=jnp.float32) / HEAD)
        angle = jnp.arange(s, dtype=jnp.float32)[:, None] * frequency
        angle = jnp.concatenate([angle, angle], -1)
        cos, sin = (f(angle).astype(x.dtype)[None, :, None] for f in (jnp.cos, jnp.sin))
        out = jax_attention(turn(q, cos, sin), turn(k, cos, sin), v, True, kernel)
        return out.reshape(b, s, HEADS * HEAD) @ p["o"].T

    def forward(p, x):
        x = x + attention(p, norm(x, p["norm1"]))
        y = norm(x, p["norm2"])
        return x + (jax.nn.silu(y @ p["gate"].T) * (y @ p["up"].T)) @ p["down"].T

    sizes = {"norm1": (HIDDEN,), "norm2": (HIDDEN,), "q": (HEADS * HEAD, HIDDEN), "k": (KV_HEADS * HEAD, HIDDEN),
             "v": (KV_HEADS * HEAD, HIDDEN), "o": (HIDDEN, HEADS * HEAD), "gate": (INNER, HIDDEN),
             "up": (INNER, HIDDEN), "down": (HIDDEN, INNER)}  # fmt: skip
    return forward, sizes


def jax_bert(kernel: bool) -> tuple[Any, Any]:
    import jax
    import jax.numpy as jnp

    def norm(p, x):
        y = x.astype(jnp.float32)
        mean = y.mean(-1, keepdims=True)
        y = (y - mean) * jax.lax.rsqrt(jnp.square(y - mean).mean(-1, keepdims=True) + 1e-5)
        return (y * p["weight"].astype(jnp.float32) + p["bias"].astype(jnp.float32)).astype(x.dtype)

    def linear(p, x):
        return x @ p["weight"].T + p["bias"]

    def layer(p, x):
        b, s, width = x.shape
        q, k, v = (linear(p[n], x).reshape(b, s, BERT_HEADS, -1) for n in "qkv")
        x = norm(p["norm1"], x + linear(p["o"], jax_attention(q, k, v, False, kernel).reshape(b, s, width)))
        return norm(p["norm2"], x + linear(p["narrow"], jax.nn.gelu(linear(p["wide"], x), approximate=False)))

    def forward(layers, x):
        for p in layers:
            x = layer(p, x)
        return x

    width = BERT_WIDTH
    sizes = {n: {"weight": (width, width), "bias": (width,)} for n in "qkvo"}
    sizes["wide"] = {"weight": (4 * width, width), "bias": (4 * width,)}
    sizes["narrow"] = {"weight": (width, 4 * width), "bias": (width,)}
    sizes |= {n: {"weight": (width,), "bias": (width,)} for n in ("norm1", "norm2")}
    return forward, [sizes] * BERT_LAYERS


def jax_resnet(kernel: bool) -> tuple[Any, Any]:
    import jax
    import jax.numpy as jnp
    import numpy as np

    def norm(p, x):
        y = x.astype(jnp.float32)
        mean = y.mean((0, 2, 3), keepdims=True)
        y = (y - mean) * jax.lax.rsqrt(jnp.square(y - mean).mean((0, 2, 3), keepdims=True) + 1e-5)
        weight, bias = (p[n].astype(jnp.float32)[:, None, None] for n in ("weight", "bias"))
        return (y * weight + bias).astype(x.dtype)

    def convolve(w, x, stride):
        padding = w.shape[-1] // 2
        return jax.lax.conv_general_dilated(
            x, w, (stride, stride), [(padding, padding)] * 2, dimension_numbers=("NCHW", "OIHW", "NCHW")
        )

    def bottleneck(p, x, stride):
        y = jax.nn.relu(norm(p["norms"][0], convolve(p["convolutions"][0], x, 1)))
        y = jax.nn.relu(norm(p["norms"][1], convolve(p["convolutions"][1], y, stride)))
        y = norm(p["norms"][2], convolve(p["convolutions"][2], y, 1))
        side = norm(p["side_norm"], convolve(p["side"], x, stride)) if "side" in p else x
        return jax.nn.relu(y + side)

    strides = [stride if i == 0 else 1 for count, _, stride in STAGES for i in range(count)]

    def forward(p, x):
        x = jax.nn.relu(norm(p["norm"], convolve(p["stem"], x, 2)))
        low = np.array(-np.inf, x.dtype)  # no tracer: JAX differentiates what it knows to be a maximum
        around = [(0, 0), (0, 0), (1, 1), (1, 1)]
        x = jax.lax.reduce_window(x, low, jax.lax.max, (1, 1, 3, 3), (1, 1, 2, 2), around)
        for q, stride in zip(p["blocks"], strides, strict=True):
            x = bottleneck(q, x, stride)
        return x.astype(jnp.float32).mean((2, 3)).astype(x.dtype) @ p["head"]["weight"].T + p["head"]["bias"]

    def norm_of(n):
        return {"weight": (n,), "bias": (n,)}

    blocks, channels = [], 64
    for count, width, _ in STAGES:
        for i in range(count):
            block: dict[str, Any] = {"norms": [norm_of(n) for n in (width, width, 4 * width)]}
            block["convolutions"] = [(width, channels, 1, 1), (width, width, 3, 3), (4 * width, width, 1, 1)]
            if i == 0:
                block |= {"side": (4 * width, channels, 1, 1), "side_norm": norm_of(4 * width)}
            blocks.append(block)
            channels = 4 * width
    head = {"weight": (1000, channels), "bias": (1000,)}
    return forward, {"stem": (64, 3, 7, 7), "norm": norm_of(64), "blocks": blocks, "head": head}


JAX = {"llama_block": jax_llama, "bert_base": jax_bert, "resnet50": jax_resnet}


def jax_text(model: str, train: bool, kernel: bool) -> str:
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    import jax
    import jax.numpy as jnp

    forward, sizes = JAX[model](kernel)

    def step(p, x):
        value, grads = jax.value_and_grad(lambda q: jnp.mean(jnp.square(forward(q, x).astype(jnp.float32))))(p)
        return value, jax.tree.map(lambda w, g: w - RATE * g, p, grads)

    array = functools.partial(jax.ShapeDtypeStruct, dtype=jnp.bfloat16)
    p = jax.tree.map(array, sizes, is_leaf=lambda v: isinstance(v, tuple))
    function = jax.jit(step, donate_argnums=0) if train else jax.jit(forward)
    return function.trace(p, array(SHAPES[model])).lower(lowering_platforms=("tpu",)).as_text()


# ---- tables ----


def compare(model: str, train: bool, topology: str) -> dict[str, Any]:
    programs = {"ours": ours(model, train, topology), "jax": aot.compile_text(jax_text(model, train, False), topology)}
    if model != "resnet50":
        programs["jax_kernel"] = aot.compile_text(jax_text(model, train, True), topology)
    line: dict[str, Any] = {"model": model, "topology": topology, "program": "train" if train else "forward"}
    for name, program in programs.items():
        line[f"{name}_ms"] = program.seconds * 1e3
        line[f"{name}_temporaries_MB"] = program.memory.temporaries / 1e6
    line["ratio"] = line["ours_ms"] / line["jax_ms"]
    line["temporaries_ratio"] = line["ours_temporaries_MB"] / max(line["jax_temporaries_MB"], 1e-6)
    return line


def shown(line: dict[str, Any]) -> str:
    kernel = ""
    if "jax_kernel_ms" in line:
        kernel = f"; JAX, kernel {line['jax_kernel_ms']:.3f} ms, {line['jax_kernel_temporaries_MB']:.0f} MB"
    return (
        f"{line['model']:12} {line['topology']:12} {line['program']:8} ours {line['ours_ms']:8.3f} ms, JAX"
        f" {line['jax_ms']:8.3f} ms, ratio {line['ratio']:.3f}; temporaries {line['ours_temporaries_MB']:.0f} and"
        f" {line['jax_temporaries_MB']:.0f} MB, ratio {line['temporaries_ratio']:.2f}{kernel}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append", choices=list(JAX))
    parser.add_argument("--topology", action="append")
    parser.add_argument("--program", action="append", choices=["forward", "train"])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    lines = []
    for model in options.model or JAX:
        for topology in options.topology or TOPOLOGIES:
            for program in options.program or ("forward", "train"):
                lines.append(compare(model, program == "train", topology))
                if not options.json:
                    print(shown(lines[-1]), flush=True)
    if options.json:
        print(json.dumps(lines, indent=1))


if __name__ == "__main__":
    main()
