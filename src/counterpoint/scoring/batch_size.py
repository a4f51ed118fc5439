"""How many items a model takes at a time: found by trying, and remembered."""

from __future__ import annotations

from counterpoint.errors import ModelError
from counterpoint.scoring.store import Store, digest


class BatchSize:
    """Halved when memory runs out. What fits is remembered in the store under `owner`, a model and
    what it is given, so that the next run starts with it.
    """

    def __init__(self, most: int, store: Store, owner: str) -> None:
        self._store, self._key = store, digest("batch size", owner)
        [known] = store.get([self._key])
        self.size = most if known is None else min(most, int.from_bytes(known, "little"))

    def halve(self, tried: int, why: MemoryError) -> None:
        """`tried` items were too many."""
        if tried == 1:
            raise ModelError(
                f"the model does not fit into memory with a single item ({why}); "
                "use a lower --precision or another --device."
            )
        self.size = min(self.size, tried // 2)
        self._store.put({self._key: self.size.to_bytes(8, "little")})
