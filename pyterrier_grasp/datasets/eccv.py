"""What else is relevant in COCO's test split: ECCV Caption and Crisscrossed Captions as qrels.

COCO knows one relevant image for a caption, the one it was written for; many others fit. Two collections of judgements
fill the gaps, and the package ``eccv-caption`` (extra ``eccv``) brings both:

* ``eccv``: S. Chun et al., ECCV Caption, ECCV 2022: found by five models, verified by people. Text -> image: 1,332
  captions with 8.5 images each (at most 19); image -> text: 1,261 images with 17.9 captions each (at most 48).
* ``cxc``: Z. Parekh et al., Crisscrossed Captions, EACL 2021. 24,972 captions with 1.4 images each (at most 8); 5,000
  images with 7.1 captions each.

Only these queries are evaluated; they search the whole of ``coco/test`` (5,000 images) or ``coco/test/i2t``.
"""

import json
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ir_datasets import Dataset
from ir_datasets.formats import BaseQrels, BaseQueries, TrecQrel

_JUDGED = {
    "eccv": "found by models and verified by people (ECCV Caption)",
    "cxc": "judged similar by people (Crisscrossed Captions)",
}


def dataset(name: str, i2t: bool, gallery: Dataset) -> Dataset:
    """Build a dataset. Nothing is read before it is asked for.

    Args:
        name: ``eccv`` or ``cxc``.
        i2t: Whether images are the queries.
        gallery: ``coco/test``, or ``coco/test/i2t`` with ``i2t``.

    Returns:
        A dataset with the docs of ``gallery``, those of its queries that were judged, and qrels. Topics and qrels raise
        ``ImportError`` without the package ``eccv-caption``; the qrels need nothing but that package.
    """
    return Dataset(gallery.docs_handler(), _Queries(name, i2t, gallery), _Qrels(name, i2t))


def positives(name: str, i2t: bool) -> dict[str, list[str]]:
    """Relevant documents of each judged query: COCO's caption ids (Karpathy's ``sentid``) and image ids (``cocoid``).

    Args:
        name: ``eccv`` or ``cxc``.
        i2t: Whether images are the queries.

    Returns:
        Query id -> document ids.

    Raises:
        ImportError: Without the package ``eccv-caption``.
    """
    spec = find_spec("eccv_caption")  # its data are read, its code is not imported
    if spec is None or not spec.submodule_search_locations:
        raise ImportError(f"coco/test/{name} needs the extra 'eccv': pip install 'pyterrier-grasp[eccv]'")
    direction = "image_to_caption" if i2t else "caption_to_image"
    path = Path(spec.submodule_search_locations[0]) / "data" / f"{name}_{direction}.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    return {query: [str(doc) for doc in docs] for query, docs in content.items()}


class _Queries(BaseQueries):
    def __init__(self, name: str, i2t: bool, gallery: Dataset) -> None:
        self._name, self._i2t, self._gallery = name, i2t, gallery

    def queries_iter(self) -> Iterator[Any]:
        """Yields the judged queries of the gallery, in its order.

        Raises:
            ImportError: Without the package ``eccv-caption``.
            ValueError: If the gallery lacks one of them.
        """
        missing = set(positives(self._name, self._i2t))
        for query in self._gallery.queries_iter():
            if query.query_id in missing:
                missing.remove(query.query_id)
                yield query
        if missing:
            raise ValueError(
                f"the annotations of coco/test lack {len(missing)} of the queries that {self._name} has judgements "
                f"for, such as {sorted(missing)[:3]}: they are not Karpathy's with COCO's own ids"
            )

    def queries_count(self) -> int:
        return len(positives(self._name, self._i2t))

    def queries_cls(self) -> type[Any]:
        return self._gallery.queries_cls()

    def queries_namespace(self) -> str:
        return self._gallery.queries_namespace()

    def queries_lang(self) -> str:
        return self._gallery.queries_lang()


class _Qrels(BaseQrels):
    def __init__(self, name: str, i2t: bool) -> None:
        self._name, self._i2t = name, i2t

    def qrels_iter(self) -> Iterator[TrecQrel]:
        for query, docs in positives(self._name, self._i2t).items():
            for doc in docs:
                yield TrecQrel(query, doc, 1, "0")

    def qrels_count(self) -> int:
        return sum(len(docs) for docs in positives(self._name, self._i2t).values())

    def qrels_cls(self) -> type[TrecQrel]:
        return TrecQrel

    def qrels_defs(self) -> dict[int, str]:
        return {1: _JUDGED[self._name]}
