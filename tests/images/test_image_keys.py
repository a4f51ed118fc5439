"""Keys of images: one a content, and read once; a text has none."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from image_support import HOW, encoded, nothing_held, picture, refusal, store, write_table
from models_for_tests import noise

from counterpoint._util.store import Store
from counterpoint.images import schemes

__all__ = ["nothing_held", "store"]  # fixtures


def test_the_same_bytes_have_the_same_key(tmp_path: Path, store: Store) -> None:
    write_table(tmp_path / "a.parquet", [1, 2, 1], 1)
    write_table(tmp_path / "b" / "c.parquet", [9, 9, 9, 1], 4)
    noise(1).save(tmp_path / "1.png")
    assert (tmp_path / "1.png").read_bytes() == encoded(noise(1))
    keys = [
        picture(tmp_path, path).key(store)
        for path in (
            "1.png",
            "parquet:a.parquet#image/0",
            "parquet:a.parquet#image/2",
            "parquet:b/c.parquet#image/3",
        )
    ]
    assert len(set(keys)) == 1
    others = [
        picture(tmp_path, "parquet:a.parquet#image/1").key(store),
        picture(tmp_path, "parquet:a.parquet#image/0", (0, 0, 2, 2)).key(store),
        picture(tmp_path, "parquet:b/c.parquet#image/0").key(store),
    ]
    assert len({keys[0], *others}) == 4


def test_every_shuffle_has_its_own_key(tmp_path: Path, store: Store) -> None:
    noise(1).save(tmp_path / "a.png")
    noise(2).save(tmp_path / "b.png")
    shutil.copy(tmp_path / "a.png", tmp_path / "copy.png")
    references = [
        "a.png",
        "b.png",
        *(f"shuffle-{how}:{seed}:a.png" for how in HOW for seed in (0, 1, 11)),
        "shuffle-rows:1:b.png",
        "shuffle-rows:1:shuffle-rows:1:a.png",
        "shuffle-rows:1:shuffle-columns:1:a.png",
    ]
    keys = {picture(tmp_path, path).key(store) for path in references}
    assert len(keys) == len(references)
    cropped = picture(tmp_path, "shuffle-rows:1:a.png", (0, 0, 2, 2)).key(store)
    assert cropped not in keys
    copies = {
        picture(tmp_path, f"shuffle-rows:1:{path}").key(store)
        for path in ("a.png", "copy.png", str(tmp_path / "a.png"))
    }
    assert len(copies) == 1 and copies < keys


@pytest.mark.parametrize("text", ["a dog", "a/b", "..", "one\nand two", "x" * 5000, "ends here."])
def test_a_text_is_no_picture(tmp_path: Path, store: Store, text: str) -> None:
    assert refusal(tmp_path, f"text:{text}", store) == "E-IMAGE-IS-TEXT"
    assert picture(tmp_path, f"text:{text}").file() is None


def test_what_the_store_knows_is_not_read_again(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_table(tmp_path / "t.parquet", range(2), 2)
    noise(9).save(tmp_path / "a.png")
    names = [f"parquet:t.parquet#image/{row}" for row in range(2)]
    names += [f"shuffle-{how}:{seed}:a.png" for how in HOW for seed in (1, 2)]
    names.append("shuffle-rows:1:parquet:t.parquet#image/0")
    keys = [picture(tmp_path, name).key(store) for name in names]
    for reader in ("read_file", "read_cell"):
        monkeypatch.setattr(schemes, reader, lambda *_: pytest.fail("it was read again"))
    assert [picture(tmp_path, name).key(store) for name in names] == keys
