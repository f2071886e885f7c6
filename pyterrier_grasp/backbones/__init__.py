"""Frozen image and text encoders behind one protocol, and the cache of their token states."""

from pyterrier_grasp.backbones.albef import AlbefBackbone
from pyterrier_grasp.backbones.base import Backbone
from pyterrier_grasp.backbones.blip import BlipBackbone
from pyterrier_grasp.backbones.cache import TokenStateCache
from pyterrier_grasp.backbones.composed import ComposedBackbone
from pyterrier_grasp.backbones.dual import DualBackbone
from pyterrier_grasp.backbones.live import LiveStates, LiveStore
from pyterrier_grasp.backbones.precomputed import StatesBackbone
from pyterrier_grasp.backbones.states import TokenStates
from pyterrier_grasp.backbones.store import StateStore
from pyterrier_grasp.backbones.token_space import TokenSpace

__all__ = [
    "AlbefBackbone",
    "Backbone",
    "BlipBackbone",
    "ComposedBackbone",
    "DualBackbone",
    "LiveStates",
    "LiveStore",
    "StateStore",
    "StatesBackbone",
    "TokenSpace",
    "TokenStateCache",
    "TokenStates",
]
