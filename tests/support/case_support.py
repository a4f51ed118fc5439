"""Tables of cases that a test builds, and cases drawn at random."""

from __future__ import annotations

from hypothesis import strategies as st

from counterpoint.cases.table import Case, Cases, ImageRef

TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1, max_size=8)


def build(*cases: Case) -> Cases:
    return Cases.build(cases, source="the test")


@st.composite
def some_case(draw: st.DrawFn) -> Case:
    """Any valid case of up to 2 x 3, with the id left to the caller."""
    k, m = draw(st.integers(1, 2)), draw(st.integers(2, 3))
    cells = draw(
        st.lists(st.booleans(), min_size=k * m, max_size=k * m).filter(
            lambda c: 0 < sum(c) < len(c)
        )
    )
    box = st.none() | st.tuples(*[st.integers(1, 99)] * 4)
    images = tuple(ImageRef(draw(TEXT), draw(box)) for _ in range(k))
    truth = tuple(tuple(cells[i * m : (i + 1) * m]) for i in range(k))
    groups = tuple(draw(st.lists(TEXT.filter(lambda label: label != "all"), max_size=2)))
    return Case("", images, tuple(draw(TEXT) for _ in range(m)), truth, groups, draw(TEXT))
