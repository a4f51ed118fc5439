"""The command line: one file per verb or subject; parse, call, print.

A verb is imported and built when it is called or listed: building all of them takes longer than
most verbs that only print something.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.metadata import version
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from counterpoint.cli.console import plainly

_VERBS: Final = {
    "demo": "demo:demo",
    "ls": "ls:ls",
    "eval": "evaluate:evaluate",
    "rescore": "evaluate:rescore",
    "compare": "reports:compare",
    "report": "reports:report",
    "publish": "reports:publish",
    "board": "reports:board",
    "studio": "campaign:studio",
    "verify": "evaluate:verify",
    "import": "evaluate:import_scores",
    "refine": "pairs:refine",
    "export": "pairs:export",
    "train": "train:train",
    "sweep": "sweep:sweep",
    "watch": "sweep:watch",
    "wise": "train:wise",
    "match": "train:match",
    "doctor": "data:doctor",
    "campaign": "campaign:app",
    "data": "data:app",
    "detector": "encoders:detector_app",
    "generate": "generate:app",
    "vectors": "encoders:vectors_app",
}
# The others are quick, or write at their end.
_RESUMES: Final = {"demo", "eval", "match", "refine", "sweep", "train", "watch", "wise"}
_SETTINGS: Final = {"help_option_names": ["-h", "--help"]}


class _Commands(Mapping[str, Any]):
    """The verbs by name, each built when it is first asked for."""

    def __init__(self) -> None:
        self._built: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._built:
            module, _, attribute = _VERBS[name].partition(":")
            found = getattr(import_module(f"counterpoint.cli.{module}"), attribute)
            self._built[name] = _command(name, found)
        return self._built[name]

    def __iter__(self) -> Iterator[str]:
        return iter(_VERBS)

    def __len__(self) -> int:
        return len(_VERBS)


class _VerbGroup(TyperGroup):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands: Any = _Commands()

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.commands)


def _command(name: str, found: Any) -> Any:
    """What a verb's function, or a group's Typer, is on the command line."""
    if isinstance(found, typer.Typer):
        command: Any = typer.main.get_group(found)
    else:
        alone = typer.Typer(add_completion=False, rich_markup_mode="rich")
        alone.command(name)(plainly(found, resumes=name in _RESUMES))
        command = typer.main.get_command(alone)
    _name_no_type_of_flags(command)
    return command


def _name_no_type_of_flags(command: Any, above: typer.Context | None = None) -> None:
    """In --help, a flag is `--json` and not `--json <bool>`, as if it took a value."""
    context = typer.Context(command, parent=above, **{**_SETTINGS, **command.context_settings})
    for option in command.get_params(context):
        if getattr(option, "is_flag", False):
            option.metavar = ""
    if isinstance(command, _VerbGroup):
        return  # each verb is seen to when it is built
    for below in getattr(command, "commands", {}).values():
        _name_no_type_of_flags(below, context)


app = typer.Typer(
    name="counterpoint",
    cls=_VerbGroup,
    help="Measure and train compositional vision-language models: hard negatives, hard positives.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings=_SETTINGS,
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


def main() -> None:
    command = typer.main.get_command(app)
    _name_no_type_of_flags(command)
    command()
