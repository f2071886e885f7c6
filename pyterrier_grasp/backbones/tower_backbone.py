"""What backbones with towers of their own share."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from typing_extensions import Self

from pyterrier_grasp.backbones.base import Backbone, ImageSource
from pyterrier_grasp.backbones.projections import copy_linear
from pyterrier_grasp.backbones.states import TokenStates
from pyterrier_grasp.backbones.towers import ImageTower, TextTower


class TowerBackbone(Backbone):
    """A backbone that encodes with one tower a modality; a subclass sets these attributes in its constructor.

    Attributes:
        _text: the text tower.
        _image: the image tower; a subclass without one has its own ``encode_images`` and ``to``.
        _projections: the initial projections of captions and of images.
    """

    _text: TextTower
    _image: ImageTower
    _projections: tuple[nn.Linear, nn.Linear]

    def encode_text(self, texts: Sequence[str]) -> TokenStates:
        return self._text.encode(texts)

    def encode_images(self, images: Sequence[ImageSource]) -> TokenStates:
        return self._image.encode(images)

    def text_projection(self) -> nn.Linear:
        return copy_linear(self._projections[0])

    def image_projection(self) -> nn.Linear:
        return copy_linear(self._projections[1])

    def token_names(self) -> list[str]:
        return self._text.token_names()

    def token_ids(self, texts: Sequence[str]) -> list[list[int]]:
        return self._text.token_ids(texts)

    @property
    def special_ids(self) -> frozenset[int]:
        return frozenset(self._text.tokenizer.all_special_ids)

    def word_embeddings(self) -> Tensor:
        return self._text.word_embeddings()

    def to(self, device: torch.device | str) -> Self:
        self._image.model.to(device)
        self._text.model.to(device)
        return self

    @property
    def device(self) -> torch.device:
        return self._text.device
