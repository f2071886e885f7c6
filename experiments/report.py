"""What every experiment leaves behind: ``metrics.json`` with figures, settings, seed, versions and the git commit."""

import argparse
import json
import platform
import subprocess
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

_PACKAGES = (
    "pyterrier-grasp",
    "pyterrier",
    "ir_datasets",
    "ir-measures",
    "torch",
    "transformers",
    "accelerate",
    "sentence-transformers",
    "scikit-learn",
    "numpy",
    "scipy",
    "numba",
    "pandas",
    "pillow",
)


def parser(doc: str | None, name: str, *, seeds: bool = False) -> argparse.ArgumentParser:
    """A parser with ``--out``, ``--seed`` (or ``--seeds``) and ``--cache``.

    Args:
        doc: The module's docstring; its first paragraph is shown by ``--help``.
        name: Folder under ``runs/`` that ``--out`` defaults to.
        seeds: Take several seeds.
    """
    made = argparse.ArgumentParser(description=(doc or "").split("\n\n")[0])
    made.add_argument("--out", type=Path, default=Path("runs") / name, help="output folder (default: %(default)s)")
    if seeds:
        made.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3], help="a training each (%(default)s)")
    else:
        made.add_argument("--seed", type=int, default=1, help="seed of everything random (default: %(default)s)")
    made.add_argument("--cache", type=Path, help="folder for token states (default: under PyTerrier's home)")
    return made


class Report:
    """Collects figures and writes them to a file in ``out``.

    Args:
        args: The parsed arguments, recorded as settings.
        file: Name of the file, where several experiments share a folder.
        **settings: Further settings.
    """

    def __init__(self, args: argparse.Namespace, *, file: str = "metrics.json", **settings: Any) -> None:
        self.out: Path = args.out
        self.out.mkdir(parents=True, exist_ok=True)
        self.file = file
        self.settings = vars(args) | settings
        self.figures: dict[str, Any] = {}
        self._commit = _git_commit()  # what was imported, whatever is committed while it runs
        self._start = time.perf_counter()

    def add(self, name: str, value: Any) -> None:
        """Record a figure (number, dict, list or frame) under ``name`` and write the file."""
        self.figures[name] = value
        content = {
            "figures": self.figures,
            "seconds": round(time.perf_counter() - self._start, 1),
            "settings": self.settings,
            "seed": self.settings.get("seed", self.settings.get("seeds")),
            "git_commit": self._commit,
            "python": platform.python_version(),
            "packages": versions(),
        }
        (self.out / self.file).write_text(json.dumps(content, indent=1, default=_plain) + "\n", encoding="utf-8")

    def step(self, text: str) -> None:
        """Print ``text`` as a heading with the seconds gone so far."""
        print(f"\n[{time.perf_counter() - self._start:5.0f} s] {text}", flush=True)


def versions() -> dict[str, str]:
    """Versions of the packages that decide results."""
    return {name: version(name) for name in _PACKAGES}


def _git_commit() -> str | None:
    root = Path(__file__).parent
    done = subprocess.run(
        ["git", "-C", str(root), "describe", "--always", "--abbrev=40", "--dirty"],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or None


def _plain(value: Any) -> Any:
    if isinstance(value, pd.DataFrame):
        return json.loads(value.to_json(orient="records"))
    if isinstance(value, (np.integer, np.floating, np.bool_)):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    return str(value)
