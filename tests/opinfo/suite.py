"""Every check by name, in the order of the summary, with what it is made of: entries by name, and a function of one."""

import functools

import database
import modules
import optimizers


def checks(all_samples=1000, few=3):
    table = {name: (database.operators, f) for name, f in database.checks(all_samples, few).items()}
    table["sparse"] = (database.all_operators, functools.partial(database.sparse, n=few))
    table |= {name: (modules.modules, f) for name, f in modules.checks().items()}
    return table | {name: (optimizers.optimizers, f) for name, f in optimizers.checks().items()}
