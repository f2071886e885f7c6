"""Documents kept as a list: an id with the path of an image file (never the pixels), or with a text."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, overload

from ir_datasets.formats import BaseDocs
from ir_datasets.indices.base import DEFAULT_DOCSTORE_OPTIONS, Docstore


class ImageDoc(NamedTuple):
    """One image.

    Attributes:
        doc_id: Identifier of the image; PyTerrier's ``docno``.
        path: Absolute path of the image file.
    """

    doc_id: str
    path: str


class ListedDocs(BaseDocs):
    """Documents handler of a collection that is small enough to be listed.

    Image files are looked for only when documents are asked for, so that captions and qrels of the same dataset work
    without the images.

    Args:
        namespace: Name of the id space, by convention the top-level dataset id.
        count: Returns the number of documents; must not need the image files.
        load: Returns every document in order; raises ``FileNotFoundError`` where files are missing.
        cls: Class of the documents, a NamedTuple that begins with ``doc_id``.
    """

    def __init__(
        self, namespace: str, count: Callable[[], int], load: Callable[[], list[Any]], cls: type[Any] = ImageDoc
    ) -> None:
        self._namespace = namespace
        self._count = count
        self._load = load
        self._cls = cls
        self._docs: list[Any] | None = None

    def _all(self) -> list[Any]:
        if self._docs is None:  # a failure is not kept: the user may put the files in place and try again
            self._docs = self._load()
        return self._docs

    def docs_iter(self) -> "ListedDocsIter":
        return ListedDocsIter(self._all())

    def docs_store(self, field: str = "doc_id", options: Any = DEFAULT_DOCSTORE_OPTIONS) -> "ListedDocstore":
        if field != "doc_id":
            raise ValueError(f"these documents can only be looked up by 'doc_id', not by {field!r}")
        return ListedDocstore(self._all(), self._cls, options)

    def docs_cls(self) -> type[Any]:
        return self._cls

    def docs_count(self) -> int:
        return self._count()

    def docs_namespace(self) -> str:
        return self._namespace

    def docs_lang(self) -> str:
        return "en"  # PyTerrier's list of datasets hides collections that have no language


class ListedDocsIter:
    """Iterator over documents that can also be sliced (``docs_iter()[10:20]``), as ir_datasets users expect."""

    def __init__(self, docs: list[Any]) -> None:
        self._docs = docs
        self._next = 0

    def __iter__(self) -> "ListedDocsIter":
        return self

    def __next__(self) -> Any:
        if self._next >= len(self._docs):
            raise StopIteration
        self._next += 1
        return self._docs[self._next - 1]

    @overload
    def __getitem__(self, key: int) -> Any: ...
    @overload
    def __getitem__(self, key: slice) -> "ListedDocsIter": ...
    def __getitem__(self, key: int | slice) -> Any:
        if isinstance(key, slice):
            return ListedDocsIter(self._docs[key])
        return self._docs[key]


class ListedDocstore(Docstore):
    """Look-up of documents by id. It keeps what is listed; ir_datasets' own store would pickle a copy of each.

    As in every ir_datasets store, ``get`` raises ``KeyError`` for an unknown id and ``get_many`` leaves it out.
    """

    def __init__(self, docs: list[Any], cls: type[Any], options: Any = DEFAULT_DOCSTORE_OPTIONS) -> None:
        super().__init__(cls, "doc_id", options)
        self._docs = docs
        self._by_id = {doc.doc_id: doc for doc in docs}

    def get_many_iter(self, doc_ids: Iterable[str]) -> Iterator[Any]:
        for doc_id in doc_ids:
            doc = self._by_id.get(doc_id)
            if doc is not None:
                yield doc

    def __iter__(self) -> ListedDocsIter:
        return ListedDocsIter(self._docs)

    def count(self) -> int:
        return len(self._docs)

    def built(self) -> bool:
        return True


def find_images(dataset_id: str, root: Path, files: list[tuple[str, str]], advice: str = "") -> list[str]:
    """Find image files in a folder.

    A file is looked for at ``root/subfolder/name`` and then at ``root/name``. Each folder is listed once, which is much
    faster than asking for 100,000 files one by one.

    Args:
        dataset_id: Named in the error.
        root: Folder of the images.
        files: ``(subfolder, name)`` pairs; the subfolder may be empty.
        advice: Added to the error: where the images come from.

    Returns:
        The absolute path of each file, in the order of ``files``.

    Raises:
        FileNotFoundError: If any file is missing, with the number of images expected and found, and the folder.
    """
    root = root.expanduser().absolute()
    paths, missing = locate_images(root, files)
    if missing:
        if not root.is_dir():
            state = "the folder does not exist" if not root.exists() else "it is not a folder"
        else:
            content = sorted(p.name for p in root.iterdir())
            state = f"the folder holds {len(content):,} entries" + (f", such as {content[:3]}" if content else "")
        raise FileNotFoundError(
            f"{dataset_id}: expected {len(files):,} images in {root}, found {len(files) - len(missing):,}; {state}. "
            f"Missing are {', '.join('/'.join(filter(None, m)) for m in missing[:3])}"
            f"{', ...' if len(missing) > 3 else ''}. {advice}".rstrip()
        )
    return paths


def locate_images(root: Path, files: list[tuple[str, str]]) -> tuple[list[str], list[tuple[str, str]]]:
    """Look for image files as :func:`find_images` does, and return those found and those missing.

    Returns:
        The paths found and the ``(subfolder, name)`` pairs that are missing, each in the order of ``files``.
    """
    listings: dict[Path, set[str]] = {}

    def exists(path: Path) -> bool:
        if path.parent not in listings:
            listings[path.parent] = {p.name for p in path.parent.iterdir()} if path.parent.is_dir() else set()
        return path.name in listings[path.parent]

    paths: list[str] = []
    missing: list[tuple[str, str]] = []
    for subfolder, name in files:
        nested, flat = root / subfolder / name, root / name
        if exists(nested):
            paths.append(str(nested))
        elif exists(flat):
            paths.append(str(flat))
        else:
            missing.append((subfolder, name))
    return paths, missing
