"""Why a language model has made no text of a caption: every reason that is counted."""

from __future__ import annotations

from typing import Final

# The caption; nothing is asked.
NO_WORDS: Final = "the caption has no words"
TOO_FEW_WORDS: Final = "the caption has too few words"
TOO_MANY_WORDS: Final = "the caption has too many words"
OTHER_LETTERS: Final = "the caption is not in Latin letters"

# Any answer.
REFUSED: Final = "the server refused to answer"
REJECTED: Final = "the server rejected the request"
EMPTY: Final = "the answer is empty"
CUT_OFF: Final = "the answer is cut off at the token limit"
EXTRA_LINES: Final = "the answer has more than the lines asked for"
ANSWERED_NO: Final = "the answer is No"

# The steps before the sentence.
NOTHING_LOCATED: Final = "nothing was located"
NOT_IN_CAPTION: Final = "what was located is not in the caption"
NEW_EMPTY: Final = "the new words are missing"
NEW_TOO_LONG: Final = "the new words are too many"
NEW_SAME: Final = "the new words are the old ones"
NEW_KNOWN: Final = "the new words are in the caption already"

# The sentence.
QUESTION: Final = "the new sentence is a question"
UNCHANGED: Final = "the new sentence is the caption"
NOTHING_NEW: Final = "the new sentence has no new word"
NO_PUNCTUATION: Final = "the new sentence does not end in punctuation, as the caption does"
NOT_SWAPPED: Final = "what should change places does not"
NEW_UNUSED: Final = "the new words are not in the new sentence"
OLD_KEPT: Final = "the old words are still in the new sentence"
OLD_LOST: Final = "what should be added to is not in the new sentence"
CHANGED_TOO_MUCH: Final = "the new sentence changes too much"


def no_line(label: str) -> str:
    return f'the answer has no line "{label}: ..."'


def needs(word: str) -> str:
    return f'the caption has no word "{word}"'
