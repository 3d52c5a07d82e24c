"""What one operator costs to issue, on the device and on the CPU: microseconds, the best of several rounds."""

import argparse
import time

import torch
from rich.console import Console
from rich.table import Table

CASES = {
    "x + x (4x4)": lambda x, w, h: x + x,
    "x @ x (4x4)": lambda x, w, h: x @ x,
    "x.mul_(1.0) (4x4)": lambda x, w, h: x.mul_(1.0),
    "softmax (64x64)": lambda x, w, h: torch.softmax(w, -1),
    "w[:, 1:33] + w[:, 31:63]": lambda x, w, h: w[:, 1:33] + w[:, 31:63],
    "view": lambda x, w, h: w.view(32, 128),
    "index w[3]": lambda x, w, h: w[3],
    "torch.empty": lambda x, w, h: torch.empty(4, 4, device=x.device),
    "layer_norm (64x64)": lambda x, w, h: torch.nn.functional.layer_norm(w, (64,)),
    "upload (4x4)": lambda x, w, h: h.to(x.device),
    "download (4x4)": lambda x, w, h: x.cpu(),
}


def microseconds(function, device, rounds=7, calls=300):
    x, w, h = torch.rand(4, 4, device=device), torch.rand(64, 64, device=device), torch.rand(4, 4)
    with torch.no_grad():
        for _ in range(20):
            function(x, w, h)
        best = float("inf")
        for _ in range(rounds):
            if device != "cpu":
                torch.accelerator.synchronize()
            start = time.perf_counter()
            for _ in range(calls):
                function(x, w, h)
            best = min(best, (time.perf_counter() - start) / calls)
            if device != "cpu":
                torch.accelerator.synchronize()
    return best * 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="tpu")
    device = parser.parse_args().device
    torch.set_num_threads(1)
    table = Table(title=f"microseconds to issue one operator, torch {torch.__version__}")
    for column in ("operator", device, "cpu"):
        table.add_column(column, justify="left" if column == "operator" else "right")
    for name, function in CASES.items():
        table.add_row(name, f"{microseconds(function, device):.1f}", f"{microseconds(function, 'cpu'):.1f}")
    Console().print(table)


if __name__ == "__main__":
    main()
