"""Loading models, tokenizers and configurations of the transformers library, with errors that say what to do."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import torch
from huggingface_hub import constants
from torch import nn
from transformers import AutoModel, AutoTokenizer, PretrainedConfig, PreTrainedTokenizerBase
from transformers.image_processing_base import ImageProcessingMixin
from transformers.utils import logging

from pyterrier_grasp.sources import resolve

T = TypeVar("T")

# Weights behind pooled outputs and masked patches are never read, so they are neither needed nor part of an identity.
UNUSED = ("pooler.", "mask_token")


def _call(load: Callable[[], T], source: str, what: str) -> T:
    """Runs ``load``, and turns what the library raises for a missing source into an error that names it."""
    try:
        return load()
    except (OSError, ValueError, RuntimeError) as error:
        if Path(source).is_dir():
            raise ValueError(f"cannot load {what} from the folder {source}: {error}") from error
        offline = " (HF_HUB_OFFLINE is set, so only the local cache was searched)" if constants.HF_HUB_OFFLINE else ""
        raise FileNotFoundError(
            f"cannot load {what} of {source!r}: there is no such folder here, and the Hugging Face hub gave nothing"
            f"{offline}. Check the name, or give the path of a folder. The library says: {error}"
        ) from error


def config_dict(source: str | Path) -> dict[str, Any]:
    """Returns the raw ``config.json`` of a folder or hub id."""
    name = resolve(source)
    if Path(name).is_dir() and not (Path(name) / "config.json").is_file():
        raise ValueError(f"the folder {name} has no config.json, so it holds no transformers model")
    return _call(lambda: PretrainedConfig.get_config_dict(name)[0], name, "the configuration")


def preprocessor_dict(source: str | Path) -> dict[str, Any]:
    """Returns the raw ``preprocessor_config.json`` of a folder or hub id."""
    name = resolve(source)
    return _call(lambda: ImageProcessingMixin.get_image_processor_dict(name)[0], name, "preprocessor_config.json")


def tokenizer(source: str | Path) -> PreTrainedTokenizerBase:
    """Returns the tokenizer of a folder or hub id, padding and truncating on the right."""
    name = resolve(source)
    found = _call(lambda: AutoTokenizer.from_pretrained(name), name, "the tokenizer")
    found.padding_side = found.truncation_side = "right"
    if found.pad_token is None:
        found.pad_token = found.eos_token
    if found.pad_token is None:
        raise ValueError(f"the tokenizer of {name} has neither a padding token nor an end token")
    return found


def model(source: str | Path, loader: Any = AutoModel, **options: Any) -> nn.Module:
    """Returns a model in float32, frozen, in evaluation mode; stored half precision is widened.

    Raises:
        ValueError: if weights that the encoder reads are missing from the files.
        FileNotFoundError: if there is no such model.
    """
    name = resolve(source)
    # Initialising weights that no file fills draws random numbers; the caller's seed must not notice.
    with torch.random.fork_rng(devices=[]), _quiet():
        found, info = _call(
            lambda: loader.from_pretrained(name, dtype=torch.float32, output_loading_info=True, **options),
            name,
            "the weights",
        )
    missing = sorted(key for key in info["missing_keys"] if not any(part in key for part in UNUSED))
    if missing:
        raise ValueError(
            f"{name} lacks {len(missing)} weights of a {type(found).__name__}, first {missing[:3]}: "
            "these would stay random. Is it a checkpoint of another architecture?"
        )
    return freeze(found)


@contextmanager
def _quiet() -> Iterator[None]:
    """Hides the library's bar over single weights and its list of unread ones; missing ones are checked for here."""
    shown, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if shown:
            logging.enable_progress_bar()


def freeze(module: nn.Module) -> nn.Module:
    """Returns ``module`` in float32 and evaluation mode, its parameters without gradients."""
    return module.float().eval().requires_grad_(False)


def read_json(path: Path) -> dict[str, Any]:
    """Returns a JSON object from a file.

    Raises:
        ValueError: if the file is not a JSON object; names it.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise ValueError(f"{path} should hold a JSON object, found {type(found).__name__}")
    return found
