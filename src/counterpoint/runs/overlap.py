"""What of a benchmark a model was trained on."""

from __future__ import annotations

from typing import NamedTuple


class TrainedOn(NamedTuple):
    """How many of the different texts and photographs of a benchmark a model was trained on."""

    texts: int
    of_texts: int
    photographs: int
    of_photographs: int

    def __str__(self) -> str:
        return (
            f"the model was trained on {self.texts:,} of the {self.of_texts:,} texts and "
            f"{self.photographs:,} of the {self.of_photographs:,} photographs of this benchmark"
        )
