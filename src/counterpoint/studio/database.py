r"""The database of the studio: campaigns, annotators, what was shown, what was answered.

SQLite by default (a file, in WAL mode), PostgreSQL by URL. An answer that was acknowledged is on
the disk: SQLite waits for it (`synchronous=FULL`), as PostgreSQL does by itself.

    campaign -< subject -< item -< showing -< answer, flag
            \-< annotator --------/

A subject is what is judged (a case, or a caption with its texts). An item is one question about it.
A showing is an item as one annotator got it. The answers and flags of a showing are numbered, and
the last one counts. Tables that an older database lacks are made when it is opened.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeVar

from sqlalchemy import (
    JSON,
    BigInteger,
    ColumnElement,
    DateTime,
    Engine,
    ForeignKey,
    Index,
    UniqueConstraint,
    create_engine,
    event,
    exc,
    func,
    make_url,
    select,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship

from counterpoint._util.errors import CounterpointError, reason
from counterpoint._util.untrusted import recorded_command, shortened, shown
from counterpoint.studio.security import keep_private

T = TypeVar("T")
_BUSY_MS: Final = 30_000
_TRIES: Final = 20  # of a transaction that others got in the way of
_BEGIN: Final = "counterpoint_begin"


class DatabaseError(CounterpointError):
    """The database cannot be opened, or is none of ours."""


def now() -> datetime:
    """In UTC and without a zone, which is how both databases give it back."""
    return datetime.now(UTC).replace(tzinfo=None)


class Base(DeclarativeBase):
    type_annotation_map = {dict[str, Any]: JSON, list[int]: JSON, datetime: DateTime}  # noqa: RUF012


class Campaign(Base):
    """`settings` are those of `annotate.campaigns.Settings`, `source` says what it was made of."""

    __tablename__ = "campaign"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    kind: Mapped[str]
    settings: Mapped[dict[str, Any]]
    source: Mapped[dict[str, Any]]
    created: Mapped[datetime] = mapped_column(default=now)


class Annotator(Base):
    """`token` is in the personal link; `number` counts from 1."""

    __tablename__ = "annotator"
    id: Mapped[int] = mapped_column(primary_key=True)
    campaign_id: Mapped[int] = mapped_column(ForeignKey("campaign.id"))
    number: Mapped[int]
    token: Mapped[str] = mapped_column(unique=True)
    campaign: Mapped[Campaign] = relationship(lazy="joined")
    __table_args__ = (UniqueConstraint("campaign_id", "number"),)


class Subject(Base):
    """A case, with what an export must know of where it came from."""

    __tablename__ = "subject"
    id: Mapped[int] = mapped_column(primary_key=True)
    campaign_id: Mapped[int] = mapped_column(ForeignKey("campaign.id"), index=True)
    number: Mapped[int]
    case: Mapped[dict[str, Any]]
    origin: Mapped[dict[str, Any]]


class Item(Base):
    """A question. `taken` counts the showings that count, of which there may be `overlap`.

    A check has no subject and no limit. `shuffle` is a random number from which each annotator's
    order is made.
    """

    __tablename__ = "item"
    id: Mapped[int] = mapped_column(primary_key=True)
    campaign_id: Mapped[int] = mapped_column(ForeignKey("campaign.id"))
    subject_id: Mapped[int | None] = mapped_column(ForeignKey("subject.id"))
    key: Mapped[str]
    ask: Mapped[str]
    question: Mapped[dict[str, Any]]
    is_check: Mapped[bool]
    taken: Mapped[int] = mapped_column(default=0)
    shuffle: Mapped[int] = mapped_column(BigInteger)
    __table_args__ = (
        UniqueConstraint("campaign_id", "key"),
        Index("item_by_need", "campaign_id", "is_check", "taken"),
    )


class Showing(Base):
    """An item as an annotator got it: the `number`-th, with its options in the order `layout`.

    A released one was skipped, or waited too long for its answer: another annotator gets the item.
    """

    __tablename__ = "showing"
    id: Mapped[int] = mapped_column(primary_key=True)
    annotator_id: Mapped[int] = mapped_column(ForeignKey("annotator.id"))
    item_id: Mapped[int] = mapped_column(ForeignKey("item.id"), index=True)
    number: Mapped[int]
    layout: Mapped[list[int]]
    shown: Mapped[datetime] = mapped_column(default=now)
    answered: Mapped[bool] = mapped_column(default=False)
    released: Mapped[bool] = mapped_column(default=False)
    item: Mapped[Item] = relationship(lazy="joined")
    __table_args__ = (
        UniqueConstraint("annotator_id", "item_id"),
        UniqueConstraint("annotator_id", "number"),
    )


class Answer(Base):
    """`value` names options as the item has them, not as they were shown; it may be `skip`."""

    __tablename__ = "answer"
    id: Mapped[int] = mapped_column(primary_key=True)
    showing_id: Mapped[int] = mapped_column(ForeignKey("showing.id"))
    revision: Mapped[int]
    value: Mapped[str]
    given: Mapped[datetime] = mapped_column(default=now)
    __table_args__ = (UniqueConstraint("showing_id", "revision"),)


class Flag(Base):
    """A problem with an item that an annotator reports. Without a note it is taken back."""

    __tablename__ = "flag"
    id: Mapped[int] = mapped_column(primary_key=True)
    showing_id: Mapped[int] = mapped_column(ForeignKey("showing.id"))
    revision: Mapped[int]
    note: Mapped[str | None]
    given: Mapped[datetime] = mapped_column(default=now)
    __table_args__ = (UniqueConstraint("showing_id", "revision"),)


def count(session: Session, table: type[Base], *where: ColumnElement[bool]) -> int:
    return session.scalar(select(func.count()).select_from(table).where(*where)) or 0


class Database:
    """Transactions, for reading and for writing."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._reads = engine.execution_options(**{_BEGIN: "BEGIN"})
        self._writes = engine.execution_options(**{_BEGIN: "BEGIN IMMEDIATE"})
        # SQLite has one writer: waiting here is fair and quick, waiting there is a poll.
        self._turn = threading.Lock() if engine.dialect.name == "sqlite" else nullcontext()

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """A view of the database at one moment."""
        with Session(self._reads, expire_on_commit=False) as session:
            yield session

    def write(self, work: Callable[[Session], T]) -> T:
        """Do `work` in one transaction, which is on the disk when this returns.

        It is repeated from the start if another transaction came in between.
        """
        for left in reversed(range(_TRIES)):
            try:
                with self._turn, Session(self._writes, expire_on_commit=False) as session:
                    found = work(session)
                    session.commit()
                    return found
            except (exc.IntegrityError, exc.OperationalError):
                if not left:
                    raise
        raise AssertionError("not reached")

    def close(self) -> None:
        self.engine.dispose()


def database_url(url: str) -> str:
    """A path is a SQLite file; PostgreSQL is spoken to by psycopg."""
    scheme, mark, rest = url.partition("://")
    if not mark:
        return f"sqlite:///{url}"
    return f"postgresql+psycopg://{rest}" if scheme in ("postgres", "postgresql") else url


def open_database(url: str) -> Database:
    """Open a database by URL or path, and make what tables it lacks."""
    try:
        address = make_url(database_url(url))
        dialect = address.get_backend_name()
        wrong = ""
        if dialect not in ("sqlite", "postgresql"):
            wrong = "a SQLite file or a postgresql:// URL."
        elif dialect == "sqlite" and address.database in (None, "", ":memory:"):
            wrong = "answers must be kept in a file."
        if wrong:
            raise DatabaseError("E-DATABASE-URL", f"--db {_hidden(url)}: {wrong}")
        if dialect == "sqlite":
            _keep_private(Path(str(address.database)).absolute())
        engine = create_engine(address, pool_size=20, max_overflow=20)
        if dialect == "sqlite":
            _speak_sqlite(engine)
        database = Database(engine)
        with Session(database._writes) as session:
            Base.metadata.create_all(session.connection())
            session.commit()
    except (exc.SQLAlchemyError, ImportError, OSError, ValueError) as error:
        first = shortened(str(error).partition("\n")[0])
        why = reason(error) if isinstance(error, OSError) else first
        raise DatabaseError(
            "E-DATABASE-UNREACHABLE", f"--db {_hidden(url)}: cannot be opened: {why}."
        ) from None
    return database


def _keep_private(path: Path) -> None:
    """Annotators' links are in the file, and in what SQLite keeps beside it with the same mode."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = [path.with_name(path.name + ending) for ending in ("-wal", "-shm")]
    for file in (path, *filter(Path.exists, beside)):
        keep_private(file)


def _hidden(url: str) -> str:
    """As a message shows it: without the password, and not long."""
    return shown(recorded_command([url])[0])


def _speak_sqlite(engine: Engine) -> None:
    @event.listens_for(engine, "connect")
    def connected(connection: Any, record: Any) -> None:
        del record
        connection.isolation_level = None  # transactions are begun below, not by the driver
        busy = f"busy_timeout={_BUSY_MS}"
        for pragma in (busy, "journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def begun(connection: Any) -> None:
        connection.exec_driver_sql(connection.get_execution_options().get(_BEGIN, "BEGIN"))
