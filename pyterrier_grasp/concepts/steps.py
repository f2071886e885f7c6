"""Steps that write files into one folder, each done again only when something it depends on has changed."""

import hashlib
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from warnings import warn

from pyterrier_grasp.concepts.storage import BUILD, digest


@dataclass(frozen=True)
class Step:
    """A step of a build.

    Attributes:
        name: Its name in the record.
        make: Writes the outputs; returns what the record should keep, such as counts and cost.
        settings: What decides about the outputs, in JSON types; None if that is not known, so that it is always done.
        inputs: Names of the files that it reads.
        outputs: Names of the files that it writes.
    """

    name: str
    make: Callable[[], dict[str, Any]]
    settings: dict[str, Any] | None
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


class Record:
    """Which steps of a folder are done, kept in ``build.json``.

    A step counts as done while its settings, the content of the files it reads and that of the files it wrote are those
    on record. If ``build.json`` is damaged, a warning says so, and no step counts as done.

    Args:
        folder: The folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.steps: dict[str, Any] = {}
        path = folder / BUILD
        if path.is_file():
            try:
                self.steps = dict(json.loads(path.read_text(encoding="utf-8"))["steps"])
            except (ValueError, KeyError, TypeError) as error:
                warn(f"{path} is damaged ({error!r}): no step counts as done", stacklevel=2)

    def is_done(self, step: Step) -> bool:
        """Whether a step is done, and its files are as it left them."""
        done = self.steps.get(step.name)
        if done is None or step.settings is None or not all((self.folder / file).is_file() for file in step.inputs):
            return False
        files = {file: self.folder / file for file in step.outputs}
        return done.get("key") == self._key(step) and all(
            path.is_file() and digest(path) == done["outputs"].get(file) for file, path in files.items()
        )

    def do(self, step: Step) -> None:
        """Do a step, unless it is done."""
        if self.is_done(step):
            return
        start = time.perf_counter()
        result = step.make()
        self.steps[step.name] = {
            "settings": step.settings,
            "result": result,
            "seconds": round(time.perf_counter() - start, 3),
            "finished": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "key": self._key(step),
            "outputs": {file: digest(self.folder / file) for file in step.outputs},
        }
        self._write()

    def keep_only(self, steps: list[Step]) -> None:
        """Forget steps that are no longer part of the build, and remove their files."""
        for name in set(self.steps) - {step.name for step in steps}:
            for file in self.steps.pop(name)["outputs"]:
                (self.folder / file).unlink(missing_ok=True)
        self._write()

    def _key(self, step: Step) -> str:
        sums = {file: digest(self.folder / file) for file in step.inputs}
        return hashlib.sha256(json.dumps([step.settings, sums], sort_keys=True).encode()).hexdigest()

    def _write(self) -> None:
        path = self.folder / BUILD
        aside = path.with_suffix(".new")
        aside.write_text(json.dumps({"steps": self.steps}, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        os.replace(aside, path)
