"""The contract of the doors, for import-linter: a room is imported through its door.

A package of `counterpoint` is a room, its `__init__` the door. A module of another room may import
the package, never a module inside it. `_util` has no door: its modules are imported by name.

    lint-imports        # reads [tool.importlinter] in pyproject.toml
"""

from __future__ import annotations

import grimp
from importlinter import Contract, ContractCheck, fields, output


class DoorContract(Contract):
    """No import reaches past the door of another room."""

    root = fields.StringField()
    without_door = fields.ListField(subfield=fields.StringField(), required=False)

    def check(self, graph: grimp.ImportGraph, verbose: bool) -> ContractCheck:
        del verbose
        packages = {name.rpartition(".")[0] for name in graph.modules}
        reaching = sorted(
            (importer, imported)
            for importer in graph.modules
            for imported in graph.find_modules_directly_imported_by(importer)
            if imported not in packages and self._is_elsewhere(importer, imported)
        )
        return ContractCheck(kept=not reaching, metadata={"reaching": reaching})

    def _is_elsewhere(self, importer: str, imported: str) -> bool:
        room = self._room(imported)
        open_rooms: list[str] = self.without_door or []  # type: ignore[assignment]  # a field
        return bool(room) and room != self._room(importer) and room not in open_rooms

    def _room(self, module: str) -> str:
        """The room of a module; empty for modules beside the rooms."""
        parts = module.removeprefix(f"{self.root}.").split(".")
        return parts[0] if len(parts) > 1 else ""

    def render_broken_contract(self, check: ContractCheck) -> None:
        for importer, imported in check.metadata["reaching"]:
            door = imported.rpartition(".")[0]
            output.print_error(f"{importer} imports {imported}; import it from {door} instead.")
