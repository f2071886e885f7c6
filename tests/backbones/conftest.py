"""Small random encoders on disk, written once a session."""

import json
import os

# read when the hub's library is imported, so it must come first
os.environ["HF_HUB_OFFLINE"] = "1"

import pytest
import torch
from PIL import Image
from transformers import (
    BertConfig,
    BertModel,
    BertTokenizer,
    BlipConfig,
    BlipForImageTextRetrieval,
    ConvNextConfig,
    ConvNextModel,
    Dinov2Config,
    Dinov2Model,
    ViTConfig,
    ViTModel,
)

WORDS = "a man woman dog cat in on the red blue shirt runs sits two of with grass beach word and near jumping".split()
VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz.,'!?-", *WORDS[1:]]
NORMALISE = {"image_mean": [0.5, 0.4, 0.3], "image_std": [0.2, 0.25, 0.3]}


def write_tokenizer(folder):
    (folder / "vocab.txt").write_text("\n".join(VOCAB) + "\n")
    BertTokenizer.from_pretrained(folder, model_max_length=512).save_pretrained(folder)


def write_preprocessor(folder, **keys):
    settings = {"size": {"height": 32, "width": 32}, "resample": 3, **NORMALISE, **keys}
    (folder / "preprocessor_config.json").write_text(json.dumps(settings))


@pytest.fixture(scope="session")
def encoders(tmp_path_factory):
    """A folder with vit, dinov2, convnext and bert."""
    root = tmp_path_factory.mktemp("encoders")
    small = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    torch.manual_seed(1)
    models = {
        "vit": ViTModel(ViTConfig(image_size=32, patch_size=8, intermediate_size=32, **small)),
        "dinov2": Dinov2Model(Dinov2Config(image_size=28, patch_size=7, mlp_ratio=2, **small)),
        "convnext": ConvNextModel(ConvNextConfig(hidden_sizes=[8, 8, 8, 12], depths=[1, 1, 1, 1])),
        "bert": BertModel(BertConfig(vocab_size=len(VOCAB), intermediate_size=32, **small)),
    }
    for name, model in models.items():
        model.save_pretrained(root / name)
        if name == "bert":
            write_tokenizer(root / name)
        else:
            write_preprocessor(root / name)
    return root


@pytest.fixture(scope="session")
def blip_folder(tmp_path_factory):
    """A small BLIP retrieval model that states its number of text heads."""
    folder = tmp_path_factory.mktemp("blip")
    torch.manual_seed(2)
    text = {"vocab_size": len(VOCAB) + 2, "hidden_size": 24, "encoder_hidden_size": 24, "intermediate_size": 48}
    vision = {"hidden_size": 24, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 3}
    config = BlipConfig(
        text_config={**text, "num_hidden_layers": 2, "num_attention_heads": 4, "bos_token_id": len(VOCAB)},
        vision_config={**vision, "image_size": 32, "patch_size": 8},
        image_text_hidden_size=10,
    )
    model = BlipForImageTextRetrieval(config)
    with torch.no_grad():
        # the library starts BLIP with weights around 1e-10, which would make all images alike
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight), alpha=0.2)
    model.save_pretrained(folder)
    write_tokenizer(folder)
    return folder


@pytest.fixture(scope="session")
def photos(tmp_path_factory):
    """Six different images of different shapes."""
    folder = tmp_path_factory.mktemp("photos")
    generator = torch.Generator().manual_seed(3)
    paths = []
    for number in range(6):
        shape = (30 + 9 * number, 70 - 7 * number, 3)
        pixels = torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8).numpy()
        paths.append(folder / f"photo{number}.png")
        Image.fromarray(pixels).save(paths[-1])
    return paths
