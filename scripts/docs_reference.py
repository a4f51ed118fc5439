"""The generated half of the documentation, a hook of mkdocs: the API and the command line.

`<!-- api -->` on a page becomes an entry for each name of `counterpoint.__all__`,
`<!-- cli -->` the help of every command.
"""

from __future__ import annotations

import re
from typing import Any

import typer
from typer.cli import get_docs_for_click

import counterpoint
from counterpoint.cli.app import app


def on_page_markdown(markdown: str, **_: Any) -> str:
    if "<!-- api -->" in markdown:
        markdown = markdown.replace("<!-- api -->", api())
    if "<!-- cli -->" in markdown:
        markdown = markdown.replace("<!-- cli -->", command_line())
    return markdown


def api() -> str:
    return "\n\n".join(f"::: counterpoint.{name}" for name in counterpoint.__all__)


def command_line() -> str:
    command = typer.main.get_command(app)
    context = typer.Context(command, info_name="counterpoint")
    text = get_docs_for_click(obj=command, ctx=context, name="counterpoint")
    text = text[text.index("\n## ") :]  # what is before it is `counterpoint` without a command
    text = re.sub(r"\*\*Commands\*\*:\n\n(\* .*\n)+\n", "", text)  # each has a heading below
    return re.sub(r"(?m)^(counterpoint .*)$", r"    \1", text)  # examples
