"""GRASP for PyTerrier: text-to-image retrieval with a dense and a sparse concept branch.

Public names load on first use, so that ``import pyterrier_grasp`` stays fast and imports no torch.
"""

from importlib import import_module
from typing import Any

from pyterrier_grasp import datasets

__version__ = "0.1.0"

_PUBLIC = {
    "Backbone": "backbones",
    "TokenSpace": "backbones",
    "TokenStateCache": "backbones",
    "TokenStates": "backbones",
    "ConceptSpace": "concepts",
    "DescribedDataset": "concepts",
    "OpenAIExtractor": "concepts",
    "OpenAIRefiner": "concepts",
    "RuleRefiner": "concepts",
    "SpacyExtractor": "concepts",
    "TripletFile": "concepts",
    "describe": "concepts",
    "ConceptEncoder": "encoders",
    "DenseEncoder": "encoders",
    "DocEncoder": "encoders",
    "ImageQueryEncoder": "encoders",
    "QueryEncoder": "encoders",
    "TextDocEncoder": "encoders",
    "mAP_R": "evaluation",
    "GraspIndex": "index",
    "ScoreFuser": "index",
    "ChatClient": "llm",
    "GraspModel": "model",
    "GraspTrainer": "training",
}

__all__ = ["__version__", "datasets", *_PUBLIC]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(f"pyterrier_grasp.{_PUBLIC[name]}"), name)
    raise AttributeError(f"module 'pyterrier_grasp' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)


datasets.register()
