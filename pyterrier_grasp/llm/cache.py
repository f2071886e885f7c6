"""Answers kept on disk, so that none is paid for twice."""

import errno
import shutil
import sqlite3
import threading
import time
import weakref
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from pyterrier_grasp.llm.request import Usage

#: Version of the layout of the file.
FORMAT = 1
#: Marks the file as one of ours, in the header of the database.
APPLICATION_ID = 0x47525350
_BUSY_SECONDS = 60.0
_NO_ROOM = 1_000_000

_TABLES = """
CREATE TABLE answers (
    id INTEGER PRIMARY KEY,
    key TEXT NOT NULL,
    request TEXT NOT NULL,
    model TEXT NOT NULL,
    snapshot TEXT NOT NULL,
    shape TEXT NOT NULL,
    text TEXT NOT NULL,
    requests INTEGER NOT NULL,
    input_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    cost REAL,
    seconds REAL,
    created REAL NOT NULL
);
CREATE INDEX answers_by_key ON answers (key);
CREATE INDEX answers_by_shape ON answers (model, shape);
"""


class KeptAnswer(NamedTuple):
    """A row of the cache.

    Attributes:
        key: Digest of the request, see :func:`~pyterrier_grasp.llm.structured.cache_key`.
        request: Id of the request that was asked.
        model: As it was asked for.
        snapshot: As the endpoint named it.
        shape: Digest of the schema, see :class:`~pyterrier_grasp.llm.schemas.AnswerForm`.
        text: The answer.
        usage: What it took, failed attempts and repairs included.
        seconds: From sending the request to its answer; None where it says nothing, as in a batch.
    """

    key: str
    request: str
    model: str
    snapshot: str
    shape: str
    text: str
    usage: Usage
    seconds: float | None = None


class Averages(NamedTuple):
    """Means over kept answers of a model and schema: tokens of an answer, and seconds (None where not known)."""

    output_tokens: float
    seconds: float | None


class CacheFullError(OSError):
    """An answer could not be written; what was written before is safe."""


class AnswerCache:
    """Answers in an SQLite database in WAL mode; rows are added and never changed.

    Each answer is committed at once: a killed process loses none that :meth:`put` returned from. Several processes and
    threads may use one file.

    Args:
        path: The file; made with its folders if it does not exist.

    Raises:
        ValueError: If the file is no such database, or of a newer version.
        OSError: If it cannot be opened or made.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).expanduser()
        self._lock = threading.Lock()
        if self.path.is_dir():
            raise ValueError(f"the cache of answers {self.path} is a folder; give the path of a file")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except FileExistsError as error:
            raise ValueError(f"the cache of answers {self.path} cannot be made: {error.filename} is a file") from error
        try:
            # autocommit: each statement is a transaction
            self._db = sqlite3.connect(self.path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
            weakref.finalize(self, self._db.close)
            self._prepare()
        except sqlite3.OperationalError as error:
            raise self._os_error(error, "opened") from error
        except sqlite3.DatabaseError as error:
            raise ValueError(f"{self.path} is no cache of answers ({error}); give another file") from error

    def _prepare(self) -> None:
        if self._read_version() == 0:
            self._retry_while_locked("PRAGMA journal_mode = WAL")
            self._db.execute("BEGIN IMMEDIATE")
            try:
                if self._read_version() == 0:
                    for statement in _TABLES.split(";"):
                        self._db.execute(statement)
                    self._db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                    self._db.execute(f"PRAGMA user_version = {FORMAT}")
                self._db.execute("COMMIT")
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
        # in WAL mode this survives the death of the process, and a power cut loses the last answers only
        self._db.execute("PRAGMA synchronous = NORMAL")

    def _read_version(self) -> int:
        """Version of the file; 0 for one without tables.

        Raises:
            ValueError: If it is not ours, or newer than this release.
        """
        (application,) = self._row("PRAGMA application_id")
        (version,) = self._row("PRAGMA user_version")
        (tables,) = self._row("SELECT count(*) FROM sqlite_master")
        if not tables and not version:
            return 0
        if application != APPLICATION_ID:
            raise ValueError(f"{self.path} is a database, but no cache of answers; give another file")
        if version > FORMAT:
            raise ValueError(
                f"the cache of answers {self.path} has format {version}, this release reads {FORMAT}: update "
                "pyterrier_grasp, or give another file"
            )
        return version

    def _retry_while_locked(self, statement: str) -> None:
        """A change of the journal mode does not wait for other processes by itself."""
        deadline = time.monotonic() + _BUSY_SECONDS
        while True:
            try:
                self._db.execute(statement).fetchall()
                return
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    def _row(self, statement: str, *values: object) -> tuple:
        with closing(self._db.execute(statement, values)) as rows:
            return rows.fetchone()

    def get(self, key: str) -> KeptAnswer | None:
        """The newest answer with a key, None if there is none."""
        with self._lock:
            try:
                row = self._row(
                    "SELECT key, request, model, snapshot, shape, text, requests, input_tokens, output_tokens, cost, "
                    "seconds FROM answers WHERE key = ? ORDER BY id DESC LIMIT 1",
                    key,
                )
            except sqlite3.DatabaseError as error:
                raise self._os_error(error, "read") from error
        if row is None:
            return None
        key, request, model, snapshot, shape, text, *usage, seconds = row
        return KeptAnswer(key, request, model, snapshot, shape, text, Usage(*usage), seconds)

    def put(self, answer: KeptAnswer) -> None:
        """Keep an answer; it is on disk when this returns.

        Raises:
            CacheFullError: If the disk is full.
            OSError: If the file cannot be written for another reason.
        """
        with self._lock:
            try:
                self._db.execute(
                    "INSERT INTO answers (key, request, model, snapshot, shape, text, requests, input_tokens, "
                    "output_tokens, cost, seconds, created) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    (*answer[:6], *answer.usage, answer.seconds, time.time()),
                )
            except sqlite3.DatabaseError as error:
                raise self._os_error(error, "written") from error

    def averages(self, model: str, shape: str, newest: int = 1000) -> Averages | None:
        """Means over the newest answers of a model and schema; None if there are none.

        Args:
            model: Name of the model.
            shape: Digest of the schema.
            newest: Answers to look at, at most.
        """
        with self._lock:
            count, tokens, seconds = self._row(
                "SELECT count(*), avg(output_tokens), avg(seconds) FROM (SELECT output_tokens, seconds FROM answers "
                "WHERE model = ? AND shape = ? ORDER BY id DESC LIMIT ?)",
                model,
                shape,
                newest,
            )
        return Averages(tokens, seconds) if count else None

    def __len__(self) -> int:
        with self._lock:
            return self._row("SELECT count(*) FROM answers")[0]

    def __repr__(self) -> str:
        return f"AnswerCache({str(self.path)!r})"

    def close(self) -> None:
        """Close the database."""
        with self._lock:
            self._db.close()

    def _os_error(self, error: sqlite3.Error, what: str) -> OSError:
        words = str(error)
        if "full" in words or ("disk I/O" in words and shutil.disk_usage(self.path.parent).free < _NO_ROOM):
            return CacheFullError(
                errno.ENOSPC,
                "an answer cannot be kept: the disk is full. The answers before it are safe. Make room, or give a "
                f"cache on another disk, and run it again ({words})",
                str(self.path),
            )
        code = errno.EROFS if "readonly" in words else errno.EAGAIN if "locked" in words else errno.EIO
        hint = {
            errno.EROFS: "it is read-only; give a cache where you may write",
            errno.EAGAIN: "another process holds it; wait for that, or give another cache",
        }
        return OSError(
            code, f"the cache of answers cannot be {what}: {hint.get(code, 'see the reason')} ({words})", str(self.path)
        )
