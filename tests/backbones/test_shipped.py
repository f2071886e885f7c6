"""The shipped backbone is frozen: other weights would make the README's figures wrong."""

import hashlib
from pathlib import Path

from pyterrier_grasp import backbones

FILES = {
    "grasp_backbone.json": "f96ff9e505a902fd",
    "projections.safetensors": "3f9e01974d739641",
    "image/model.safetensors": "6603234ce09c2b5f",
    "image/preprocessor_config.json": "accd5cedcc548fce",
    "text/model.safetensors": "ca470ac050f938b3",
    "text/tokenizer.json": "e29960923549ab96",
}


def test_the_files_are_those_of_the_figures():
    folder = Path(backbones.__file__).parent / "scenes"
    assert {name: hashlib.sha256((folder / name).read_bytes()).hexdigest()[:16] for name in FILES} == FILES
