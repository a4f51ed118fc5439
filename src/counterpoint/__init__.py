"""Counterpoint: measure whether a vision-language model notices what matters and only that.

    import counterpoint as cp

    run = cp.evaluate("world:base", "world-swap:size=200")
    run.results()                                 # a table: .to_polars(), .to_pandas()
    other = cp.evaluate("random", "world-swap:size=200")
    run.compare(other)                            # paired case by case, with verdicts
    cp.rescore([run, other])                      # one table of both
    cp.report([run, other], "report.html")

Nothing heavy is imported until it is used.
"""

from importlib.metadata import version as _version

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__version__ = _version("counterpoint")
