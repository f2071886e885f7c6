"""Vectors of phrases, from a sentence-transformers model or any function."""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tqdm.auto import tqdm

from pyterrier_grasp.concepts.storage import digest
from pyterrier_grasp.sources import resolve

Embedder = Callable[[list[str]], Any]

#: The paper's model for phrases (section 4, implementation details).
DEFAULT = "sentence-transformers/all-MiniLM-L6-v2"

_CALL = 1024  # phrases a call of the embedder
_BATCH = 128  # phrases a forward pass; on 2 cores 64 to 256 are equally fast
_TINY = 1e-12  # a shorter vector has no direction


def embedder(spec: str | Path | Embedder = DEFAULT) -> Embedder:
    """Turn a description of an embedder into a function.

    Args:
        spec: Hub id or folder of a sentence-transformers model (or of a transformers text encoder, which is then
            mean-pooled), or a function from a list of n strings to an array ``[n, D]``, which is returned as it is.

    Returns:
        The function.

    Raises:
        FileNotFoundError: If there is no such model, or the hub cannot be reached and the model is not on disk.
        ValueError: If the folder holds no such model, or ``spec`` is something else.
    """
    if isinstance(spec, str | Path):
        return _sentence_transformer(str(spec))
    if not callable(spec) or hasattr(spec, "encode"):
        hint = " (pass its method encode)" if hasattr(spec, "encode") else ""
        raise ValueError(f"an embedder is a hub id, a folder, or a function of a list of strings; got {spec!r}{hint}")
    return spec


def name_of(spec: str | Path | Embedder = DEFAULT) -> str:
    """The name of an embedder in the settings of a build; nothing is loaded.

    Args:
        spec: As for :func:`embedder`.

    Returns:
        A hub id as it is; for a folder, its name and a checksum of its configuration, tokenizer and weights, wherever
        it lies; for a function, its module and name, so that a change inside it goes unnoticed.

    Raises:
        FileNotFoundError: If ``spec`` can only be a folder and is not there.
    """
    if not isinstance(spec, str | Path):
        named = spec if hasattr(spec, "__qualname__") else type(spec)
        return f"{named.__module__}.{named.__qualname__}"
    folder = _folder(str(spec))
    if folder is None:
        return str(spec)
    found = hashlib.sha256()
    for file in sorted(folder.rglob("*")):
        if file.is_file() and file.suffix in (".json", ".txt", ".model", ".safetensors", ".bin"):
            found.update(f"{file.relative_to(folder).as_posix()} {digest(file)}\n".encode())
    return f"{folder.name}@{found.hexdigest()[:16]}"


def embed(phrases: Sequence[str], embedder: Embedder, *, verbose: bool = False) -> np.ndarray:
    """Embed phrases.

    Args:
        phrases: The phrases.
        embedder: Function from a list of n strings to an array ``[n, D]``; called with up to 1,024 of them at a time.
        verbose: Whether to show progress.

    Returns:
        float32 ``[n, D]``, each row of L2 norm 1; ``[0, 0]`` for no phrases.

    Raises:
        ValueError: If a phrase is no string, or the embedder returns something else than one finite vector of constant
            width, other than zero, for each phrase.
    """
    wrong = next((phrase for phrase in phrases if not isinstance(phrase, str)), None)
    if wrong is not None:
        raise ValueError(f"a phrase must be a string, got {wrong!r}")
    vectors = np.zeros((0, 0), np.float32)
    with tqdm(total=len(phrases), desc="embedding", unit="phrase", disable=not verbose) as bar:
        for start in range(0, len(phrases), _CALL):
            batch = list(phrases[start : start + _CALL])
            found = _checked(embedder(batch), batch)
            if not start:
                vectors = np.empty((len(phrases), found.shape[1]), np.float32)
            if found.shape[1] != vectors.shape[1]:
                raise ValueError(
                    f"the embedder gave vectors of width {vectors.shape[1]}, then of width {found.shape[1]} for "
                    f"{batch[0]!r} and those after it"
                )
            vectors[start : start + len(batch)] = found
            bar.update(len(batch))
    return vectors


def _checked(output: Any, batch: list[str]) -> np.ndarray:
    """The normalised vectors of a batch, float64."""
    try:
        vectors = np.asarray(output.detach().cpu() if hasattr(output, "detach") else output, np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"the embedder gave no array of numbers for {batch[:2]}...: {error}") from error
    if vectors.ndim != 2 or len(vectors) != len(batch) or not vectors.shape[1]:
        raise ValueError(
            f"the embedder must give one vector for each phrase: for {len(batch)} phrases it gave the shape "
            f"{vectors.shape} instead of ({len(batch)}, width)"
        )
    finite = np.isfinite(vectors).all(1)
    if not finite.all():
        raise ValueError(f"the embedder gave a vector with NaN or infinity for {batch[int(finite.argmin())]!r}")
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    if norms.min() < _TINY:
        raise ValueError(
            f"the embedder gave the zero vector for {batch[int(norms.argmin())]!r}, which has no direction; leave such "
            "phrases out or use another embedder"
        )
    return vectors / norms


def _folder(name: str) -> Path | None:
    """The folder that ``name`` stands for, or None for a hub id."""
    path = Path(resolve(name))
    return path if path.is_dir() else None


def _sentence_transformer(name: str) -> Embedder:
    folder = _folder(name)
    from sentence_transformers import SentenceTransformer
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # the library's bar over single weights
    try:
        model = SentenceTransformer(str(folder or name))
    except (OSError, ValueError, RuntimeError, AttributeError, KeyError) as error:
        if folder:
            raise ValueError(f"cannot load an embedder from the folder {folder}: {error}") from error
        raise FileNotFoundError(
            f"cannot load the embedder {name!r}: it is neither a folder nor in the local cache, and the Hugging Face "
            f"hub gave nothing. Check the name and the connection, or give a folder. The library says: {error}"
        ) from error
    finally:
        if shown:
            logging.enable_progress_bar()

    def encode(phrases: list[str]) -> Any:
        # half a surrogate pair is no valid Unicode and stops tokenizers written in Rust
        clean = [phrase.encode("utf-8", "replace").decode("utf-8") for phrase in phrases]
        return model.encode(clean, batch_size=_BATCH, show_progress_bar=False)

    return encode
