"""Checkpoint files in the key layouts of ALBEF, BLIP and LAVIS against forward passes written out in float64."""

import json
import math

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import BertTokenizer

from pyterrier_grasp.backbones import AlbefBackbone, Backbone, BlipBackbone, TokenSpace, TokenStateCache

CLIP_MEAN, CLIP_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    ",",
    "'",
    "-",
    "s",
    *"a man two dogs runs on the beach red shirt".split(),
]
SIZE, PATCH, DIM, TEXT_DIM, EMBED = 32, 8, 128, 64, 12
CAPTIONS = ["A man's red-shirt, two dogs!", "the beach", ""]


def random_state(seed, *, family, text_layers, types, extra):
    """Weights by the names of the original repositories."""
    generator = torch.Generator().manual_seed(seed)

    def rand(*shape):
        return 0.3 * torch.randn(*shape, generator=generator)

    def linear(name, n_in, n_out):
        return {f"{name}.weight": rand(n_out, n_in) / 2, f"{name}.bias": rand(n_out)}

    def norm(name, n):
        return {f"{name}.weight": 1 + rand(n), f"{name}.bias": rand(n)}

    state = {"temp": torch.tensor(0.05)}
    v = "visual_encoder."
    state |= {f"{v}cls_token": rand(1, 1, DIM), f"{v}pos_embed": rand(1, (SIZE // PATCH) ** 2 + 1, DIM)}
    state |= {f"{v}patch_embed.proj.weight": rand(DIM, 3, PATCH, PATCH), f"{v}patch_embed.proj.bias": rand(DIM)}
    for i in range(2):
        b = f"{v}blocks.{i}."
        state |= norm(f"{b}norm1", DIM) | norm(f"{b}norm2", DIM)
        state |= linear(f"{b}attn.qkv", DIM, 3 * DIM) | linear(f"{b}attn.proj", DIM, DIM)
        state |= linear(f"{b}mlp.fc1", DIM, 96) | linear(f"{b}mlp.fc2", 96, DIM)
    state |= norm(f"{v}norm", DIM)
    t = "text_encoder."
    state |= {f"{t}embeddings.word_embeddings.weight": rand(len(WORDS) + (2 if family == "blip" else 0), TEXT_DIM)}
    state |= {f"{t}embeddings.position_embeddings.weight": rand(40, TEXT_DIM)}
    if types:
        state[f"{t}embeddings.token_type_embeddings.weight"] = rand(2, TEXT_DIM)
    state[f"{t}embeddings.position_ids"] = torch.arange(40)[None]
    state |= norm(f"{t}embeddings.LayerNorm", TEXT_DIM)
    for i in range(text_layers):
        b = f"{t}encoder.layer.{i}."
        for part in ("query", "key", "value"):
            state |= linear(f"{b}attention.self.{part}", TEXT_DIM, TEXT_DIM)
        state |= linear(f"{b}attention.output.dense", TEXT_DIM, TEXT_DIM) | norm(
            f"{b}attention.output.LayerNorm", TEXT_DIM
        )
        state |= linear(f"{b}intermediate.dense", TEXT_DIM, 80) | linear(f"{b}output.dense", 80, TEXT_DIM)
        state |= norm(f"{b}output.LayerNorm", TEXT_DIM)
        if family == "blip" or i >= text_layers // 2:
            for part in ("query", "key", "value"):
                width = DIM if part != "query" else TEXT_DIM
                state |= linear(f"{b}crossattention.self.{part}", width, TEXT_DIM)
            state |= linear(f"{b}crossattention.output.dense", TEXT_DIM, TEXT_DIM)
            state |= norm(f"{b}crossattention.output.LayerNorm", TEXT_DIM)
    state |= linear("vision_proj", DIM, EMBED) | linear("text_proj", TEXT_DIM, EMBED) | linear("itm_head", TEXT_DIM, 2)
    if extra:
        twins = {
            name.replace("encoder.", "encoder_m.", 1): value for name, value in state.items() if "encoder." in name
        }
        state |= twins | linear("vision_proj_m", DIM, EMBED) | linear("text_proj_m", TEXT_DIM, EMBED)
        queue = "queue_ptr" if family == "albef" else "ptr_queue"
        state |= {"image_queue": rand(EMBED, 4), "text_queue": rand(EMBED, 4), "idx_queue": torch.zeros(1, 4)}
        state |= {queue: torch.zeros(1)}
    return state


def layer_norm(x, state, name, eps):
    x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps)
    return x * state[f"{name}.weight"] + state[f"{name}.bias"]


def linear(x, state, name):
    return x @ state[f"{name}.weight"].T + state[f"{name}.bias"]


def gelu(x):
    return x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2


def attend(q, k, v, mask=None):
    """One head's width is 64; q, k, v ``[L, D]``."""
    out = []
    for start in range(0, q.shape[1], 64):
        part = slice(start, start + 64)
        scores = q[:, part] @ k[:, part].T / 8
        if mask is not None:
            scores[:, ~mask] = -np.inf
        weights = np.exp(scores - scores.max(1, keepdims=True))
        out.append(weights / weights.sum(1, keepdims=True) @ v[:, part])
    return np.concatenate(out, axis=1)


def vit(state, pixels):
    """``[L, D]`` of one image ``[3, H, W]``: pre-norm blocks, the last norm on all tokens, eps 1e-6."""
    p = "visual_encoder."
    kernel, grid = state[f"{p}patch_embed.proj.weight"], SIZE // PATCH
    patches = pixels.reshape(3, grid, PATCH, grid, PATCH).transpose(1, 3, 0, 2, 4).reshape(grid * grid, -1)
    x = patches @ kernel.reshape(len(kernel), -1).T + state[f"{p}patch_embed.proj.bias"]
    x = np.concatenate([state[f"{p}cls_token"][0], x]) + state[f"{p}pos_embed"][0]
    for i in range(2):
        b = f"{p}blocks.{i}."
        qkv = linear(layer_norm(x, state, f"{b}norm1", 1e-6), state, f"{b}attn.qkv")
        x = x + linear(attend(*np.split(qkv, 3, axis=1)), state, f"{b}attn.proj")
        hidden = gelu(linear(layer_norm(x, state, f"{b}norm2", 1e-6), state, f"{b}mlp.fc1"))
        x = x + linear(hidden, state, f"{b}mlp.fc2")
    return layer_norm(x, state, f"{p}norm", 1e-6)


def bert(state, ids, layers):
    """``[L, D]`` of one caption's token ids, padding included: post-norm layers, self-attention alone, eps 1e-12."""
    p = "text_encoder."
    x = (
        state[f"{p}embeddings.word_embeddings.weight"][ids]
        + state[f"{p}embeddings.position_embeddings.weight"][: len(ids)]
    )
    if f"{p}embeddings.token_type_embeddings.weight" in state:
        x = x + state[f"{p}embeddings.token_type_embeddings.weight"][0]
    x = layer_norm(x, state, f"{p}embeddings.LayerNorm", 1e-12)
    mask = np.array(ids) != 0
    for i in range(layers):
        b = f"{p}encoder.layer.{i}."
        q, k, v = (linear(x, state, f"{b}attention.self.{part}") for part in ("query", "key", "value"))
        a = linear(attend(q, k, v, mask), state, f"{b}attention.output.dense")
        x = layer_norm(x + a, state, f"{b}attention.output.LayerNorm", 1e-12)
        h = linear(gelu(linear(x, state, f"{b}intermediate.dense")), state, f"{b}output.dense")
        x = layer_norm(x + h, state, f"{b}output.LayerNorm", 1e-12)
    return x


def pixels_of(path):
    image = Image.open(path).convert("RGB").resize((SIZE, SIZE), Image.Resampling.BICUBIC)
    return ((np.asarray(image, np.float64) / 255 - CLIP_MEAN) / CLIP_STD).transpose(2, 0, 1)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    BertTokenizer.from_pretrained(folder, model_max_length=512).save_pretrained(folder)
    return folder


LAYOUTS = {
    "albef": {"family": "albef", "text_layers": 4, "types": True, "extra": True},
    "albef-lavis": {"family": "albef", "text_layers": 4, "types": False, "extra": False},
    "blip": {"family": "blip", "text_layers": 2, "types": False, "extra": True},
}
# the captions as each code base cleans them
CLEANED = {
    "albef": ["a mans red shirt two dogs", "the beach", ""],
    "albef-lavis": ["a man's red-shirt, two dogs", "the beach", ""],
    "blip": ["a man's red-shirt, two dogs", "the beach", ""],
}


@pytest.fixture(scope="module", params=list(LAYOUTS))
def checkpoint(request, tmp_path_factory, tokenizer):
    """Layout, weights as float64 arrays, the file (under "model" for one, flat for the others), and the backbone."""
    layout = LAYOUTS[request.param]
    state = random_state(5, **layout)
    path = tmp_path_factory.mktemp("checkpoint") / "released.pth"
    torch.save({"model": state, "epoch": 3} if request.param == "albef" else state, path)
    backbone = Backbone.load(path, tokenizer=tokenizer, device="cpu")
    return request.param, {name: value.double().numpy() for name, value in state.items()}, path, backbone


def test_image_states(checkpoint, photos):
    _, state, _, backbone = checkpoint
    found = backbone.encode_images(photos).states.numpy()
    expected = np.stack([vit(state, pixels_of(path)) for path in photos])
    np.testing.assert_allclose(found, expected, atol=1e-5, rtol=1e-5)
    assert np.abs(expected).max() > 0.5 and expected.std(0).max() > 0.1


def test_text_states(checkpoint):
    name, state, _, backbone = checkpoint
    found = backbone.encode_text(CAPTIONS)
    layers = LAYOUTS[name]["text_layers"] // (2 if LAYOUTS[name]["family"] == "albef" else 1)
    for row, caption in enumerate(CLEANED[name]):
        words = caption.replace("'", " ' ").replace(",", " , ").replace("-", " - ").split()
        ids = [WORDS.index("[CLS]"), *(WORDS.index(w) if w in WORDS else 1 for w in words), WORDS.index("[SEP]")]
        assert backbone.token_ids([CAPTIONS[row]])[0] == ids
        padded = ids + [0] * (30 - len(ids))  # the originals pad to the full length
        expected = bert(state, padded, layers)[: len(ids)]
        np.testing.assert_allclose(found.states[row, : len(ids)].numpy(), expected, atol=1e-5, rtol=1e-5)
        assert found.mask[row].sum() == len(ids) and found.special[row].sum() == 2


def test_dense_vectors(checkpoint, photos):
    name, state, _, backbone = checkpoint
    states = backbone.encode_images(photos)
    with torch.no_grad():
        found = torch.nn.functional.normalize(backbone.image_projection()(states.pooled(backbone.image_pool)), dim=1)
    cls = np.stack([vit(state, pixels_of(path))[0] for path in photos])
    expected = cls @ state["vision_proj.weight"].T + state["vision_proj.bias"]
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-5)
    assert backbone.temperature == pytest.approx(0.05)
    assert (backbone.text_dim, backbone.image_dim, backbone.embed_dim) == (TEXT_DIM, DIM, EMBED)


def test_spec_round_trip_cache_and_tokens(checkpoint, photos, tmp_path):
    name, _, _, backbone = checkpoint
    assert backbone.kind == LAYOUTS[name]["family"]
    again = Backbone.from_spec(json.loads(json.dumps(backbone.spec())), device="cpu")
    assert again.fingerprint == backbone.fingerprint
    store = TokenStateCache(tmp_path, backbone).images(photos)
    cached = store.batch(store.rows([backbone.image_key(path) for path in photos]))
    torch.testing.assert_close(cached.states, backbone.encode_images(photos).states, atol=0.02, rtol=0.02)
    assert torch.equal(cached.special, backbone.encode_images(photos).special)
    space = TokenSpace.of(backbone)
    assert space.names[: len(WORDS)] == WORDS
    assert space.embeddings(backbone).shape == (len(space), TEXT_DIM)


def test_long_captions_are_cut(checkpoint):
    name, _, _, backbone = checkpoint
    words, tokens = (30, 30) if name == "albef" else (50, 35)
    assert backbone.encode_text(["man " * 200]).states.shape[1] == min(words + 2, tokens)


def save(path, state):
    torch.save(state, path)
    return path


def test_missing_and_unknown_keys_are_all_named(tmp_path, tokenizer):
    state = random_state(5, **LAYOUTS["albef"])
    del state["visual_encoder.norm.weight"], state["text_encoder.encoder.layer.1.output.dense.bias"]
    state["surprise.weight"] = torch.zeros(1)
    with pytest.raises(ValueError) as error:
        Backbone.load(save(tmp_path / "a.pth", state), tokenizer=tokenizer)
    for name in ("visual_encoder.norm.weight", "text_encoder.encoder.layer.1.output.dense.bias", "surprise.weight"):
        assert name in str(error.value)
    with pytest.raises(ValueError, match="lacks 'text_proj.weight'"):
        del state["text_proj.weight"]
        Backbone.load(save(tmp_path / "b.pth", state), tokenizer=tokenizer)


def test_a_family_is_not_taken_for_the_other(checkpoint, tokenizer):
    name, _, path, _ = checkpoint
    other = AlbefBackbone if name == "blip" else BlipBackbone
    with pytest.raises(ValueError, match="use Backbone.load"):
        other(path, tokenizer=tokenizer)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"not a checkpoint", "no checkpoint of plain tensors, or it is damaged"),
        (b"", "no checkpoint of plain tensors, or it is damaged"),
        ({"model": {"x": 1}}, "entries that are no tensors: 'x'"),
        ({"word": torch.zeros(2)}, "checkpoint of neither ALBEF nor BLIP"),
        ([torch.zeros(2)], "it has a list"),
    ],
)
def test_other_files_are_refused(tmp_path, content, message, tokenizer):
    path = tmp_path / "x.pth"
    path.write_bytes(content) if isinstance(content, bytes) else torch.save(content, path)
    with pytest.raises(ValueError, match=message):
        Backbone.load(path, tokenizer=tokenizer)


class Planted:
    def __reduce__(self):
        return print, ("code in a checkpoint was run",)


def test_code_in_a_file_is_not_run(tmp_path, capsys, tokenizer):
    path = save(tmp_path / "x.pth", {"model": random_state(5, **LAYOUTS["albef"]), "args": Planted()})
    with pytest.raises(ValueError, match="no checkpoint of plain tensors"):
        Backbone.load(path, tokenizer=tokenizer)
    assert "was run" not in capsys.readouterr().out


def test_truncated_and_absent_files(tmp_path, tokenizer):
    path = save(tmp_path / "x.pth", random_state(5, **LAYOUTS["blip"]))
    path.write_bytes(path.read_bytes()[:-2000])
    with pytest.raises(ValueError, match="damaged"):
        Backbone.load(path, tokenizer=tokenizer)
    with pytest.raises(FileNotFoundError, match=r"gone\.pth"):
        Backbone.load(tmp_path / "gone.pth", tokenizer=tokenizer)


def test_a_tokenizer_that_does_not_fit_is_refused(checkpoint, tmp_path):
    _, _, path, _ = checkpoint
    (tmp_path / "vocab.txt").write_text("\n".join([*WORDS, "more", "and", "more2", "even", "still"]) + "\n")
    BertTokenizer.from_pretrained(tmp_path, model_max_length=512).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="token"):
        Backbone.load(path, tokenizer=tmp_path)


def test_position_embeddings_are_resized_on_demand(checkpoint, tokenizer, photos):
    name, state, path, _ = checkpoint
    if name == "blip":
        pytest.skip("an option of ALBEF alone")
    larger = AlbefBackbone(path, tokenizer=tokenizer, image_size=48, device="cpu")
    assert larger.encode_images(photos[:1]).states.shape[1] == 37
    old = torch.tensor(state["visual_encoder.pos_embed"]).float()
    grid = old[:, 1:].reshape(1, 4, 4, DIM).permute(0, 3, 1, 2)
    expected = torch.nn.functional.interpolate(grid, size=(6, 6), mode="bicubic", align_corners=False)
    got = larger._image.model.embeddings.position_embedding
    torch.testing.assert_close(got[:, 1:], expected.permute(0, 2, 3, 1).reshape(1, 36, DIM))
    torch.testing.assert_close(got[:, :1], old[:, :1])
    with pytest.raises(ValueError, match="not a multiple of the patch size 8"):
        AlbefBackbone(path, tokenizer=tokenizer, image_size=50)
