"""Folders that appear under their name only when they are whole."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """Write a folder aside and rename it to ``path`` at the end; after an error nothing changes.

    Args:
        path: The folder; one that exists is replaced.

    Yields:
        The folder to write into.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        staging.chmod(0o755)
        yield staging
        put_in_place(staging, path)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def put_in_place(staging: Path, path: Path) -> None:
    """Rename a whole folder to ``path``.

    Args:
        staging: The folder, beside ``path``.
        path: Its new name; a folder that exists there is replaced, and stays if the renaming fails.
    """
    if not path.exists():
        os.replace(staging, path)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{path.name}.old.", dir=path.parent))
    os.replace(path, old)
    try:
        os.replace(staging, path)
    except OSError:
        os.replace(old, path)
        raise
    shutil.rmtree(old)
