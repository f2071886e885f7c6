import itertools
import json

import pytest
from PIL import Image

_ids = itertools.count()


def make_content(splits, *, coco=False, captions=2):
    """Karpathy content: ``splits`` gives the split of each image in turn."""
    images = []
    for n, split in enumerate(splits):
        folder = "train2014" if split == "train" else "val2014"
        image = {
            "filename": f"COCO_{folder}_{n:012d}.jpg" if coco else f"photo{n}.jpg",
            "imgid": n,
            "split": split,
            "sentences": [
                {"raw": f" Caption {k} of image {n}. ", "sentid": 10 * n + k, "imgid": n} for k in range(captions)
            ],
        }
        images.append({**image, "filepath": folder, "cocoid": 1000 + n} if coco else image)
    return {"dataset": "made up", "images": images}


@pytest.fixture
def content():
    return make_content


@pytest.fixture
def karpathy(tmp_path):
    """Write annotations (and, if asked, images), and return the two paths."""

    def write(content, *, images=True, nested=True):
        annotations, folder = tmp_path / "dataset.json", tmp_path / "photos"
        annotations.write_text(json.dumps(content))
        for image in content["images"] if images else []:
            path = folder / (image.get("filepath", "") if nested else "") / image["filename"]
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (4, 4)).save(path)
        return annotations, folder

    return write


@pytest.fixture
def fresh_id():
    """An id not yet registered: ir_datasets' registry lives as long as the process."""
    return f"made-up-{next(_ids)}"
