"""CLIP, SigLIP and SigLIP 2 against transformers' own features of the same small random models."""

import json

import numpy as np
import pytest
import torch
from PIL import Image
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    AutoModel,
    CLIPConfig,
    CLIPModel,
    CLIPTokenizer,
    PreTrainedTokenizerFast,
    Siglip2Config,
    Siglip2Model,
    SiglipConfig,
    SiglipModel,
)

from pyterrier_grasp.backbones import Backbone, DualBackbone, TokenSpace, TokenStateCache
from pyterrier_grasp.backbones.naflex import patch_grid

CAPTIONS = ["A man runs", "two Dogs on the beach near the water", "", "beach " * 40]
MEAN, STD = [0.5, 0.4, 0.3], [0.2, 0.25, 0.3]
SMALL = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}


def write_clip_tokenizer(folder, length):
    letters = list("abcdefghijklmnopqrstuvwxyz")
    merges = ["d o", "do g</w>", "b e", "m a", "ma n</w>"]
    tokens = [*letters, *(f"{letter}</w>" for letter in letters), *("".join(m.split()) for m in merges)]
    vocabulary = {token: i for i, token in enumerate([*tokens, "<|startoftext|>", "<|endoftext|>"])}
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *merges]) + "\n")
    CLIPTokenizer.from_pretrained(folder, model_max_length=length).save_pretrained(folder)
    return len(vocabulary)


def write_siglip_tokenizer(folder, length):
    words = ["<pad>", "</s>", "<unk>", *"a man runs two dogs on the beach near water".split()]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    # as in the released ones, captions are padded with the end token
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="</s>", pad_token="</s>", unk_token="<unk>", model_max_length=length
    ).save_pretrained(folder)
    return len(words)


@pytest.fixture(scope="module", params=["clip", "siglip", "siglip2"])
def folder(request, tmp_path_factory):
    path = tmp_path_factory.mktemp(request.param)
    torch.manual_seed(4)
    vision = {**SMALL, "image_size": 32, "patch_size": 8}
    settings = {"size": {"height": 32, "width": 32}, "image_mean": MEAN, "image_std": STD, "resample": 3}
    if request.param == "clip":
        rows = write_clip_tokenizer(path, 20)
        settings |= {"crop_size": {"height": 32, "width": 32}, "size": {"shortest_edge": 32}, "do_center_crop": True}
        text = {**SMALL, "vocab_size": rows, "max_position_embeddings": 20, "bos_token_id": rows - 2}
        text |= {"eos_token_id": rows - 1, "pad_token_id": rows - 1}
        model = CLIPModel(CLIPConfig(text_config=text, vision_config=vision, projection_dim=12))
    else:
        rows = write_siglip_tokenizer(path, 16)
        # the released tokenizers have fewer tokens than the models have rows, too
        text = {**SMALL, "vocab_size": rows + 8, "max_position_embeddings": 16, "eos_token_id": 1, "pad_token_id": 1}
        if request.param == "siglip":
            model = SiglipModel(SiglipConfig(text_config={**text, "projection_size": 32}, vision_config=vision))
        else:
            vision = {**SMALL, "patch_size": 8, "num_patches": 16}
            settings |= {"patch_size": 8, "max_num_patches": 16}
            model = Siglip2Model(Siglip2Config(text_config={**text, "projection_size": 32}, vision_config=vision))
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim:
                weight.add_(torch.randn_like(weight), alpha=0.1)
    model.save_pretrained(path)
    (path / "preprocessor_config.json").write_text(json.dumps(settings))
    return path


@pytest.fixture(scope="module")
def dual(folder):
    return Backbone.load(folder, device="cpu")


def features(output):
    return getattr(output, "pooler_output", output)


def dense(backbone, states, projection, pool):
    with torch.no_grad():
        return torch.nn.functional.normalize(projection(states.pooled(pool)), dim=-1)


@torch.no_grad()
def test_text_vectors_are_the_models_own(dual, folder):
    model = AutoModel.from_pretrained(folder).eval()
    tokenizer = dual._text.tokenizer
    clip = model.config.model_type == "clip"
    length = 20 if clip else 16
    texts = CAPTIONS if clip else [text.lower() for text in CAPTIONS]
    inputs = tokenizer(texts, padding="max_length", truncation=True, max_length=length, return_tensors="pt")
    mask = {"attention_mask": inputs["attention_mask"]} if clip else {}
    expected = features(model.get_text_features(input_ids=inputs["input_ids"], **mask))
    found = dense(dual, dual.encode_text(CAPTIONS), dual.text_projection(), dual.text_pool)
    torch.testing.assert_close(found, torch.nn.functional.normalize(expected, dim=-1), atol=1e-5, rtol=0)
    assert expected.std(0).max() > 1e-3
    alone = torch.cat([dense(dual, dual.encode_text([c]), dual.text_projection(), dual.text_pool) for c in CAPTIONS])
    torch.testing.assert_close(alone, found, atol=1e-5, rtol=0)


@torch.no_grad()
def test_image_vectors_are_the_models_own(dual, folder, photos):
    model = AutoModel.from_pretrained(folder).eval()
    expected = []
    for path in photos:
        image = Image.open(path).convert("RGB")
        kind = model.config.model_type
        if kind == "clip":
            expected.append(features(model.get_image_features(pixel_values=clip_pixels(image))))
        elif kind == "siglip":
            pixels = np.asarray(image.resize((32, 32), Image.Resampling.BICUBIC), np.float64) / 255
            pixels = torch.tensor(((pixels - MEAN) / STD).transpose(2, 0, 1)[None], dtype=torch.float32)
            expected.append(features(model.get_image_features(pixel_values=pixels)))
        else:
            expected.append(features(model.get_image_features(**naflex(image))))
    found = dense(dual, dual.encode_images(photos), dual.image_projection(), dual.image_pool)
    torch.testing.assert_close(found, torch.nn.functional.normalize(torch.cat(expected), dim=-1), atol=1e-5, rtol=0)
    assert torch.cat(expected).std(0).max() > 1e-3


def clip_pixels(image):
    """Shorter edge to 32, centre crop."""
    width, height = image.size
    scale = 32 / min(width, height)
    size = (int(width * scale), 32) if height <= width else (32, int(height * scale))
    image = image.resize(size, Image.Resampling.BICUBIC)
    left, top = (size[0] - 32) // 2, (size[1] - 32) // 2
    pixels = np.asarray(image.crop((left, top, left + 32, top + 32)), np.float64) / 255
    return torch.tensor(((pixels - MEAN) / STD).transpose(2, 0, 1)[None], dtype=torch.float32)


def naflex(image):
    """As many patches as fit, padded to 16."""
    rows, columns = patch_grid(image.height, image.width, 8, 16)
    assert rows * columns <= 16
    image = image.resize((columns * 8, rows * 8), Image.Resampling.BICUBIC)
    pixels = (np.asarray(image, np.float64) / 255 - MEAN) / STD
    patches = [pixels[r * 8 : r * 8 + 8, c * 8 : c * 8 + 8].reshape(-1) for r in range(rows) for c in range(columns)]
    padded = np.zeros((1, 16, 192), np.float32)
    padded[0, : len(patches)] = patches
    mask = torch.tensor([[1] * len(patches) + [0] * (16 - len(patches))])
    shapes = torch.tensor([[rows, columns]])
    return {"pixel_values": torch.tensor(padded), "pixel_attention_mask": mask, "spatial_shapes": shapes}


def test_padding_and_special_positions(dual, folder, photos):
    clip = AutoModel.from_pretrained(folder).config.model_type == "clip"
    text = dual.encode_text(CAPTIONS)
    assert (text.states[~text.mask] == 0).all()
    assert text.special.sum(1).tolist() == ([2] * 4 if clip else [2, 2, 2, 1])
    image = dual.encode_images(photos)
    assert image.special.sum(1).tolist() == [1] * 6 and image.special[:, 0].all()
    assert (dual.text_pool, dual.image_pool) == ("last", "cls")


def test_round_trip_tokens_and_cache(dual, tmp_path):
    again = Backbone.from_spec(json.loads(json.dumps(dual.spec())), device="cpu")
    assert again.fingerprint == dual.fingerprint
    space = TokenSpace.of(dual)
    assert len(space) == len(set(space.names)) <= len(dual.word_embeddings())
    assert space.embeddings(dual).shape == (len(space), dual.text_dim)
    own = space.multi_hot(dual, ["beach"]).toarray()[0]
    assert 1 <= own.sum() <= 10
    store = TokenStateCache(tmp_path, dual).texts(CAPTIONS)
    cached = store.batch(store.rows(CAPTIONS))
    fresh = dual.encode_text(CAPTIONS)
    torch.testing.assert_close(cached.pooled("last"), fresh.pooled("last"), atol=0.02, rtol=0.02)
    assert torch.equal(cached.special, fresh.special)


def test_temperature_is_the_models(dual, folder):
    scale = AutoModel.from_pretrained(folder).logit_scale.item()
    assert dual.temperature == pytest.approx(np.exp(-scale))


def test_empty_batches(dual):
    assert dual.encode_text([]).states.shape == (0, 0, dual.text_dim) or len(dual.encode_text([]).states) == 0
    assert len(dual.encode_images([]).states) == 0


def test_another_model_type_is_refused(encoders):
    with pytest.raises(ValueError, match="of type 'bert', not one of clip, siglip, siglip2"):
        DualBackbone(encoders / "bert")
