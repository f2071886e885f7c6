"""``scenes``, the embedded corpus: simple pictures rendered by the package, with captions and true triplets.

Everything is determined by split and number; nothing is downloaded.
"""

from pyterrier_grasp.datasets.scenes.drawing import render
from pyterrier_grasp.datasets.scenes.files import materialise, triplets, version_hash, write_triplets
from pyterrier_grasp.datasets.scenes.generate import PRETRAIN, SPLITS, VERSION, generate, scene
from pyterrier_grasp.datasets.scenes.scene import CANVAS, Caption, Scene, SceneObject, Triplet

__all__ = [
    "CANVAS",
    "PRETRAIN",
    "SPLITS",
    "VERSION",
    "Caption",
    "Scene",
    "SceneObject",
    "Triplet",
    "generate",
    "materialise",
    "render",
    "scene",
    "triplets",
    "version_hash",
    "write_triplets",
]
