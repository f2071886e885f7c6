"""A backbone whose image states were computed elsewhere."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from typing_extensions import Self

from pyterrier_grasp.backbones.base import ImageSource
from pyterrier_grasp.backbones.composed import default_text_pool, load_text_tower
from pyterrier_grasp.backbones.hashing import digest
from pyterrier_grasp.backbones.projections import random_projections
from pyterrier_grasp.backbones.states import TokenStates
from pyterrier_grasp.backbones.store import StateStore
from pyterrier_grasp.backbones.tower_backbone import TowerBackbone
from pyterrier_grasp.ids import first_repeated
from pyterrier_grasp.sources import resolve

_SAMPLE_ROWS = 64


class StatesBackbone(TowerBackbone):
    """Image states from a folder, found by file name, and a text encoder.

    The folder holds ``states.npy`` (float16 or float32 ``[n, L, D]``, memory-mapped), ``ids.txt`` (n lines, the file
    name of each row) and ``meta.json`` (how they were computed).

    Args:
        states: the folder.
        text: folder or hub id of a transformers or sentence-transformers text model.
        embed_dim: width of the common space that the projections lead to.
        image_pool: "mean", or "cls" if the first state of every image is a CLS token.
        text_pool: "cls" or "mean"; by default as a sentence-transformers folder says, else "mean".
        temperature: initial temperature of the contrastive loss.
        seed: of the random initial projections.
        max_text_length: longer captions are cut to this many tokens.
        device: where captions are encoded and image states are brought to.

    Raises:
        FileNotFoundError: if a folder or one of its files is missing.
        ValueError: if the states are incomplete or do not fit each other.
    """

    kind = "states"

    def __init__(
        self,
        states: str | Path,
        text: str | Path,
        *,
        embed_dim: int = 256,
        image_pool: str = "mean",
        text_pool: str | None = None,
        temperature: float = 0.07,
        seed: int = 0,
        max_text_length: int | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        folder = Path(states).expanduser().absolute()
        self._array, self._names = _read_states(folder)
        n, length, dim = self._array.shape
        special = None
        if image_pool == "cls":
            special = np.zeros((n, length), bool)
            special[:, 0] = True
        self._store = StateStore(
            self._array.reshape(n * length, dim),
            np.arange(n + 1, dtype=np.int64) * length,
            self._names,
            None if special is None else special.reshape(-1),
            str(folder),
        )
        self._text_source = resolve(text)
        self._text = load_text_tower(self._text_source, max_text_length)
        self._seed = seed
        super().__init__(
            source=str(folder),
            text_dim=self._text.dim,
            image_dim=dim,
            embed_dim=embed_dim,
            text_pool=text_pool or default_text_pool(self._text_source),
            image_pool=image_pool,
            temperature=temperature,
            device=device,
        )
        self._projections = random_projections(self.text_dim, dim, self.embed_dim, seed)

    def spec(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "states": self.source,
            "text": self._text_source,
            "embed_dim": self.embed_dim,
            "image_pool": self.image_pool,
            "text_pool": self.text_pool,
            "temperature": self.temperature,
            "seed": self._seed,
            "max_text_length": self._text.max_length,
        }

    def encode_images(self, images: Sequence[ImageSource]) -> TokenStates:
        """Looks up the states of images by file name.

        Raises:
            KeyError: for an image without precomputed states; names it.
            ValueError: for a PIL image that was not opened from a file.
        """
        return self._store.batch(self._store.rows([self._key(image) for image in images])).to(self.device)

    def _key(self, image: ImageSource) -> str:
        if isinstance(image, Image.Image):
            name = getattr(image, "filename", "")
            if not name:
                raise ValueError(
                    f"this backbone has no image encoder, only the states of {len(self._store)} files in "
                    f"{self.source}: it cannot encode an image that has no file name"
                )
            return Path(name).name
        return self.image_key(image)

    def image_key(self, path: str | Path) -> str:
        """Returns the file name, by which precomputed states are found."""
        return Path(path).name

    @property
    def image_store(self) -> StateStore:
        """The precomputed states, keyed by file name."""
        return self._store

    def to(self, device: torch.device | str) -> Self:
        self._text.model.to(device)
        return self

    def _compute_fingerprint(self) -> str:
        return digest(
            {
                "kind": self.kind,
                "image": _hash_states(self._array, self._names),
                "text": self._text.fingerprint(),
                "embed_dim": self.embed_dim,
                "pools": [self.text_pool, self.image_pool],
            }
        )


def _read_states(folder: Path) -> tuple[np.ndarray, list[str]]:
    """Opens a folder of states after checking that it is complete."""
    if not folder.is_dir():
        raise FileNotFoundError(f"no folder of precomputed states {folder}")
    absent = [name for name in ("states.npy", "ids.txt", "meta.json") if not (folder / name).is_file()]
    progress = folder / "progress.txt"
    done = progress.read_text(encoding="utf-8").strip() if progress.is_file() else ""
    if absent and done:
        raise ValueError(f"{folder} is incomplete: {done} images are done, {', '.join(absent)} not written yet")
    if absent:
        raise FileNotFoundError(f"{folder} lacks {', '.join(absent)}, so it is no folder of precomputed states")
    try:
        array = np.load(folder / "states.npy", mmap_mode="r")
    except (ValueError, EOFError) as error:
        raise ValueError(f"{folder / 'states.npy'} is no complete numpy array: {error}") from error
    if array.ndim != 3 or array.dtype not in (np.float16, np.float32) or 0 in array.shape:
        raise ValueError(
            f"{folder / 'states.npy'} must be float16 or float32 [n, L, D], found {array.dtype} {list(array.shape)}"
        )
    if not array.flags.c_contiguous:
        raise ValueError(f"{folder / 'states.npy'} is in Fortran order: save it again with np.ascontiguousarray")
    names = (folder / "ids.txt").read_text(encoding="utf-8").splitlines()
    if len(names) != len(array):
        raise ValueError(f"{folder}: ids.txt has {len(names)} lines, but states.npy has {len(array)} rows")
    if done.isdigit() and int(done) < len(names):
        raise ValueError(f"{folder} is incomplete: progress.txt says that {done} of {len(names)} images are done")
    twice = first_repeated(names)
    if twice is not None:
        raise ValueError(f"{folder / 'ids.txt'} has the file name {twice!r} twice")
    return array, names


def _hash_states(array: np.ndarray, names: list[str]) -> str:
    """Returns an id of shape, names and evenly spaced rows: reading all of a large file would take too long."""
    found = hashlib.sha256(f"{array.shape}{array.dtype}".encode())
    found.update("\n".join(names).encode())
    for row in np.unique(np.linspace(0, len(array) - 1, min(_SAMPLE_ROWS, len(array))).astype(int)):
        found.update(np.ascontiguousarray(array[row]).tobytes())
    return found.hexdigest()
