"""Where the files of a catalogued dataset come from: ``$IR_DATASETS_HOME/<top>/``, filled by download where allowed."""

import json
import os
import shutil
import tempfile
import zipfile
from functools import cache
from importlib import resources
from pathlib import Path, PurePosixPath
from typing import Any

import ir_datasets
from ir_datasets.util.download import _DownloadConfig  # extensions of ir_datasets build theirs from it as well

from pyterrier_grasp.datasets.docs import find_images, locate_images


@cache
def downloads() -> dict[str, Any]:
    """The content of ``downloads.json``, in ir_datasets' own form."""
    return json.loads((resources.files("pyterrier_grasp.datasets") / "downloads.json").read_text(encoding="utf-8"))


def home(top: str) -> Path:
    """Folder of a dataset's files."""
    return Path(ir_datasets.util.home_path()) / top


def annotations(top: str, name: str) -> Path:
    """Find the Karpathy JSON of a dataset; unpack or download it if it is not there.

    Tried in turn: the JSON file in the dataset's folder; ``caption_datasets.zip`` in that folder or in
    ``$IR_DATASETS_HOME/karpathy``; the download of that archive.

    Args:
        top: Top-level dataset id.
        name: File name, such as ``dataset_coco.json``.

    Returns:
        The path of the JSON file.

    Raises:
        FileNotFoundError: If it is neither there nor could be downloaded, with what to do.
        ValueError: If the archive is damaged or does not hold the file.
    """
    target = home(top) / name
    if target.exists():
        return target
    download = _config("karpathy", "karpathy")["captions"]
    archives = [home(top) / "caption_datasets.zip", home("karpathy") / "caption_datasets.zip"]
    archive = next((a for a in archives if a.exists()), None)
    if archive is None:
        try:
            archive = Path(download.path())
            if not zipfile.is_zipfile(archive):  # there is no checksum, and a "404 not found" page arrives as a file
                archive.unlink()
                raise ValueError("the server sent something else than the archive")
        except Exception as error:  # requests, OS and checksum errors alike: the way out is the same
            raise FileNotFoundError(
                f"the captions of {top} could not be downloaded ({error}). Put {name}, or Karpathy's "
                f"caption_datasets.zip, into {home(top)} and try again"
            ) from error
    _unpack_member(archive, name, target)
    return target


def images(top: str, dataset_id: str, files: list[tuple[str, str]]) -> list[str]:
    """Find the images of a catalogued dataset; download the archives that may be downloaded.

    Args:
        top: Top-level dataset id.
        dataset_id: Named in the error.
        files: ``(subfolder, name)`` pairs.

    Returns:
        The absolute path of each file.

    Raises:
        FileNotFoundError: If images are missing, with how many, where, and where to get them.
    """
    root = home(top) / "images"
    _, missing = locate_images(root, files)
    for folder in sorted({subfolder for subfolder, _ in missing}):
        # a folder that exists is the user's own: it is reported as incomplete, not filled up
        if "url" in downloads()[top].get(folder, {}) and not (root / folder).exists():
            _unpack_folder(Path(_config(top, top)[folder].path()), folder, root)
    advice = downloads()[top]["images"]["instructions"].format(path=root)
    return find_images(dataset_id, root, files, advice)


def _config(key: str, top: str) -> Any:
    return _DownloadConfig(contents=downloads()[key], base_path=str(home(top)))


def _unpack_member(archive: Path, name: str, target: Path) -> None:
    try:
        with zipfile.ZipFile(archive) as packed:
            member = next((m for m in packed.namelist() if PurePosixPath(m).name == name), None)
            if member is None:
                raise ValueError(f"{archive} does not hold {name}")
            target.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=target.parent, delete=False) as temporary:
                with packed.open(member) as source:
                    shutil.copyfileobj(source, temporary)
    except zipfile.BadZipFile as error:
        raise ValueError(f"{archive} is damaged: {error}. Remove it and try again") from error
    os.chmod(temporary.name, 0o644)
    os.replace(temporary.name, target)


def _unpack_folder(archive: Path, folder: str, root: Path) -> None:
    root.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=root, prefix=f".{folder}."))
    try:
        with zipfile.ZipFile(archive) as packed:
            packed.extractall(temporary)
        source = temporary / folder
        if not source.is_dir():
            raise ValueError(f"{archive} does not hold the folder {folder}")
        os.replace(source, root / folder)  # only a folder that is whole gets its name
    except zipfile.BadZipFile as error:
        raise ValueError(f"{archive} is damaged: {error}. Remove it and try again") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
