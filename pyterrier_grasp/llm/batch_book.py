"""Which batches are under way: a table beside the answers, so that a killed run takes its batches up again."""

import errno
import json
import sqlite3
import time
from collections.abc import Collection, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from filelock import FileLock, Timeout

from pyterrier_grasp.llm.cache import CacheFullError

_TABLE = """
CREATE TABLE IF NOT EXISTS batches (
    endpoint TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    id TEXT,
    created REAL NOT NULL,
    keys TEXT NOT NULL,
    PRIMARY KEY (endpoint, fingerprint)
)
"""
_THIS = "WHERE endpoint = ? AND fingerprint = ?"


@dataclass(frozen=True)
class BatchRecord:
    """A batch that was handed in, or was about to be.

    Attributes:
        fingerprint: Digest of its first set of keys; the batch carries it as metadata.
        id: As the endpoint named it; None if the run ended before it could be written down.
        keys: Cache keys of the requests whose answers have not been fetched yet.
    """

    fingerprint: str
    id: str | None
    keys: tuple[str, ...]


def fingerprint(keys: Iterable[str]) -> str:
    """Digest of a set of cache keys, whatever their order."""
    return sha256("\n".join(sorted(keys)).encode()).hexdigest()


class BatchBook:
    """The batches of one endpoint that are still to be fetched.

    A batch is written down before it is created and its id right afterwards, so that no kill leaves one behind that
    nobody knows of.

    Args:
        path: An SQLite database, that of the answers; None keeps nothing beyond this object.
        endpoint: URL of the endpoint.

    Raises:
        ValueError: If another run has batches under way with the same database.
        OSError: If the database cannot be written, now or later.
    """

    def __init__(self, path: str | Path | None, endpoint: str) -> None:
        self._path, self._endpoint = path, endpoint
        self._lock = None if path is None else FileLock(f"{path}.batches.lock")
        if self._lock is not None:
            try:
                self._lock.acquire(timeout=0)
            except Timeout as error:
                raise ValueError(
                    f"another run has batches under way with the answers in {path}: wait for it, or use another cache"
                ) from error
        self._db = sqlite3.connect(":memory:" if path is None else path, timeout=60)
        try:
            self._write(_TABLE)
        except OSError:
            self.close()
            raise

    def _write(self, statement: str, *values: object) -> None:
        try:
            with self._db:
                self._db.execute(statement, values)
        except sqlite3.DatabaseError as error:
            kind, code = (CacheFullError, errno.ENOSPC) if "full" in str(error) else (OSError, errno.EIO)
            raise kind(
                code,
                f"the batches under way cannot be written down ({error}). Those at the endpoint are not lost: make "
                "room, and run it again with the same cache",
                str(self._path),
            ) from error

    def records(self) -> list[BatchRecord]:
        """All batches still to be fetched, the oldest first."""
        with closing(
            self._db.execute(
                "SELECT fingerprint, id, keys FROM batches WHERE endpoint = ? ORDER BY created, fingerprint",
                (self._endpoint,),
            )
        ) as rows:
            return [BatchRecord(mark, id_, tuple(json.loads(keys))) for mark, id_, keys in rows]

    def plan(self, keys: Sequence[str]) -> BatchRecord:
        """Write down that a batch with these keys is about to be created."""
        record = BatchRecord(fingerprint(keys), None, tuple(keys))
        self._write(
            "INSERT OR REPLACE INTO batches VALUES (?, ?, NULL, ?, ?)",
            self._endpoint,
            record.fingerprint,
            time.time(),
            json.dumps(record.keys),
        )
        return record

    def started(self, record: BatchRecord, id_: str) -> BatchRecord:
        """Write down the id of a planned batch."""
        self._write(f"UPDATE batches SET id = ? {_THIS}", id_, self._endpoint, record.fingerprint)
        return BatchRecord(record.fingerprint, id_, record.keys)

    def fetched(self, record: BatchRecord, keys: Collection[str]) -> None:
        """Cross out what has been fetched; a batch of which nothing is left is forgotten."""
        left = [key for key in record.keys if key not in keys]
        if left:
            self._write(f"UPDATE batches SET keys = ? {_THIS}", json.dumps(left), self._endpoint, record.fingerprint)
        else:
            self._write(f"DELETE FROM batches {_THIS}", self._endpoint, record.fingerprint)

    def close(self) -> None:
        """Close the database and let other processes have it."""
        self._db.close()
        if self._lock is not None:
            self._lock.release()
