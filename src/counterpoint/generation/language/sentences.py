"""Captions as sentences: tokens with tags, which captions can be used, and grammatical edits.

Tokens are plain tuples, so that rules are fast and do not need spaCy. A caption that cannot be used
(`unreadable`) is rejected and counted by the reason. An edit (`rewrite`) keeps spaces, capitals,
articles and word forms correct.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import tee
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from counterpoint._util.english import article, english_tagger, english_versions
from counterpoint.generation.language import lexicon
from counterpoint.generation.language.lists import WORDS

if TYPE_CHECKING:
    from spacy.tokens import Doc


_BATCH: Final = 256
_CAPITALS: Final = re.compile(r"\b[A-Z]{2,}\b")

MOST_WORDS: Final = 80  # CLIP reads 77 tokens: a later edit might be cut off
_WORD: Final = re.compile(r"[^\W\d_]+", re.UNICODE)
_LATIN: Final = re.compile(r"[a-z]+")
_SHARE: Final = 0.6  # minimum share of English words: captions have names and typos
NOUNS: Final = frozenset({"NN", "NNS"})
ADJECTIVES: Final = frozenset({"JJ", "JJR", "JJS"})
FINITE: Final = frozenset({"VBZ", "VBP", "VBD"})


class Token(NamedTuple):
    """A word or mark, its Penn tag and its part of speech."""

    text: str
    lower: str
    tag: str
    pos: str
    start: int
    end: int


Piece = tuple[str, str, bool]  # a word, the space after it, and whether it is new


@dataclass(frozen=True, eq=False)
class Sentence:
    """A tagged caption. It is compared by identity, so that results about it are cheap to cache."""

    text: str
    tokens: tuple[Token, ...]

    def part(self, start: int, end: int) -> str:
        """The text of a range of tokens."""
        return self.text[self.tokens[start].start : self.tokens[end - 1].end]

    @property
    def end(self) -> int:
        """The number of tokens without a final mark."""
        return len(self.tokens) - (self.tokens[-1].tag == ".")

    def word(self, place: int) -> str:
        """A token in lower case; empty before the first and behind the last."""
        return self.tokens[place].lower if 0 <= place < len(self.tokens) else ""

    def words(self, start: int, end: int) -> str:
        """A range of tokens in lower case, with single blanks."""
        return " ".join([token.lower for token in self.tokens[start:end]])

    def lemma(self, number: int) -> str:
        return self.lemmas[number]

    @cached_property
    def lemmas(self) -> list[str]:
        return [lemma(token.lower, token.pos) for token in self.tokens]

    @cached_property
    def pieces(self) -> list[Piece]:
        """The words as they are written inside a sentence, for edits."""
        return [
            (plain(self, i) if i == 0 else token.text, _blank(self, i), False)
            for i, token in enumerate(self.tokens)
        ]


def tagged(captions: Iterable[str]) -> Iterator[Sentence]:
    """Captions in order, each tagged once for all rules.

    Nothing is parsed: many captions are noun phrases, on which sentence parsers fail, and parsing
    would take as long as everything else.
    """
    texts, originals = tee(captions)
    docs = english_tagger("attribute_ruler").pipe(map(_lowered, texts), batch_size=_BATCH)
    for doc, caption in zip(docs, originals, strict=True):
        yield _sentence(doc, caption)


def _lowered(caption: str) -> str:
    """Without words in capitals ("dog ON table"), which the tagger takes for names."""
    found = _CAPITALS.sub(lambda match: match[0].lower(), caption)
    return found if len(found) == len(caption) else caption  # positions must not change


def _sentence(doc: Doc, caption: str) -> Sentence:
    tokens: list[Token] = []
    for token in doc:
        if not token.is_space:  # several spaces are a token
            start, end = token.idx, token.idx + len(token)
            lower, tag = token.lower_, token.tag_
            pos = "AUX" if lower in WORDS.be else _POS.get(tag, "X")
            tokens.append(Token(caption[start:end], lower, tag, pos, start, end))
    return Sentence(caption, tuple(_with_helpers(tokens)))


def _with_helpers(tokens: list[Token]) -> Iterator[Token]:
    """ "has" and "does" help a verb if one in the right form follows."""
    for place, token in enumerate(tokens):
        forms = _HELPERS.get(token.lower)
        if forms:
            rest = (after for after in tokens[place + 1 :] if after.pos != "ADV")
            after = next(rest, None)
            yield token._replace(pos="AUX") if after and after.tag in forms else token
        else:
            yield token


# The part of speech of a Penn tag. spaCy's own table of patterns takes as long as tagging; this is
# enough for captions.
_POS: Final = {
    **dict.fromkeys(("NN", "NNS"), "NOUN"),
    **dict.fromkeys(("NNP", "NNPS"), "PROPN"),
    **dict.fromkeys(("JJ", "JJR", "JJS"), "ADJ"),
    **dict.fromkeys(("RB", "RBR", "RBS", "WRB"), "ADV"),
    **dict.fromkeys(("VB", "VBD", "VBG", "VBN", "VBP", "VBZ"), "VERB"),
    **dict.fromkeys(("DT", "PDT", "PRP$", "WDT", "WP$"), "DET"),
    **dict.fromkeys(("PRP", "WP", "EX"), "PRON"),
    **dict.fromkeys((".", ",", ":", "``", "''", "-LRB-", "-RRB-", "HYPH", "NFP"), "PUNCT"),
    **dict.fromkeys(("IN", "RP"), "ADP"),
    **dict.fromkeys(("TO", "POS"), "PART"),
    **dict.fromkeys(("$", "SYM"), "SYM"),
    "CC": "CCONJ",
    "CD": "NUM",
    "MD": "AUX",
    "UH": "INTJ",
}
_HELPERS: Final = {
    **dict.fromkeys(("has", "have", "had"), ("VBN",)),
    **dict.fromkeys(("do", "does", "did"), ("VB",)),
}


@cache
def lemminflect() -> Any:
    import lemminflect  # slow: it imports spaCy

    return lemminflect


@cache
def lemma(word: str, pos: str) -> str:
    """The dictionary form of a lower-case word."""
    kind = "VERB" if pos == "AUX" else pos
    if kind not in ("NOUN", "PROPN", "VERB", "ADJ", "ADV"):
        return word
    found = lemminflect().getLemma(word, "NOUN" if kind == "PROPN" else kind)
    return str(found[0]) if found else word


@cache
def inflected(word: str, tag: str) -> str:
    """The word in the form of a Penn tag; empty if it has none."""
    if tag not in _FORMS:
        return "" if tag == "NN" and is_plural(word) else word
    if tag in ("NNS", "NNPS") and is_plural(word):
        return word
    if tag == "NNS" and word in WORDS.mass_nouns:
        return ""
    if tag == "NNS" and word in WORDS.unchanged:
        return word
    known = lemminflect().getInflection(word, tag, inflect_oov=tag not in ("JJR", "JJS"))
    return str(known[0]) if known else ""


@cache
def is_plural(word: str) -> bool:
    """Whether a noun is a plural as it stands: "sunglasses", "stairs"."""
    return word in WORDS.plurals or (word.endswith("s") and lemma(word, "NOUN") != word)


_FORMS: Final = frozenset({"NNS", "NNPS", "VBD", "VBG", "VBN", "VBZ", "VBP", "JJR", "JJS"})


@cache
def is_english(word: str) -> bool:
    """Whether a dictionary of English has this lower-case word, in any form."""
    known = lemminflect().getAllLemmas
    return bool(known(word) or known(word.removesuffix("s"))) or word in WORDS.function_words


def version() -> str:
    """The versions of what tags and forms depend on."""
    return english_versions("lemminflect")


def _is_known(word: str) -> bool:
    """In the dictionary, or in the lexicon, which has words of captions such as "frisbee"."""
    return is_english(word) or bool(lexicon.meanings(word) or lexicon.meanings(word[:-1]))


def unreadable(caption: str) -> str:
    """Why a caption cannot be used; empty if it can."""
    if not caption.strip():
        return "empty"
    words = _WORD.findall(caption.lower())
    if not words:
        return "no words"
    if len(words) > MOST_WORDS:
        return f"more than {MOST_WORDS} words"
    known = sum(_LATIN.fullmatch(word) is not None and _is_known(word) for word in words)
    return "" if known >= _SHARE * len(words) else "not English"


class Put(NamedTuple):
    """`text` replaces the tokens from `start` to `end`; with an empty range it is inserted."""

    start: int
    end: int
    text: str


def rewrite(sentence: Sentence, puts: Sequence[Put]) -> str:
    """The caption with other words in some places.

    The first letter is a capital if the caption's was. `a` and `an` fit the next word.
    """
    pieces = _pieces(sentence, puts)
    _set_articles(pieces)
    text = "".join([word + blank for word, blank, _ in pieces])
    text = sentence.text[: sentence.tokens[0].start] + text
    if sentence.text.isupper():
        return text.upper()
    return _capitalised(text) if _starts_high(sentence) else text


def _pieces(sentence: Sentence, puts: Sequence[Put]) -> list[Piece]:
    """Words, the space after each, and whether it is new."""
    pieces: list[Piece] = []
    place = 0
    for start, end, text in sorted(puts, key=lambda put: (put.start, put.end)):
        pieces += sentence.pieces[place:start]
        pieces.append((text, sentence.pieces[end - 1][1] if start < end else " ", True))
        place = end
    return pieces + sentence.pieces[place:]


def _blank(sentence: Sentence, number: int) -> str:
    end = sentence.tokens[number].end
    after = sentence.tokens[number + 1].start if number + 1 < len(sentence.tokens) else None
    return sentence.text[end:after]


def plain(sentence: Sentence, number: int) -> str:
    """A token as it is written inside a sentence: the first without its capital."""
    text = sentence.tokens[number].text
    if number or text == "I" or text[1:] != text[1:].lower():
        return text
    lower = text[:1].lower() + text[1:]
    return lower if is_english(lower) else text  # a name keeps its capital


def span_text(sentence: Sentence, start: int, end: int) -> str:
    """A range of tokens as it is written inside a sentence."""
    first = sentence.tokens[start]
    return plain(sentence, start) + sentence.text[first.end : sentence.tokens[end - 1].end]


def swap(sentence: Sentence, first: tuple[int, int], second: tuple[int, int]) -> str:
    """The caption with two ranges of tokens exchanged; `first` ends before `second` starts."""
    return rewrite(
        sentence,
        (Put(*first, span_text(sentence, *second)), Put(*second, span_text(sentence, *first))),
    )


def _starts_high(sentence: Sentence) -> bool:
    return sentence.tokens[0].text[:1].isupper()


def _capitalised(text: str) -> str:
    place = len(text) - len(text.lstrip())
    return text[:place] + text[place : place + 1].upper() + text[place + 1 :]


def _set_articles(pieces: list[Piece]) -> None:
    """Mistakes of the caption itself are kept."""
    for i in range(len(pieces) - 1):
        following = pieces[i + 1]
        piece, blank, new = pieces[i]
        if not new and not following[2]:
            continue
        before, _, word = piece.rpartition(" ")
        if word.lower() in ("a", "an"):
            if following[2] and following[0].lower() in WORDS.mass_nouns and not before:
                pieces[i] = ("", "", new)
                continue
            fitting = article(following[0])
            fitting = fitting.upper() if word.isupper() and len(word) > 1 else fitting
            fitting = fitting.capitalize() if word[0].isupper() else fitting
            pieces[i] = (f"{before} {fitting}".strip(), blank, new)


def in_form_of(token: Token, words: str, tag: str | None = None) -> str:
    """A dictionary form (of several words: the first of a verb, else the last) in a token's form.

    Empty if English has no such form. In capitals if the token is.
    """
    tag = tag or token.tag
    if tag.startswith("V"):
        head, blank, rest = words.partition(" ")
        found = inflected(head, tag)
        text = found and found + blank + rest
    else:
        rest, blank, head = words.rpartition(" ")
        found = inflected(head, tag)
        text = found and rest + blank + found
    loud = len(token.text) > 1 and token.text.isupper() and token.text not in WORDS.abbreviations
    return text.upper() if loud else text
