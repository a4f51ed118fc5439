"""`counterpoint compare`: is one run better than another, and how sure is that?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from counterpoint.cli.console import print_json
from counterpoint.cli.options import AsJson, Groups, ProtocolName


def compare(
    run_a: Annotated[Path, typer.Argument(help="Run folder A.")],
    run_b: Annotated[Path, typer.Argument(help="Run folder B.")],
    protocol: ProtocolName = None,
    groups: Groups = False,
    as_json: AsJson = False,
) -> None:
    """Compare two runs case by case: paired cluster bootstrap, exact McNemar, Holm over the groups.

    The verdict comes from the bootstrap over source images, corrected over the groups of a
    benchmark; McNemar's test, which takes cases as independent, stands beside it.

    Example:

    counterpoint compare runs/demo/world-base runs/demo/random
    """
    from counterpoint import comparison, results
    from counterpoint.cli.tables import print_differences
    from counterpoint.protocols import get_protocol
    from counterpoint.runs import load_run

    a, b = load_run(run_a), load_run(run_b)
    found = comparison.compare(a, b, get_protocol(protocol) if protocol else None)
    if as_json:
        print_json(results.as_json(found))
    else:
        print_differences(found, a.model, b.model, groups=groups)
