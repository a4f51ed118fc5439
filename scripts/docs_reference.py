"""The generated half of the documentation, a hook of mkdocs.

`<!-- api -->` on a page becomes an entry for each name of `counterpoint.__all__`, `<!-- cli -->`
the help of every command, and `<!-- errors -->` a table of every error code with its sentences.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
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
    if "<!-- errors -->" in markdown:
        markdown = markdown.replace("<!-- errors -->", errors())
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


def errors() -> str:
    """Every code with the sentences it stands for, from the calls that have a code."""
    sentences: dict[str, set[str]] = {}
    for path in sorted(Path(str(counterpoint.__file__)).parent.rglob("*.py")):
        for code, sentence in _coded(ast.parse(path.read_text())):
            sentences.setdefault(code, set()).add(sentence)
    rows = (
        f"| `{code}` | {'<br>'.join(_cell(one) for one in sorted(found))} |"
        for code, found in sorted(sentences.items())
    )
    return "\n".join(["| code | sentences |", "|---|---|", *rows])


def _coded(tree: ast.AST) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and len(node.args) > 1:
            code, sentence = map(_template, node.args[:2])
            if re.match("E-[A-Z]", code) and " " in sentence:
                yield code, sentence


def _template(node: ast.expr) -> str:
    """A text as it is written, with its values in braces; empty for anything else."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(map(_template, node.values))
    if isinstance(node, ast.FormattedValue):
        named = isinstance(node.value, ast.Name | ast.Attribute)
        return "{" + (ast.unparse(node.value).strip("_") if named else "...") + "}"
    return ""


def _cell(text: str) -> str:
    shown = text.replace("|", "\\|").replace("\n", " ")
    return "".join(f"&#{ord(c)};" if c in "<>&*_`[]$" else c for c in shown)
