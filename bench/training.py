"""One training step of a small GPT (4 layers, width 128, batch 8x128): milliseconds, programs compiled and launched."""

import argparse
import sys
import time
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
from quickstart import CharacterGPT


def measure(device, compiled, steps=20):
    torch.manual_seed(0)
    model = CharacterGPT(96, length=128, width=128, layers=4, dropout=0.0).to(device)
    loss_of = torch.compile(model.loss) if compiled else model.loss
    optimizer = torch.optim.AdamW(model.parameters(), 3e-4)
    batches = [torch.randint(96, (8, 129)).to(device) for _ in range(4)]

    def step(i):
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(batches[i % 4])
        loss.backward()
        optimizer.step()
        return loss

    def counts():
        return torch.tpu.diagnostics() if device == "tpu" else {"compiles": 0, "launches": 0}

    start = time.perf_counter()
    for i in range(6):
        loss = step(i)
    loss.item()
    warm, before = time.perf_counter() - start, counts()
    start = time.perf_counter()
    for i in range(steps):
        loss = step(i)
    loss.item()
    seconds, after = time.perf_counter() - start, counts()
    return [
        f"{warm:.1f} s",
        f"{seconds / steps * 1e3:.1f} ms",
        f"{(after['launches'] - before['launches']) / steps:.0f}",
        str(before["compiles"]),
        str(after["compiles"] - before["compiles"]),
        f"{loss.item():.4f}",
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="tpu")
    parser.add_argument("--compiled", action="store_true", help="with torch.compile as well")
    arguments = parser.parse_args()
    table = Table(title=__doc__.split(":")[0])
    for column in ("", "first 6 steps", "a step", "launches", "programs", "compiled later", "loss"):
        table.add_column(column, justify="right" if column else "left")
    table.add_row("CPU", *measure("cpu", False))
    if arguments.device != "cpu":
        table.add_row(f"{arguments.device}, eager", *measure(arguments.device, False))
    if arguments.compiled:
        table.add_row(f"{arguments.device}, torch.compile", *measure(arguments.device, True))
    Console().print(table)


if __name__ == "__main__":
    main()
