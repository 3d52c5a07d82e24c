"""Small models, forward and backward, against the CPU."""

import copy

import pytest
import torch
import torch.nn.functional as F
from helpers import DEVICE, ON_CPU, same
from torch import nn


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True, activation="gelu", norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(16, 20)

    def forward(self, ids):
        mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1], device=ids.device)
        return self.head(self.encoder(self.embedding(ids), mask=mask, is_causal=True))


class Convolutional(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
        )
        self.branch = nn.Sequential(
            nn.Conv2d(8, 8, 3, 1, 1, groups=2), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 1)
        )
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        x = self.stem(x)
        return self.head(F.adaptive_avg_pool2d(F.relu(x + self.branch(x)), 1).flatten(1))


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.net, self.head = kind(6, 8, num_layers=2, batch_first=True, bidirectional=True), nn.Linear(16, 4)

    def forward(self, x):
        return self.head(self.net(x)[0][:, -1])


class Cells(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.gru = nn.LSTMCell(6, 6), nn.GRUCell(6, 6)

    def forward(self, x):
        state, h = None, None
        for t in range(x.shape[1]):
            state = self.lstm(x[:, t], state)
            h = self.gru(state[0], h)
        return h


MODELS = dict(
    perceptron=(
        lambda: nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.LayerNorm(16), nn.Linear(16, 4)),
        lambda: torch.rand(5, 6),
    ),
    transformer=(Transformer, lambda: torch.randint(20, (3, 7))),
    convolutional=(Convolutional, lambda: torch.rand(4, 3, 16, 16)),
    lstm=(lambda: Recurrent(nn.LSTM), lambda: torch.rand(3, 5, 6)),
    gru=(lambda: Recurrent(nn.GRU), lambda: torch.rand(3, 5, 6)),
    cells=(Cells, lambda: torch.rand(3, 4, 6)),
    attention=(
        lambda: nn.TransformerDecoderLayer(16, 2, 32, dropout=0.0, batch_first=True),
        lambda: torch.rand(2, 5, 16),
    ),
)


@pytest.mark.parametrize("name", MODELS)
def test_training_steps(name):
    make, data = MODELS[name]
    torch.manual_seed(0)
    model, x = make(), data()
    results = []
    on_cpu = 0 if ON_CPU else torch.tpu.diagnostics()["cpu_fallbacks"]
    for device in ("cpu", DEVICE):
        net, batch = copy.deepcopy(model).to(device), x.to(device)
        optimizer = torch.optim.SGD(net.parameters(), 0.05)
        losses = []
        for _ in range(2):
            optimizer.zero_grad()
            out = net(batch, batch) if name == "attention" else net(batch)
            loss = (
                F.cross_entropy(
                    out.flatten(0, -2), torch.zeros(out.shape[:-1].numel(), dtype=torch.long, device=device)
                )
                + out.square().mean()
            )
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        state = [v.detach() for v in net.state_dict().values()]
        results.append([*losses, out.detach(), *[p.grad for p in net.parameters()], *state])
    same(results[1], results[0], name, rtol=1e-3, atol=1e-4)
    assert ON_CPU or torch.tpu.diagnostics()["cpu_fallbacks"] == on_cpu


def test_inference():
    torch.manual_seed(0)
    model = Transformer().eval()
    ids = torch.randint(20, (2, 7))
    with torch.inference_mode():
        want = model(ids)
        got = model.to(DEVICE)(ids.to(DEVICE))
    same(got, want, rtol=1e-4, atol=1e-5)


def test_transformers_text_model():
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=32,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=32,
    )
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(config)
    ids = torch.randint(32, (2, 6))
    want = model(ids, labels=ids)
    want.loss.backward()
    twin = copy.deepcopy(model).to(DEVICE)
    twin.zero_grad()
    got = twin(ids.to(DEVICE), labels=ids.to(DEVICE))
    got.loss.backward()
    same(got.logits, want.logits, rtol=1e-3, atol=1e-4)
    same([p.grad for p in twin.parameters()], [p.grad for p in model.parameters()], rtol=1e-3, atol=1e-4)
    model.eval(), twin.eval()
    options = dict(max_new_tokens=4, do_sample=False, pad_token_id=0)
    same(twin.generate(ids.to(DEVICE), **options), model.generate(ids, **options))
