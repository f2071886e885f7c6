"""Captioned image collections as ir_datasets datasets.

Documents are ``ImageDoc(doc_id, path)``, queries are the captions, and each caption has one relevant image.
Ids: ``flickr30k``, ``coco``, ``flickr8k`` and ``scenes``, each with ``/train``, ``/val`` and ``/test``; and those that
:func:`local` adds. With ``/i2t`` behind a split, as in ``flickr30k/test/i2t``, images are the queries and captions the
documents. ``coco/test/eccv`` and ``coco/test/cxc`` have more complete judgements.
"""

import re
from typing import Any

from pyterrier_grasp.datasets import catalog
from pyterrier_grasp.datasets.local_dataset import local

__all__ = ["local", "register"]

_registered = False


def register() -> None:
    """Make the catalogue known to ir_datasets; no dataset is built before it is asked for. Idempotent."""
    import ir_datasets

    global _registered
    if _registered:
        return
    _registered = True
    tops = "|".join(re.escape(top) for top in catalog.TOPS)
    ir_datasets.registry.register_pattern(rf"^({tops})(?:/(.+))?$", _build)


def _build(key: str, groups: tuple[Any, ...]) -> Any:
    return catalog.build(groups[0], groups[1])
