import json
import shutil

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import AutoTokenizer, BlipConfig, BlipForImageTextRetrieval

from pyterrier_grasp.backbones import Backbone, BlipBackbone
from pyterrier_grasp.backbones.images import CLIP_MEAN, CLIP_STD

CAPTIONS = ["A man, runs on the beach!!", "Two dogs (in a red shirt).", ""]


@pytest.fixture(scope="module")
def blip(blip_folder):
    return Backbone.load(blip_folder, device="cpu")


def reference(folder):
    config = BlipConfig.from_pretrained(folder)
    config.vision_config.layer_norm_eps = 1e-6
    return BlipForImageTextRetrieval.from_pretrained(folder, config=config).eval()


def pixels_of(paths):
    images = [Image.open(path).convert("RGB").resize((32, 32), Image.Resampling.BICUBIC) for path in paths]
    pixels = (np.stack([np.asarray(image) for image in images]) / 255 - CLIP_MEAN) / CLIP_STD
    return torch.tensor(pixels.transpose(0, 3, 1, 2), dtype=torch.float32)


def dense(backbone, states, projection):
    return torch.nn.functional.normalize(projection(states.pooled(backbone.text_pool)), dim=-1)


@torch.no_grad()
def test_cosines_equal_those_of_the_model_itself(blip, blip_folder, photos):
    model = reference(blip_folder)
    tokenizer = AutoTokenizer.from_pretrained(blip_folder)
    cleaned = ["a man, runs on the beach", "two dogs in a red shirt", ""]
    inputs = tokenizer(cleaned, padding="max_length", truncation=True, max_length=35, return_tensors="pt")
    expected = model(
        input_ids=inputs["input_ids"].repeat(2, 1),
        attention_mask=inputs["attention_mask"].repeat(2, 1),
        pixel_values=pixels_of(photos),
        use_itm_head=False,
    ).itm_score
    text = dense(blip, blip.encode_text(CAPTIONS * 2), blip.text_projection())
    image = dense(blip, blip.encode_images(photos), blip.image_projection())
    torch.testing.assert_close(image @ text.T, expected, atol=1e-5, rtol=0)
    assert expected.std() > 1e-3


@torch.no_grad()
def test_states_are_the_last_hidden_states(blip, blip_folder, photos):
    model = reference(blip_folder)
    found = blip.encode_images(photos)
    output = model.vision_model(pixels_of(photos))
    torch.testing.assert_close(found.states, output.last_hidden_state, atol=1e-5, rtol=0)
    assert (found.states[:, 0] - output.pooler_output).abs().max() > 1e-3
    assert found.special.sum(1).tolist() == [1] * 6
    text = blip.encode_text(CAPTIONS)
    assert text.special.sum(1).tolist() == [2] * 3 and text.mask[2].sum() == 2


def test_attributes(blip, blip_folder):
    assert (blip.kind, blip.text_dim, blip.image_dim, blip.embed_dim) == ("blip", 24, 24, 10)
    assert (blip.text_pool, blip.image_pool, blip.temperature) == ("cls", "cls", 0.07)
    model = BlipForImageTextRetrieval.from_pretrained(blip_folder)
    torch.testing.assert_close(blip.text_projection().weight, model.text_proj.weight)
    torch.testing.assert_close(blip.image_projection().weight, model.vision_proj.weight)
    norms = [module for module in blip._image.model.modules() if isinstance(module, torch.nn.LayerNorm)]
    assert {norm.eps for norm in norms} == {1e-6}
    assert not any("crossattention" in name for name, _ in blip._text.model.named_parameters())


def test_long_captions_are_cut_at_35_tokens(blip):
    assert blip.encode_text(["man " * 500]).states.shape[1] == 35


def test_spec_round_trip(blip_folder, blip):
    again = Backbone.from_spec(json.loads(json.dumps(blip.spec())), device="cpu")
    assert again.fingerprint == blip.fingerprint
    assert BlipBackbone(blip_folder, max_words=30, device="cpu").fingerprint != blip.fingerprint
    assert BlipBackbone(blip_folder, max_length=30, device="cpu").fingerprint != blip.fingerprint


def edited(folder, target, change):
    shutil.copytree(folder, target)
    config = json.loads((target / "config.json").read_text())
    change(config)
    (target / "config.json").write_text(json.dumps(config))
    return target


def test_unstated_heads_are_refused(blip_folder, tmp_path):
    folder = edited(blip_folder, tmp_path / "a", lambda config: config["text_config"].pop("num_attention_heads"))
    with pytest.raises(ValueError, match="does not say num_attention_heads"):
        Backbone.load(folder)
    assert Backbone.load(folder, text_heads=4).fingerprint == Backbone.load(blip_folder).fingerprint


@pytest.mark.parametrize("heads", [8, None])
def test_eight_heads_at_width_768_are_refused(blip_folder, tmp_path, heads):
    def change(config):
        config["text_config"].update(hidden_size=768, num_attention_heads=heads)
        if heads is None:
            config["text_config"].pop("num_attention_heads")

    with pytest.raises(ValueError, match="8 text attention heads; BLIP has 12"):
        Backbone.load(edited(blip_folder, tmp_path / "b", change))


def test_another_model_type_is_refused(encoders):
    with pytest.raises(ValueError, match="of type 'bert', not a BLIP"):
        BlipBackbone(encoders / "bert")
