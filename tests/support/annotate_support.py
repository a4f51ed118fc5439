"""Annotators and the admin without a browser: a client of the studio, its forms and pages."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from campaigns import database
from fastapi.testclient import TestClient
from studio_runs import BASE, TOKEN, studio

__all__ = ["BASE", "TOKEN", "database"]


@pytest.fixture
def client(database, tmp_path) -> Iterator[TestClient]:
    (tmp_path / "runs").mkdir()
    app = studio(tmp_path / "runs", database=database)
    with TestClient(app, base_url=BASE, follow_redirects=False) as made:
        yield made


def form_of(page: str) -> dict[str, str]:
    return dict(re.findall(r'name="(csrf)" value="([^"]+)"', page))


def at(client: TestClient, link: str) -> tuple[str, str]:
    """The item that waits, as its address and page."""
    place = client.get(f"{link}/next").headers["location"]
    return place, client.get(place).text


def send(client: TestClient, link: str, **said: str) -> str:
    """Answer the item that waits; gives its address."""
    place, page = at(client, link)
    assert client.post(place, data={**form_of(page), **said}).status_code == 303
    return place
