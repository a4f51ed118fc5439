"""Errors keep their sentence and code, also from another process."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from counterpoint._util.errors import CounterpointError, ImageError, MissingExtraError
from counterpoint.data.download import FetchError, PassingError
from counterpoint.scoring import RefusedInputsError

ERRORS = [
    ImageError("E-IMAGE-MISSING", "image a.png: no such file."),
    MissingExtraError("training", "train"),
    PassingError("HTTP 503", 3.0, code="E-HTTP-STATUS"),
    FetchError("a.zip cannot be fetched: no connection.", []),
    RefusedInputsError(np.zeros(1), {1: "the image was refused."}),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_survives_pickling(error: CounterpointError) -> None:
    found = pickle.loads(pickle.dumps(error))
    assert type(found) is type(error)
    assert (str(found), found.code) == (str(error), error.code)
    assert found.__dict__.keys() == error.__dict__.keys()


def test_the_sentence_is_what_is_printed() -> None:
    assert str(ERRORS[0]) == "image a.png: no such file."
    assert ERRORS[0].code == "E-IMAGE-MISSING"
    assert all(error.code.startswith("E-") for error in ERRORS)
