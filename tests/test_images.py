"""Images of 8 bits: resized to the bit as on the CPU, whose arithmetic is in integers."""

import pytest
import torch
import torch.nn.functional as F
from helpers import both

WAYS = dict(
    bilinear=dict(mode="bilinear"),
    bilinear_corners=dict(mode="bilinear", align_corners=True),
    bilinear_antialiased=dict(mode="bilinear", antialias=True),
    bicubic=dict(mode="bicubic"),
    bicubic_corners=dict(mode="bicubic", align_corners=True),
    bicubic_antialiased=dict(mode="bicubic", antialias=True),
    nearest=dict(mode="nearest"),
    nearest_exact=dict(mode="nearest-exact"),
)


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize("size", [(9, 25), (40, 11), (15, 17), (2, 3), (3, 90)], ids=str)
def test_resizing(name, size):
    torch.manual_seed(0)
    for channels in (1, 3, 5):
        noise = torch.randint(256, (2, channels, 15, 17), dtype=torch.uint8)
        edges = torch.zeros(1, channels, 15, 17, dtype=torch.uint8)
        edges[..., 4:, :9] = 255  # what overshoots is held in range after each axis
        for image in (noise, edges):
            both(
                lambda x: F.interpolate(x, size=size, **WAYS[name]), image, rtol=0, atol=0, note=f"{channels} channels"
            )


def test_resizing_much_smaller():
    """Weights below 2^-8 are kept with more bits."""
    torch.manual_seed(0)
    image = torch.randint(256, (1, 3, 500, 700), dtype=torch.uint8)
    both(lambda x: F.interpolate(x, size=(5, 3), mode="bilinear", antialias=True), image, rtol=0, atol=0)
