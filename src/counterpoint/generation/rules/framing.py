"""Other forms of the same clause, which keep the meaning: the examples are at the rules.

What follows the object of a passive stays at the end, and may only be the place of it all: "holding
a sign on a pole" is left alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Final, NamedTuple

from counterpoint.generation.language import lexicon
from counterpoint.generation.language.lexicon import Vocabulary
from counterpoint.generation.language.lists import TABLES, WORDS
from counterpoint.generation.language.sentences import FINITE, NOUNS, Put, Sentence, prepositions
from counterpoint.generation.language.words import inflected
from counterpoint.generation.pairs import Draft
from counterpoint.generation.registry import Ways, rule
from counterpoint.generation.rules.clauses import (
    Clause,
    NounPhrase,
    clause,
    exist_plural,
    exists,
    has_article,
    is_alive,
    is_enclosed,
    is_person,
    is_scene,
    is_view,
    phrase_at,
    verbs_joined,
)

# How often a form is made that nearly every caption could have. (The others are of rare captions.)
_KEPT: Final[dict[str, float]] = TABLES["common_forms"]
_NO_SUBJECT: Final = frozenset({"EX", "PRP", "IN", "RB", "VBG", "VBN"})


@rule("framing", "positive", "2")
def framing(sentence: Sentence, _words: Vocabulary, rng: Random) -> Iterator[Ways]:
    """the clause in another form: "a dog sleeping", "is sleeping", "sleeps", "there is" """
    found = clause(sentence)
    forms = list(_forms(sentence, found) if found else _tenses(sentence))
    if not any(form.name == "there" for form in forms):
        forms += _existing(sentence)
    rng.shuffle(forms)
    common = {name: rng.random() > kept for name, kept in _KEPT.items()}
    forms.sort(key=lambda form: common.get(form.name, False))  # stable
    yield (
        Draft(sentence.rewrite(form.puts), "paraphrase", common=common.get(form.name, False))
        for form in forms
    )


class _Form(NamedTuple):
    name: str
    puts: tuple[Put, ...]


def _forms(sentence: Sentence, said: Clause) -> Iterator[_Form]:
    """Every other form of the clause."""
    start = said.copula if said.copula >= 0 else said.head
    own = (start, said.head + 1)
    now = sentence.span_text(*own)
    for name, text in _predicates(sentence, said):
        if text != now:
            yield _Form(name, (*_unframed(sentence, said), Put(*own, text)))
        elif said.there:
            yield _Form("bare", _unframed(sentence, said))
    bare = _participle(sentence, said)
    if not said.there and bare and _can_exist(sentence, said.subject):
        be = "are" if exist_plural(sentence, said.subject) else "is"
        put = () if bare == now else (Put(*own, bare),)
        yield _Form("there", (Put(0, 0, f"there {be}"), *put))


def _existing(sentence: Sentence) -> Iterator[_Form]:
    """ "there is" or "this is" before a long noun phrase, whatever belongs to what in it."""
    if is_view(sentence):
        yield _Form("this", (Put(0, 0, "this is"),))
    first = exists(sentence)
    if first is not None:
        be = "are" if exist_plural(sentence, first) else "is"
        yield _Form("there", (Put(0, 0, f"there {be}"),))


def _tenses(sentence: Sentence) -> Iterator[_Form]:
    """ "slides", "is sliding", whatever the subject is: the verb itself tells the number."""
    tokens = sentence.tokens
    verbs = [i for i, t in enumerate(tokens) if t.tag in (*FINITE, "MD") or t.pos == "AUX"]
    if len(verbs) != 1 or not 1 < verbs[0] < len(tokens) - 2 or tokens[0].tag in _NO_SUBJECT:
        return
    place = verbs[0]
    verb, after = tokens[place], tokens[place + 1]
    head = place + (verb.lower in WORDS.copulas)
    lemma = sentence.lemmas[head]
    if verbs_joined(sentence, 0, len(tokens)) or lemma in WORDS.state_verbs | WORDS.helping:
        return
    subject = sentence.noun_phrase_before(place)
    if subject is None or sentence.has(WORDS.clauses):
        return
    if sentence.at(subject[0] - 1).tag in NOUNS:
        return  # "something a person is holding"
    if head > place and after.tag == "VBG" and after.pos == "VERB":
        form = after.form_of(lemma, "VBZ" if verb.lower == "is" else "VBP")
        yield _Form("does", (Put(place, place + 2, form),))
        return
    known = lexicon.meanings(lemma, "VERB") and verb.tag == "VBZ" and verb.pos == "VERB"
    if known and (tokens[place - 1].tag == "NN" or not lexicon.meanings(lemma, "NOUN")):
        yield _Form("doing", (Put(place, place + 1, f"is {verb.form_of(lemma, 'VBG')}"),))


def _predicates(sentence: Sentence, said: Clause) -> Iterator[tuple[str, str]]:
    """What can stand behind the subject, by its form."""
    head, subject = sentence.tokens[said.head], said.subject
    be = "are" if subject.plural else "is"
    be = sentence.tokens[said.copula].lower if said.copula >= 0 else be
    lemma = sentence.lemmas[said.head]
    bare = _participle(sentence, said)
    if bare:
        yield ("bare" if bare != "with" else "with"), bare
    if said.said == "with" or (said.said == "does" and lemma == "have"):
        clear = "," not in sentence.text and has_article(sentence, subject)
        if clear and _owns(sentence, said):
            yield "has", "have" if subject.plural else "has"
        return
    if lemma == "wear" and any(t.tag == "VBG" for t in sentence.tokens[said.head + 1 : said.end]):
        return  # "wearing a hat sitting on a bench"
    if _two_subjects(sentence, said):
        return
    if not has_article(sentence, subject):
        be = ""  # "man riding a horse": no sentence, but "man rides a horse" is as good
    state = said.said in ("doing", "does") and lemma in WORDS.state_verbs
    if bare and be and not state and not _says_more(sentence, said):
        yield ("is" if said.said != "does" else "doing"), f"{be} {bare}"
    down = sentence.word(said.head + 1) == "down"  # "sits down" is a movement
    doing = said.said == "doing" and head.tag == "VBG"  # else the tagger took it for a noun
    if doing and not down and not verbs_joined(sentence, said.head, said.end):
        plural = be == "are" or subject.plural
        yield "does", head.form_of(lemma, "VBP" if plural else "VBZ")


def _participle(sentence: Sentence, said: Clause) -> str:
    """The head as it stands behind a noun; empty if it cannot."""
    token, lemma = sentence.tokens[said.head], sentence.lemmas[said.head]
    if said.said != "does":
        return token.text
    if verbs_joined(sentence, said.head, said.end):
        return ""
    last = said.head + 1 == said.end
    if lemma == "have":
        open_ = sentence.word(said.subject.start) not in WORDS.definite_or_that
        return "with" if open_ and not last and sentence.starts_phrase(said.head + 1) else ""
    if token.tag == "VBP" and not lexicon.meanings(lemma, "VERB"):
        return ""  # "the manufacturers box": a noun that the tagger takes for a verb
    after = sentence.at(said.head + 1)
    if lemma in WORDS.state_verbs and (last or after.lower in ("like", "to") or after.tag == "JJ"):
        return ""
    return token.form_of(lemma, "VBG") if lemma not in ("do", "let", "help") else ""


def _unframed(sentence: Sentence, said: Clause) -> tuple[Put, ...]:
    return (Put(0, 3, sentence.span_text(2, 3)),) if said.there else ()


def _can_exist(sentence: Sentence, subject: NounPhrase) -> bool:
    first = sentence.tokens[subject.start]
    known = first.lower in WORDS.definite_or_that or first.tag in ("PRP$", "PDT") or subject.joined
    return not known and has_article(sentence, subject)


def _two_subjects(sentence: Sentence, said: Clause) -> bool:
    """ "throwing a ball and a racket in her hand": what follows "and" has words of its own."""
    tokens = sentence.tokens
    for place in range(said.head + 1, said.end - 1):
        if tokens[place].lower in ("and", ",") and tokens[place + 1].tag in ("DT", "CD", "PRP$"):
            phrase = phrase_at(sentence, place + 1)
            if phrase is None or phrase.end < said.end or is_alive(sentence.lemmas[phrase.noun]):
                return True
    return False


def _says_more(sentence: Sentence, said: Clause) -> bool:
    """ "made of brick on a corner": "is made of brick" leaves the corner behind."""
    if said.said != "done" or sentence.word(said.head + 1) != "of":
        return False
    phrase = phrase_at(sentence, said.head + 2)
    return phrase is None or phrase.end < said.end


def _owns(sentence: Sentence, said: Clause) -> bool:
    """A thing surely has what it is with; a man or a meal may only be beside it.

    A room has all of a list; of "a laptop with a mouse and a cup", the cup is not the laptop's.
    """
    subject = said.subject
    lemma = sentence.lemmas[subject.noun]
    rest = sentence.tokens[said.head + 1 : said.end]
    if any(t.tag == "VBG" for t in rest) and not any(t.tag == "PRP" for t in rest):
        return False  # "with the seat open sitting in a bathroom"
    if sentence.has(("and", ",", "&"), said.head + 1, said.end) and not is_enclosed(lemma):
        return False
    beside = is_alive(lemma) or not lexicon.kinds(lemma).isdisjoint(("food", "drink"))
    return bool(lexicon.meanings(lemma, "NOUN")) and not beside and not subject.joined


@rule("relative", "positive", "2")
def relative(sentence: Sentence, _words: Vocabulary, rng: Random) -> Iterator[Ways]:
    """a relative clause added or dropped: "a man riding", "a man who is riding" """
    puts = list(dict.fromkeys((*_added(sentence), *_dropped(sentence))))
    rng.shuffle(puts)
    common = {put: rng.random() > _KEPT.get(put.text, 1) for put in puts}
    puts.sort(key=common.__getitem__)  # stable
    yield (Draft(sentence.rewrite((put,)), "paraphrase", common=common[put]) for put in puts)


def _added(sentence: Sentence) -> Iterator[Put]:
    """Where "who is" or "that has" can be added."""
    said = clause(sentence)
    if said is not None and said.copula < 0:
        yield from _of_subject(sentence, said)
    tokens = sentence.tokens
    for place in range(1, len(tokens) - 1):
        if tokens[place].lower == "wearing" and tokens[place - 1].tag in NOUNS:
            clothes = phrase_at(sentence, place + 1)
            if is_person(sentence.lemmas[place - 1]) and clothes and sentence.is_worn(clothes.noun):
                be = "are" if tokens[place - 1].tag == "NNS" else "is"
                yield Put(place, place, f"who {be}")


def _of_subject(sentence: Sentence, said: Clause) -> Iterator[Put]:
    subject, head = said.subject, said.head
    be = "are" if subject.plural else "is"
    who = sentence.lemmas[subject.noun]
    pronoun = "who" if is_person(who) and who not in WORDS.bodies else "that"
    if said.said == "with":
        if _owns(sentence, said):
            yield Put(head, head + 1, f"{pronoun} {'have' if subject.plural else 'has'}")
        return
    lemma = sentence.lemmas[head]
    if said.said == "place":
        moving = any(t.tag == "VBG" for t in sentence.tokens[head + 1 : said.end])
        if moving or not has_article(sentence, subject):
            return  # "a train that is on a track pulling into a station"
    told = said.said in ("doing", "done", "place") and lemma not in WORDS.state_verbs
    if told and not subject.joined:
        yield Put(head, head, f"{pronoun} {be}")


def _dropped(sentence: Sentence) -> Iterator[Put]:
    """Where "who is" can be dropped, or "that has" be "with"."""
    tokens = sentence.tokens
    for place in range(1, len(tokens) - 2):
        if tokens[place].lower not in WORDS.relatives or tokens[place - 1].tag not in NOUNS:
            continue
        verb, after = tokens[place + 1], tokens[place + 2]
        if verb.lower in WORDS.copulas and _stands_alone(sentence, place + 2):
            yield Put(place, place + 3, after.text)
        elif verb.lower in ("has", "have") and phrase_at(sentence, place + 2) is not None:
            yield Put(place, place + 2, "with")


def _stands_alone(sentence: Sentence, place: int) -> bool:
    """ "a man riding", "a plate filled with", "a dog on"."""
    token = sentence.tokens[place]
    if token.tag in ("VBG", "VBN") and token.pos == "VERB":
        return sentence.at(place + 1).tag not in ("", ".")
    where = prepositions().at(sentence, place)
    return where is not None and sentence.words(*where) in WORDS.places


# --- active and passive ---------------------------------------------------------------------------


_PARTICLES: Final = {"hold": ("up", "out"), "blow": ("out",), "lift": ("up",), "cut": ("up",)}
_PRONOUNS: Final = frozenset({"PRP", "PRP$", "WP", "WDT"})


@rule("passive", "positive", "2")
def passive(sentence: Sentence, _words: Vocabulary, _rng: Random) -> Iterator[Ways]:
    """active and passive: "a man riding a horse", "a horse being ridden by a man" """
    said = clause(sentence)
    pronouns = any(token.tag in _PRONOUNS for token in sentence.tokens)  # "a man washing his car"
    if said is None or pronouns or not has_article(sentence, said.subject):
        return
    text = ""
    if said.said in ("doing", "does") and sentence.tokens[said.head].lower != "being":
        text = _to_passive(sentence, said)
    elif said.said in ("doing", "done"):
        text = _to_active(sentence, said)
    if text:
        yield [Draft(text, "paraphrase", "rel")]


def _to_passive(sentence: Sentence, said: Clause) -> str:
    lemma = sentence.lemmas[said.head]
    place = said.head + 1
    particle = _particle(sentence, place, lemma)
    object_ = phrase_at(sentence, place + bool(particle)) if lemma in WORDS.passive_verbs else None
    if object_ is None or said.subject.joined or not _movable(sentence, object_, lemma):
        return ""
    doer = sentence.lemmas[said.subject.noun]
    if lemma in WORDS.by_hand and not is_alive(doer) and doer != "hand":
        return ""  # "a plate holding a slice"
    wave = lemma == "ride" and sentence.lemmas[object_.noun] == "wave"
    if not _only_place(sentence, object_.end, said.end, lemma, wave=wave):
        return ""
    participle = inflected(lemma, "VBN") + (f" {particle}" if particle else "")
    be = "are" if exist_plural(sentence, object_) else "is"
    being = "" if said.said == "does" or lemma in WORDS.lasting else "being "
    verb = f"{being}{participle} by"
    if said.copula >= 0 or said.said == "does":
        verb = f"{be} {verb}"
    return _exchanged(sentence, said, object_, be, verb)


def _to_active(sentence: Sentence, said: Clause) -> str:
    tokens = sentence.tokens
    being = tokens[said.head].lower == "being"
    verb = said.head + being
    lemma = sentence.lemmas[verb]
    place = verb + 1
    particle = _particle(sentence, place, lemma)
    place += bool(particle)
    if lemma not in WORDS.passive_verbs or place + 1 >= said.end or tokens[place].lower != "by":
        return ""
    doer = phrase_at(sentence, place + 1)
    if doer is None or not _movable(sentence, doer) or said.subject.joined:
        return ""
    if lemma not in WORDS.lasting and not is_alive(sentence.lemmas[doer.noun]):
        return ""  # "a cake eaten by candlelight"
    if not _only_place(sentence, doer.end, said.end, lemma):
        return ""
    be = "are" if doer.plural else "is"
    form = inflected(lemma, "VBG")
    if said.copula >= 0 and not being and lemma not in WORDS.lasting:
        form = lemma if doer.plural else inflected(lemma, "VBZ")
    elif said.copula >= 0:
        form = f"{be} {form}"
    form += f" {particle}" if particle else ""
    return _exchanged(sentence, said, doer, be, form)


def _particle(sentence: Sentence, place: int, verb: str) -> str:
    word = sentence.word(place)
    return word if word in _PARTICLES.get(verb, ()) else ""


def _exchanged(sentence: Sentence, said: Clause, second: NounPhrase, be: str, verb: str) -> str:
    """The subject and another phrase exchanged around another form of the verb."""
    first = said.subject.start, said.subject.end
    puts = [
        Put(*first, sentence.span_text(second.start, second.end)),
        Put(said.copula if said.copula >= 0 else said.head, second.start, verb),
        Put(second.start, second.end, sentence.span_text(*first)),
    ]
    if said.there:
        if sentence.tokens[second.start].lower in ("the", "this", "these"):
            return ""
        puts.append(Put(1, 2, be))
    return sentence.rewrite(puts)


def _movable(sentence: Sentence, phrase: NounPhrase, verb: str = "") -> bool:
    """Whether a phrase can be spoken of first: with an article, or several."""
    first = sentence.tokens[phrase.start]
    lemma = sentence.lemmas[phrase.noun]
    if lemma in WORDS.abstract | WORDS.fixed_objects or (verb == "catch" and lemma == "wave"):
        return False
    if verb == "wear" and not sentence.is_worn(phrase.noun):
        return False
    return first.tag in ("DT", "CD") or phrase.plural


def _only_place(sentence: Sentence, start: int, end: int, verb: str, *, wave: bool = False) -> bool:
    """Whether nothing follows, or only the place of it all; on a wave, a surfboard is one."""
    if start == end:
        return True
    where = prepositions().at(sentence, start) if verb in WORDS.contact else None
    if where is None or sentence.words(*where) not in WORDS.passive_places:
        return False
    place = phrase_at(sentence, where[1]) if where[1] < end else None
    if place is None or place.end != end:
        return False
    lemma = sentence.lemmas[place.noun]
    on_board = wave and lemma in ("surfboard", "board")
    return on_board or (is_scene(lemma) and lemma not in WORDS.skies)
