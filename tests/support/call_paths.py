"""How far a command runs: the calls that are open at most, and the files in which functions run.

    python tests/support/call_paths.py OUT.json "" generate negatives captions.csv -o pairs.parquet

The second word is a function's name: only what runs below it is counted. What runs only because a
module is imported is not counted, nor are comprehensions.
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import counterpoint

_HOME = str(Path(counterpoint.__file__).parent)
_IMPORT = "_find_and_load"


class Paths:
    """What one process calls, in all of its threads."""

    def __init__(self, below: str) -> None:
        self.below = below
        self.files: set[str] = set()
        self.deepest: list[str] = []
        self._own: dict[CodeType, bool] = {}
        self._stacks = threading.local()

    def start(self) -> None:
        threading.setprofile(self._watch)
        sys.setprofile(self._watch)

    def stop(self) -> None:
        threading.setprofile(None)
        sys.setprofile(None)

    def _watch(self, frame: FrameType, event: str, _: Any) -> None:
        if event not in ("call", "return"):
            return
        code = frame.f_code
        importing = code.co_name == _IMPORT
        if not (importing or self._is_own(code)):
            return
        stack: list[CodeType] = self._stacks.__dict__.setdefault("open", [])
        if event == "return":
            if stack and stack[-1] is code:
                stack.pop()
            return
        stack.append(code)
        names = [below.co_name for below in stack]
        if _IMPORT in names or (self.below and self.below not in names):
            return
        self.files.add(code.co_filename)
        if len(stack) > len(self.deepest):
            self.deepest = [f"{Path(c.co_filename).name}:{c.co_qualname}" for c in stack]

    def _is_own(self, code: CodeType) -> bool:
        if code not in self._own:
            name = code.co_name
            self._own[code] = code.co_filename.startswith(_HOME) and (
                not name.startswith("<") or name == "<lambda>"
            )
        return self._own[code]


def main(out: str, below: str, *words: str) -> None:
    from counterpoint.__main__ import main as run

    paths = Paths(below)
    sys.argv = ["counterpoint", *words]
    paths.start()
    try:
        run()
    except SystemExit as end:
        if end.code:
            raise
    finally:
        paths.stop()
    files = sorted(str(Path(file).relative_to(_HOME)) for file in paths.files)
    Path(out).write_text(json.dumps({"files": files, "deepest": paths.deepest}))


if __name__ == "__main__":
    main(*sys.argv[1:])
