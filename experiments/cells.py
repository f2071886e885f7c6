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


@dataclass
class Cell:
    """A folder that appears whole when its work is done.

    Attributes:
        folder: Where the results go.
        settings: Everything that decides the result, in JSON types. A folder made with others is an error.
        work: Does it: takes the folder to write into.
        needs: Cells to be done before.
    """

    folder: Path
    settings: dict[str, Any]
    work: Callable[[Path], None]
    needs: list["Cell"] = field(default_factory=list)

    def done(self) -> bool:
        """Whether the folder is there.

        Raises:
            ValueError: If it was made with other settings.
        """
        path = self.folder / SETTINGS
        if not path.is_file():
            return False
        made, now = json.loads(path.read_text(encoding="utf-8")), json.loads(json.dumps(self.settings))
        different = sorted(name for name in made.keys() | now.keys() if made.get(name) != now.get(name))
        if different:
            what = "; ".join(f"{name} was {made.get(name)!r} and is {now.get(name)!r}" for name in different)
            raise ValueError(f"{self.folder} was made with other settings: {what}. Give another --out, or remove it")
        return True


def run(cells: Iterable[Cell], announce: Callable[[str], None] = print, *, wait: float = 2.0) -> None:
    """Do what is not done. Several processes may run the same cells: each takes the next free one.

    Args:
        cells: In the order wanted; their needs are among them.
        announce: Told what begins.
        wait: Seconds between looks at what other processes are doing.

    Raises:
        ValueError: If a cell was made with other settings.
    """
    left = list(cells)
    while left:
        left = [cell for cell in left if not cell.done()]
        if not any(_take(cell, announce) for cell in left if all(need.done() for need in cell.needs)) and left:
            time.sleep(wait)


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
