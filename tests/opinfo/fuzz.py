"""A differential fuzzer of operators: arguments drawn from their schemas and from the database's generators.

    python tests/opinfo/fuzz.py [--examples 1000] [--seed 0] [--only REGEX]

An example is made of its number and the seed alone, so that --seed S --first N --examples 1 repeats it. What the CPU refuses the device must
refuse with the same exception type; what it computes must be equal.
"""

import argparse
import random
import re
import sys
import warnings
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

import database
import deviations
import torch
import torch.utils._pytree as pytree

from torch_tpu import _C
from torch_tpu._internal import execution_mode

DTYPES = [
    torch.float32,
    torch.float32,
    torch.int64,
    torch.bfloat16,
    torch.bool,
    torch.int32,
    torch.uint8,
    torch.float64,
]
SHAPES = [(), (1,), (3,), (0,), (2, 3), (3, 2), (1, 3), (2, 1, 3), (4, 2, 3), (2, 0, 3)]
NUMBERS = [0, 1, 2, -1, 3, 0.5, -2.5, True]

# Schemas that the drawn arguments are not for: kernels behind checked functions, which trust what they are given; random
# numbers and uninitialised memory; results that share memory.
SKIPPED = re.compile(
    r"aten::(_|.*backward|.*fft|.*conv|.*pool|.*rnn|.*lstm|.*gru|.*quant|.*cudnn|.*mkldnn|.*sparse|.*embedding|.*histogram"
    r"|.*rand|.*normal|.*dropout|bernoulli|binomial|poisson|multinomial|uniform|exponential|geometric|cauchy|.*rrelu"
    r"|empty|new_empty|resize|.*upsample|.*grid_sampler|.*_copy$|lift|.*loss|.*norm|segment|.*fbgemm|fused|.*glu|linalg"
    r"|.*unique|nonzero_static|.*bincount|im2col|col2im|from_file|.*polygamma|.*zeta|special|view_as_complex)"
)


def schemas(only=""):
    """Functional operators with a lowering whose arguments this fuzzer can draw."""
    found = []
    for name in sorted(torch._C._dispatch_get_all_op_names()):
        if not name.startswith("aten::") or SKIPPED.match(name) or not re.search(only, name) or not _C.has_row(name):
            continue
        packet, _, overload = name[6:].partition(".")
        op = getattr(getattr(torch.ops.aten, packet), overload or "default")
        arguments = op._schema.arguments
        drawn = all(str(a.type) in DRAW or a.has_default_value() for a in arguments)
        if drawn and any("Tensor" in str(a.type) for a in arguments) and not op._schema.is_mutable:
            found.append(op)
    return found


def draw_tensor(r):
    dtype, shape = r.choice(DTYPES), r.choice(SHAPES)
    values = torch.tensor([r.choice([0, 1, 2, 3, -1, -2, 0.5, 1.5]) for _ in range(torch.Size(shape).numel())])
    t = values.to(dtype).reshape(shape)
    layout = r.random()
    if t.dim() >= 2 and layout < 0.2:
        return t.transpose(0, -1)
    if t.dim() and layout < 0.3:
        return database.noncontiguous_like(t)
    return t


DRAW = {
    "Tensor": draw_tensor,
    "Optional[Tensor]": lambda r: draw_tensor(r) if r.random() < 0.5 else None,
    "List[Tensor]": lambda r: [draw_tensor(r) for _ in range(r.randint(1, 3))],
    "int": lambda r: r.randint(-3, 3),
    "SymInt": lambda r: r.randint(-3, 3),
    "bool": lambda r: r.random() < 0.5,
    "float": lambda r: r.choice([0.0, 1.0, 0.5, -1.5, 2.0]),
    "number": lambda r: r.choice(NUMBERS),
    "Optional[int]": lambda r: r.choice([None, -1, 0, 1, 2]),
    "Optional[number]": lambda r: r.choice([None, *NUMBERS]),
    "List[int]": lambda r: [r.randint(-2, 2) for _ in range(r.randint(0, 3))],
    "Optional[List[int]]": lambda r: r.choice([None, [0], [-1], [0, 1], []]),
}


def from_schema(r, ops):
    op = r.choice(ops)
    arguments, named = [], {}
    for a in op._schema.arguments:
        kind = str(a.type)
        if a.has_default_value() and (kind not in DRAW or r.random() < 0.5):
            if not a.kwarg_only:
                arguments.append(a.default_value)
            continue
        value = DRAW[kind](r)
        if a.kwarg_only:
            named[a.name] = value
        else:
            arguments.append(value)
    return op.name(), op, (tuple(arguments), named)


def from_database(r, entries):
    name = r.choice(entries)
    op = database.operators()[name]
    dtype = r.choice([t for t in database.DTYPES if t in op.dtypes] or [None])
    if dtype is None:
        return None
    torch.manual_seed(r.randrange(1 << 30))
    samples = list(op.sample_inputs("cpu", dtype, set_seed=False))
    if not samples:
        return None
    sample = r.choice(samples)
    return name, op, ((sample.input, *sample.args), dict(sample.kwargs)), sample.output_process_fn_grad, dtype


def outcome(function, arguments):
    return database.attempt(lambda _, *args, **kwargs: function(*args, **kwargs), (None, *arguments))


def on_device(name, arguments):
    if name == "tensor_split":  # its indices live on the CPU by definition
        return ((database.moved(arguments[0][0]), *arguments[0][1:]), arguments[1])
    return pytree.tree_map(lambda v: database.moved(v, "as_strided" in name), arguments)


def example(number, seed, ops, entries):
    """What differs in this example, or None."""
    r = random.Random(f"{seed} {number}")
    drawn = from_schema(r, ops) if r.random() < 0.6 else from_database(r, entries)
    if drawn is None:
        return None
    name, function, arguments, *rest = drawn
    described = f"example {number}: {name}{pytree.tree_map(describe, arguments)}"
    want, refused = outcome(function, pytree.tree_map(database.copied_as_is, arguments))
    if any(t.layout != torch.strided for t in database.tensors_of((arguments, want))):
        return None  # sparse layouts are judged apart
    got, raised = outcome(function, on_device(name, arguments))
    if refused is not None:
        expected = raised is not None and isinstance(raised, (type(refused), RuntimeError, TypeError, ValueError))
        return None if expected else f"{described}: {raised!r:.200}; on the CPU {refused!r:.200}"
    again, _ = outcome(function, pytree.tree_map(database.copied_as_is, arguments))
    leaves = pytree.tree_leaves(want), pytree.tree_leaves(again)
    values = name not in deviations.VALUES_DIFFER and all(map(database.equal, *leaves))
    try:
        if raised is not None:
            raise raised
        process, dtype = rest or ((lambda v: v), torch.bfloat16)
        if rest:
            named = arguments[0][0], arguments[0][1:], arguments[1]
            want = database.untied(function, named, database.exact(function, dtype, named, want))
            got = database.untied(function, pytree.tree_map(database.moved, named), got)
        rtol, atol = database.tolerance(function, dtype) if rest else (1e-2, 1e-2)
        database.compare(process(got), process(want), values, max(rtol, 1e-3), max(atol, 1e-3))
    except Exception as e:
        return f"{described}: {type(e).__name__}: {' '.join(str(e).split())[:300]}"
    return None


def describe(value):
    return f"{value.dtype}{list(value.shape)}".removeprefix("torch.") if isinstance(value, torch.Tensor) else value


def run(examples, seed=0, first=0, only=""):
    """Every difference, in words."""
    ops = schemas(only)
    entries = [n for n in database.operators() if re.search(only, n) and (n, "*") not in deviations.KNOWN]
    for number in range(first, first + examples):
        with warnings.catch_warnings(), execution_mode.set_eager_mode(database.DEBUG):  # wrong values are errors
            warnings.simplefilter("ignore")
            difference = example(number, seed, ops, entries)
        if difference:
            yield difference


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--examples", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    count = 0
    for difference in run(options.examples, options.seed, options.first, options.only):
        print(difference, flush=True)
        count += 1
    print(f"{options.examples} examples, {count} differ")
    sys.exit(count != 0)


if __name__ == "__main__":
    main()
