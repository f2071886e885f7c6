"""Stable ids of weights, tokenizers and settings."""

import hashlib
import json
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedTokenizerBase

from pyterrier_grasp.pretrained import UNUSED

# The settings of a configuration that change what a model computes and show in no weight. A list of our own, since
# a whole configuration gains new keys with every release of transformers.
_CONFIG_KEYS = (
    "model_type",
    "num_attention_heads",
    "num_heads",
    "hidden_act",
    "layer_norm_eps",
    "patch_size",
    "image_size",
    "num_register_tokens",
    "window_size",
    "rope_theta",
)
# Captions whose token ids tell tokenizers with one vocabulary and different rules (case, accents, splitting) apart.
_PROBES = ("A man in a Red shirt's café.", "two-dogs; 3,000 m (ÉTÉ) \U0001f600", "[SEP] <s> don't\n\tstop", "")


def digest(parts: dict[str, Any]) -> str:
    """Returns 16 hex digits for a JSON-able dict, equal in every process."""
    text = json.dumps(parts, sort_keys=True, ensure_ascii=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def hash_model(model: nn.Module) -> str:
    """Returns an id of names, shapes and float32 values of all weights that are read, and of the settings they need."""
    found = hashlib.sha256()
    config = getattr(model, "config", None)
    settings = {key: getattr(config, key, None) for key in _CONFIG_KEYS}
    found.update(json.dumps(settings, sort_keys=True, default=str).encode())
    for name, value in sorted(model.state_dict().items()):
        if any(part in name for part in UNUSED):
            continue
        array = value.detach().to("cpu", torch.float32).contiguous().numpy()
        found.update(f"{name}{array.shape}".encode())
        found.update(array.data if array.size else b"")
    return found.hexdigest()


def hash_tokenizer(tokenizer: PreTrainedTokenizerBase) -> str:
    """Returns an id of a tokenizer: its vocabulary and what it makes of a few difficult captions."""
    vocabulary = sorted(tokenizer.get_vocab().items(), key=lambda item: (item[1], item[0]))
    probes = [tokenizer(text)["input_ids"] for text in _PROBES]
    text = json.dumps([vocabulary, probes], ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()
