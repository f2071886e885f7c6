"""The corpus as files: PNG images under the ir_datasets home, and the triplet JSONL."""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path

from tqdm import tqdm

from pyterrier_grasp.datasets.scenes.drawing import render
from pyterrier_grasp.datasets.scenes.generate import SPLITS, VERSION, generate

_COMPLETE = "complete.json"


def home() -> Path:
    """``$IR_DATASETS_HOME/scenes``, by default under ``~/.ir_datasets``."""
    return Path(os.environ.get("IR_DATASETS_HOME", "~/.ir_datasets")).expanduser() / "scenes"


@lru_cache(maxsize=1)
def version_hash() -> str:
    """Names the image folder: changes whenever the generator draws anything else.

    Returns:
        12 hexadecimal digits from the first 8 scenes of each split, description and pixels.
    """
    digest = hashlib.sha256(VERSION.encode())
    for split in SPLITS:
        for scene in generate(split, 8):
            digest.update(repr(scene).encode())
            digest.update(render(scene).tobytes())
    return digest.hexdigest()[:12]


def materialise(split: str, verbose: bool = False) -> Path:
    """Write the images of a split, unless they are there.

    Each image appears under its name only when it is whole, and a call that was interrupted is taken up where it
    stopped.

    Args:
        split: "train", "val" or "test".
        verbose: show progress.

    Returns:
        Absolute path of the folder with ``<docno>.png``.

    Raises:
        KeyError: for an unknown split.
    """
    if split not in SPLITS:
        raise KeyError(f"scenes has no split {split!r}; choose one of {', '.join(SPLITS)}")
    folder = (home() / version_hash() / split).absolute()
    marker = folder / _COMPLETE
    if marker.exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    for scene in tqdm(generate(split), total=SPLITS[split], desc=f"scenes/{split}", unit="image", disable=not verbose):
        target = folder / f"{scene.docno}.png"
        if not target.exists():
            partial = folder / f".{scene.docno}.{os.getpid()}.part"
            render(scene).save(partial, format="PNG", compress_level=1)
            os.replace(partial, target)
    partial = folder / f".{_COMPLETE}.{os.getpid()}.part"
    partial.write_text(json.dumps({"images": SPLITS[split], "version": VERSION}) + "\n", encoding="utf-8")
    os.replace(partial, marker)
    return folder


def triplets(split: str) -> Iterator[dict]:
    """True triplets of a split.

    Yields:
        ``{"sentid": qid, "imgid": docno, "triplets": [[subject, relation, object], ...]}``, one a caption.
    """
    for scene in generate(split):
        for caption in scene.captions:
            rows = [list(triplet) for triplet in caption.triplets]
            yield {"sentid": caption.qid, "imgid": scene.docno, "triplets": rows}


def write_triplets(path: str | os.PathLike, splits: Iterable[str] = tuple(SPLITS)) -> Path:
    """Write the triplets of some splits as JSONL.

    Args:
        path: file to write; replaced only when all rows are written.
        splits: names of splits, or one name.

    Returns:
        The path.
    """
    target = Path(path)
    names = [splits] if isinstance(splits, str) else list(splits)
    partial = target.with_name(f".{target.name}.{os.getpid()}.part")
    with open(partial, "w", encoding="utf-8") as out:
        for split in names:
            for row in triplets(split):
                out.write(json.dumps(row) + "\n")
    os.replace(partial, target)
    return target
