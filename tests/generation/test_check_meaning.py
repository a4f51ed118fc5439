"""Is a negative a positive in disguise, or a positive a negative in disguise?"""

from __future__ import annotations

from itertools import islice

import pytest

from counterpoint.benchmarks import SYNONYMS
from counterpoint.generation.checks.checking import CHECKS, Claim, TextChange, check
from counterpoint.generation.language.lexicon import fields
from counterpoint.generation.language.sentences import inflected
from counterpoint.generation.pairs import Kind, Type
from counterpoint.world.edits import replacements, swaps


def fault(caption: str, text: str, kind: Kind, type_: Type) -> str:
    return CHECKS["meaning"](TextChange(caption, text), Claim(kind, type_))


# --- order -------------------------------------------------------------------------------------

# Exchanges that keep the meaning: refused as negatives, passed as positives.
SAME = [
    ("a dog and a cat", "a cat and a dog", "conjuncts"),
    ("A black and white cat.", "A white and black cat.", "conjuncts"),
    ("a bathroom with a sink, toilet and shower", "a bathroom with a sink, shower and toilet", ""),
    ("a sink, toilet and shower", "a shower, toilet and sink", "conjuncts"),
    ("a sink, toilet and shower", "a shower, sink and toilet", "conjuncts"),
    ("a mixture of rice and broccoli", "a mixture of broccoli and rice", "conjuncts"),
    ("the open door and the crouched cat", "the crouched cat and the open door", "conjuncts"),
    (
        "there is a man wearing glasses and holding a wine bottle",
        "there is a man holding a wine bottle and wearing glasses",
        "conjuncts",
    ),
    (
        "a man holding a bat and a woman wearing a hat",
        "a woman wearing a hat and a man holding a bat",
        "conjuncts",
    ),
    ("a man and a woman sitting on a bench", "a woman and a man sitting on a bench", "conjuncts"),
    (
        "a blue and white stained glass clock shows the time",
        "a white and blue stained glass clock shows the time",
        "conjuncts",
    ),
    ("a black dog and a white dog", "a white dog and a black dog", "conjuncts"),
    ("the small red star and the small star", "the small star and the small red star", "conjuncts"),
    ("a dog next to a cat", "a cat next to a dog", "symmetric"),
    ("two sinks next to two mirrors", "two mirrors next to two sinks", "symmetric"),
    ("a small dog beside a big dog", "a big dog beside a small dog", "symmetric"),
    ("a photo of a dog near a cat", "a photo of a cat near a dog", "symmetric"),
    ("a bowl features snacks and fruit", "a bowl features fruit and snacks", "conjuncts"),
    ("a big red bus on a street", "a red big bus on a street", "same phrase"),
]
# Exchanges that change it: passed as negatives, refused as positives.
DIFFERENT = [
    ("a black dog and a white cat", "a white dog and a black cat"),
    ("a black dog and a white cat", "a black cat and a white dog"),
    ("a black dog and a cat", "a black cat and a dog"),
    (
        "a child holding an umbrella and petting a yak",
        "a child petting an umbrella and holding a yak",
    ),
    ("a girl holding a kitten next to a fence", "a girl holding a fence next to a kitten"),
    ("a boy on a skateboard and a girl", "a boy on a girl and a skateboard"),
    ("a dog above a cat", "a cat above a dog"),
    ("a black cat next to a dog", "a black dog next to a cat"),
    ("two buses followed by two trucks", "two trucks followed by two buses"),
    ("a train passing by a station", "a station passing by a train"),
    ("a kitten that sits down by a door", "a door that sits down by a kitten"),
    ("a cup and a bowl of soup", "a bowl and a cup of soup"),
    (
        "a room with brown, leather seats and a red wall",
        "a room with red, leather seats and a brown wall",
    ),
    ("a woman rides a horse", "a horse rides a woman"),
    ("boats on the side of a lake by a tree", "boats on the side of a tree by a lake"),
    ("a girl playing with a soccer ball", "a soccer ball playing with a girl"),
]
# Exchanges of which the words alone do not tell: refused as either.
DOUBTFUL = [
    ("a car parked next to a van", "a van parked next to a car", "perhaps symmetric"),
    ("a boy playing with a dog", "a dog playing with a boy", "perhaps symmetric"),
    ("a cat curled up beside a dog", "a dog curled up beside a cat", "perhaps symmetric"),
    ("a man shaking hands with a boy", "a boy shaking hands with a man", "perhaps symmetric"),
    ("a girl in a hat with a kite", "a girl with a kite in a hat", "perhaps same phrase"),
    ("a dog and a cat with a hat", "a cat and a dog with a hat", "perhaps conjuncts"),
    (
        "scissors and string next to a pencil",  # are the scissors?
        "string and scissors next to a pencil",
        "perhaps conjuncts",
    ),
    ("a black dog and cat", "a black cat and dog", "perhaps conjuncts"),
    ("a child and a man hold hands", "a man and a child hold hands", "perhaps conjuncts"),
    ("a man standing next to a woman", "a woman standing next to a man", "perhaps symmetric"),
    ("a man hugging a woman", "a woman hugging a man", "perhaps symmetric"),
    (
        "a woman sitting down with a child sharing a cake",
        "a child sitting down with a woman sharing a cake",
        "perhaps symmetric",
    ),
    (
        "a truck parked near a van with people around it",
        "a van parked near a truck with people around it",
        "perhaps symmetric",
    ),
    (
        "a dog greets a sheep that is in a pen",
        "a sheep greets a dog that is in a pen",
        "perhaps symmetric",
    ),
    ("a metal sink in a kitchen", "a sink metal in a kitchen", "perhaps same phrase"),
]


# Conjuncts that do not stand alone. Captions of COCO.
UNCLEAR = [
    # a part of a longer phrase
    (
        "A bathroom with black and white toilet and a tiled floor.",
        "A bathroom with black and a tiled floor and white toilet.",
    ),
    (
        "many trays with green yellow and red apples and a scale",
        "many trays with green yellow and a scale and red apples",
    ),
    ("a small boy in shorts and a tie and a lamp", "a small boy in shorts and a lamp and a tie"),
    # a verb that looks like a noun
    (
        "A giraffe and a zebra stand side by side as they eat.",
        "A zebra stand side and a giraffe by side as they eat.",
    ),
    ("Two forks and three cupcakes perch", "Three cupcakes perch and two forks"),
    (
        "Two horses are standing in a field and grazing.",
        "Two horses are standing in a grazing and field.",
    ),
    # whose is what follows?
    (
        "A man and a girl in a bikini are putting wax on a surfboard.",
        "A girl and a man in a bikini are putting wax on a surfboard.",
    ),
    (
        "two tall buildings and a plane in between them",
        "a plane and two tall buildings in between them",
    ),
    (
        "a white toilet with a lid and a sink behind it",
        "a white toilet with a sink and a lid behind it",
    ),
    # whose is what stands before?
    ("A man on a horse and a dog", "A man on a dog and a horse"),
    ("a dog wearing a helmet and a black scooter", "a dog wearing a black scooter and a helmet"),
    ("plates of food and wine glasses", "plates of wine glasses and food"),
    ("a cup of soup and crackers", "a cup of crackers and soup"),
    ("a room has a table with chairs and a couch", "a room has a table with a couch and chairs"),
    ("a nice kitchen and the cabinets are shiny", "the cabinets and a nice kitchen are shiny"),
    # a word that may be said of both
    ("a white toilet and sink", "a sink and white toilet"),
    ("a pizza with spinach and parmesan topping", "a pizza with parmesan topping and spinach"),
    ("a tan toilet and sink combination", "a sink combination and tan toilet"),
    ("behind a chain link and electric fence", "behind an electric fence and chain link"),
    ("a man and his dog", "his dog and a man"),
    ("the woman and children", "children and the woman"),
    ("two dogs and cats", "cats and two dogs"),
    # the end of two actions
    ("men standing next to and cutting a cake", "men cutting a cake and standing next to"),
    ("a man holding a bat and petting its owner", "a man petting its owner and holding a bat"),
    # a clause
    (
        "Player preparing to hit ball with catcher and umpire looking on.",
        "Umpire looking on and player preparing to hit ball with catcher.",
    ),
    ("a man in a bikini and a girl", "a girl and a man in a bikini"),
    ("a white tub, sink and toilet", "a toilet, white tub and sink"),
]


@pytest.mark.slow
def test_conjuncts_without_clear_borders_are_no_positives() -> None:
    for caption, text in UNCLEAR:
        assert fault(caption, text, "positive", "swap") in ("perhaps conjuncts", "words moved")


# Conjuncts that do.
CLEAR = [
    ("a desk with a keyboard and a cup on it", "a desk with a cup and a keyboard on it"),
    ("A couch and a television in a room", "A television and a couch in a room"),
    ("a man in a white shirt and black bow tie", "a man in a black bow tie and white shirt"),
    ("A man and woman sit on a bench with a dog.", "A woman and man sit on a bench with a dog."),
    ("Three cupcakes and two forks are on a tray", "Two forks and three cupcakes are on a tray"),
    (
        "a room with furniture and a sliding glass door",
        "a room with a sliding glass door and furniture",
    ),
    ("the large cross and the cross", "the cross and the large cross"),
    ("a dog on a bed and a cat on a chair", "a cat on a chair and a dog on a bed"),
    ("a plate full of meat, rice and beans", "a plate full of meat, beans and rice"),
    ("a boy holding a bat and looking at a ball", "a boy looking at a ball and holding a bat"),
]


@pytest.mark.slow
def test_conjuncts_that_stand_alone_are_positives() -> None:
    for caption, text in CLEAR:
        assert check(caption, text, "positive", "swap").rejected == ""
        assert fault(caption, text, "negative", "swap") == "conjuncts"


def test_the_same_in_another_order() -> None:
    for caption, text, reason in SAME:
        assert fault(caption, text, "negative", "swap") == (reason or "conjuncts")
        assert check(caption, text, "positive", "swap").rejected == ""


def test_another_order_with_another_meaning() -> None:
    for caption, text in DIFFERENT:
        assert check(caption, text, "negative", "swap").rejected == ""
        assert fault(caption, text, "positive", "swap") == "words moved"


def test_doubt_is_refused_on_both_sides() -> None:
    for caption, text, reason in DOUBTFUL:
        assert fault(caption, text, "negative", "swap") == reason
        assert fault(caption, text, "positive", "swap") == reason


def test_a_shuffle_may_be_bad_grammar_only() -> None:
    assert fault("a metal sink", "a sink metal", "negative", "shuffle") == ""
    assert fault("a dog and a cat", "a cat and a dog", "negative", "shuffle") == "conjuncts"


def test_numbers_and_tenses_follow_their_nouns() -> None:
    # From the hard-positives prompts: the plural differs, the meaning does not.
    caption, text = "three giraffes and two antelope", "two antelopes and three giraffes"
    assert fault(caption, text, "negative", "paraphrase") == "conjuncts"
    assert fault(caption, text, "positive", "paraphrase") == ""


# --- slots -------------------------------------------------------------------------------------


def test_replaced_words_of_a_negative() -> None:
    for caption, text, reason in [
        ("a red car", "a crimson car", "synonym"),
        ("a large dog", "a big dog", "synonym"),
        ("a couch in a room", "a sofa in a room", "synonym"),
        ("a cat beneath a bed", "a cat under a bed", "synonym"),
        ("a cat left of a dog", "a cat to the left of a dog", "synonym"),
        ("a gray car", "a grey car", "spelling"),
        ("a fire hydrant", "a fire-hydrant", "spelling"),
        ("a dog in a car", "dogs in a car", "same word"),
        ("a dog sleeps", "a dog is sleeping", "same word"),
        ("two dogs run", "a couple of dogs run", "same number"),
        ("a dog on a bed", "an animal on a bed", "kind"),
        ("a dog on a bed", "a puppy on a bed", "kind"),
        ("a sedan on a road", "a vehicle on a road", "kind"),
        ("a banana on a bed", "a piece of fruit on a bed", "kind"),
        ("a half full glass", "a half empty glass", "near"),
        ("a half-full glass", "a half-empty glass", "near"),
        ("a wooden table", "a brown table", "perhaps both"),
        ("a colorful kite", "a red kite", "perhaps both"),
        ("a red kite", "a colorful kite", ""),
        ("a small red bus", "a red bus", "says less"),
        ("a red car", "a blue car", ""),
        ("a full glass", "an empty glass", ""),
        ("a cat sitting on a wall", "a cat leaning against a wall", ""),
        ("goats in a pen", "sheep in a pen", ""),
        ("a stop sign", "a traffic light", ""),
        ("a man on a bed", "a woman on a bed", ""),
        ("two dogs run", "three dogs run", ""),
        ("a cat above a bed", "a cat below a bed", ""),
        ("a cat left of a dog", "a cat right of a dog", ""),
    ]:
        assert fault(caption, text, "negative", "replace") == reason


MEANINGS = [meaning for field in fields().values() for meaning in field]


def test_no_kind_is_a_negative_of_its_members() -> None:
    for kind in sorted({kind for meaning in MEANINGS for kind in meaning.kinds}):
        members = [m.head for m in MEANINGS if kind in m.kinds]
        for member in members:
            if kind in member.split():  # "bus" and "school bus": a word is added
                continue
            assert fault(f"the {member} is here", f"the {kind} is here", "negative", "replace"), (
                member
            )
            assert fault(f"the {kind} is here", f"the {member} is here", "negative", "replace"), (
                member
            )


NUMBERS = ["two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "twelve"]
VAGUE = ["some", "several", "multiple", "a group of", "a number of", "various"]


def test_amounts_that_may_be_one_number_are_no_negatives() -> None:
    for number in NUMBERS:
        for vague in VAGUE:
            if number != "two" or "number" not in vague:
                assert (
                    fault(f"{number} dogs run", f"{vague} dogs run", "negative", "replace")
                    == "near"
                )
                assert (
                    fault(f"{vague} dogs run", f"{number} dogs run", "negative", "replace")
                    == "near"
                )
        for other in set(NUMBERS) - {number}:
            assert fault(f"{number} dogs run", f"{other} dogs run", "negative", "replace") == ""
        assert fault(f"{number} dogs run", "a single dog runs", "negative", "paraphrase") == ""


def test_few_is_not_many() -> None:
    assert fault("a few dogs run", "many dogs run", "negative", "replace") == ""
    assert fault("a few dogs run", "several dogs run", "negative", "replace") == "near"
    assert fault("six eggs", "half a dozen eggs", "negative", "replace") == "same number"


def test_the_voice_of_a_verb() -> None:
    for active, passive, turned in [
        ("a man riding a horse", "a horse being ridden by a man", "a man being ridden by a horse"),
        ("a dog chases a cat", "a cat is chased by a dog", "a dog is chased by a cat"),
        (
            "a truck pulling a boat on a road",
            "a boat pulled by a truck on a road",
            "a truck pulled by a boat on a road",
        ),
    ]:
        for one, other in ((active, passive), (passive, active)):
            assert fault(one, other, "negative", "paraphrase") == "passive"
            assert fault(one, other, "positive", "paraphrase") == ""
        assert fault(active, turned, "negative", "paraphrase") == ""
        assert fault(active, turned, "positive", "paraphrase") == "arguments swapped"


def test_not_and_the_opposite_say_the_same() -> None:
    caption, text = "a plate that is dirty on a table", "a plate that is not clean on a table"
    assert fault(caption, text, "positive", "paraphrase") == ""
    assert fault(caption, text, "negative", "paraphrase") == "denies the opposite"


PAPER = [
    (f"the man {a} the box" if kind == "relations" else f"the {a} box", a, b)
    for kind, words in SYNONYMS.items()
    for a, b in words.items()
]


def test_the_synonyms_of_the_paper() -> None:
    for caption, word, synonym in PAPER:
        text = caption.replace(f" {word} ", f" {synonym} ")
        assert fault(caption, text, "negative", "replace")
        assert fault(caption, text, "positive", "replace") == ""


def test_replaced_words_of_a_positive() -> None:
    for caption, text, reason in [
        ("a red car", "a crimson car", ""),
        ("a red car", "a blue car", "excluded"),
        ("an open door", "a closed door", "excluded"),
        ("a dog on a bed", "an animal on a bed", ""),
        ("a dog on a bed", "a puppy on a bed", "narrower"),
        ("two dogs run", "three dogs run", "number"),
        ("2 dogs run", "two dogs run", ""),
        ("a dog runs", "2 dogs run", "number"),
        ("a dog in a car", "dogs in a car", "number"),
        ("a dog on a bed", "no dog on a bed", "negation"),
        ("a dog is not on a bed", "a dog is on a bed", "negation"),
        ("a cat left of a dog", "a cat right of a dog", "left or right"),
        ("a cat above a dog", "a cat below a dog", "converse"),
        ("a man with a kite", "a man with a horse", "other word"),
        ("a man with a hat next to a man", "a man with a hat near a man", ""),
    ]:
        assert fault(caption, text, "positive", "replace") == reason


def test_a_positive_that_passes_may_be_doubtful() -> None:
    for caption, text, doubt in [
        ("a red shirt", "a crimson shirt", "narrower"),
        ("a big red bus near a tree", "a large crimson bus near a tree", "narrower"),
        ("a crimson shirt", "a red shirt", ""),
        ("a cloud above a hill", "a cloud on top of a hill", "of what touches"),
        ("a gray cat", "a grey cat", ""),
        ("a policeman on a bike", "a police officer on a bike", ""),
        ("a dog and a cat", "a cat and a dog", ""),
        ("a man is fixing a bike", "a man repairs a bike", "narrower"),
    ]:
        verdict = check(caption, text, "positive", "paraphrase")
        assert (verdict.rejected, verdict.doubt) == ("", doubt)
        assert check(caption, text, "negative", "paraphrase").doubt == ""


def test_another_form_of_a_verb_is_not_doubtful() -> None:
    """ "is repairing" and "repairs" say the same, however narrow the verb."""
    meanings = (meaning for field in fields().values() for meaning in field)
    verbs = {word for meaning in meanings if meaning.pos == "VERB" for word in meaning.offered()}
    for verb in sorted(verbs):
        head, blank, rest = verb.partition(" ")
        doing, does = (inflected(head, tag) + blank + rest for tag in ("VBG", "VBZ"))
        texts = f"a man is {doing} it", f"a man {does} it"
        if inflected(head, "VBG") and inflected(head, "VBZ"):
            for caption, text in (texts, texts[::-1]):
                verdict = check(caption, text, "positive", "paraphrase")
                assert (verdict.rejected, verdict.doubt) == ("", ""), (caption, text)


# --- relations, additions, negations ------------------------------------------------------------


def test_turned_relations() -> None:
    for caption, text, same in [
        ("a cat left of a big dog", "a big dog right of a cat", True),
        ("a cat left of a dog", "a dog to the right of a cat", True),
        ("there is a cat above a dog", "there is a dog below a cat", True),
        ("a cat near a dog", "a dog next to a cat", True),
        ("a cat left of a dog", "a dog left of a cat", False),
        ("a tiny star beneath a star", "a star below a tiny star", False),
        ("a dog under a table in a room", "a table under a dog within a room", False),
        (
            "a black cat and a white dog outside",
            "a white cat along with a black dog outside",
            False,
        ),
    ]:
        assert bool(fault(caption, text, "negative", "paraphrase")) == same
        assert (fault(caption, text, "positive", "paraphrase") == "") == same


def test_additions_and_negations() -> None:
    assert fault("a big dog sleeps", "a large big dog sleeps", "negative", "add") == "says it twice"
    assert fault("a dog sleeps", "a big dog sleeps", "negative", "add") == ""
    assert fault("a dog sleeps", "a dog does not sleep", "negative", "negate") == ""
    double = fault("a man not sitting", "no man not sitting", "negative", "negate")
    assert double == "double negation"
    assert fault("a dog sits", "a dog not only sits", "negative", "negate") == "denies nothing"


# --- the world, where truth is known ------------------------------------------------------------


@pytest.mark.slow
def test_the_world_s_own_edits() -> None:
    """Its positives pass; its negatives pass but for words that real captions use for one thing."""
    for make in [replacements, swaps]:
        near = 0
        for edit in islice(make(7), 400):  # type: ignore[operator]
            kind: Type = "replace" if make is replacements else "paraphrase"
            assert fault(edit.original, edit.positive, "positive", kind) == "", edit
            assert fault(edit.original, edit.positive, "negative", kind), edit
            said = fault(edit.original, edit.negative, "negative", kind)
            near += bool(said)
            assert said in ("", "near", "synonym"), edit
            assert fault(edit.original, edit.negative, "positive", kind), edit
        assert near <= 40  # red and orange, circle and ring
