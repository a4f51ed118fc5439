"""Pairs as a case file that `counterpoint eval -b` reads.

- One case per negative: the image, its caption, one positive if there are any, the negative.
- The positives of a caption are used in turn for its negatives. The first is drawn by the seed for
  each caption, so that no method is favoured where captions have one negative each.
- A negative with its own image is a case of two images and two captions, as in BiVLC.
- With `all_negatives`, one case per caption: the caption, all positives, all negatives.
- With `cap`, no type, new word or edit has more than its share of the texts (sampling.py).

A case is in the group `type/subtype`; its cluster is the image.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Final

from counterpoint._util.errors import DataError
from counterpoint._util.progress import Progress
from counterpoint.cases import Case, Cases, ImageRef, caption_case, write_cases
from counterpoint.generation.export.groups import (
    QUIET,
    Group,
    ImagePaths,
    LeftOut,
    read_groups,
)
from counterpoint.generation.export.sampling import capped_sample, read_caps
from counterpoint.generation.pairs import UniqueIds, require_parquet, stable_random

_SQUARE: Final = ((True, False), (False, True))  # each text is true of its own image


def export_benchmark(
    pairs: Sequence[Path],
    out: Path,
    left_out: LeftOut,
    *,
    images: Path | None = None,
    root: Path | None = None,
    all_negatives: bool = False,
    cap: str = "",
    seed: int = 0,
    progress: Progress = QUIET,
) -> int:
    """Write a case file; returns the number of cases. `left_out` counts what is not in it."""
    require_parquet(out, "cases")
    moves = [ImagePaths.of(file, out.parent, images=images, root=root) for file in pairs]
    groups = read_groups(pairs, left_out, moves, progress)
    if caps := read_caps(cap):
        sample = capped_sample(read_groups(pairs, LeftOut(), moves, QUIET), caps, seed, pairs[0])
        groups = sample.of(groups, left_out)
    by_group = (_cases(group, left_out, all_negatives, seed) for group in groups)
    stream = chain.from_iterable(by_group)
    first = next(stream, None)
    if first is None:
        raise DataError("E-PAIRS-EMPTY", f"{pairs[0]}: no caption with an image has a negative.")
    unique = UniqueIds()
    named = (replace(case, id=unique(case.id)) for case in chain([first], stream))
    cases = Cases.build(named, source=str(pairs[0]))
    write_cases(cases, out)
    return len(cases)


def _cases(group: Group, left_out: LeftOut, together: bool, seed: int) -> Iterator[Case]:
    if group.image is None:
        left_out["captions without an image"] += 1
        return
    if not group.negatives:
        left_out["captions with positives only"] += 1
        return
    positives = [text.text for text in group.positives]
    if together:
        labels = tuple(dict.fromkeys(text.label for text in group.negatives))
        true, false = [group.caption, *positives], [text.text for text in group.negatives]
        if unused := sum(text.image is not None for text in group.negatives):
            left_out["images of texts, which a case of one image has no place for"] += unused
        yield caption_case(group.source, group.image, true, false, labels)
        return
    start = stable_random(f"{seed} {group.source}") % max(len(positives), 1)
    for number, negative in enumerate(group.negatives):
        id = f"{group.source}/{number}"
        if negative.image is not None:
            images = (group.image, ImageRef(negative.image))
            yield Case(id, images, (group.caption, negative.text), _SQUARE, (negative.label,))
            continue
        chosen = [positives[(start + number) % len(positives)]] if positives else []
        true = [group.caption, *chosen]
        yield caption_case(id, group.image, true, [negative.text], (negative.label,))
