"""`counterpoint studio`: pages to browse runs, try models and annotate."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from counterpoint.cli.campaign import DEFAULT_DB, Db
from counterpoint.cli.console import command, errors, output


def studio(
    runs: Annotated[Path, typer.Option(help="Folder of the runs.")] = Path("runs"),
    db: Db = DEFAULT_DB,
    host: Annotated[str, typer.Option(help="Address to listen at.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen at; 0: any free port.")
    ] = 8765,
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            "-m",
            help="Model id for the playground; repeat for several. Default: world:base.",
        ),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            help="Another host name of this machine that browsers may use; repeat for several."
        ),
    ] = None,
) -> None:
    """Start the studio: look at runs in a browser, try models on images, annotate.

    The link that is printed opens the studio as admin; do not share it. Example:

    counterpoint studio --runs runs -m world:base
    """
    from counterpoint._util.errors import DataError, MissingExtraError

    errors.print("Starting the studio ...")  # reading its packages takes seconds
    try:
        from counterpoint.studio import MODELS, create_app, open_database
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("counterpoint"):
            raise
        raise MissingExtraError("the studio", "studio") from None
    from counterpoint.studio import Guard, is_loopback, kept_key, serve

    if not runs.is_dir():
        raise DataError(
            "E-FOLDER-MISSING",
            f"{runs}: no such folder of runs; `{command('demo')}` makes one.",
            path=runs,
        )
    guard = Guard(key=kept_key(runs / ".studio-key"))
    database = open_database(db)
    names = [*(allow_host or ()), f"[{host}]" if ":" in host else host]
    app = create_app(runs, guard=guard, models=model or MODELS, database=database, hosts=names)
    if not is_loopback(host):
        errors.print(
            f"warning: {host} can be reached from other machines, and nothing is encrypted: the "
            "admin's link and the annotators' links can be read on the way.",
            style="yellow",
            soft_wrap=True,
        )
    try:
        serve(app, host, port, lambda base: _announce(base, guard.admin_token))
    finally:
        database.close()


def _announce(base: str, token: str) -> None:
    output.print(f"Studio: {base}/?token={token}", soft_wrap=True)
    output.print(
        "The link opens the studio as admin: do not share it. Ctrl-C ends the studio.",
        soft_wrap=True,
    )
