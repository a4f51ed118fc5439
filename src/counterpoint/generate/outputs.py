"""The file or folder that a command makes: reserved for it from before its work begins."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from counterpoint.errors import DataError, reason
from counterpoint.writing import locked


def refuse_ending(out: Path, what: str = "pairs") -> None:
    if out.suffix != ".parquet":
        raise DataError(f"{out}: {what} are written as Parquet; the name must end in .parquet.")


@contextmanager
def reserved(out: Path) -> Iterator[None]:
    """Hold a place until the work is done. What cannot be written to is said here, not at the end.

    The lock has a name of its own, `OUT.parts`: that of OUT is taken for the moment of writing.
    """
    with ExitStack() as stack:
        try:
            out.parent.mkdir(parents=True, exist_ok=True)
            out.exists()  # raises if the name is too long
            stack.enter_context(locked(out.with_name(f"{out.name}.parts")))
        except OSError as error:
            raise DataError(f"{out}: cannot be written: {reason(error)}.") from None
        except DataError:
            raise DataError(
                f"{out}: another command is making it; wait for it, or name another place."
            ) from None
        yield
