import os
import sys

import pytest

sys.path[:0] = [os.path.dirname(__file__), os.path.join(os.path.dirname(__file__), "opinfo")]

import torch


def pytest_configure(config):
    torch.set_num_threads(1)  # two workers share two cores
    torch.manual_seed(0)  # for what modules make when they are collected


@pytest.fixture(autouse=True)
def fresh_seed():
    torch.manual_seed(0)


def pytest_collection_modifyitems(items):
    skip = pytest.mark.skip(reason="runs where TEST_SLOW=1")
    for item in items:
        if "slow" in item.keywords and os.environ.get("TEST_SLOW", "0") != "1":
            item.add_marker(skip)
