"""PyTorch's own databases of operators, modules and optimizers, on the device and on the CPU: a part of `make conformance`.

Every operator is touched: one sample with its gradients, in the first dtype that it takes; its wrong arguments; its in-place, out= and method
forms for every eighth.
"""

import database
import deviations
import modules
import pytest
import torch

EVERY = 8


def cases(entries, known=deviations.KNOWN):
    for name in entries:
        reason = known.get((name, "*"))
        yield pytest.param(name, marks=[pytest.mark.xfail(reason=reason)] if reason else [], id=name)


def judge(outcome):
    assert not outcome.failed, f"{outcome.failed} of {outcome.tried}: {outcome.detail}"
    if not outcome.tried:
        pytest.skip("no sample runs on the CPU")


def first_dtype(op):
    return next((t for t in database.DTYPES if t in op.dtypes), None)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", cases(database.operators()))
def test_operator(name):
    op = database.operators()[name]
    dtype = first_dtype(op)
    if dtype is None:
        pytest.skip("takes no dtype that the device has")
    judge(database.values(op, dtype, 1, gradients=op.supports_autograd and dtype.is_floating_point))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", cases(n for n, op in database.operators().items() if op.error_inputs_func))
def test_wrong_arguments(name):
    outcome = database.errors(database.operators()[name])
    allowed = deviations.WRONG_VALUES.get(name, 0)
    assert outcome.failed <= allowed, f"{outcome.failed} of {outcome.tried}, {allowed} known: {outcome.detail}"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", cases(list(database.operators())[::EVERY]))
def test_forms(name):
    op = database.operators()[name]
    dtype = first_dtype(op)
    for check in (database.variants, database.out_forms, database.layouts):
        outcome = check(op, dtype, 1)
        allowed = deviations.FORMS.get((name, check.__name__), 0)
        assert outcome.failed <= allowed, f"{check.__name__}: {outcome.failed} of {outcome.tried}: {outcome.detail}"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", list(modules.modules())[::EVERY])
def test_module(name):
    judge(modules.check(modules.modules()[name], torch.float32))


def test_deviations_name_operators():
    names = database.operators().keys()
    listed = {name for name, _ in deviations.KNOWN} | {name for name, _ in deviations.FORMS}
    assert listed | deviations.TOLERANCES.keys() | deviations.WRONG_VALUES.keys() <= names
    assert all(reason for reason in (deviations.KNOWN | deviations.ROUNDED_MODULES).values())
    assert deviations.RANDOM_SAMPLES.keys() | deviations.SAVED_STATISTICS | deviations.ANY_LAYOUT <= names
    assert deviations.ROUNDED_MODULES.keys() <= modules.modules().keys()
