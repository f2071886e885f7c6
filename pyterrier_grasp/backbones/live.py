"""Token states that are not kept: where the disk has no room for a cache."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np

from pyterrier_grasp.backbones.base import Backbone
from pyterrier_grasp.backbones.states import TokenStates
from pyterrier_grasp.backbones.store import StateStore


class LiveStore:
    """Like a :class:`StateStore`, but each batch goes through the frozen encoder when it is asked for.

    Args:
        items: key -> what the encoder takes.
        encode: the encoder.
    """

    def __init__(self, items: dict[str, str], encode: Callable[[Sequence[str]], TokenStates]) -> None:
        self._items = list(items.values())
        self._row_of = {key: row for row, key in enumerate(items)}
        self._encode = encode

    def rows(self, keys: Sequence[str]) -> np.ndarray:
        """Returns the row of each key, int64 ``[len(keys)]``."""
        return np.fromiter((self._row_of[key] for key in keys), np.int64, count=len(keys))

    def batch(self, rows: Sequence[int] | np.ndarray) -> TokenStates:
        """Returns the states of some rows, float32 on the encoder's device; repeated rows are encoded once."""
        distinct, position = np.unique(np.asarray(rows, np.int64), return_inverse=True)
        tokens = self._encode([self._items[row] for row in distinct])
        return TokenStates(*(part[position] for part in tokens))


class LiveStates:
    """What :class:`TokenStateCache` is to users, without a cache: nothing is stored, every epoch encodes again.

    Args:
        backbone: the encoders.
    """

    def __init__(self, backbone: Backbone) -> None:
        self.backbone = backbone

    def texts(self, texts: Iterable[str], *, verbose: bool = False) -> LiveStore:
        """A store of captions, keyed by caption."""
        return LiveStore({text: text for text in texts}, self.backbone.encode_text)

    def images(self, paths: Iterable[str | Path], *, verbose: bool = False) -> LiveStore | StateStore:
        """A store of images, keyed by ``backbone.image_key(path)``; the backbone's own if it has precomputed states."""
        if self.backbone.image_store is not None:
            return self.backbone.image_store
        return LiveStore({self.backbone.image_key(path): str(path) for path in paths}, self.backbone.encode_images)
