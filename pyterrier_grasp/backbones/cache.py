"""Token states on disk: every input goes through the frozen encoder once."""

import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout
from tqdm.auto import tqdm

from pyterrier_grasp.backbones.base import Backbone
from pyterrier_grasp.backbones.statefiles import StateFiles
from pyterrier_grasp.backbones.states import TokenStates
from pyterrier_grasp.backbones.store import StateStore

SHARD_BYTES = 64 * 2**20
SHARD_SECONDS = 30.0
_LARGEST_HALF = float(np.finfo(np.float16).max)


class TokenStateCache:
    """Token states of a backbone, in the folder ``root/<fingerprint>/<texts|images>``.

    States are stored in float16, in one growing file a modality, and committed shard by shard. Whatever is committed
    survives a kill; what came after it is cut off and encoded again. Two processes may share a folder: the second
    waits until the first has finished, and then finds the states there.

    Args:
        root: folder of all caches; made if needed.
        backbone: the encoders.
        shard_bytes: commit after so many bytes of states, or after 30 seconds.
        lock_timeout: seconds to wait for another process that fills the same cache; -1 waits for ever.
    """

    def __init__(
        self, root: str | Path, backbone: Backbone, *, shard_bytes: int = SHARD_BYTES, lock_timeout: float = -1
    ) -> None:
        self.backbone = backbone
        self.folder = Path(root).expanduser().absolute() / backbone.fingerprint
        self._shard_bytes = shard_bytes
        self._lock_timeout = lock_timeout

    def texts(self, texts: Iterable[str], *, batch_size: int = 256, verbose: bool = False) -> StateStore:
        """Encodes the captions that are not stored yet and returns a store with all of them, keyed by caption.

        Args:
            texts: captions; repeated ones are encoded once.
            batch_size: captions encoded at once.
            verbose: show a progress bar.

        Raises:
            ValueError: if a caption is not a string.
            TimeoutError: if another process held the cache for longer than ``lock_timeout``.
        """
        items: dict[str, str] = {}
        for text in texts:
            if not isinstance(text, str):
                raise ValueError(f"caption {len(items)} is {text!r}: captions must be strings")
            items[text] = text
        return self._fill("texts", items, self.backbone.text_dim, self.backbone.encode_text, batch_size, verbose)

    def images(self, paths: Iterable[str | Path], *, batch_size: int = 64, verbose: bool = False) -> StateStore:
        """Encodes the images that are not stored yet and returns a store with all of them.

        Args:
            paths: image files; repeated ones are encoded once.
            batch_size: images encoded at once.
            verbose: show a progress bar.

        Returns:
            A store keyed by ``backbone.image_key(path)``; the backbone's own one if it has precomputed states.

        Raises:
            FileNotFoundError: if a file is missing.
            ValueError: if a file is no readable image; names it. Images before it are stored.
            KeyError: if the backbone has precomputed states, and none for one of the images.
            TimeoutError: if another process held the cache for longer than ``lock_timeout``.
        """
        items = {self.backbone.image_key(path): str(path) for path in paths}
        ready = self.backbone.image_store
        if ready is not None:
            ready.rows(list(items))
            return ready
        return self._fill("images", items, self.backbone.image_dim, self.backbone.encode_images, batch_size, verbose)

    def _fill(
        self,
        modality: str,
        items: dict[str, str],
        dim: int,
        encode: Callable[[Sequence[str]], TokenStates],
        batch_size: int,
        verbose: bool,
    ) -> StateStore:
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, not {batch_size}")
        files = StateFiles(self.folder / modality, dim)
        store = files.store()
        if all(key in store for key in items):
            return store
        files.folder.mkdir(parents=True, exist_ok=True)
        with self._lock(files.folder):
            files.recover()
            store = files.store()
            missing = {key: item for key, item in items.items() if key not in store}
            self._encode(files, missing, encode, batch_size, verbose)
        return files.store()

    def _lock(self, folder: Path) -> AbstractContextManager[Any]:
        lock = FileLock(folder / "lock")
        try:
            return lock.acquire(timeout=0)
        except Timeout:
            warnings.warn(f"another process is filling {folder}: waiting for it", stacklevel=4)
        try:
            return lock.acquire(timeout=self._lock_timeout)
        except Timeout:
            raise TimeoutError(
                f"another process has been filling {folder} for more than {self._lock_timeout:g} seconds: "
                "try again when it has ended"
            ) from None

    def _encode(
        self,
        files: StateFiles,
        missing: dict[str, str],
        encode: Callable[[Sequence[str]], TokenStates],
        batch_size: int,
        verbose: bool,
    ) -> None:
        texts = files.folder.name == "texts"
        committed = time.monotonic()
        with tqdm(total=len(missing), desc=f"{files.folder.name} states", disable=not verbose) as progress:
            try:
                for keys in _batches(list(missing), batch_size, texts):
                    for done, states in _encode_safely(keys, missing, encode):
                        files.append(done, *_to_half(states, done))
                        progress.update(len(done))
                    if files.pending_bytes >= self._shard_bytes or time.monotonic() - committed > SHARD_SECONDS:
                        files.commit()
                        committed = time.monotonic()
            finally:
                # also after an error or Ctrl-C: the batches that were encoded are whole
                files.commit()


def _batches(keys: list[str], size: int, by_length: bool) -> Iterator[list[str]]:
    """Cuts keys into batches; captions of similar length go together, within chunks, so that little is padding."""
    chunk = 32 * size if by_length else size
    for start in range(0, len(keys), chunk):
        some = keys[start : start + chunk]
        if by_length:
            some = sorted(some, key=len)
        for first in range(0, len(some), size):
            yield some[first : first + size]


def _encode_safely(
    keys: list[str], items: dict[str, str], encode: Callable[[Sequence[str]], TokenStates]
) -> Iterator[tuple[list[str], TokenStates]]:
    """Encodes a batch; if an input is bad, encodes those before it alone, so that they are kept."""
    try:
        states = encode([items[key] for key in keys])
    except (ValueError, OSError):
        for key in keys:
            yield [key], encode([items[key]])
        raise
    yield keys, states


def _to_half(states: TokenStates, keys: list[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the real tokens of a batch, float16 ``[T, D]``, their number an input and which of them are special.

    Raises:
        ValueError: if a value is not finite, or too large for float16.
    """
    cpu = states.to("cpu")
    largest = cpu.states.abs().amax(dim=(1, 2))
    bad = (~(largest <= _LARGEST_HALF)).nonzero().flatten().tolist()
    if bad:
        raise ValueError(
            f"the states of {keys[bad[0]]!r} reach {largest[bad[0]].item():g}, which float16 cannot hold "
            f"(at most {_LARGEST_HALF:g}): this backbone cannot be cached"
        )
    tokens = cpu.states[cpu.mask].half().numpy()
    return tokens, cpu.mask.sum(1).numpy(), cpu.special[cpu.mask].numpy()
