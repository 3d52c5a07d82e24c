"""DataLoader: workers, pinned memory, default device."""

import pytest
import torch
from helpers import DEVICE, ON_CPU, child_output
from torch.utils.data import DataLoader, TensorDataset

DATA = TensorDataset(torch.arange(12.0).view(6, 2), torch.arange(6))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_workers": 2},
        {"num_workers": 1, "persistent_workers": True},
        {"num_workers": 1, "multiprocessing_context": "spawn"},
    ],
    ids=str,
)
@pytest.mark.parametrize("pin", [False, True])
def test_loader(options, pin):
    torch.ones(1, device=DEVICE)
    total = torch.zeros((), device=DEVICE)
    for a, b in DataLoader(DATA, batch_size=2, pin_memory=pin and not ON_CPU, **options):
        assert a.is_pinned() == (pin and not ON_CPU)
        total += a.to(DEVICE, non_blocking=True).sum() + b.to(DEVICE, non_blocking=True).sum()
    assert total.item() == 66 + 15


def test_loader_under_default_device():
    code = f"""
import torch
torch.set_default_device("{DEVICE}")
seen = torch.cat([b for b in torch.utils.data.DataLoader(list(range(12)), batch_size=4, shuffle=True)])
print(sorted(seen.tolist()) == list(range(12)))
"""
    assert child_output(code) == "True"


def test_sampler_on_host_batches_on_device():
    order = [
        b.tolist() for _, b in DataLoader(DATA, batch_size=3, shuffle=True, generator=torch.Generator().manual_seed(1))
    ]
    again = [
        b.to(DEVICE).tolist()
        for _, b in DataLoader(DATA, batch_size=3, shuffle=True, generator=torch.Generator().manual_seed(1))
    ]
    assert order == again


def test_collate_of_device_tensors():
    items = [(torch.full((2,), float(i), device=DEVICE), i) for i in range(4)]
    (a, b) = next(iter(DataLoader(items, batch_size=4)))
    assert a.device.type == DEVICE and a.shape == (4, 2) and b.tolist() == [0, 1, 2, 3]


class OnTheDevice(torch.utils.data.Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, i):
        return torch.full((2,), float(i), device=DEVICE)


@pytest.mark.skipif(ON_CPU, reason="memory of the device")
def test_workers_whose_data_is_on_the_device():
    """An error where the batch would arrive, not a wait for ever."""
    loader = DataLoader(OnTheDevice(), num_workers=1, multiprocessing_context="spawn")
    with pytest.raises(RuntimeError, match=r"send tensor.cpu\(\)"):
        next(iter(loader))
    sender, receiver = torch.multiprocessing.Pipe()
    with sender, receiver, pytest.raises(RuntimeError, match="cannot be sent to another process"):
        sender.send(torch.ones(2, device=DEVICE))
