"""Many annotators at once, while the server is killed and started again.

    PYTHONPATH=src python bench/annotators.py

A campaign is made, a real server is started on the loopback address, and every annotator, a thread
with its own connection, answers item after item until there is none left. Some send each form
twice. In the middle the server is killed (SIGKILL) and started again, as often as asked. What was
acknowledged (the server has answered the form) is then compared with the database: nothing may be
missing, and nothing may be there twice. Exits with status 1 if anything is.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

HOST = "127.0.0.1"
CSRF = re.compile(r'name="csrf" value="([^"]+)"')
OPTIONS = re.compile(r'name="answer" value="(\d+)"')


def serve(db: str, port: int) -> None:
    """The studio, in a process of its own. The key is kept, so open forms outlive a restart."""
    import uvicorn

    from counterpoint.studio.app import create_app
    from counterpoint.studio.database import open_database
    from counterpoint.studio.security import Guard, kept_key

    folder = Path(db).parent
    guard = Guard(key=kept_key(folder / "studio.key"))
    app = create_app(folder, guard=guard, database=open_database(db))
    uvicorn.run(app, host=HOST, port=port, log_level="error", access_log=False)


class Server:
    """The process of `serve`."""

    def __init__(self, db: Path) -> None:
        with socket.socket() as free:
            free.bind((HOST, 0))
            self.port = free.getsockname()[1]
        self.db = db
        self.start()

    @property
    def base(self) -> str:
        return f"http://{HOST}:{self.port}"

    def start(self) -> None:
        command = [sys.executable, __file__, "--serve", str(self.db), str(self.port)]
        self.process = subprocess.Popen(command)
        end = time.monotonic() + 60
        while time.monotonic() < end:
            try:
                with socket.create_connection((HOST, self.port), timeout=1):
                    return
            except OSError:
                if self.process.poll() is not None:
                    break
                time.sleep(0.05)
        raise SystemExit("the server did not start")

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()


@dataclass
class Log:
    """What the server has acknowledged, by annotator and number."""

    answers: dict[str, dict[int, str]] = field(default_factory=dict)
    broken: int = 0  # requests that got no answer
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def total(self) -> int:
        return sum(map(len, self.answers.values()))


def annotate(base: str, link: str, number: int, log: Log, twice: bool) -> None:
    """One annotator, until there is nothing left."""
    import httpx

    rng = random.Random(number)
    mine: dict[int, str] = {}
    with log.lock:
        log.answers[link] = mine
    with httpx.Client(base_url=base, timeout=60, follow_redirects=False) as client:

        def ask(method: str, path: str, data: dict[str, str] | None = None) -> httpx.Response:
            """Ask until there is an answer: people load a page again when it fails."""
            end = time.monotonic() + 120
            while True:
                try:
                    return client.request(method, path, data=data)
                except httpx.TransportError:
                    with log.lock:
                        log.broken += 1
                    if time.monotonic() > end:
                        raise
                    time.sleep(0.1 + rng.random() / 5)

        while True:
            place = ask("GET", f"{link}/next").headers["location"]
            if place.endswith("/done"):
                return
            page = ask("GET", place).text
            token = CSRF.findall(page)[0]
            data = {"csrf": token, "answer": rng.choice(OPTIONS.findall(page))}
            for _ in range(2 if twice else 1):
                said = ask("POST", place, data)
                if said.status_code != 303:
                    raise SystemExit(f"{place}: {said.status_code} {said.text[:500]}")
                mine[int(place.rpartition("/")[2])] = data["answer"]


def make(db: Path, cases: int, people: int, overlap: int) -> tuple[str, ...]:
    from counterpoint.studio import open_database
    from counterpoint.studio.annotate import CampaignDesign, Order, SourceSelection, make_campaign

    database, settings = open_database(str(db)), CampaignDesign(overlap, 0.1, 0)
    source, wanted = f"world-bi:size={cases}", SourceSelection()
    order = Order("load", source, "both-ways", settings, people, wanted)
    made = make_campaign(database, order)
    database.close()
    return made.links


def faults(db: Path, log: Log, overlap: int) -> list[str]:
    """What is wrong with the database, given what was acknowledged."""
    from sqlalchemy import select

    from counterpoint.studio.annotate.campaigns import link
    from counterpoint.studio.database import Annotator, Answer, Item, Showing, open_database

    database = open_database(str(db))
    with database.reading() as session:
        rows = session.execute(
            select(Annotator.token, Showing.number, Showing.layout, Answer, Item)
            .join(Showing, Showing.annotator_id == Annotator.id)
            .join(Answer, Answer.showing_id == Showing.id)
            .join(Item, Item.id == Showing.item_id)
        ).all()
        items = session.scalars(select(Item).where(~Item.is_check)).all()
    database.close()
    kept = Counter((link(token), number) for token, number, *_ in rows)
    found = [f"{who} {number}: kept {n} times" for (who, number), n in kept.items() if n != 1]
    values = {(link(t), number): layout.index(int(a.value)) for t, number, layout, a, _ in rows}
    acknowledged = {(who, n): int(v) for who, own in log.answers.items() for n, v in own.items()}
    found += [f"{key}: lost" for key in acknowledged if key not in values]
    found += [f"{key}: changed" for key, v in acknowledged.items() if values.get(key, v) != v]
    found += [f"{key}: never acknowledged" for key in values if key not in acknowledged]
    judged = Counter(item.id for *_, item in rows if not item.is_check)
    found += [f"{i.key}: {judged[i.id]} judgements" for i in items if judged[i.id] != overlap]
    found += [f"{i.key}: counted {i.taken} times" for i in items if i.taken != judged[i.id]]
    return found


def work(arguments: argparse.Namespace, folder: Path) -> dict[str, float]:
    db = folder / "studio.db"
    links = make(db, arguments.cases, arguments.annotators, arguments.overlap)
    log, server = Log(), Server(db)
    failed: list[BaseException] = []

    def run(number: int, link: str) -> None:
        try:
            annotate(server.base, link, number, log, twice=number % 5 == 0)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate(links)]
    wanted = arguments.cases * 4 * arguments.overlap
    kills = [wanted * (n + 1) // (arguments.kills + 1) for n in range(arguments.kills)]
    start, down = time.monotonic(), 0.0
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        if kills and log.total >= kills[0]:
            kills.pop(0)
            before = time.monotonic()
            server.kill()
            server.start()
            down += time.monotonic() - before
        time.sleep(0.01)
    seconds = time.monotonic() - start
    server.kill()
    if failed or kills:
        raise SystemExit(f"the load did not run to its end: {failed[:1]}, kills left {kills}")
    wrong = faults(db, log, arguments.overlap)
    for line in wrong[:20]:
        print(line)
    return {
        "annotators": arguments.annotators,
        "acknowledged": log.total,
        "broken_requests": log.broken,
        "kills": arguments.kills,
        "seconds": round(seconds, 2),
        "seconds_down": round(down, 2),
        "answers_per_second": round(log.total / (seconds - down), 1),
        "faults": len(wrong),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Annotators at once, and a server that is killed")
    parser.add_argument("--annotators", type=int, default=50)
    parser.add_argument("--cases", type=int, default=250, help="four items each")
    parser.add_argument("--overlap", type=int, default=2)
    parser.add_argument("--kills", type=int, default=2)
    parser.add_argument("--serve", nargs=2, metavar=("DB", "PORT"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.serve[0], int(arguments.serve[1]))
        return
    with tempfile.TemporaryDirectory() as folder:
        found = work(arguments, Path(folder))
    print(json.dumps(found))
    if found["faults"]:
        sys.exit(1)


if __name__ == "__main__":
    main()
