"""The module that ``transformers.Trainer`` trains: encode a batch, gather it across processes, compute the loss."""

import torch
import torch.distributed as dist
import torch.distributed.nn.functional as dist_nn
from torch import Tensor, nn

from pyterrier_grasp.backbones import TokenStates
from pyterrier_grasp.methods import Batch, DualEncoder, Encoded, Method


class TrainingModule(nn.Module):
    """Batch -> loss. In-batch negatives come from all processes.

    Every process computes the loss of the whole global batch. The gather's backward sums gradients over processes and
    DistributedDataParallel averages them, which together is the gradient of one process with the global batch.

    Args:
        encoder: The trainable part.
        method: Gives the loss.

    Attributes:
        step: Steps done; the loop sets it, for schedules inside losses.
        progress: Share of the training's steps done, in [0, 1).
    """

    def __init__(self, encoder: DualEncoder, method: Method) -> None:
        super().__init__()
        self.encoder = encoder
        self.method = method
        self.step = 0
        self.progress = 0.0

    def forward(
        self,
        text_states: Tensor,
        text_mask: Tensor,
        text_special: Tensor,
        image_states: Tensor,
        image_mask: Tensor,
        image_special: Tensor,
        image_ids: Tensor,
        text_labels: Tensor | None = None,
        image_labels: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """``{"loss": scalar, term: scalar, ...}`` of a batch of ``B`` pairs a process; the terms are detached."""
        text = _gather_encoded(self.encoder.encode(TokenStates(text_states, text_mask, text_special), "text"))
        image = _gather_encoded(self.encoder.encode(TokenStates(image_states, image_mask, image_special), "image"))
        ids = _gather(image_ids)
        same_image = ids.unsqueeze(0) == ids.unsqueeze(1)
        same_image.fill_diagonal_(False)
        batch = Batch(
            None if text_labels is None else _gather(text_labels),
            None if image_labels is None else _gather(image_labels),
            same_image,
            self.step,
            self.progress,
        )
        # Softmaxes and BCE sums run in full precision whatever the autocast precision of the projections is.
        with torch.autocast(ids.device.type, enabled=False):
            text, image = _full_precision(text), _full_precision(image)
            terms = self.method.loss(text, image, batch, self.encoder.tau())
        return {"loss": torch.stack(list(terms.values())).sum(), **{k: v.detach() for k, v in terms.items()}}


def _distributed() -> bool:
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def _gather(tensor: Tensor) -> Tensor:
    """Rows of all processes, in rank order, with gradient."""
    if not _distributed():
        return tensor
    if tensor.requires_grad:
        return torch.cat(dist_nn.all_gather(tensor.contiguous()))
    parts = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, tensor.contiguous())
    return torch.cat(parts)


def _gather_encoded(encoded: Encoded) -> Encoded:
    if encoded.raw is None:
        return Encoded(_gather(encoded.dense))
    raw = _gather(encoded.raw)
    cut = encoded.grounding_raw
    return Encoded(_gather(encoded.dense), raw, raw if cut is None or cut is encoded.raw else _gather(cut))


def _full_precision(encoded: Encoded) -> Encoded:
    # The head computes in full precision already.
    return encoded._replace(dense=encoded.dense.to(torch.promote_types(encoded.dense.dtype, torch.float32)))
