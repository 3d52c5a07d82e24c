"""Operators with random arguments do on the device what they do on the CPU; `make fuzz` is the long form."""

import fuzz
import pytest


@pytest.mark.filterwarnings("ignore")
def test_random_arguments():
    assert not list(fuzz.run(150))


def test_examples_repeat():
    described = [fuzz.from_schema(fuzz.random.Random("0 7"), fuzz.schemas("aten::add"))[0] for _ in range(2)]
    assert described[0] == described[1]
