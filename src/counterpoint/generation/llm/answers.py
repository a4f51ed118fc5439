"""What a model's answer says, and whether its sentence is a small change of the caption.

Answers are read strictly: a model that adds talk has not understood the request. Everything here is
a pure function of the caption and the answer. What is not accepted raises an `UnusableAnswerError`
with a fixed reason, so that reasons can be counted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from math import floor
from typing import Final

from counterpoint.generation.checks.change import distance
from counterpoint.generation.llm.templates import ChangeLimit, Step

# Reasons of several kinds of answer.
EMPTY: Final = "the answer is empty"
CUT_OFF: Final = "the answer is cut off at the token limit"
EXTRA_LINES: Final = "the answer has more than the lines asked for"
ANSWERED_NO: Final = "the answer is No"
NOTHING_LOCATED: Final = "nothing was located"
NOT_IN_CAPTION: Final = "what was located is not in the caption"


class UnusableAnswerError(Exception):
    """An answer that is not taken; its text is the reason."""


_NO_LINE: Final = 'the answer has no line "'


def no_line(label: str) -> str:
    return f'{_NO_LINE}{label}: ..."'


def needs(word: str) -> str:
    return f'the caption has no word "{word}"'


def unread(counts: Mapping[str, int]) -> tuple[int, int]:
    """How many answers cannot be read, and how many there are, of how often each reason occurs."""
    answers = {reason: n for reason, n in counts.items() if not reason.startswith("the caption ")}
    forms = (EMPTY, CUT_OFF, EXTRA_LINES)
    of_no_form = (n for why, n in answers.items() if why in forms or why.startswith(_NO_LINE))
    return sum(of_no_form), sum(answers.values())


_WORD: Final = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
_FINAL_MARKS: Final = ".!?…"
ARTICLES: Final = frozenset({"a", "an", "the", "some"})
_AROUND: Final = re.compile(r"[\"'“”‘’`*]+")
_THOUGHT: Final = re.compile(r"<think>.*?(</think>|\Z)", re.DOTALL)
_NO: Final = re.compile(r"(?:Possible:\s*)?No\W*", re.IGNORECASE)
_YES: Final = re.compile(r"Yes\W*", re.IGNORECASE)
_MARKS: Final = " \t\"'“”‘’`*[]().;"
_NONE: Final = frozenset({"", "none", "no", "nothing", "n/a"})
_MOST_NEW: Final = 4  # words of a new concept


def answered(text: str, label: str) -> str:
    """The text after the label on the only line of an answer; without a label, the whole line."""
    return _labelled(_lines(text), [label])[0]


def swapped(text: str, caption: str, step: Step) -> str:
    """The sentence of an answer of three lines: `Possible: Yes`, `Swapped: x, y`, the sentence.

    The template may name other labels; without the first, the first line is `Yes`.
    """
    labels = step.labels or ("Possible", "Swapped", step.label)
    lines = _lines(text)
    if _starts(lines[0], labels[0]) and _NO.fullmatch(_behind(lines[0], labels[0])):
        raise UnusableAnswerError(ANSWERED_NO)
    decision, listing, sentence = _labelled(lines, labels, labels[2:])
    if not _YES.fullmatch(decision):
        raise UnusableAnswerError(EXTRA_LINES)
    parts = listed(listing)
    if len(parts) != 2 or not all(holds(caption, part) for part in parts):
        raise UnusableAnswerError(NOT_IN_CAPTION)
    if not trade_places(caption, sentence, *parts):
        raise UnusableAnswerError("what should change places does not")
    return sentence


def without_question(text: str, ask: str, question: str) -> str:
    """An answer without the lines in which the model repeats the question, or completes them.

    `ask` is the template's form of the question. A line that is the caption alone is kept: it may
    be the answer.
    """
    lines = _plain_lines(text)
    for form, asked in zip(ask.splitlines(), question.splitlines(), strict=True):
        asked = " ".join(asked.split())
        if not lines or not asked or form.strip() == "{caption}":
            continue
        if lines[0] == asked or (asked.endswith((":", "?")) and lines[0].startswith(asked)):
            lines[0] = lines[0].removeprefix(asked).strip()
            lines = lines if lines[0] else lines[1:]
    return "\n".join(lines)


def located(text: str, caption: str, label: str) -> list[str]:
    """The listed parts that are in the caption, each once, in the order of the answer."""
    parts = listed(answered(text, label))
    if not parts:
        raise UnusableAnswerError(NOTHING_LOCATED)
    inside = [part for part in parts if holds(caption, part)]
    if not inside:
        raise UnusableAnswerError(NOT_IN_CAPTION)
    return inside


def chained(text: str, caption: str, step: Step) -> tuple[str, str, str]:
    """What was chosen, the new words and the sentence, from an answer of four labelled lines."""
    lines = _lines(text)
    if _starts(lines[0], step.labels[0]) and not listed(_behind(lines[0], step.labels[0])):
        raise UnusableAnswerError(NOTHING_LOCATED)
    _, picked, new, sentence = _labelled(lines, step.labels)
    chosen = picked.strip(_MARKS)
    if chosen.lower() in _NONE:
        raise UnusableAnswerError(NOTHING_LOCATED)
    if not holds(caption, chosen):
        raise UnusableAnswerError(NOT_IN_CAPTION)
    return chosen, _fresh(new, caption, chosen), sentence


def listed(line: str) -> list[str]:
    parts = [part.strip(_MARKS) for part in line.split(",")]
    return list(dict.fromkeys(part for part in parts if part.lower() not in _NONE))


def proposed(text: str, caption: str, chosen: str, step: Step) -> str:
    """The new concept: a few words that are neither the old ones nor in the caption."""
    return _fresh(answered(text, step.label), caption, chosen)


def _fresh(line: str, caption: str, chosen: str) -> str:
    new = line.strip(_MARKS)
    if new.lower() in _NONE or not words(new):
        raise UnusableAnswerError("the new words are missing")
    if len(words(new)) > _MOST_NEW or "," in new:
        raise UnusableAnswerError("the new words are too many")
    if _core(new) == _core(chosen):
        raise UnusableAnswerError("the new words are the old ones")
    if holds(caption, new) or holds(" ".join(_core(caption)), " ".join(_core(new))):
        raise UnusableAnswerError("the new words are in the caption already")
    return new


def _core(text: str) -> list[str]:
    """The words without articles and without a plural s: "a dog" and "dogs" are the same."""
    plain = [word for word in words(text) if word not in ARTICLES]
    return [word.removesuffix("s") if len(word) > 3 else word for word in plain]


def _lines(text: str) -> list[str]:
    """The lines of an answer, of which there is one and the first is not No."""
    lines = _plain_lines(text)
    if not lines:
        raise UnusableAnswerError(EMPTY)
    if _NO.fullmatch(lines[0]):
        raise UnusableAnswerError(ANSWERED_NO)
    return lines


def _plain_lines(text: str) -> list[str]:
    lines = _THOUGHT.sub("", text).splitlines()
    return [line for line in (" ".join(line.split()) for line in lines) if line]


def _labelled(lines: list[str], labels: Sequence[str], asked: Sequence[str] = ()) -> list[str]:
    """What follows the labels of an answer that has these lines and no others.

    `asked` are the labels whose lack is the reason to reject; by default all.
    """
    for label in asked or labels:
        if not any(_starts(line, label) for line in lines):
            raise UnusableAnswerError(no_line(label))
    if len(lines) != len(labels) or not all(map(_starts, lines, labels)):
        raise UnusableAnswerError(EXTRA_LINES)
    return list(map(_behind, lines, labels))


def _starts(line: str, label: str) -> bool:
    return not label or line.lower().startswith(f"{label.lower()}:")


def _behind(line: str, label: str) -> str:
    return line[len(label) + 1 :].strip() if label else line


def words(text: str) -> list[str]:
    """The words in lower case, without punctuation."""
    return _WORD.findall(text.lower())


def holds(text: str, part: str) -> bool:
    """Whether whole words of `text`, one after another, are those of `part`."""
    return bool(_places(words(text), words(part)))


def holds_apart(text: str, part: str) -> bool:
    """Whether the words of `part` are in `text` in this order, maybe with others between them: an
    adjective may be added inside of "three people"."""
    left = iter(words(text))
    return all(word in left for word in words(part))


def occurrences(text: str, part: str) -> int:
    return len(_places(words(text), words(part)))


def _places(text: Sequence[str], part: Sequence[str]) -> list[int]:
    size = len(part)
    if not size:
        return []
    return [i for i in range(len(text) - size + 1) if text[i : i + size] == part]


def trade_places(caption: str, text: str, first: str, second: str) -> bool:
    """Whether both are in the text, and in the other order.

    The order of parts that occur more than once is not checked.
    """
    parts = (words(first), words(second))
    before = [_places(words(caption), part) for part in parts]
    after = [_places(words(text), part) for part in parts]
    if not all(before) or not all(after):
        return False
    if any(len(places) > 1 for places in (*before, *after)):
        return True
    return (before[0] < before[1]) != (after[0] < after[1])


def bag_distance(first: Sequence[str], second: Sequence[str]) -> int:
    """Words without a partner on the other side, in any order: 0 for a pure swap."""
    left, right = Counter(first), Counter(second)
    return max((left - right).total(), (right - left).total())


def changes_too_much(caption: str, text: str, change: ChangeLimit) -> bool:
    before, after = words(caption), words(text)
    limit = max(change.least, floor(change.share * len(before)))
    bag = change.measure == "bag"
    return (bag_distance(before, after) if bag else distance(before, after, limit)) > limit


def brings_nothing(caption: str, text: str) -> bool:
    """Whether no word of the text is new, apart from articles."""
    before, after = (" ".join(words(each)).replace("-", " ").split() for each in (caption, text))
    return not set(after) - set(before) - ARTICLES


def in_format_of(caption: str, sentence: str) -> str:
    """The sentence with the caption's first capital, final mark and quotation marks.

    Models write sentences; many captions are not. A full stop that the caption does not have is
    removed. A missing one is not added: the sentence may be cut off.
    """
    text = _without_quotes(" ".join(sentence.split()))
    plain = caption.strip()
    if not text or not plain:
        return text
    if plain[-1] not in _FINAL_MARKS and text[-1] == ".":
        text = text.rstrip(". ")
    if not text:
        return text
    return _restored(plain, _first_letter(plain, text))


def _without_quotes(text: str) -> str:
    start = _AROUND.match(text)
    if start and text.endswith(start[0][::-1]) and len(text) > 2 * len(start[0]):
        return text[start.end() : -len(start[0])].strip()
    return text


def _first_letter(plain: str, text: str) -> str:
    word = text.split()[0]
    if plain[0].isupper():
        return text[0].upper() + text[1:]
    if plain[0].islower() and word != "I" and (len(word) == 1 or not word.isupper()):
        return text[0].lower() + text[1:]
    return text


def _restored(plain: str, text: str) -> str:
    """The prompt has the caption's double quotation marks as single ones (model.quotable)."""
    if '"' not in plain:
        return text
    given = {word.replace('"', "'"): word for word in plain.split() if '"' in word}
    return " ".join(given.get(word, word) for word in text.split())


def judge(caption: str, text: str, change: ChangeLimit) -> None:
    """Raise if a text in the caption's format is not accepted."""
    plain = caption.strip()
    if not words(text):
        raise UnusableAnswerError(EMPTY)
    if text == plain or words(text) == words(plain):
        raise UnusableAnswerError("the new sentence is the caption")
    if text.endswith("?") and not plain.endswith("?"):
        raise UnusableAnswerError("the new sentence is a question")
    if plain[-1] in _FINAL_MARKS and text[-1] not in _FINAL_MARKS:
        raise UnusableAnswerError(
            "the new sentence does not end in punctuation, as the caption does"
        )
    if change.measure == "words" and brings_nothing(plain, text):
        raise UnusableAnswerError("the new sentence has no new word")
    if changes_too_much(plain, text, change):
        raise UnusableAnswerError("the new sentence changes too much")
