"""Counterpoint: measure whether a vision-language model notices what matters and only that.

    import counterpoint

    [run] = counterpoint.evaluate("world:base", ["world-swap", "world-replace"])
    for row in counterpoint.rows(run):
        print(row.benchmark, row.group, row.metric, row.value, row.ci_low, row.ci_high)

Nothing heavy is imported until it is used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
