"""Reader of captioned images in Karpathy's JSON format, the common form of Flickr8k, Flickr30k and COCO.

The format (A. Karpathy and L. Fei-Fei, Deep Visual-Semantic Alignments, CVPR 2015)::

    {"images": [{"filename", "imgid", "split", "filepath"?, "cocoid"?, "sentences": [{"raw", "sentid"}, ...]}, ...]}
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from ir_datasets import Dataset
from ir_datasets.formats import BaseQrels, BaseQueries, GenericQuery, TrecQrel

from pyterrier_grasp.datasets.docs import ImageDoc, ListedDocs

#: Public split -> splits in the file. COCO's "restval" belongs to training in every published comparison.
SPLITS: dict[str, tuple[str, ...]] = {
    "train": ("train", "restval"),
    "train-norestval": ("train",),
    "val": ("val",),
    "test": ("test",),
}


class Caption(NamedTuple):
    """One caption: its ``sentid`` as a string, and the raw text without surrounding white space."""

    qid: str
    text: str


class KarpathyImage(NamedTuple):
    """One image of the file. ``docno`` is the ``cocoid`` where there is one and the file name's stem otherwise."""

    docno: str
    filename: str
    filepath: str
    imgid: str
    split: str
    captions: tuple[Caption, ...]


class KarpathyFile:
    """A Karpathy JSON file, read on first use.

    Args:
        path: The file, or a function that returns it (and may download it first).
        check: Called with the number of images of each split in the file; raises ``ValueError`` where they are wrong.
    """

    def __init__(
        self, path: str | Path | Callable[[], Path], check: Callable[[dict[str, int]], None] | None = None
    ) -> None:
        self._path = path
        self._check = check

    @cached_property
    def images(self) -> tuple[KarpathyImage, ...]:
        """Every image, in the order of the file.

        Raises:
            FileNotFoundError: If the file does not exist.
            ValueError: If it is no Karpathy JSON, lacks a field, or holds an id twice.
        """
        path = Path(self._path() if callable(self._path) else self._path)
        images = tuple(_parse(path))
        for what, ids in (
            ("image id (docno)", [i.docno for i in images]),
            ("imgid", [i.imgid for i in images]),
            ("filename", [i.filename for i in images]),
            ("sentid", [c.qid for i in images for c in i.captions]),
        ):
            _refuse_duplicates(path, what, ids)
        if self._check is not None:
            self._check(dict(Counter(i.split for i in images)))
        return images

    @cached_property
    def splits(self) -> dict[str, int]:
        """Number of images of each split, as the file names them."""
        return dict(Counter(i.split for i in self.images))

    @cached_property
    def imgid_to_docno(self) -> dict[str, str]:
        """Karpathy's running number of an image -> docno, over all splits."""
        return {i.imgid: i.docno for i in self.images}

    @cached_property
    def filename_to_docno(self) -> dict[str, str]:
        """File name of an image -> docno, over all splits."""
        return {i.filename: i.docno for i in self.images}

    def public_splits(self) -> list[str]:
        """The public splits this file has images for."""
        return [
            name for name, parts in SPLITS.items()
            if any(p in self.splits for p in parts) and (name != "train-norestval" or "restval" in self.splits)
        ]  # fmt: skip

    def select(self, split: str | None) -> list[KarpathyImage]:
        """Images of a public split (a key of ``SPLITS``), or of all splits for ``None``.

        Raises:
            KeyError: If the file has no image of that split, with the splits it has.
        """
        if split is None:
            return list(self.images)
        selected = [i for i in self.images if i.split in SPLITS.get(split, ())]
        if not selected:
            raise KeyError(f"no split {split!r}: the annotations have {self.public_splits()}")
        return selected


def dataset(
    top: str,
    split: str | None,
    reader: KarpathyFile,
    find: Callable[[str, list[tuple[str, str]]], list[str]],
) -> Dataset:
    """Build the ir_datasets dataset of one split. Nothing is read before it is asked for.

    Args:
        top: Top-level dataset id.
        split: A key of ``SPLITS``, or ``None`` for the whole collection.
        reader: The annotations.
        find: ``find(dataset_id, files)`` returns the path of each ``(subfolder, name)``; raises where one is missing.

    Returns:
        A dataset with docs, queries, qrels and the annotations as ``.karpathy``.
    """
    dataset_id = top if split is None else f"{top}/{split}"

    def load_docs() -> list[ImageDoc]:
        images = reader.select(split)
        paths = find(dataset_id, [(i.filepath, i.filename) for i in images])
        return [ImageDoc(i.docno, path) for i, path in zip(images, paths, strict=True)]

    docs = ListedDocs(top, lambda: len(reader.select(split)), load_docs)
    return Dataset(docs, _Queries(top, split, reader), _Qrels(split, reader), _Annotations(reader))


class _Annotations:
    def __init__(self, reader: KarpathyFile) -> None:
        self.karpathy = reader


class _Queries(BaseQueries):
    def __init__(self, top: str, split: str | None, reader: KarpathyFile) -> None:
        self._top, self._split, self._reader = top, split, reader

    def queries_iter(self) -> Iterator[GenericQuery]:
        for image in self._reader.select(self._split):
            for caption in image.captions:
                yield GenericQuery(caption.qid, caption.text)

    def queries_count(self) -> int:
        return sum(len(i.captions) for i in self._reader.select(self._split))

    def queries_namespace(self) -> str:
        return self._top

    def queries_lang(self) -> str:
        return "en"


class _Qrels(BaseQrels):
    def __init__(self, split: str | None, reader: KarpathyFile) -> None:
        self._split, self._reader = split, reader

    def qrels_iter(self) -> Iterator[TrecQrel]:
        for image in self._reader.select(self._split):
            for caption in image.captions:
                yield TrecQrel(caption.qid, image.docno, 1, "0")

    def qrels_count(self) -> int:
        return sum(len(i.captions) for i in self._reader.select(self._split))

    def qrels_cls(self) -> type[TrecQrel]:
        return TrecQrel

    def qrels_defs(self) -> dict[int, str]:
        return {1: "the caption was written for the image"}


def _parse(path: Path) -> Iterator[KarpathyImage]:
    try:
        with path.open(encoding="utf-8") as file:
            content = json.load(file)
    except FileNotFoundError:
        raise FileNotFoundError(f"there are no caption annotations at {path}") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not valid JSON, perhaps an incomplete copy: {error}") from error
    images = content.get("images") if isinstance(content, dict) else None
    if not isinstance(images, list):
        raise ValueError(f"{path} is not in Karpathy's format: expected an object with a list of 'images'")
    if not images:
        raise ValueError(f"{path} holds no images")
    with_cocoid = sum(isinstance(image, dict) and "cocoid" in image for image in images)
    if with_cocoid not in (0, len(images)):
        raise ValueError(f"{path}: {with_cocoid} of {len(images)} images have a 'cocoid'; either all must or none")
    for number, image in enumerate(images):
        where = f"{path}, image number {number}"
        if not isinstance(image, dict):
            raise ValueError(f"{where}: expected an object, got {type(image).__name__}")
        filename = _field(image, "filename", str, where)
        docno = str(_field(image, "cocoid", (int, str), where)) if with_cocoid else PurePosixPath(filename).stem
        if not docno:
            raise ValueError(f"{where}: the image id is empty")
        yield KarpathyImage(
            docno=docno,
            filename=filename,
            filepath=_field(image, "filepath", str, where) if "filepath" in image else "",
            imgid=str(_field(image, "imgid", (int, str), where)),
            split=_field(image, "split", str, where),
            captions=tuple(_captions(_field(image, "sentences", list, where), where)),
        )


def _captions(sentences: list[Any], where: str) -> Iterator[Caption]:
    for number, sentence in enumerate(sentences):
        place = f"{where}, sentence number {number}"
        if not isinstance(sentence, dict):
            raise ValueError(f"{place}: expected an object, got {type(sentence).__name__}")
        yield Caption(str(_field(sentence, "sentid", (int, str), place)), _field(sentence, "raw", str, place).strip())


def _field(record: dict[str, Any], name: str, kind: type | tuple[type, ...], where: str) -> Any:
    if name not in record:
        raise ValueError(f"{where}: the field {name!r} is missing")
    value = record[name]
    if not isinstance(value, kind) or isinstance(value, bool):
        raise ValueError(f"{where}: the field {name!r} has the wrong type: {value!r}")
    return value


def _refuse_duplicates(path: Path, what: str, ids: Sequence[str]) -> None:
    if len(set(ids)) < len(ids):
        repeated = [i for i, n in Counter(ids).items() if n > 1]
        raise ValueError(f"{path}: the {what} must be unique, but {len(repeated)} occur twice, such as {repeated[:3]}")
