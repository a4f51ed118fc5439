"""The command line: one file per verb or subject; parse, call, print."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated, Any

import typer

from counterpoint.cli import (
    campaign,
    compare,
    data,
    demo,
    detector,
    doctor,
    evaluate,
    export,
    generate,
    ls,
    refine,
    report,
    sweep,
    train,
    vectors,
    verify,
    wise,
)
from counterpoint.cli.console import plainly

app = typer.Typer(
    name="counterpoint",
    help="Measure and train compositional vision-language models: hard negatives, hard positives.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(version("counterpoint"))
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Measure and train compositional vision-language models: hard negatives, hard positives."""


RESUMES = {
    "demo",
    "eval",
    "refine",
    "sweep",
    "train",
    "wise",
}  # the others are quick, or write at their end
for name, verb in (
    ("demo", demo.demo),
    ("ls", ls.ls),
    ("eval", evaluate.evaluate),
    ("rescore", evaluate.rescore),
    ("compare", compare.compare),
    ("report", report.report),
    ("studio", campaign.studio),
    ("verify", verify.verify),
    ("import", evaluate.import_scores),
    ("refine", refine.refine),
    ("export", export.export),
    ("train", train.train),
    ("sweep", sweep.sweep),
    ("wise", wise.wise),
    ("doctor", doctor.doctor),
):
    app.command(name)(plainly(verb, resumes=name in RESUMES))
app.add_typer(campaign.app)
app.add_typer(data.app)
app.add_typer(detector.app)
app.add_typer(generate.app)
app.add_typer(vectors.app)


def main() -> None:
    command = typer.main.get_command(app)
    _name_no_type_of_flags(command)
    command()


def _name_no_type_of_flags(command: Any, above: typer.Context | None = None) -> None:
    """In --help, a flag is `--json` and not `--json <bool>`, as if it took a value."""
    context = typer.Context(command, parent=above, **command.context_settings)
    for option in command.get_params(context):
        if getattr(option, "is_flag", False):
            option.metavar = ""
    for below in getattr(command, "commands", {}).values():
        _name_no_type_of_flags(below, context)
