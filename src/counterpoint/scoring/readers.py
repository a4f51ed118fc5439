"""Processes that read images beside a GPU: threads of one process decode less than half as much.

They are started as programs of their own, with the reader on their standard input, so that a script
that evaluates needs no guard around its main part. Each ends when its input ends.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import groupby
from typing import Any, BinaryIO, Final

import numpy as np

from counterpoint._util.errors import ImageError
from counterpoint._util.processes import let_driver_first
from counterpoint.images import Picture

_CHUNK: Final = 16  # images that travel together
_DEEP: Final = 3  # chunks for each process: one that is read, the others so that it need not wait
Reads = Callable[[Any], np.ndarray]  # a picture as bytes; raises ImageError


class ReaderProcesses:
    """Each thread of a pool has a process of its own and waits for it."""

    def __init__(self, reads: Reads, count: int) -> None:
        self._reads = pickle.dumps(reads)
        self._mine = threading.local()
        self._started: list[subprocess.Popen[bytes]] = []
        self._pool = ThreadPoolExecutor(count)
        self._count = count

    def enough(self, batch: int) -> int:
        """How many batches of this size keep all processes busy."""
        return -(-_DEEP * self._count * _CHUNK // batch)

    def submit(self, pictures: Sequence[Picture]) -> list[Future[list[Any]]]:
        """The images in order, in pieces; an ImageError in the place of each that is broken."""
        return [self._pool.submit(self._ask, chunk) for chunk in _chunks(pictures)]

    def _ask(self, pictures: list[Any]) -> list[Any]:
        for last in (False, True):
            process = self._process()
            try:
                return _answer(process, pictures)
            except (EOFError, OSError, pickle.UnpicklingError):  # it died
                process.kill()
                process.wait()
                del self._mine.process
                if last:
                    raise
        raise AssertionError

    def _process(self) -> subprocess.Popen[bytes]:
        if not hasattr(self._mine, "process"):
            process = subprocess.Popen(
                [sys.executable, "-m", __name__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                start_new_session=True,  # Ctrl-C is for the driver
            )
            self._started.append(process)
            assert process.stdin is not None
            process.stdin.write(self._reads)
            process.stdin.flush()
            self._mine.process = process
        found: subprocess.Popen[bytes] = self._mine.process
        return found

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        for process in self._started:
            process.kill()
        self._pool.shutdown()
        for process in self._started:
            process.communicate()


def _chunks(pictures: Sequence[Picture]) -> Iterator[list[Picture]]:
    """Images that travel together. Neighbours of one photograph do, unless they are too many."""
    chunk: list[Picture] = []
    for _, group in groupby(pictures, key=lambda picture: picture.photograph):
        crops = list(group)
        if len(chunk) + len(crops) > _CHUNK and chunk:
            yield chunk
            chunk = []
        chunk += crops
        while len(chunk) >= _CHUNK:
            yield chunk[:_CHUNK]
            chunk = chunk[_CHUNK:]
    if chunk:
        yield chunk


def _answer(process: subprocess.Popen[bytes], pictures: list[Any]) -> list[Any]:
    assert process.stdin is not None and process.stdout is not None
    pickle.dump(pictures, process.stdin, protocol=5)
    process.stdin.flush()
    stacked, rest = pickle.load(process.stdout)
    values = iter(stacked)
    return [next(values) if each is None else each for each in rest]


def read_all(reads: Reads, pictures: Sequence[Any]) -> list[Any]:
    """Images, with an ImageError in the place of each that is broken."""
    found: list[Any] = []
    for picture in pictures:
        try:
            found.append(reads(picture))
        except ImageError as error:
            found.append(error)
    return found


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """In the other process. Images of one shape travel as one array."""
    reads = pickle.load(requests)
    while True:
        try:
            pictures = pickle.load(requests)
        except EOFError:
            return
        found = read_all(reads, pictures)
        shapes = [one.shape for one in found if isinstance(one, np.ndarray)]
        stacked: Any = ()
        if shapes and all(shape == shapes[0] for shape in shapes):
            stacked = np.stack([one for one in found if isinstance(one, np.ndarray)])
            found = [None if isinstance(one, np.ndarray) else one for one in found]
        pickle.dump((stacked, found), answers, protocol=5)
        answers.flush()


if __name__ == "__main__":
    let_driver_first()
    serve(sys.stdin.buffer, sys.stdout.buffer)
