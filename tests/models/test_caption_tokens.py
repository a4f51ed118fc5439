"""Tokens of captions are open_clip's own, id by id, whatever the caption."""

from __future__ import annotations

import numpy as np
import open_clip
import pytest
from hf_models import bert_tokenizer, clip_tokenizer
from hypothesis import example, given, settings, strategies as st
from open_clip.tokenizer import HFTokenizer, SimpleTokenizer

from counterpoint.models.openclip.adapter import CaptionTokens, is_plain

CONTEXT = 12
CLEANS = ("lower", "whitespace", "canonicalize")
SIMPLE = {clean: SimpleTokenizer(context_length=CONTEXT, clean=clean) for clean in CLEANS}
OURS = {clean: CaptionTokens(SIMPLE[clean]) for clean in CLEANS}  # words are remembered

pieces = st.sampled_from(
    [
        *("a dog", "The CAT's", "don't", "12 dogs", "x" * 30, "!!", "__", "red-haired", "<b>"),
        *("&amp;", "&amp;amp;amp;amp;", "&lt;", "&", "&#233;", "<start_of_text>", "<end_of_text>"),
        *(
            "é",
            "cafe\u0301",
            "â€™",
            "ﬁ",
            "ＡＢ",
            "“q”",
            "\t",
            "\n",
            "\x00",
            "\x1b[31m",
            "\xa0",
            "★",
        ),
        *("★", " ", "  ", "?", "İ", "ß", "字"),
    ]
)
words = st.lists(pieces, max_size=12).map(" ".join) | st.lists(pieces, max_size=12).map("".join)
printable = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=60)
caption = printable | words | st.text(max_size=30)
captions = st.lists(caption, min_size=1, max_size=5)


@pytest.mark.parametrize("clean", CLEANS)
@given(captions=captions)
@example(captions=["", "   ", "A  Dog &amp; two  CATS, the long-haired ones: don't!"])
@settings(max_examples=300, deadline=None)
def test_ids_and_counts_are_those_of_open_clip(clean, captions):
    theirs, ours = SIMPLE[clean], OURS[clean]
    whole = theirs(captions).numpy()
    found = ours.ids(captions, cut=True)
    assert found.dtype == np.int64
    assert found.tolist() == whole[:, : found.shape[1]].tolist()
    assert not whole[:, found.shape[1] :].any()
    assert ours.ids(captions, cut=False).tolist() == whole.tolist()
    counts = ours.count(captions)
    assert counts.tolist() == [len(theirs.encode(one)) + 2 for one in captions]
    assert found.shape[1] == min(CONTEXT, counts.max())


@given(caption=printable)
@settings(max_examples=500, deadline=None)
def test_a_plain_caption_has_nothing_to_repair(caption):
    """The ground of the quick path: of the whole cleaning, only blanks and case are left."""
    if is_plain(caption):
        cleaned = open_clip.tokenizer.get_clean_fn("lower")(caption)
        assert cleaned == " ".join(caption.split()).lower()


@pytest.mark.parametrize("caption", ["a & b", "é", "a\tb", "a\nb", "\x1b[0m", "\x7f"])
def test_what_may_need_repair_is_not_plain(caption):
    assert not is_plain(caption)


def test_special_tokens_of_a_tokenizers_own_are_found():
    theirs = SimpleTokenizer(additional_special_tokens=["<two words>", "a.b"])
    ours = CaptionTokens(theirs)
    asked = ["a dog", "<two words> x", "a b", "a.b"]
    assert ours.ids(asked, cut=False).tolist() == theirs(asked).tolist()


def test_no_captions_have_no_tokens():
    assert OURS["lower"].count([]).tolist() == []
    assert OURS["lower"].ids([], cut=True).shape[0] == 0


def test_the_models_tokenizer_stays_as_it_is():
    theirs = SimpleTokenizer()
    before = theirs.clean_fn
    CaptionTokens(theirs)
    assert theirs.clean_fn is before


@pytest.fixture(scope="module", params=[bert_tokenizer, clip_tokenizer])
def transformers_tokenizer(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    request.param().save_pretrained(folder)
    theirs = HFTokenizer(str(folder), context_length=CONTEXT)
    return theirs, CaptionTokens(theirs)


@given(captions=captions)
@settings(max_examples=100, deadline=None)
def test_a_list_of_captions_is_what_each_is_alone(transformers_tokenizer, captions):
    theirs, ours = transformers_tokenizer
    assert ours.ids(captions, cut=False).tolist() == theirs(captions).tolist()
    alone = [len(theirs.tokenizer(theirs.clean_fn(one))["input_ids"]) for one in captions]
    assert ours.count(captions).tolist() == alone
    assert ours.count([]).tolist() == []
