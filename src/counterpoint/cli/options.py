"""Options that several verbs share."""

from __future__ import annotations

from typing import Annotated

import typer

AsJson = Annotated[
    bool, typer.Option("--json", help="Print rows as JSON on standard output, and nothing else.")
]
Groups = Annotated[bool, typer.Option("--groups", help="Show every group, not only the whole.")]
ProtocolName = Annotated[
    str | None, typer.Option("--protocol", help="Another protocol than the official one.")
]
