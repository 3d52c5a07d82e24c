"""The training step of work.py's GPT written in JAX as one program: what the TPU compiler makes of it is the floor.

    python bench/gpt_jax.py [--topology v5e:1x1]

Prints the compiler's time and memory for that step, parameters and optimizer state donated.
"""

import argparse
import os

TOKENS, WIDTH, LAYERS, HEADS, LENGTH, BATCH = 256, 128, 4, 4, 128, 8
RATE, BETA1, BETA2, EPS, DECAY = 1e-3, 0.9, 0.999, 1e-8, 1e-2


def text():
    """The step's StableHLO for a TPU. No device is used."""
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    import jax
    import jax.numpy as jnp

    def linear(p, x):
        return x @ p["weight"].T + p["bias"]

    def norm(p, x):
        mean = x.mean(-1, keepdims=True)
        variance = jnp.square(x - mean).mean(-1, keepdims=True)
        return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * p["weight"] + p["bias"]

    def block(p, x, mask):
        qkv = linear(p["qkv"], norm(p["norm1"], x)).reshape(BATCH, LENGTH, 3, HEADS, WIDTH // HEADS)
        q, k, v = qkv.transpose(2, 0, 3, 1, 4)
        scores = q @ k.swapaxes(-1, -2) * (WIDTH // HEADS) ** -0.5 + mask
        mixed = (jax.nn.softmax(scores, -1) @ v).swapaxes(1, 2).reshape(BATCH, LENGTH, WIDTH)
        x = x + linear(p["projection"], mixed)
        return x + linear(p["narrow"], jax.nn.gelu(linear(p["wide"], norm(p["norm2"], x)), approximate=False))

    def loss(p, ids, targets):
        mask = jnp.triu(jnp.full((LENGTH, LENGTH), -jnp.inf), 1)
        x = p["tokens"][ids] + p["places"]
        for q in p["blocks"]:
            x = block(q, x, mask)
        logits = jax.nn.log_softmax(linear(p["head"], norm(p["norm"], x)), -1)
        return -jnp.take_along_axis(logits, targets[..., None], -1).mean()

    def step(p, first, second, count, ids, targets):
        value, grads = jax.value_and_grad(loss)(p, ids, targets)
        count = count + 1
        first = jax.tree.map(lambda m, g: BETA1 * m + (1 - BETA1) * g, first, grads)
        second = jax.tree.map(lambda v, g: BETA2 * v + (1 - BETA2) * g * g, second, grads)

        def moved(w, m, v):
            m, v = m / (1 - BETA1**count), v / (1 - BETA2**count)
            return w * (1 - RATE * DECAY) - RATE * m / (jnp.sqrt(v) + EPS)

        return jax.tree.map(moved, p, first, second), first, second, count, value

    def array(*shape):
        return jax.ShapeDtypeStruct(shape, jnp.float32)

    def linear_of(inner, outer):
        return {"weight": array(outer, inner), "bias": array(outer)}

    def norm_of():
        return {"weight": array(WIDTH), "bias": array(WIDTH)}

    parts = {"qkv": 3 * WIDTH, "projection": WIDTH, "wide": 4 * WIDTH}
    blocks = [
        {name: linear_of(WIDTH, outer) for name, outer in parts.items()}
        | {"narrow": linear_of(4 * WIDTH, WIDTH), "norm1": norm_of(), "norm2": norm_of()}
        for _ in range(LAYERS)
    ]
    p = {"tokens": array(TOKENS, WIDTH), "places": array(1, LENGTH, WIDTH), "blocks": blocks, "norm": norm_of()}
    p["head"] = linear_of(WIDTH, TOKENS)
    ids = jax.ShapeDtypeStruct((BATCH, LENGTH), jnp.int32)
    function = jax.jit(step, donate_argnums=(0, 1, 2, 3))
    return function.trace(p, p, p, array(), ids, ids).lower(lowering_platforms=("tpu",)).as_text()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--topology", default="v5e:1x1")
    options = parser.parse_args()
    from torch_tpu.tpu import aot

    report = aot.compile_text(text(), options.topology)
    peak = report.memory.peak - report.memory.code
    print(f"{options.topology}: {report.seconds * 1e3:.4f} ms, peak memory {peak / 1e6:.2f} MB without code")


if __name__ == "__main__":
    main()
