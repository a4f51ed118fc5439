"""What a run trains on, as a file in its folder that goes with every model of it.

The start's own record is in it: a model was trained on all that its start was trained on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from counterpoint._util.errors import RunError
from counterpoint._util.progress import Progress, Quiet
from counterpoint._util.writing import whole_file
from counterpoint.evaluation import (
    TrainingRecord,
    photograph_digests,
    read_records,
    text_digests,
    write_record,
)
from counterpoint.models import TRAINED_ON

if TYPE_CHECKING:
    from counterpoint.training.building import TrainingRun


def record_data(run: TrainingRun, progress: Progress | None, *, begun: bool) -> None:
    """Write the record of a run, where something is known of its data."""
    path = run.recipe.folder / TRAINED_ON
    if begun and path.is_file():
        return  # of the same data, or the checkpoint would have been refused
    before = read_records(run.model.start.training_records)
    advance = (progress or Quiet()).start("texts to record", None)
    texts, photographs = [], [photograph_digests(run.data.all_photographs())]
    for some in run.data.all_texts():
        texts.append(text_digests(some))
        advance(len(some))
    if before is not None:
        texts.append(before.texts)
        photographs.append(before.photographs)
    record = TrainingRecord.of(texts, photographs)
    if len(record.texts) or len(record.photographs):
        with whole_file(path, RunError) as draft:
            write_record(draft, record)
