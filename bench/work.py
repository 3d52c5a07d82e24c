"""The work that implementations are compared by. Runs in a process of its own and prints a JSON object a line.

    python bench/work.py IMPLEMENTATION PART...

IMPLEMENTATION: `ours`; `cpu`, PyTorch's own kernels; `reference`, the published torch-tpu wheel, in an environment of
its own. PART: `operators`, `chain`, `copies`, `training`, `compiled`, `memory`, `start`,
`instructions`. METER: a library made of
meter.c.
"""

import contextlib
import ctypes
import importlib
import json
import os
import sys
import time

WARM, CALLS, ROUNDS = 50, 1000, 3


def boot(implementation):
    """The device to use; an implementation of it is in the process."""
    if implementation == "cpu":
        os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
        import torch

        torch.set_num_threads(1)
        return "cpu"
    if implementation == "reference":  # it looks for a TPU on the machine before it loads its plugin
        os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
        import torch

        hardware = importlib.import_module("torch_tpu._internal.utils.hardware")
        from torch_tpu import _loader

        hardware.get_tpu_device_count = lambda *_, **__: 1
        _loader.load()
    return "tpu"


class Meter:
    def __init__(self):
        path = os.environ.get("METER")
        self.library = ctypes.CDLL(path) if path else None
        for name in ("meter_programs", "meter_launches", "meter_execute_ns"):
            if self.library:
                getattr(self.library, name).restype = ctypes.c_int64

    def counts(self):
        """Programs loaded, launches."""
        return (self.library.meter_programs(), self.library.meter_launches()) if self.library else (0, 0)

    def execute_us(self):
        """Time inside the plugin's execute calls so far."""
        return self.library.meter_execute_ns() / 1e3 if self.library else 0.0

    def write(self, path=""):
        if self.library:
            self.library.meter_write(path.encode())


def show(**values):
    print(json.dumps({k: round(v, 5) if isinstance(v, float) else v for k, v in values.items()}), flush=True)


def synchronize(device):
    import torch

    if device != "cpu":
        torch.accelerator.synchronize()


def mode(device, name):
    import torch

    if device == "cpu" or name != "fused":
        return contextlib.nullcontext()
    return torch.tpu.set_eager_mode(torch.tpu.EagerMode.DEFER_AND_FUSE)


def operators_of(device):
    import torch
    import torch.nn.functional as F

    x, w = torch.ones(4, 4, device=device), torch.ones(64, 64, device=device)
    return {
        "x + x": lambda: x + x,
        "x + 1.5": lambda: x + 1.5,
        "x @ x": lambda: x @ x,
        "x.mul_(1.0)": lambda: x.mul_(1.0),
        "w.sum(1)": lambda: w.sum(1),
        "w.softmax(-1)": lambda: w.softmax(-1),
        "layer_norm(w)": lambda: F.layer_norm(w, (64,)),
        "cat([w, w])": lambda: torch.cat([w, w]),
        "w[:, 1:33] + w[:, 31:63]": lambda: w[:, 1:33] + w[:, 31:63],
        "x.view(-1)": lambda: x.view(-1),
        "w[3]": lambda: w[3],
        "torch.empty(4, 4)": lambda: torch.empty(4, 4, device=device),
    }


def operators(device, meter):
    """Microseconds to issue one operator that was seen before, and until the last one is done: the best of rounds."""
    import torch

    with torch.no_grad():
        for name, function in operators_of(device).items():
            for _ in range(WARM):
                function()
            issued = done = float("inf")
            for _ in range(ROUNDS):
                synchronize(device)
                start = time.perf_counter()
                for _ in range(CALLS):
                    function()
                issued = min(issued, (time.perf_counter() - start) / CALLS * 1e6)
                synchronize(device)
                done = min(done, (time.perf_counter() - start) / CALLS * 1e6)
            show(part="operators", name=name, us=issued, done_us=done)


def chain(device, meter):
    """76 operators and a value read, in fused mode: microseconds an operator in all."""
    import torch

    w = torch.ones(64, 64, device=device)

    def run():
        z = w
        for _ in range(25):
            z = torch.relu(z) * 0.5 + 1.0
        return z.sum().item()

    for name in ("strict", "fused"):
        with torch.no_grad(), mode(device, name):
            for _ in range(10):
                run()
            best = float("inf")
            for _ in range(ROUNDS):
                start = time.perf_counter()
                for _ in range(20):
                    run()
                best = min(best, (time.perf_counter() - start) / 20 / 76 * 1e6)
        show(part="chain", name=name, us=best)


def copies(device, meter):
    """256 MB from the host and to it, beside a copy of the same size on the host, in GB/s: the best of a few."""
    import torch

    there, back = torch.ones(64 << 20), torch.empty(64 << 20)
    on_device = there.to(device, copy=True)
    synchronize(device)

    def best(function):
        seconds = []
        for _ in range(5):
            start = time.perf_counter()
            function()
            synchronize(device)
            seconds.append(time.perf_counter() - start)
        return there.nbytes / min(seconds) / 1e9

    show(
        part="copies",
        memcpy=best(lambda: back.copy_(there)),
        to_device=best(lambda: on_device.copy_(there)),
        to_host=best(lambda: back.copy_(on_device)),
    )


def instructions(device, meter):
    """Run by callgrind, whose counts begin anew before the calls of each operator and are written after them."""
    import torch

    calls = 50
    with torch.no_grad():
        for name, function in operators_of(device).items():
            for _ in range(WARM):
                function()
            synchronize(device)
            meter.library.meter_instructions_zero()
            for _ in range(calls):
                function()
            meter.library.meter_instructions_write(name.encode())
    show(part="instructions", calls=calls)


def gpt(width=128, layers=4, heads=4, length=128, tokens=256):
    import torch
    import torch.nn as nn
    import torch.nn.functional as F

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.before_attention, self.before_feed = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
            self.register_buffer("mask", torch.full((length, length), float("-inf")).triu(1))

        def forward(self, x):
            batch, n, _ = x.shape
            qkv = self.qkv(self.before_attention(x)).view(batch, n, 3, heads, width // heads)
            q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
            scores = q @ k.transpose(-2, -1) * (width // heads) ** -0.5 + self.mask[:n, :n]
            x = x + self.projection((scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, n, width))
            return x + self.narrow(F.gelu(self.wide(self.before_feed(x))))

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.places = nn.Embedding(tokens, width), nn.Parameter(torch.zeros(1, length, width))
            self.blocks = nn.ModuleList(Block() for _ in range(layers))
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, tokens)

        def forward(self, ids, targets):
            x = self.tokens(ids) + self.places
            for block in self.blocks:
                x = block(x)
            return F.cross_entropy(self.head(self.norm(x)).view(-1, tokens), targets.view(-1))

    return GPT()


def training(device, meter):
    """Forward, backward and AdamW of a GPT of 4 layers and width 128, batch 8 x 128, in every mode."""
    import torch

    for name in ("strict",) if device == "cpu" else ("strict", "fused", "compiled"):
        torch.manual_seed(0)
        model = gpt().to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        forward = torch.compile(model) if name == "compiled" else model
        generator = torch.Generator().manual_seed(1)
        ids, targets = (torch.randint(0, 256, (8, 128), generator=generator).to(device) for _ in range(2))

        def step():
            optimizer.zero_grad(set_to_none=True)
            loss = forward(ids, targets)
            loss.backward()
            optimizer.step()
            return loss.detach()

        with mode(device, name):
            before, start = meter.counts(), time.perf_counter()
            step().item()
            cold = time.perf_counter() - start
            for _ in range(5):
                step().item()
            meter.write()
            warm, steps, best = meter.counts(), 10, float("inf")
            for _ in range(ROUNDS):
                start = time.perf_counter()
                for _ in range(steps):
                    loss = step()
                loss = loss.item()
                best = min(best, (time.perf_counter() - start) / steps)
            after = meter.counts()
        launches = (after[1] - warm[1]) / (ROUNDS * steps)
        runs = os.path.join(os.environ.get("METER_DIRECTORY", ""), f"{name}.runs") if meter.library else ""
        meter.write(runs)
        show(
            part="training", name=name, first_step_s=cold, step_ms=best * 1e3, launches=launches,
            programs=warm[0] - before[0], programs_later=after[0] - warm[0], loss=loss, steps=ROUNDS * steps,
        )  # fmt: skip


def compiled(device, meter):
    """A call of a compiled function of 2 and of 200 parameters: microseconds in all, in the plugin's execute, and above
    it: of the call as users make it, of what Dynamo made of it (no guards), and of the graph alone (no wrappers)."""
    import types

    import torch
    from torch._dynamo.eval_frame import _debug_get_cache_entry_list

    graphs, call_of = [], importlib.import_module("torch_tpu._compile").call_of

    def kept(*args):
        graphs.append(call_of(*args))
        return graphs[-1]

    importlib.import_module("torch_tpu._compile").call_of = kept
    for count in (2, 200):
        parameters = [torch.nn.Parameter(torch.ones(64, device=device)) for _ in range(count)]

        def total(parameters):
            s = parameters[0]
            for p in parameters[1:]:
                s = s + p
            return s

        torch._dynamo.reset()
        function = torch.compile(total)
        with torch.no_grad():
            function(parameters)
            code = _debug_get_cache_entry_list(total.__code__)[0].code
            inner = types.FunctionType(code, total.__globals__)
            graph = graphs[-1]
            calls = {
                "call": lambda f=function, p=parameters: f(p),
                "without guards": lambda f=inner, p=parameters: f(p),
                "graph alone": lambda f=graph, p=parameters: f(list(p)),
            }
            for name, call in calls.items():
                for _ in range(WARM):
                    call()
                least = (float("inf"), 0.0, 0.0)
                for _ in range(2 * ROUNDS):
                    synchronize(device)
                    inside, start = meter.execute_us(), time.perf_counter()
                    for _ in range(CALLS):
                        call()
                    issued = (time.perf_counter() - start) / CALLS * 1e6
                    synchronize(device)
                    done = (time.perf_counter() - start) / CALLS * 1e6
                    inside = (meter.execute_us() - inside) / CALLS
                    least = min(least, (done - inside, inside, issued))
                above, inside, issued = least
                show(part="compiled", name=name, parameters=count, above_us=above, execute_us=inside, issue_us=issued)


def memory(device, meter):
    """Resident memory after 500 and after 10,000 training steps of a small model whose loss is read now and then."""
    import gc

    import torch

    def resident():
        gc.collect()
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6

    for name in ("strict",) if device == "cpu" else ("strict", "fused"):
        model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 8)).to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        x = torch.ones(32, 64, device=device)
        with mode(device, name):
            for step in range(10_000):
                optimizer.zero_grad(set_to_none=True)
                loss = model(x).square().mean()
                loss.backward()
                optimizer.step()
                if step % 100 == 0:
                    loss.item()
                if step == 500:
                    early = resident()
        show(part="memory", name=name, early_mb=early, late_mb=resident())


def encoder():
    """A sentence encoder of MiniLM's shape: 6 layers of width 384, 12 heads."""
    import torch

    layer = torch.nn.TransformerEncoderLayer(384, 12, 1536, activation="gelu", batch_first=True)
    layers = torch.nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)
    return torch.nn.Sequential(torch.nn.Embedding(30522, 384), torch.nn.LayerNorm(384), layers).eval()


def start(device, meter):
    """Seconds to the first result of a new process and the programs compiled for it."""
    import torch

    def first(name, function):
        before, begin = torch.tpu.diagnostics(), time.perf_counter()
        function()
        seconds, after = time.perf_counter() - begin, torch.tpu.diagnostics()
        show(part="start", name=name, seconds=seconds, compiled=after["compiles"] - before["compiles"])

    torch.manual_seed(0)
    for name in ("strict", "fused"):
        model = gpt().to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        ids = torch.ones(8, 128, dtype=torch.int64, device=device)

        def step(model=model, optimizer=optimizer, ids=ids):
            loss = model(ids, ids)
            loss.backward()
            optimizer.step()
            loss.item()

        with mode(device, name):
            first(f"GPT step, {name}", step)
        ids, model = torch.ones(32, 128, dtype=torch.int64, device=device), encoder().to(device)
        with mode(device, name), torch.inference_mode():
            first(f"MiniLM, {name}", lambda model=model, ids=ids: model(ids).sum().item())


def main():
    begin = time.perf_counter()
    device = boot(sys.argv[1])
    import torch

    torch.ones(2, device=device).add(1).cpu()
    show(part="import", seconds=time.perf_counter() - begin, torch=torch.__version__)
    for part in sys.argv[2:]:
        try:
            globals()[part](device, Meter())
        except Exception as error:
            show(part=part, error=f"{type(error).__name__}: {str(error)[:200]}")


if __name__ == "__main__":
    main()
