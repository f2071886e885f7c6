"""Cells: pieces of an experiment that are done once, resume, and may be shared out among processes."""

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from pyterrier_grasp.folders import whole_folder

SETTINGS = "settings.json"


@dataclass(eq=False)
class Cell:
    """A folder that appears whole when its work is done.

    Attributes:
        folder: Where the results go.
        settings: Everything that decides the result, in JSON types. A folder made with others is an error.
        work: Does it: takes the folder to write into.
        needs: Cells to be done before.
        defaults: Of settings that are dictionaries: what a key counts as that a folder does not have, because it is
            older than the key.
        outdated: Says what the results in the folder do not agree with any more, or None.
    """

    folder: Path
    settings: dict[str, Any]
    work: Callable[[Path], None]
    needs: list["Cell"] = field(default_factory=list)
    defaults: dict[str, dict[str, Any]] = field(default_factory=dict)
    outdated: Callable[[Path], str | None] | None = None

    def done(self) -> bool:
        """Whether the folder is there.

        Raises:
            ValueError: If it was made with other settings, or is outdated.
        """
        path = self.folder / SETTINGS
        if not path.is_file():
            return False
        made = json.loads(path.read_text(encoding="utf-8"))
        made |= {name: values | made.get(name, {}) for name, values in self.defaults.items()}
        made, now = (_flat(json.loads(json.dumps(settings))) for settings in (made, self.settings))
        different = sorted(name for name in made.keys() | now.keys() if made.get(name) != now.get(name))
        if different:
            what = "; ".join(f"{name} was {made.get(name)!r} and is {now.get(name)!r}" for name in different)
            raise ValueError(f"{self.folder} was made with other settings: {what}. Give another --out, or remove it")
        outdated = self.outdated(self.folder) if self.outdated is not None else None
        if outdated:
            raise ValueError(f"{self.folder} is outdated: {outdated}. Remove it, or give another --out")
        return True


def run(cells: Iterable[Cell], announce: Callable[[str], None] = print, *, wait: float = 2.0) -> None:
    """Do what is not done. Several processes may run the same cells: each takes the next free one.

    Args:
        cells: In the order wanted; their needs are among them.
        announce: Told what begins.
        wait: Seconds between looks at what other processes are doing.

    Raises:
        ValueError: If a cell was made with other settings, or is outdated.
    """
    left = list(cells)
    while left:
        # a cell whose needs are not there is looked at again when they are
        ready = [cell for cell in left if all(need.done() for need in cell.needs)]
        done = [cell for cell in ready if cell.done()]
        left = [cell for cell in left if cell not in done]
        if not any(_take(cell, announce) for cell in ready if cell not in done) and left:
            time.sleep(wait)


def _flat(settings: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """``{"a": {"b": 1}}`` -> ``{"a.b": 1}``."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return flat


def _take(cell: Cell, announce: Callable[[str], None]) -> bool:
    """Do a cell unless another process does it."""
    lock = cell.folder.with_name(f".{cell.folder.name}.lock")
    lock.parent.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(lock, timeout=0):
            if cell.done():
                return True
            announce(str(cell.folder))
            with whole_folder(cell.folder) as folder:
                cell.work(folder)
                (folder / SETTINGS).write_text(json.dumps(cell.settings, indent=1) + "\n", encoding="utf-8")
    except Timeout:
        return False
    return True
