import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoTokenizer, BertModel, CLIPConfig, CLIPModel, ViTModel

from pyterrier_grasp.backbones import Backbone, ComposedBackbone, base

CAPTIONS = ["a man runs on the beach", "a dog", ""]


@pytest.fixture(scope="module")
def vit(encoders):
    return ComposedBackbone(encoders / "vit", encoders / "bert", embed_dim=8, device="cpu")


def test_text_states_match_the_model_itself(encoders, vit):
    tokenizer = AutoTokenizer.from_pretrained(encoders / "bert")
    model = BertModel.from_pretrained(encoders / "bert").eval()
    found = vit.encode_text(CAPTIONS)
    assert found.states.shape == (3, 8, 16) and found.states.dtype == torch.float32
    assert not found.states.requires_grad
    for row, caption in enumerate(CAPTIONS):
        inputs = tokenizer(caption, return_tensors="pt")
        expected = model(**inputs).last_hidden_state[0]
        n = len(expected)
        torch.testing.assert_close(found.states[row, :n], expected, atol=1e-5, rtol=0)
        assert found.mask[row].tolist() == [True] * n + [False] * (8 - n)
        assert found.special[row].nonzero().flatten().tolist() == [0, n - 1]
        assert not found.states[row, n:].any()


def test_image_states_match_the_model_itself(encoders, vit, photos):
    model = ViTModel.from_pretrained(encoders / "vit").eval()
    found = vit.encode_images([str(photos[0]), photos[1], Image.open(photos[2])])
    for row in range(3):
        image = Image.open(photos[row]).resize((32, 32), Image.Resampling.BICUBIC)
        pixels = (np.asarray(image) / 255 - [0.5, 0.4, 0.3]) / [0.2, 0.25, 0.3]
        pixels = torch.tensor(pixels.transpose(2, 0, 1)[None], dtype=torch.float32)
        torch.testing.assert_close(found.states[row], model(pixels).last_hidden_state[0], atol=1e-5, rtol=0)
    assert found.mask.all() and found.special[:, 0].all() and not found.special[:, 1:].any()


@pytest.mark.parametrize(
    ("name", "shape", "special", "pool"),
    [("vit", (17, 16), 1, "cls"), ("dinov2", (17, 16), 1, "cls"), ("convnext", (1, 12), 0, "mean")],
)
def test_architectures(encoders, photos, name, shape, special, pool):
    folder = encoders / name
    if name == "dinov2":
        settings = json.loads((folder / "preprocessor_config.json").read_text())
        (folder / "preprocessor_config.json").write_text(json.dumps({**settings, "size": {"height": 28, "width": 28}}))
    backbone = ComposedBackbone(folder, encoders / "bert", device="cpu")
    found = backbone.encode_images(photos[:2])
    assert found.states.shape == (2, *shape) and backbone.image_dim == shape[1]
    assert found.special.sum(1).tolist() == [special] * 2 and backbone.image_pool == pool


def test_feature_maps_are_flattened_row_by_row(encoders, photos):
    backbone = ComposedBackbone(encoders / "convnext", encoders / "bert", device="cpu")
    backbone._image.preprocess = type(backbone._image.preprocess)(
        (64, 96), **{key: getattr(backbone._image.preprocess, key) for key in ("mean", "std")}
    )
    found = backbone.encode_images(photos[:1]).states[0]
    pixels = torch.from_numpy(backbone._image.preprocess(photos[0]))[None]
    maps = AutoModel.from_pretrained(encoders / "convnext").eval()(pixels).last_hidden_state[0]
    assert maps.shape == (12, 2, 3)
    torch.testing.assert_close(found, torch.stack([maps[:, y, x] for y in range(2) for x in range(3)]))


def test_register_tokens_are_special(encoders, photos, tmp_path):
    transformers = pytest.importorskip("transformers")
    config = transformers.Dinov2WithRegistersConfig(
        image_size=28, patch_size=7, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, num_register_tokens=3
    )
    transformers.Dinov2WithRegistersModel(config).save_pretrained(tmp_path / "registers")
    settings = json.loads((encoders / "vit" / "preprocessor_config.json").read_text())
    settings["size"] = {"height": 28, "width": 28}
    (tmp_path / "registers" / "preprocessor_config.json").write_text(json.dumps(settings))
    backbone = ComposedBackbone(tmp_path / "registers", encoders / "bert", device="cpu")
    assert backbone.encode_images(photos[:1]).special.sum() == 4


def test_halves_of_a_dual_model(encoders, photos, tmp_path):
    small = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    vocab = len((encoders / "bert" / "vocab.txt").read_text().split())
    config = CLIPConfig(
        text_config={**small, "vocab_size": vocab, "max_position_embeddings": 20, "eos_token_id": 3, "bos_token_id": 2},
        vision_config={**small, "image_size": 32, "patch_size": 8},
    )
    model = CLIPModel(config).eval()
    model.save_pretrained(tmp_path)
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt"):
        shutil.copy(encoders / "bert" / name, tmp_path / name)
    shutil.copy(encoders / "vit" / "preprocessor_config.json", tmp_path)
    backbone = ComposedBackbone(tmp_path, tmp_path, device="cpu")
    pixels = torch.from_numpy(backbone._image.preprocess(photos[0]))[None]
    torch.testing.assert_close(backbone.encode_images(photos[:1]).states, model.vision_model(pixels).last_hidden_state)
    assert backbone.encode_images(photos[:1]).special.sum() == 1
    assert backbone.encode_text(["a dog " * 50]).states.shape == (1, 20, 16)


def test_difficult_captions(vit):
    found = vit.encode_text(["word " * 500, "", "\U0001f600 \U0001f468‍\U0001f469", "broken \ud83d", "[SEP] [PAD]"])
    assert found.mask.sum(1).tolist()[:2] == [64, 2]
    assert found.special.sum(1).tolist() == [2] * 5
    assert found.states.isfinite().all()


@pytest.mark.parametrize("value", [None, float("nan"), 3])
def test_caption_must_be_a_string(vit, value):
    with pytest.raises(ValueError, match="caption 1 is"):
        vit.encode_text(["fine", value])


def test_nothing_to_encode(vit):
    assert vit.encode_text([]).states.shape == (0, 0, 16)
    assert vit.encode_images([]).states.shape == (0, 0, 16)


def test_max_text_length(encoders):
    backbone = ComposedBackbone(encoders / "vit", encoders / "bert", max_text_length=5, device="cpu")
    assert backbone.encode_text(["a man runs on the beach"]).states.shape[1] == 5
    with pytest.raises(ValueError, match="at most 512"):
        ComposedBackbone(encoders / "vit", encoders / "bert", max_text_length=600)


def test_projections_are_seeded_fresh_copies(encoders, vit):
    state = torch.get_rng_state()
    other = ComposedBackbone(encoders / "vit", encoders / "bert", embed_dim=8, seed=1, device="cpu")
    same = ComposedBackbone(encoders / "vit", encoders / "bert", embed_dim=8, device="cpu")
    assert torch.equal(state, torch.get_rng_state())
    first = vit.text_projection()
    assert (first.in_features, first.out_features) == (16, 8) and first.weight.requires_grad
    torch.testing.assert_close(first.weight, same.text_projection().weight, rtol=0, atol=0)
    assert not torch.equal(first.weight, other.text_projection().weight)
    with torch.no_grad():
        first.weight.zero_()
    assert vit.text_projection().weight.any() and vit.image_projection().weight.any()


def test_towers_are_frozen(vit):
    for model in (vit._text.model, vit._image.model):
        assert not model.training and not any(weight.requires_grad for weight in model.parameters())


def test_half_precision_weights_are_widened(encoders, tmp_path):
    shutil.copytree(encoders / "bert", tmp_path / "bert")
    BertModel.from_pretrained(encoders / "bert").half().save_pretrained(tmp_path / "bert")
    backbone = ComposedBackbone(encoders / "vit", tmp_path / "bert", device="cpu")
    assert {weight.dtype for weight in backbone._text.model.parameters()} == {torch.float32}
    assert backbone.encode_text(["a dog"]).states.dtype == torch.float32


def test_missing_weights_are_an_error(encoders, tmp_path):
    shutil.copytree(encoders / "bert", tmp_path / "bert")
    weights = load_file(tmp_path / "bert" / "model.safetensors")
    weights.pop("encoder.layer.1.output.dense.weight")
    save_file(weights, tmp_path / "bert" / "model.safetensors", {"format": "pt"})
    with pytest.raises(ValueError, match=r"lacks 1 weights.*encoder\.layer\.1"):
        ComposedBackbone(encoders / "vit", tmp_path / "bert")


def test_fingerprint_follows_what_matters_and_not_the_place(encoders, vit, tmp_path):
    shutil.copytree(encoders, tmp_path / "moved")
    moved = ComposedBackbone(tmp_path / "moved" / "vit", tmp_path / "moved" / "bert", embed_dim=8, seed=5)
    assert moved.fingerprint == vit.fingerprint and len(vit.fingerprint) == 16
    bert, image = encoders / "bert", encoders / "vit"
    others = [
        ComposedBackbone(image, bert),
        ComposedBackbone(image, bert, embed_dim=8, image_pool="mean"),
        ComposedBackbone(image, bert, embed_dim=8, text_pool="cls"),
        ComposedBackbone(image, bert, embed_dim=8, max_text_length=9),
    ]
    settings = json.loads((image / "preprocessor_config.json").read_text())
    changed = tmp_path / "moved" / "vit" / "preprocessor_config.json"
    changed.write_text(json.dumps({**settings, "resample": 2}))
    others.append(ComposedBackbone(tmp_path / "moved" / "vit", bert, embed_dim=8))
    weights = load_file(image / "model.safetensors")
    weights["layernorm.bias"][0] += 1e-3
    shutil.copy(image / "preprocessor_config.json", changed)
    save_file(weights, tmp_path / "moved" / "vit" / "model.safetensors", {"format": "pt"})
    others.append(ComposedBackbone(tmp_path / "moved" / "vit", bert, embed_dim=8))
    assert len({vit.fingerprint, *(other.fingerprint for other in others)}) == 7


def test_fingerprint_is_the_same_in_another_process(encoders, vit):
    code = (
        "import sys; from pyterrier_grasp.backbones import ComposedBackbone;"
        "print(ComposedBackbone(sys.argv[1], sys.argv[2], embed_dim=8).fingerprint)"
    )
    command = [sys.executable, "-c", code, str(encoders / "vit"), str(encoders / "bert")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == vit.fingerprint


def test_save_load_and_spec(encoders, vit, photos, tmp_path):
    vit.save(tmp_path / "here")
    shutil.move(tmp_path / "here", tmp_path / "there")
    loaded = Backbone.load(tmp_path / "there", device="cpu")
    again = Backbone.from_spec(json.loads(json.dumps(loaded.spec())), device="cpu")
    original = Backbone.from_spec(json.loads(json.dumps(vit.spec())), device="cpu")
    for other in (loaded, again, original):
        assert other.fingerprint == vit.fingerprint and other.kind == "composed"
        assert (other.text_pool, other.image_pool, other.embed_dim) == ("mean", "cls", 8)
        for one, two in (
            (other.encode_text(CAPTIONS), vit.encode_text(CAPTIONS)),
            (other.encode_images(photos), vit.encode_images(photos)),
        ):
            torch.testing.assert_close(one.states, two.states, rtol=0, atol=0)
        torch.testing.assert_close(other.text_projection().weight, vit.text_projection().weight, rtol=0, atol=0)
        torch.testing.assert_close(other.image_projection().weight, vit.image_projection().weight, rtol=0, atol=0)


def test_save_half_with_trained_projections(vit, tmp_path):
    text, image = torch.nn.Linear(16, 8), torch.nn.Linear(16, 8)
    vit.save(tmp_path / "half", half=True, text_projection=text, image_projection=image)
    loaded = Backbone.load(tmp_path / "half", device="cpu")
    torch.testing.assert_close(loaded.text_projection().weight, text.weight.half().float(), rtol=0, atol=0)
    torch.testing.assert_close(loaded.image_projection().bias, image.bias.half().float(), rtol=0, atol=0)
    weights = load_file(tmp_path / "half" / "image" / "model.safetensors")
    assert {value.dtype for value in weights.values()} == {torch.float16}
    assert not any("pooler" in name for name in weights)
    torch.testing.assert_close(loaded.encode_text(CAPTIONS).states, vit.encode_text(CAPTIONS).states, atol=1e-2, rtol=0)


def test_save_refuses_to_overwrite_and_wrong_projections(vit, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        vit.save(tmp_path)
    with pytest.raises(ValueError, match="text projection must be"):
        vit.save(tmp_path / "new", text_projection=torch.nn.Linear(3, 8))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]


def test_damaged_folder(vit, tmp_path):
    vit.save(tmp_path / "saved")
    projections = tmp_path / "saved" / "projections.safetensors"
    projections.write_bytes(projections.read_bytes()[:50])
    with pytest.raises(ValueError, match="projections.safetensors is damaged"):
        Backbone.load(tmp_path / "saved")
    projections.unlink()
    with pytest.raises(FileNotFoundError, match="incomplete"):
        Backbone.load(tmp_path / "saved")


def test_wrong_sources(encoders, tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match="no folder '/no/such/place'"):
        Backbone.load("/no/such/place")
    with pytest.raises(FileNotFoundError, match="nobody/no-such-model"):
        Backbone.load("nobody/no-such-model")
    with pytest.raises(FileNotFoundError, match="no folder './vit'"):
        ComposedBackbone("./vit", encoders / "bert")
    with pytest.raises(ValueError, match=r"single model of type 'bert'.*ComposedBackbone"):
        Backbone.load(encoders / "bert")
    with pytest.raises(ValueError, match="no config.json"):
        Backbone.load(tmp_path)
    with pytest.raises(ValueError, match="preprocessor_config.json"):
        ComposedBackbone(encoders / "bert", encoders / "bert")
    with pytest.raises(ValueError, match="tokenizer"):
        ComposedBackbone(encoders / "vit", encoders / "vit")
    with pytest.raises(ValueError, match="needs a 'kind'"):
        Backbone.from_spec({"image": "x"})


@pytest.mark.parametrize(
    ("option", "value"), [("image_pool", "max"), ("text_pool", "eos"), ("embed_dim", 0), ("temperature", 0.0)]
)
def test_wrong_options(encoders, option, value):
    with pytest.raises(ValueError, match=option):
        ComposedBackbone(encoders / "vit", encoders / "bert", **{option: value})


def test_pooled_states(vit):
    found = vit.encode_text(CAPTIONS)
    torch.testing.assert_close(found.pooled("cls"), found.states[:, 0])
    torch.testing.assert_close(found.pooled("mean")[1], found.states[1, found.mask[1]].mean(0))
    with pytest.raises(ValueError, match="pool"):
        found.pooled("max")


def test_the_shipped_backbone(photos):
    folder = Path(base.__file__).parent / "scenes"
    backbone = Backbone.load("scenes", device="cpu")
    assert backbone.source == "scenes" and backbone.spec() == {"kind": "composed", "folder": "scenes"}
    assert backbone.encode_images(photos).states.shape[::2] == (6, backbone.image_dim)
    assert backbone.encode_text(CAPTIONS).states.isfinite().all()
    assert sum(file.stat().st_size for file in folder.rglob("*")) < 4e6
