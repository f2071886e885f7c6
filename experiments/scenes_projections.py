"""Fits the shipped projections of the ``scenes`` backbone: small ones, on its frozen towers.

The towers come from ``experiments.train_scenes_backbone``. Their pooled states of the pretrain stream are projected to
a few dimensions with the symmetric contrastive loss, again from captions alone. The validation split only measures.

    python -m experiments.scenes_projections --backbone TOWERS --embed-dim 16 --out RUN
"""

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from experiments.report import Report, parser
from pyterrier_grasp.backbones import ComposedBackbone
from pyterrier_grasp.datasets import scenes
from pyterrier_grasp.methods.losses import contrastive


def towers(folder: Path, embed_dim: int, temperature: float = 0.07) -> ComposedBackbone:
    """The towers of a backbone folder, with mean pooling and no projections of their own."""
    return ComposedBackbone(
        folder / "image",
        folder / "text",
        embed_dim=embed_dim,
        image_pool="mean",
        text_pool="mean",
        temperature=temperature,
    )


def pooled_states(backbone: ComposedBackbone, split: str, n: int | None = None) -> tuple[Tensor, Tensor]:
    """Mean states of the images, float ``[n, D]``, and of their captions, ``[n, captions, D]``."""
    images, texts = [], []
    made = list(scenes.generate(split, n))
    for start in range(0, len(made), 200):
        part = made[start : start + 200]
        images.append(backbone.encode_images([scenes.render(scene) for scene in part]).pooled("mean"))
        captions = [caption.text for scene in part for caption in scene.captions]
        texts.append(backbone.encode_text(captions).pooled("mean").view(len(part), -1, backbone.text_dim))
    return torch.cat(images), torch.cat(texts)


@torch.no_grad()
def recall_at_1(image_projection: nn.Linear, text_projection: nn.Linear, images: Tensor, texts: Tensor) -> float:
    """Share of captions whose own image scores highest in the whole gallery."""
    owner = torch.arange(len(images)).repeat_interleave(texts.shape[1])
    scores = F.normalize(text_projection(texts.flatten(0, 1)), dim=1) @ F.normalize(image_projection(images), dim=1).T
    return float((scores.argmax(1) == owner).float().mean())


def fit(images: Tensor, texts: Tensor, embed_dim: int, steps: int, seed: int) -> tuple[nn.Linear, nn.Linear, float]:
    """Image projection, text projection and temperature."""
    torch.manual_seed(seed)
    image_projection, text_projection = nn.Linear(images.shape[1], embed_dim), nn.Linear(texts.shape[2], embed_dim)
    log_scale = nn.Parameter(torch.tensor(3.0))
    parameters = [*image_projection.parameters(), *text_projection.parameters(), log_scale]
    optimiser = torch.optim.AdamW(parameters, lr=3e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 3e-3, total_steps=steps)
    for _ in range(steps):
        rows, captions = torch.randint(len(images), (256,)), torch.randint(texts.shape[1], (256,))
        dense_i = F.normalize(image_projection(images[rows]), dim=1)
        dense_t = F.normalize(text_projection(texts[rows, captions]), dim=1)
        loss = contrastive(log_scale.exp().clamp(2, 100) * dense_t @ dense_i.T)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    return image_projection, text_projection, float((-log_scale.detach()).exp())


def main() -> None:
    """Run the experiment."""
    arguments = parser(__doc__, "scenes_projections")
    arguments.add_argument("--backbone", type=Path, required=True, help="folder of the trained backbone")
    arguments.add_argument("--embed-dim", type=int, default=16, help="dimensions of the dense vectors (%(default)s)")
    arguments.add_argument("--images", type=int, default=24_000, help="scenes of the pretrain stream (%(default)s)")
    arguments.add_argument("--steps", type=int, default=1500, help="steps (%(default)s)")
    args = arguments.parse_args()
    report = Report(args)
    backbone = towers(args.backbone, args.embed_dim)

    report.step("pooled states of the pretrain stream and of scenes/val")
    images, texts = pooled_states(backbone, scenes.PRETRAIN, args.images)
    val_images, val_texts = pooled_states(backbone, "val")
    report.step("fitting the projections")
    image_projection, text_projection, temperature = fit(images, texts, args.embed_dim, args.steps, args.seed)
    recall = recall_at_1(image_projection, text_projection, val_images, val_texts)
    report.add("val_r1", recall)
    shipped = towers(args.backbone, args.embed_dim, round(temperature, 4))
    shipped.save(report.out / "backbone", half=True, text_projection=text_projection, image_projection=image_projection)
    report.step(f"R@1 on scenes/val {100 * recall:.1f} %; the backbone is in {report.out / 'backbone'}")


if __name__ == "__main__":
    main()
