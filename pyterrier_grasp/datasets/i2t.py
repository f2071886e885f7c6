"""The other direction of a dataset: images are the queries, captions the documents."""

from collections.abc import Iterator
from pathlib import PurePath
from typing import NamedTuple

from ir_datasets import Dataset
from ir_datasets.formats import BaseQrels, BaseQueries, GenericDoc, TrecQrel

from pyterrier_grasp.datasets.docs import ListedDocs


class ImageQuery(NamedTuple):
    """An image that captions are searched for.

    It has no field that PyTerrier would take for a query text: a text encoder or BM25 that is given these topics stops
    at the missing column ``query`` and does not search for the words of a path.

    Attributes:
        query_id: Identifier of the image, its ``docno`` in the text -> image dataset.
        path: Absolute path of the image file.
        filename: Name of the file.
    """

    query_id: str
    path: str
    filename: str


def image_to_text(dataset: Dataset) -> Dataset:
    """Swap the sides of a dataset. Nothing is read before it is asked for.

    Args:
        dataset: Docs ``ImageDoc(doc_id, path)``, queries ``GenericQuery(query_id, text)`` and qrels.

    Returns:
        A dataset with docs ``GenericDoc(doc_id, text)``, the captions by their old query ids; queries
        :class:`ImageQuery`, the images by their old doc ids; and the same qrels, swapped. Only the queries need the
        image files.
    """

    def load() -> list[GenericDoc]:
        return [GenericDoc(query.query_id, query.text) for query in dataset.queries_iter()]

    captions = ListedDocs(dataset.queries_namespace(), lambda: len(load()), load, GenericDoc)
    return Dataset(captions, _ImageQueries(dataset), _Qrels(dataset))


class _ImageQueries(BaseQueries):
    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset

    def queries_iter(self) -> Iterator[ImageQuery]:
        for doc in self._dataset.docs_iter():
            yield ImageQuery(doc.doc_id, doc.path, PurePath(doc.path).name)

    def queries_count(self) -> int:
        return self._dataset.docs_count()

    def queries_cls(self) -> type[ImageQuery]:
        return ImageQuery

    def queries_namespace(self) -> str:
        return self._dataset.docs_namespace()

    def queries_lang(self) -> str:
        return "en"  # PyTerrier's list of datasets hides collections that have no language


class _Qrels(BaseQrels):
    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset

    def qrels_iter(self) -> Iterator[TrecQrel]:
        for qrel in self._dataset.qrels_iter():
            yield TrecQrel(qrel.doc_id, qrel.query_id, qrel.relevance, qrel.iteration)

    def qrels_cls(self) -> type[TrecQrel]:
        return TrecQrel

    def qrels_defs(self) -> dict[int, str]:
        return self._dataset.qrels_defs()
