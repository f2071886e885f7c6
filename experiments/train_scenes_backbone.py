"""Trains the tiny backbone that the package ships for ``scenes``.

Both towers learn from captions alone, with the symmetric contrastive loss (InfoNCE) between pooled vectors: no concept
labels, no triplets, and none of the images of train, val or test. The validation split only measures.

    python -m experiments.train_scenes_backbone --out RUN --seed 0

writes ``RUN/backbone`` (the folder shipped as ``pyterrier_grasp/backbones/scenes``) and ``RUN/metrics.json``.
"""

import argparse
import json
import math
import re
import shutil
import subprocess
import tempfile
import time
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from random import Random

import numpy as np
import torch
from PIL import Image
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from torch import Tensor, nn
from torch.nn import functional
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast, ResNetConfig, ResNetModel

from pyterrier_grasp.backbones.composed import ComposedBackbone
from pyterrier_grasp.datasets import scenes
from pyterrier_grasp.datasets.scenes.captions import describe

FAMILY = 4
"""Neighbouring scenes of the generator share most attributes; batches of whole families give hard negatives."""

MAX_WORDS = 64
CLOSEUP = 48
"""Side of a picture of a single object in pixels."""

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def build_tokenizer(texts: list[str]) -> PreTrainedTokenizerFast:
    """A word-level tokenizer over the words of the captions; anything else becomes ``[UNK]``."""
    words = sorted({word for text in texts for word in re.findall(r"\w+|[^\w\s]", text.lower())})
    vocabulary = {word: index for index, word in enumerate((*SPECIAL, *words))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=MAX_WORDS,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
    )


class Towers(nn.Module):
    """The two towers and their projections.

    Args:
        vocabulary: number of words of the tokenizer.
        embed_dim: size of the shared space.
    """

    def __init__(self, vocabulary: int, embed_dim: int) -> None:
        super().__init__()
        self.image = ResNetModel(
            ResNetConfig(embedding_size=24, hidden_sizes=[32, 64, 160], depths=[1, 1, 1], layer_type="basic")
        )
        self.text = BertModel(
            BertConfig(
                vocab_size=vocabulary,
                hidden_size=96,
                num_hidden_layers=2,
                num_attention_heads=4,
                intermediate_size=256,
                max_position_embeddings=MAX_WORDS,
                hidden_dropout_prob=0.0,
                attention_probs_dropout_prob=0.0,
            ),
            add_pooling_layer=False,
        )
        self.image_projection = nn.Linear(160, embed_dim)
        self.text_projection = nn.Linear(96, embed_dim)
        self.log_scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))

    def encode_images(self, pixels: Tensor) -> Tensor:
        """uint8 ``[B, 96, 96, 3]`` to L2-normalised ``[B, embed_dim]``; the mean of the patch states, projected."""
        values = (pixels.permute(0, 3, 1, 2).float() / 255 - 0.5) / 0.5
        states = self.image(values.contiguous(memory_format=torch.channels_last)).last_hidden_state
        return functional.normalize(self.image_projection(states.mean((2, 3))), dim=1)

    def encode_text(self, ids: Tensor) -> Tensor:
        """Padded ids ``[B, L]`` to L2-normalised ``[B, embed_dim]``; the mean of all real tokens, projected."""
        mask = ids != 0
        states = self.text(input_ids=ids, attention_mask=mask.long()).last_hidden_state
        weight = mask.unsqueeze(2).float()
        return functional.normalize(self.text_projection((states * weight).sum(1) / weight.sum(1)), dim=1)


def draw(split: str, count: int | None = None) -> tuple[np.ndarray, list[list[str]]]:
    """Pixels uint8 ``[n, 96, 96, 3]`` and the captions of each image."""
    total = scenes.SPLITS[split] if count is None else count
    pixels = np.empty((total, scenes.CANVAS, scenes.CANVAS, 3), dtype=np.uint8)
    captions = []
    for row, scene in enumerate(scenes.generate(split, count)):
        pixels[row] = np.asarray(scenes.render(scene))
        captions.append([caption.text for caption in scene.captions])
    return pixels, captions


def draw_closeups(count: int, seed: int) -> tuple[np.ndarray, list[list[str]]]:
    """Single objects of the pretrain stream in the middle of a small picture, with noun phrases as captions.

    Shapes are learnt far faster from these than from whole scenes, at a quarter of the cost an image.

    Returns:
        Pixels uint8 ``[n, 48, 48, 3]`` and five captions of each.
    """
    rng = Random(seed)
    pixels = np.empty((count, CLOSEUP, CLOSEUP, 3), dtype=np.uint8)
    captions = []
    low, middle = (scenes.CANVAS - CLOSEUP) // 2, scenes.CANVAS // 2
    for row, scene in enumerate(scenes.generate(scenes.PRETRAIN, count)):
        item = scene.objects[int(rng.random() * len(scene.objects))]
        item = replace(item, x=middle + int(rng.random() * 5) - 2, y=middle + int(rng.random() * 5) - 2)
        image = scenes.render(replace(scene, objects=(item,), placed=()))
        pixels[row] = np.asarray(image.crop((low, low, low + CLOSEUP, low + CLOSEUP)))
        captions.append([describe(rng, item, 1.0).text for _ in range(5)])
    return pixels, captions


def token_ids(tokenizer: PreTrainedTokenizerFast, texts: list[str]) -> Tensor:
    """Padded ids ``[B, L]``; 0 is the pad."""
    return tokenizer(texts, padding=True, truncation=True, return_tensors="pt")["input_ids"]


@torch.no_grad()
def recall_at_1(towers: Towers, tokenizer: PreTrainedTokenizerFast, pixels: np.ndarray, captions: list) -> float:
    """Share of captions whose own image scores highest in the whole gallery."""
    towers.eval()
    images = torch.cat(
        [towers.encode_images(torch.from_numpy(pixels[at : at + 250])) for at in range(0, len(pixels), 250)]
    )
    texts = towers.encode_text(token_ids(tokenizer, [text for texts in captions for text in texts]))
    owner = torch.arange(len(captions)).repeat_interleave(len(captions[0]))
    towers.train()
    return float(((texts @ images.T).argmax(1) == owner).float().mean())


def batches(rng: np.random.Generator, count: int, size: int, families: bool) -> list[np.ndarray]:
    """One epoch of rows, in batches of random images or of random whole families."""
    if families:
        order = (rng.permutation(count // FAMILY)[:, None] * FAMILY + np.arange(FAMILY)).ravel()
    else:
        order = rng.permutation(count)
    return [order[at : at + size] for at in range(0, len(order) - size + 1, size)]


def save(towers: Towers, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Write the backbone folder, weights in float16; it takes its name only when it is whole."""
    preprocessing = {
        "image_processor_type": "ViTImageProcessor",
        "do_resize": True,
        "size": {"height": scenes.CANVAS, "width": scenes.CANVAS},
        "resample": int(Image.Resampling.BICUBIC),
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
    }
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        parts = Path(temporary)
        towers.image.save_pretrained(parts / "image")
        (parts / "image" / "preprocessor_config.json").write_text(json.dumps(preprocessing) + "\n")
        towers.text.save_pretrained(parts / "text")
        tokenizer.save_pretrained(parts / "text")
        backbone = ComposedBackbone(
            parts / "image",
            parts / "text",
            embed_dim=towers.text_projection.out_features,
            image_pool="mean",
            text_pool="mean",
            temperature=round((-towers.log_scale.detach()).exp().item(), 4),
        )
        backbone.save(
            parts / "whole",
            half=True,
            text_projection=towers.text_projection,
            image_projection=towers.image_projection,
        )
        shutil.rmtree(folder, ignore_errors=True)
        (parts / "whole").rename(folder)


def contrastive_loss(towers: Towers, pixels: np.ndarray, ids: Tensor) -> Tensor:
    """Symmetric InfoNCE, averaged over the captions drawn for each image.

    Args:
        towers: the model.
        pixels: uint8 ``[B, side, side, 3]``.
        ids: padded ids ``[B, captions, L]``.
    """
    images = towers.encode_images(torch.from_numpy(pixels))
    ids = ids[:, :, : int((ids != 0).sum(2).max())]
    texts = towers.encode_text(ids.reshape(-1, ids.shape[2])).view(*ids.shape[:2], -1)
    scale = towers.log_scale.exp().clamp(2, 100)
    target = torch.arange(len(images))
    terms = []
    for number in range(ids.shape[1]):
        scores = scale * texts[:, number] @ images.T
        terms.append(functional.cross_entropy(scores, target) + functional.cross_entropy(scores.T, target))
    return torch.stack(terms).mean() / 2


def train(options: argparse.Namespace) -> dict:
    """Train and save; returns what ``metrics.json`` holds."""
    torch.manual_seed(options.seed)
    torch.set_num_threads(options.threads)
    rng = np.random.default_rng(options.seed)
    started = time.time()
    val_pixels, val_captions = draw("val")
    close_pixels, close_captions = draw_closeups(options.images, options.seed)
    pixels, captions = draw(scenes.PRETRAIN, options.images)
    print(f"drew the images in {time.time() - started:.0f} s", flush=True)

    tokenizer = build_tokenizer([text for texts in captions for text in texts])
    towers = Towers(len(tokenizer), options.embed_dim)
    towers.image.to(memory_format=torch.channels_last)  # type: ignore[call-arg]
    decay = [p for p in towers.parameters() if p.ndim > 1]
    plain = [p for p in towers.parameters() if p.ndim <= 1]
    groups = [{"params": decay, "weight_decay": 0.05}, {"params": plain, "weight_decay": 0.0}]
    optimiser = torch.optim.AdamW(groups, lr=options.lr)
    total = options.closeup_steps + options.steps
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, options.lr, total_steps=total, pct_start=0.08, final_div_factor=100
    )
    history: list[dict] = []
    # Whole families come last: they are hard negatives, useless before shapes and colours are known.
    hard = options.steps // 5
    stages = (
        (close_pixels, close_captions, options.closeup_steps, False),
        (pixels, captions, options.steps - hard, False),
        (pixels, captions, hard, True),
    )
    step = 0
    for images, texts, steps, families in stages:
        ids = token_ids(tokenizer, [text for five in texts for text in five]).view(len(texts), len(texts[0]), -1)
        queue: list[np.ndarray] = []
        for _ in range(steps):
            queue = queue or batches(rng, len(images), options.batch_size, families)
            rows = queue.pop()
            chosen = rng.permuted(np.tile(np.arange(ids.shape[1]), (len(rows), 1)), axis=1)[:, :2]
            loss = contrastive_loss(
                towers, images[rows], ids[torch.from_numpy(rows)[:, None], torch.from_numpy(chosen)]
            )
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(towers.parameters(), 1.0)
            optimiser.step()
            schedule.step()
            step += 1
            if step % options.every == 0 or step == total:
                recall = recall_at_1(towers, tokenizer, val_pixels, val_captions)
                seconds = round(time.time() - started, 1)
                history.append({"step": step, "loss": loss.item(), "val_r1": recall, "seconds": seconds})
                print(json.dumps(history[-1]), flush=True)
                save(towers, tokenizer, options.out / "backbone")
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    settings = {key: str(value) if isinstance(value, Path) else value for key, value in vars(options).items()}
    return {
        "seed": options.seed,
        "settings": settings,
        "val_r1": history[-1]["val_r1"],
        "history": history,
        "parameters": sum(p.numel() for p in towers.parameters()),
        "versions": {name: version(name) for name in ("torch", "transformers", "tokenizers", "numpy", "pillow")},
        "commit": commit,
    }


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for the backbone and metrics.json")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--images", type=int, default=24000, help="scenes of the pretrain stream")
    parser.add_argument("--steps", type=int, default=2000, help="steps on whole scenes")
    parser.add_argument("--closeup-steps", type=int, default=600, help="steps on single objects before that")
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--embed-dim", type=int, default=64)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--every", type=int, default=100, help="steps between measurements")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    metrics = train(options)
    (options.out / "metrics.json").write_text(json.dumps(metrics, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
