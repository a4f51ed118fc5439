"""The command line: one file a verb; parse, call, print.

Exit status: 0 done; 1 an error a user can mend; 2 wrong usage; 3 done, but cases were left out
(unless --allow-missing); 130 interrupted.
"""

from __future__ import annotations

import sys

import typer

from counterpoint.cli import compare, demo, evaluate, ls, rescore
from counterpoint.cli.console import errors
from counterpoint.errors import CounterpointError

app = typer.Typer(
    name="counterpoint",
    help="Measure whether a vision-language model notices what matters, and only that.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("demo")(demo.demo)
app.command("ls")(ls.ls)
app.command("eval")(evaluate.evaluate)
app.command("rescore")(rescore.rescore)
app.command("compare")(compare.compare)


def main() -> None:
    try:
        app()
    except CounterpointError as error:
        errors.print(f"error: {error}", style="red", soft_wrap=True)
        sys.exit(1)
    except KeyboardInterrupt:
        errors.print("interrupted; what was computed is kept, the same command goes on from there.")
        sys.exit(130)
    except BrokenPipeError:  # `counterpoint ls | head`
        sys.stderr.close()
        sys.exit(0)
