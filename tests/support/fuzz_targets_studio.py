"""What a fuzzer asks of the studio: odd requests to every route, in process, made by a seed.

    target = StudioTarget(folder)
    for seed in range(300):
        target(random.Random(seed))

A target raises `AssertionError` where an answer is a fault of the studio (5xx), holds a traceback
or lacks the headers of every answer.
"""

from __future__ import annotations

import random
import re
from pathlib import Path
from urllib.parse import quote_from_bytes

from campaigns import campaign, opened
from starlette.testclient import TestClient
from studio_runs import BASE, client, key_of, studio, write_runs

NUMBERS = [
    *("-1", "2", "x", "²", "1e400", "nan", "0x10", "1_0", " 1 ", "+1", "01", "80%"),
    *(str(2**31 - 1), str(2**31), str(2**63), str(2**64), "9" * 4300, *["9" * 5000] * 6),
]
TEXTS = [
    *(
        "",
        "none",
        "both",
        "a" * 9000,
        "\0",
        "a\0b",
        "\ud800",
        "é",
        "\u202e",
        "\x1b[31m",
        "\r\nX: y",
    ),
    *("%", "%zz", "%00", "../../etc/passwd", "..", "/", "\\", "<script>", "{{ 7 * 7 }}", '"'),
    *("' OR 1=1 --", "[" * 2000, '{"a":' * 500, "postgresql://me:secret@db/x", "world:a"),
]
NAMES = [
    *("run", "benchmark", "group", "outcome", "other", "differ", "q", "page", "case", "image"),
    *("size", "token", "show", "least", "scene", "captions", "model", "upload", "draw", "count"),
    *("answer", "rank0", "rank1", "csrf", "file", "skip", "flagged", "note", "metric", "now", ""),
]
ANSWERS = ["answer", "answer", "answer", "rank0", "count", "scene", "captions"]
CAMPAIGN = {  # a form that makes one
    "name": "more",
    "source": "world-bi:size=2",
    "kind": "image-to-text",
    "limit": "1",
    "annotators": "1",
    "overlap": "1",
    "checks": "0",
    "seed": "0",
    "instructions": "Look.",
}
HEADERS = [
    *("hx-request", "hx-current-url", "cookie", "if-none-match", "accept", "origin", "range"),
    *("content-length", "content-type", "x-forwarded-for", "referer", "accept-encoding"),
]
KINDS = [
    *["application/x-www-form-urlencoded"] * 6,
    *["multipart/form-data; boundary=b"] * 4,
    *("multipart/form-data", "multipart/form-data; charset=none; boundary=b", "text/plain", ""),
]
METHODS = ["GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "ODD"]
_PART = b'--b\r\nContent-Disposition: form-data; name="%s"; filename="%s"\r\n\r\n%s\r\n--b--\r\n'


class StudioTarget:
    """A studio with runs and a campaign, and a browser that its admin has let in."""

    def __init__(self, folder: Path) -> None:
        self.database = opened(folder)
        [self.link] = campaign(
            self.database, "world-bi:size=2", "image-to-text", people=1, overlap=1
        ).links
        app = studio(write_runs(folder / "runs"), models=["blind:length"], database=self.database)
        self.page = client(app)
        item = self.page.get(f"{self.link}/next").text
        self.csrf = re.search(r'name="csrf" value="(\w+)"', item)[1]
        self.key = key_of(self.page, "mixed")
        known = app.openapi()["paths"].items()
        self.routes = [(method.upper(), path) for path, methods in known for method in methods]
        self.routes += [("GET", "/static/{file}"), ("GET", "/{nothing}")]
        self.quiet = TestClient(
            app, base_url=BASE, raise_server_exceptions=False, cookies=self.page.cookies
        )
        self.quiet.follow_redirects = False

    def __call__(self, rng: random.Random) -> None:
        method, template = rng.choice(self.routes)
        path = self._path(rng, template)
        if rng.random() < 0.1:
            method = rng.choice(METHODS)
        headers = {name: _header(rng) for name in HEADERS if rng.random() < 0.03}
        body = b""
        if method != "GET" or rng.random() < 0.05:
            headers["content-type"] = rng.choice(KINDS)
            body = self._body(rng, headers["content-type"])
        if "cookie" not in headers:
            cookies = "; ".join(f"{name}={value}" for name, value in self.page.cookies.items())
            headers["cookie"] = cookies
        try:
            answer = self.quiet.request(method, path, headers=_bytes(headers), content=body)
        except _REFUSED_BY_CLIENT:
            return
        asked = f"{method} {path[:300]!r} {headers} {body[:200]!r}"
        assert answer.status_code < 500, f"{answer.status_code} for {asked}"
        assert "Traceback" not in answer.text, asked
        assert "content-security-policy" in answer.headers, asked

    def _path(self, rng: random.Random, template: str) -> str:
        token = self.link.rpartition("/")[2]
        known = {"token": token, "number": "1", "key": self.key, "name": "c"}

        def fill(found: re.Match[str]) -> str:
            name = found[1].partition(":")[0]
            usual = known.get(name, "0")
            return usual if rng.random() < 0.8 else _quoted(_odd(rng))

        path = re.sub(r"\{([^}]+)\}", fill, template)
        query = "&".join(self._field(rng) for _ in range(rng.randrange(4)))
        return f"{path}?{query}" if query else path

    def _field(self, rng: random.Random) -> str:
        usual = {"run": self.key, "benchmark": "world-bi", "case": "0", "csrf": self.csrf}
        name = rng.choice(NAMES)
        value = usual.get(name, "1") if rng.random() < 0.4 else _odd(rng)
        return f"{_quoted(name)}={_quoted(value)}"

    def _body(self, rng: random.Random, kind: str) -> bytes:
        fields = [self._field(rng) for _ in range(rng.randrange(5))]
        for name, usual in CAMPAIGN.items():
            fields.append(f"{name}={_quoted(usual if rng.random() < 0.9 else _odd(rng))}")
        if rng.random() < 0.9:
            fields.insert(0, f"csrf={self.csrf}")
            fields.append(f"{rng.choice(ANSWERS)}={_quoted(_odd(rng))}")
        plain = "&".join(fields).encode()
        if not kind.startswith("multipart"):
            return plain
        inner = rng.choice([b"", b"GIF89a", b"\x89PNG\r\n\x1a\n" + rng.randbytes(40), plain])
        sent = [_PART % (name.encode(), b"a.png", inner) for name in rng.sample(NAMES, 2)]
        token = b'--b\r\nContent-Disposition: form-data; name="csrf"\r\n\r\n%s\r\n'
        whole = token % self.csrf.encode() + b"".join(sent)
        return whole if rng.random() < 0.7 else whole[: rng.randrange(len(whole))]


_REFUSED_BY_CLIENT = (UnicodeError, ValueError)  # what cannot even be sent


def _odd(rng: random.Random) -> str:
    return rng.choice(rng.choice((NUMBERS, TEXTS)))


def _quoted(text: str) -> str:
    return quote_from_bytes(text.encode("utf-8", "surrogatepass"), safe="")


def _header(rng: random.Random) -> str:
    text = _odd(rng)[:2000]
    return re.sub(r"[\r\n\0]", "", text)


def _bytes(headers: dict[str, str]) -> dict[str, bytes]:
    return {name: value.encode("utf-8", "surrogatepass") for name, value in headers.items()}
