"""Try: what may be uploaded, what is made of captions, and what each kind of model says."""

from __future__ import annotations

import re
import time
from html import unescape
from io import BytesIO

import anyio
import numpy as np
import pytest
from errors import raises
from PIL import Image
from studio_runs import client, key_of, png_header, studio, write_runs

from counterpoint._util.errors import ModelError
from counterpoint.cases.table import ImageRef
from counterpoint.images.pictures import Picture
from counterpoint.models.registry import load_model
from counterpoint.studio import pictures, playground
from counterpoint.studio.pictures import Gallery, Uploaded, Uploads, accepted
from counterpoint.studio.playground import Models, families, read_captions
from counterpoint.world.edits import replacements

CAPTION = "a small red star and a blue ring"


@pytest.fixture(scope="module")
def admin(tmp_path_factory):
    runs = write_runs(tmp_path_factory.mktemp("runs"))
    return client(studio(runs, models=["blind:length", "random", "blind:nothing"]))


def image_file(kind: str = "PNG", size: tuple[int, int] = (60, 40), mode: str = "RGB") -> bytes:
    buffer = BytesIO()
    Image.new(mode, size).save(buffer, kind)
    return buffer.getvalue()


def post(page, **sent):
    token = re.search(r'name="csrf" value="([0-9a-f]+)"', page.get("/try").text)[1]
    file = {"file": ("name.txt", sent.pop("file"))} if "file" in sent else None
    return page.post("/try", data={"csrf": token, "captions": CAPTION, **sent}, files=file)


# --- uploads -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_image_is_known_by_its_content_and_kept_in_memory(admin):
    for kind in ("PNG", "JPEG", "WEBP"):
        answer = post(admin, file=image_file(kind))
        assert answer.status_code == 200
        link = unescape(re.search(r'<img src="(/try/picture\?upload=[^"]+)"', answer.text)[1])
        assert Image.open(BytesIO(admin.get(link).content)).size == (60, 40)
    assert post(admin, file=image_file(mode="I;16")).status_code == 200  # scaled to 8 bits


def test_anything_else_is_refused_with_a_sentence(admin):
    for data, status, why in (
        (b"GIF89a" + bytes(40), 400, "Only PNG, JPEG and WebP"),
        (image_file("GIF"), 400, "Only PNG, JPEG and WebP"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", 400, "Only PNG, JPEG and WebP"),
        (image_file()[:60], 400, "broken"),
        (png_header(9_400, 9_400), 413, "9,400 x 9,400 pixels; at most 25,000,000"),
        (png_header(20_000, 20_000), 413, "too many pixels"),
        (png_header(19_000, 19_000), 413, "too many pixels"),
        (image_file(size=(1, 300)), 400, "too narrow"),
        (image_file() + bytes(10 * 2**20), 413, "larger than 10 MB"),
        (bytes(12 * 2**20), 413, "too much"),
    ):
        answer = post(admin, file=data)
        assert answer.status_code == status, why
        assert why in answer.text and "Traceback" not in answer.text


def test_a_form_that_ends_within_its_file_is_refused(admin):
    token = re.search(r'name="csrf" value="([0-9a-f]+)"', admin.get("/try").text)[1]
    part = '--b\r\nContent-Disposition: form-data; name="{}"\r\n\r\n'
    body = part.format("csrf") + f"{token}\r\n" + part.format('file"; filename="a.png') + "half"
    headers = {"content-type": "multipart/form-data; boundary=b"}
    answer = admin.post("/try", content=body.encode(), headers=headers)
    assert (answer.status_code, "malformed" in answer.text) == (400, True)
    whole = body.encode() + b"\r\n--b--\r\n"
    assert "Only PNG" in admin.post("/try", content=whole, headers=headers).text


def test_no_pixel_of_a_large_image_is_decoded(monkeypatch):
    monkeypatch.setattr(pictures, "decode", lambda *_, **__: pytest.fail("it was decoded"))
    with raises("E-IMAGE-TOO-LARGE"):
        accepted(png_header(9_400, 9_400))


def test_a_large_image_is_kept_scaled_down():
    kept = Uploaded(accepted(image_file("JPEG", (4000, 1000))))
    assert kept.open().size == (2048, 512)
    small = image_file("JPEG", (2048, 30))
    assert accepted(small) is small


def test_pictures_are_decoded_a_few_at_a_time():
    working: set[int] = set()
    most: list[int] = []

    def decode(number: int) -> None:
        working.add(number)
        most.append(len(working))
        time.sleep(0.02)
        working.remove(number)

    async def all_at_once() -> None:
        gallery = Gallery()
        async with anyio.create_task_group() as group:
            for number in range(6):
                group.start_soon(gallery.in_turn, decode, number)

    anyio.run(all_at_once)
    assert len(most) == 6 and max(most) <= 2


def test_uploads_wait_for_their_turn_and_so_does_their_picture(admin, monkeypatch):
    turns = []

    async def in_turn(self, work, *args):
        turns.append(work.__name__)
        return work(*args)

    monkeypatch.setattr(Gallery, "in_turn", in_turn)
    answer = post(admin, file=image_file())
    admin.get(unescape(re.search(r'<img src="(/try/picture[^"]+)"', answer.text)[1]))
    assert turns == ["add", "encode"]


def test_old_uploads_make_room_for_new_ones(monkeypatch):
    monkeypatch.setattr(pictures, "_UPLOADS", 2)
    uploads, data = Uploads(), image_file()
    first, second, third = (uploads.add(data) for _ in range(3))
    assert uploads.get(third).data == uploads.get(second).data == data
    with raises("E-IMAGE-EXPIRED"):
        uploads.get(first)
    monkeypatch.setattr(pictures, "_UPLOAD_BYTES", len(data))
    uploads.add(data)
    with raises("E-IMAGE-EXPIRED"):
        uploads.get(second)


# --- captions ----------------------------------------------------------------------------------


def test_captions_are_lines_and_neither_too_many_nor_too_long():
    assert read_captions(" a  b \r\n\n a b\nc\0d ") == ["a b", "cd"]
    with raises("E-CAPTIONS-TOO-MANY"):
        read_captions("\n".join(map(str, range(11))))
    with raises("E-CAPTION-TOO-LONG"):
        read_captions("a" * 301)


@pytest.mark.slow
def test_texts_are_made_by_the_rules_and_say_what_they_changed():
    [family] = families([CAPTION])
    kinds = [made.kind for made in family.made]
    assert kinds == sorted(kinds, reverse=True) and set(kinds) == {"positive", "negative"}
    for made in family.made:
        assert "".join(piece for piece, _ in made.pieces) == made.text != CAPTION
        kept = [word for piece, changed in made.pieces if not changed for word in piece.split()]
        assert set(kept) <= set(CAPTION.split())
    assert families([CAPTION]) == [family]
    assert families([]) == []


# --- models ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_world_model_scores_an_image_as_an_evaluation_does():
    edit = next(replacements(3))
    picture = Picture(ImageRef(f"world:{edit.scene.code()}"))
    captions = [edit.original, edit.negative]
    found = Models(["world:base"]).scores("world:base", picture, captions)
    model = load_model("world:base")
    [image] = model.encode_images([model.preprocess(picture.open())])
    alone = [model.encode_captions([c])[0] @ image for c in captions]
    np.testing.assert_allclose(found, alone, rtol=1e-5)  # batches of other sizes round otherwise


def test_every_kind_of_model_can_be_asked_and_a_failure_is_a_sentence(monkeypatch):
    class Pairs:
        fingerprint = "pairs"

        def score_pairs(self, pictures, captions):
            pairs = zip(pictures, captions, strict=True)
            return np.array([picture.open().width + len(caption) for picture, caption in pairs])

    class Whole:
        fingerprint = "whole"

        def score_benchmarks(self, benchmarks, overlong, work):
            raise AssertionError

    class Endless(Pairs):
        def score_pairs(self, pictures, captions):
            return np.full(len(captions), np.nan)

    made = {"pairs": Pairs(), "whole": Whole(), "endless": Endless()}
    monkeypatch.setattr(playground, "load_model", lambda id: made.get(id) or load_model(id))
    models = Models([*made, "blind:length", "random"])
    picture = Uploaded(image_file())
    assert models.scores("pairs", picture, ["ab", "c"]).tolist() == [62, 61]
    assert models.scores("blind:length", picture, ["ab", "c"]).tolist() == [-2, -1]
    assert len(set(models.scores("random", picture, ["ab", "c"]))) == 2
    for id, why in (("whole", "whole benchmarks"), ("endless", "finite")):
        with pytest.raises(ModelError, match=why):
            models.scores(id, picture, ["a"])


# --- the page ----------------------------------------------------------------------------------


def test_the_page_scores_captions_and_what_was_made_of_them(admin):
    models = ["blind:length", "blind:nothing"]
    asked = {"scene": "4", "captions": CAPTION, "model": models, "now": "1"}
    page = admin.get("/try", params=asked).text
    texts = families([CAPTION])[0].texts
    shown = re.findall(r'class="cell heat-\d+">([^<]+)<', page)
    assert shown == [f"−{len(text)}" for text in texts]
    assert "is called 'nothing'" in unescape(page)
    assert ">random</th>" not in page


def test_a_form_leads_to_an_address_that_can_be_shared(admin):
    answer = post(admin, scene="7", draw="1", model=["random"])
    assert answer.history[0].status_code == 303
    assert "scene=7" in str(answer.url) and "csrf" not in str(answer.url)
    assert "Drawn scene 7" in admin.get(str(answer.url)).text


def test_an_image_of_a_case_can_be_tried_with_its_captions(admin):
    asked = {"run": key_of(admin, "mixed"), "benchmark": "world-bi", "case": "0", "image": "2"}
    page = admin.get("/try", params=asked).text
    assert "Image 2 of case 0, world-bi" in page
    picture = unescape(re.search(r'<img src="(/try/picture[^"]+)"', page)[1])
    assert admin.get(picture).headers["content-type"] == "image/png"
    for wrong in ({"image": "3"}, {"case": "none"}, {"run": "none"}):
        assert admin.get("/try", params={**asked, **wrong}).status_code == 404


def test_the_page_comes_before_its_models_are_loaded_and_says_so(tmp_path, monkeypatch):
    loaded = []
    monkeypatch.setattr(
        playground, "load_model", lambda id: loaded.append(id) or load_model("blind:length")
    )
    page = client(studio(tmp_path, models=["slow"]))
    asked = {"scene": "4", "captions": CAPTION}
    first = page.get("/try", params=asked).text
    assert "Loading slow; the first time takes a while" in first and loaded == []
    there = unescape(re.search(r'hx-get="(/try/answers[^"]+)"', first)[1])
    scores = page.get(there, headers={"hx-request": "true"}).text
    assert 'class="cell' in scores and "<html" not in scores and loaded == ["slow"]
    again = page.get("/try", params=asked).text
    assert 'class="cell' in again and "Loading" not in again
