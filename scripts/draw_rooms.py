"""The picture of docs/design: which room of the package imports which, drawn from the imports.

python scripts/draw_rooms.py        # writes docs/design/rooms.svg
"""

from __future__ import annotations

import tomllib
from html import escape
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "design" / "rooms.svg"
ROW, NAMES, TOP = 26, 190, 110  # pixels: height of a row, width of the names, height of the heads
STYLE = (
    "text{font:14px sans-serif;fill:#1b1f24}.n{font-family:monospace}"
    ".l{fill:#eef1f5}.d{fill:#3f51b5}.s{fill:#c3c9d2}"
)


def layers() -> list[list[str]]:
    """Rooms from top to bottom, as the import contract orders them."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    [contract] = [one for one in settings["contracts"] if one["type"] == "layers"]
    return [[name.strip() for name in layer.split("|")] for layer in contract["layers"]]


def imports() -> set[tuple[str, str]]:
    """Rooms, and the rooms that they import (also for types alone)."""
    graph = grimp.build_graph("counterpoint", cache_dir=None)
    return {
        (room_of(importer), room_of(imported))
        for importer in graph.modules
        for imported in graph.find_modules_directly_imported_by(importer)
    }


def room_of(module: str) -> str:
    return module.partition(".")[2].partition(".")[0]


def draw(layers: list[list[str]], imports: set[tuple[str, str]]) -> str:
    rooms = [room for layer in layers for room in layer if room != "__main__"]
    width, height = NAMES + ROW * len(rooms) + 60, TOP + ROW * len(rooms) + 10
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="Which room imports which"><style>{STYLE}</style>'
        f'<rect width="{width}" height="{height}" fill="#fff"/>'
    ]
    for column, room in enumerate(rooms):
        x = NAMES + ROW * column + ROW // 2
        out.append(
            f'<text class="n" transform="translate({x + 5} {TOP - 8}) rotate(-55)">'
            f"{escape(room)}</text>"
        )
    for row, room in enumerate(rooms):
        y = TOP + ROW * row
        if row % 2 == 0:
            out.append(f'<rect class="l" x="0" y="{y}" width="{width - 60}" height="{ROW}"/>')
        out.append(f'<text class="n" x="10" y="{y + 18}">{escape(room)}</text>')
        for column, other in enumerate(rooms):
            kind = "s" if room == other else "d" if (room, other) in imports else ""
            if kind:
                x = NAMES + ROW * column + ROW // 2
                out.append(f'<circle class="{kind}" cx="{x}" cy="{y + ROW // 2}" r="6"/>')
    return "\n".join([*out, "</svg>\n"])


if __name__ == "__main__":
    PICTURE.write_text(draw(layers(), imports()), encoding="utf-8")
