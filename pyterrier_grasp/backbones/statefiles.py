"""The files of one modality of a token-state cache: appended to, committed, and cut back after a kill."""

import json
import os
import warnings
from pathlib import Path

import numpy as np

from pyterrier_grasp.backbones.store import StateStore
from pyterrier_grasp.pretrained import read_json

_FORMAT = 1


class StateFiles:
    """Growing arrays on disk with a committed length.

    ``states.f2`` float16 ``[T, D]``, ``special.u1`` uint8 ``[T]``, ``lengths.i4`` int32 ``[n]`` and ``keys.jsonl``,
    one JSON string a line, are only ever appended to. ``index.json`` is replaced atomically at each commit and says
    how many bytes of each count; bytes beyond that are the rest of an interrupted shard.

    Args:
        folder: where the files are, or will be.
        dim: width D of a token state.

    Raises:
        ValueError: if the folder holds states of another width or of another format.
    """

    def __init__(self, folder: Path, dim: int) -> None:
        self.folder = folder
        self.dim = dim
        self._pending: list[tuple[list[str], np.ndarray, np.ndarray, np.ndarray]] = []
        self.pending_bytes = 0
        self._committed()

    def _paths(self) -> dict[str, Path]:
        return {name: self.folder / name for name in ("states.f2", "special.u1", "lengths.i4", "keys.jsonl")}

    def _committed(self) -> dict[str, int]:
        """Returns the committed bytes of each file, zeros where nothing was committed."""
        path = self.folder / "index.json"
        if not path.is_file():
            return dict.fromkeys(self._paths(), 0)
        index = read_json(path)
        if index.get("format") != _FORMAT or index.get("dim") != self.dim:
            raise ValueError(
                f"{self.folder} holds states of format {index.get('format')} and width {index.get('dim')}, needed are "
                f"{_FORMAT} and {self.dim}: delete the folder, and they are encoded again"
            )
        return {name: int(index["bytes"][name]) for name in self._paths()}

    def append(self, keys: list[str], tokens: np.ndarray, lengths: np.ndarray, special: np.ndarray) -> None:
        """Adds inputs to the shard in memory.

        Args:
            keys: one an input.
            tokens: float16 ``[T, D]``, of all these inputs one after another.
            lengths: int ``[len(keys)]``, tokens an input; their sum is T.
            special: bool ``[T]``.
        """
        self._pending.append((keys, tokens, lengths, special))
        self.pending_bytes += tokens.nbytes

    def commit(self) -> None:
        """Writes the shard in memory to disk and makes it count."""
        if not self._pending:
            return
        sizes = self._committed()
        parts = {
            "states.f2": b"".join(np.ascontiguousarray(part[1], "<f2").tobytes() for part in self._pending),
            "special.u1": b"".join(part[3].astype(np.uint8).tobytes() for part in self._pending),
            "lengths.i4": b"".join(part[2].astype("<i4").tobytes() for part in self._pending),
            "keys.jsonl": "".join(json.dumps(key) + "\n" for part in self._pending for key in part[0]).encode(),
        }
        for name, path in self._paths().items():
            with open(path, "r+b" if path.exists() else "w+b") as file:
                file.seek(sizes[name])
                file.write(parts[name])
                file.truncate()
                file.flush()
                os.fsync(file.fileno())
        self._write_index({name: sizes[name] + len(parts[name]) for name in sizes})
        self._pending, self.pending_bytes = [], 0

    def _write_index(self, sizes: dict[str, int]) -> None:
        temporary = self.folder / "index.json.tmp"
        with open(temporary, "w", encoding="utf-8") as file:
            json.dump({"format": _FORMAT, "dim": self.dim, "bytes": sizes}, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, self.folder / "index.json")

    def recover(self) -> None:
        """Cuts the cache back to the inputs that are whole in every file, where a file lost its end.

        Call it with the cache locked. Bytes after the committed ones need no care: the next commit overwrites them.
        """
        sizes = self._committed()
        found = {name: path.stat().st_size if path.exists() else 0 for name, path in self._paths().items()}
        if all(found[name] >= sizes[name] for name in sizes):
            return
        lengths = self._read("lengths.i4", "<i4", min(sizes["lengths.i4"], found["lengths.i4"]) // 4)
        keys = b""
        if found["keys.jsonl"]:
            keys = self._paths()["keys.jsonl"].read_bytes()[: sizes["keys.jsonl"]]
        tokens = min(
            min(sizes["states.f2"], found["states.f2"]) // (2 * self.dim), min(sizes["special.u1"], found["special.u1"])
        )
        rows = min(int(np.searchsorted(np.cumsum(lengths), tokens, side="right")), keys.count(b"\n"))
        kept = int(lengths[:rows].sum())
        warnings.warn(
            f"files of {self.folder} are shorter than they should be: kept {rows} inputs of "
            f"{sizes['lengths.i4'] // 4}, the others are encoded again",
            stacklevel=4,
        )
        self._write_index(
            {
                "states.f2": kept * 2 * self.dim,
                "special.u1": kept,
                "lengths.i4": rows * 4,
                "keys.jsonl": sum(len(line) + 1 for line in keys.split(b"\n")[:rows]),
            }
        )

    def _read(self, name: str, dtype: str, count: int) -> np.ndarray:
        if not count:
            return np.zeros(0, dtype)
        return np.fromfile(self._paths()[name], dtype, count=count)

    def store(self) -> StateStore:
        """Returns a reader of what is committed; an empty one where the files are damaged, until :meth:`recover`."""
        sizes = self._committed()
        paths = self._paths()
        whole = all(path.exists() and path.stat().st_size >= sizes[name] for name, path in paths.items())
        if not whole or not sizes["states.f2"]:
            return StateStore(np.zeros((0, self.dim), np.float16), np.zeros(1, np.int64), [], None, str(self.folder))
        lengths = self._read("lengths.i4", "<i4", sizes["lengths.i4"] // 4)
        keys = [json.loads(line) for line in paths["keys.jsonl"].read_bytes()[: sizes["keys.jsonl"]].splitlines()]
        tokens = sizes["states.f2"] // (2 * self.dim)
        return StateStore(
            states=np.memmap(paths["states.f2"], "<f2", mode="r", shape=(tokens, self.dim)),
            offsets=np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]),
            keys=keys,
            special=self._read("special.u1", "u1", sizes["special.u1"]).astype(bool),
            name=str(self.folder),
        )
