"""Datasets from files anywhere on disk."""

import re
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from pyterrier_grasp.datasets.catalog import I2T, TOPS, direction


class LocalFiles(NamedTuple):
    """Where a local dataset's files are."""

    annotations: Path
    images: Path


_LOCAL: dict[str, LocalFiles] = {}


def local(id: str, *, annotations: str | PathLike[str], images: str | PathLike[str]) -> None:
    """Register captioned images of your own as an ir_datasets dataset.

    The ids ``<id>/train``, ``<id>/val`` and ``<id>/test`` (and ``<id>`` for all images) then work in
    ``ir_datasets.load``, ``pt.get_dataset("irds:...")`` and ``pt.get_dataset("grasp:...")``, as far as the file has the
    split. Images of a "restval" split belong to ``train``; ``<id>/train-norestval`` leaves them out. With ``/i2t``
    behind a split, images are the queries and captions the documents.

    Args:
        id: Name of the dataset: letters, digits, ``_``, ``.``, ``-``, with ``/`` between parts.
        annotations: Captions in Karpathy's JSON format.
        images: Folder of the images. An image is looked for at ``images/<filepath>/<filename>``, then at
            ``images/<filename>``. The folder is not read before documents are asked for.

    Raises:
        FileNotFoundError: If there is no file of annotations.
        ValueError: If the id is malformed or taken.
    """
    import ir_datasets

    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)*", id):
        raise ValueError(f"{id!r} is no dataset id: use letters, digits, '_', '.', '-', with '/' between parts")
    files = LocalFiles(Path(annotations).expanduser().absolute(), Path(images).expanduser().absolute())
    if not files.annotations.is_file():
        raise FileNotFoundError(f"{id}: there are no caption annotations at {files.annotations}")
    if id in _LOCAL:
        if _LOCAL[id] != files:
            raise ValueError(f"the dataset {id!r} is already registered, with the files {_LOCAL[id]}")
        return
    if id.split("/")[0] in TOPS or id in set(ir_datasets.registry):
        raise ValueError(f"the dataset id {id!r} is taken; choose another name")
    _LOCAL[id] = files
    pattern = f"^{re.escape(id)}(?:/(.+))?$"
    reader_of = _shared_reader(files)
    ir_datasets.registry.register_pattern(pattern, lambda key, groups: _build(id, groups[0], files, reader_of()))


def is_local(name: str) -> bool:
    """Whether a dataset id belongs to a registered local dataset."""
    return any(name == id or name.startswith(f"{id}/") for id in _LOCAL)


def _shared_reader(files: LocalFiles) -> Any:
    readers: list[Any] = []

    def reader() -> Any:
        from pyterrier_grasp.datasets.karpathy import KarpathyFile

        if not readers:
            readers.append(KarpathyFile(files.annotations))
        return readers[0]

    return reader


def _build(id: str, split: str | None, files: LocalFiles, reader: Any) -> Any:
    from pyterrier_grasp.datasets import docs, karpathy
    from pyterrier_grasp.datasets.i2t import image_to_text

    part, i2t = direction(split)
    if part is not None and part not in reader.public_splits():
        raise KeyError(
            f"{id} has no split {split!r}; {files.annotations} has {', '.join(reader.public_splits())}, each also with "
            f"{I2T} behind it"
        )
    dataset = karpathy.dataset(
        id, part, reader, lambda dataset_id, wanted: docs.find_images(dataset_id, files.images, wanted)
    )
    return image_to_text(dataset) if i2t else dataset
