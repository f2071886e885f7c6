"""The streams of scenes: the three splits and an unlimited one for training a backbone."""

from collections.abc import Iterator
from dataclasses import replace

from pyterrier_grasp.datasets.scenes.captions import write_captions
from pyterrier_grasp.datasets.scenes.layout import sample
from pyterrier_grasp.datasets.scenes.scene import Scene

SPLITS: dict[str, int] = {"train": 4000, "val": 500, "test": 500}
"""Images a split."""

PRETRAIN = "pretrain"
"""Name of the unlimited stream, seeded apart from the splits."""

VERSION = "scenes-1"
"""Seed of every stream. The corpus is frozen: another content needs another version."""


def scene(split: str, index: int) -> Scene:
    """Scene number ``index`` of a stream, with its captions, whatever was generated before."""
    bare = sample(VERSION, split, index)
    return replace(bare, captions=write_captions(VERSION, bare))


def generate(split: str, n: int | None = None) -> Iterator[Scene]:
    """Scenes of a split in order. Nothing is rendered.

    Args:
        split: "train", "val", "test", or "pretrain" for a stream without an end.
        n: number of scenes from the start; by default all of the split.

    Returns:
        An iterator of scenes.

    Raises:
        KeyError: for an unknown split.
        ValueError: when ``n`` is missing for "pretrain", negative, or larger than the split.
    """
    if split == PRETRAIN:
        if n is None:
            raise ValueError("the pretrain stream has no end: say how many scenes with n")
    elif split not in SPLITS:
        raise KeyError(f"scenes has no split {split!r}; choose one of {', '.join(SPLITS)} or {PRETRAIN}")
    else:
        n = SPLITS[split] if n is None else n
        if n > SPLITS[split]:
            raise ValueError(f"scenes/{split} has {SPLITS[split]} scenes, {n} were asked for")
    if n < 0:
        raise ValueError(f"n must not be negative, got {n}")
    return (scene(split, index) for index in range(n))
