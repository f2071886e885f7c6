"""The embedded corpus ``scenes`` as an ir_datasets dataset."""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from ir_datasets import Dataset
from ir_datasets.formats import BaseQrels, BaseQueries, GenericQuery, TrecQrel

from pyterrier_grasp.datasets.docs import ImageDoc, ListedDocs


def dataset(splits: Sequence[str]) -> Dataset:
    """Build the dataset of some splits.

    Captions and qrels come straight from the generator; the images are drawn as PNG files when documents are first
    asked for.

    Args:
        splits: Any of ``scenes.SPLITS``.

    Returns:
        A dataset with docs, queries and qrels.
    """
    from pyterrier_grasp.datasets import scenes

    def load_docs() -> list[ImageDoc]:
        docs = []
        for split in splits:
            folder = scenes.materialise(split, verbose=True)
            docs += [ImageDoc(s.docno, str((folder / f"{s.docno}.png").absolute())) for s in _scenes(split)]
        return docs

    docs = ListedDocs("scenes", lambda: sum(scenes.SPLITS[split] for split in splits), load_docs)
    return Dataset(docs, _Queries(splits), _Qrels(splits))


@cache
def _scenes(split: str) -> tuple[Any, ...]:
    """The scenes of a split; kept, because captions, qrels and documents each go through them."""
    from pyterrier_grasp.datasets import scenes

    return tuple(scenes.generate(split))


class _Queries(BaseQueries):
    def __init__(self, splits: Sequence[str]) -> None:
        self._splits = tuple(splits)

    def queries_iter(self) -> Iterator[GenericQuery]:
        for split in self._splits:
            for scene in _scenes(split):
                for caption in scene.captions:
                    yield GenericQuery(caption.qid, caption.text)

    def queries_namespace(self) -> str:
        return "scenes"

    def queries_lang(self) -> str:
        return "en"


class _Qrels(BaseQrels):
    def __init__(self, splits: Sequence[str]) -> None:
        self._splits = tuple(splits)

    def qrels_iter(self) -> Iterator[TrecQrel]:
        for split in self._splits:
            for scene in _scenes(split):
                for caption in scene.captions:
                    yield TrecQrel(caption.qid, scene.docno, 1, "0")

    def qrels_cls(self) -> type[TrecQrel]:
        return TrecQrel

    def qrels_defs(self) -> dict[int, str]:
        return {1: "the caption was generated for the scene"}
