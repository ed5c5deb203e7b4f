"""Each family against transformers' own processors, tokenizers and forward passes."""

import json
from functools import partial

import numpy as np
import pytest
import torch
import transformers
from torch.utils._python_dispatch import TorchDispatchMode

import obygaze_features as of
from obygaze_features.errors import BackboneError
from tests.backbones import conftest as kit
from tests.kit import models as tiny

WIDTH = {"hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 3}
MIT = {"mit_hidden_size": 32, "mit_intermediate_size": 64, "mit_num_attention_heads": 2}


def vision(patch, side, **more):
    return {**WIDTH, "intermediate_size": 96, "image_size": side, "patch_size": patch, **more}


def max_and_mean(vectors):
    return {"max": vectors.amax(1), "mean": vectors.mean(1)}


def by_moment(tokens, moments):
    return tokens.unflatten(1, (moments, -1)).mean(2)


# Each returns the arrays of clips [B,T,3,h,w]. Classifiers are compared by their logits.


def xclip_arrays(model, pixels):
    seen = model.vision_model(pixels.flatten(0, 1))
    frames = model.visual_projection(seen.pooler_output).unflatten(0, pixels.shape[:2])
    mixed = model.mit(frames)[0]
    native = kit.tensor(model.get_video_features(pixels))
    # X-CLIP defines the clip embedding as the mean of the mixed frames.
    torch.testing.assert_close(mixed.mean(1), native, atol=1e-4, rtol=0)
    tokens = seen.last_hidden_state.unflatten(0, pixels.shape[:2]).flatten(1, 2)
    arrays = {"native": native, "frames": frames, "frames_temporal": mixed, "tokens": tokens}
    return arrays | max_and_mean(frames)


def image_arrays(model, pixels, *, embeds=True):
    """Return the arrays of networks that see each frame alone."""
    images = pixels.flatten(0, 1)
    tokens = (model.vision_model if embeds else model)(images).last_hidden_state
    frames = kit.tensor(model.get_image_features(images)) if embeds else tokens[:, 0]
    frames = frames.unflatten(0, pixels.shape[:2])
    tokens = tokens.unflatten(0, pixels.shape[:2]).flatten(1, 2)
    return {"native": frames.mean(1), "frames": frames, "tokens": tokens, **max_and_mean(frames)}


def vivit_arrays(model, pixels):
    tokens = model.vivit(pixels).last_hidden_state
    moments = pixels.shape[1] // model.config.tubelet_size[0]
    first = tokens[:, 0]
    arrays = {"cls": first, "native": first, "tokens": tokens}
    arrays["frames"] = by_moment(tokens[:, 1:], moments)
    return arrays | max_and_mean(tokens)


def token_arrays(model, pixels, moments, by_patch=False):
    """Return the arrays of networks that return the tokens of a clip."""
    trunk = getattr(model, model.base_model_prefix, model)
    tokens = trunk(pixels).last_hidden_state
    arrays = {"tokens": tokens, **max_and_mean(tokens), "native": tokens.mean(1)}
    arrays["frames"] = by_moment(tokens[:, by_patch:], moments)
    if by_patch:
        arrays["native"] = arrays["cls"] = tokens[:, 0]
        by_place = tokens[:, 1:].unflatten(1, (-1, moments))
        arrays["frames"] = by_place.mean(1)
    if hasattr(model, "classifier") and not by_patch:
        del arrays["native"]  # compared by the logits
    return arrays


XCLIP = vision(32, 128, num_frames=8, **MIT)
DINO = {**WIDTH, "image_size": 48, "patch_size": 14}
REGISTERS = DINO | {"num_register_tokens": 4}


def vivit(patch, side, frames, depth):
    sizes = vision(patch, side, num_frames=frames, tubelet_size=[depth, patch, patch])
    return tiny.tiny.write_vivit, [sizes], "VivitForVideoClassification", vivit_arrays


def dino(kind, sizes):
    arrays_of = partial(image_arrays, embeds=False)
    return tiny.write_dino, [sizes, kind], f"{kind}Model", arrays_of


def video(kind, network, moments):
    arrays_of = partial(token_arrays, moments=moments, by_patch=kind == "Timesformer")
    name = f"{kind}{network}"
    return tiny.write_tokens, [name, tiny.TOKENS[kind]], name, arrays_of


# Each is the writer, its sizes, the class in transformers, and the arrays that it returns.
CASES = {
    "xclip": (tiny.tiny.write_xclip, [XCLIP, 32], "XCLIPModel", xclip_arrays),
    "vivit": vivit(8, 24, 8, 2),
    "clip": (tiny.write_clip, [vision(16, 48), 32], "CLIPModel", image_arrays),
    "vivit-16": vivit(8, 24, 16, 4),
    # At 69 pixels there are more than the patches take, as in So400m/14 at 384.
    "siglip": (tiny.write_siglip, [vision(14, 69)], "SiglipModel", image_arrays),
    # Their input has 32 pixels, but they were trained with 48.
    "dinov2": dino("Dinov2", DINO),
    "dinov2-with-registers": dino("Dinov2WithRegisters", REGISTERS),
    "dinov3": dino("DINOv3ViT", REGISTERS),
    "videomae": video("VideoMAE", "Model", 4),
    "videomae-classifier": video("VideoMAE", "ForVideoClassification", 4),
    "vjepa2": video("VJEPA2", "Model", 4),
    "vjepa2-classifier": video("VJEPA2", "ForVideoClassification", 4),
    "timesformer": video("Timesformer", "ForVideoClassification", 8),
    "videoprism": video("VideoPrismVision", "Model", 8),
}


class OnGpu(torch.Tensor):
    """A CPU tensor that claims to be on a GPU, like everything computed from it."""

    is_cuda = True


class Convolutions(TorchDispatchMode):
    """Count operations that a GPU must not run: tubelet convolutions and nine-step GELUs."""

    count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        is_tubelet = name.startswith("conv") and args[1].ndim == 5
        self.count += name == "tanh" or is_tubelet
        return function(*args, **(kwargs or {}))


def close(ours, expected, atol=1e-4):
    torch.testing.assert_close(ours, expected, atol=atol, rtol=0)


@pytest.mark.parametrize("name", CASES)
def test_features_equal_those_of_transformers(tmp_path, name):
    write, sizes, model_name, arrays_of = CASES[name]
    write(tmp_path, 5, *sizes)
    kit.shuffle_norms(tmp_path)
    model = getattr(transformers, model_name).from_pretrained(tmp_path).eval()
    arrays = [spec.name for spec in of.load_backbone(f"x={tmp_path}", "cpu").arrays]
    backbone = of.load_backbone(f"x={tmp_path}", "cpu", arrays=[*arrays, "tokens"])
    steps = backbone.clip.preprocessing
    frames = backbone.clip.sampling.frames
    if model_name.startswith("DINOv3"):  # torchvision processors are tested elsewhere
        pixels = kit.pictures(2, frames, 3, *steps.crop)
    else:
        # Only cropped; resizing is compared with the processors elsewhere.
        edge = steps.shortest_edge or steps.crop[0]
        size = (frames, edge, edge + 12 * (steps.shortest_edge is not None), 3)
        clip = np.random.default_rng(1).integers(0, 256, size, dtype=np.uint8)
        pixels = kit.processed(tmp_path, clip)[None]
        close(steps.apply(torch.from_numpy(clip))[None], pixels, 1e-5)
    ours = kit.embed(backbone, pixels)
    with torch.no_grad():
        expected = arrays_of(model, pixels)
        assert {*expected, "native"} == set(ours)
        for array, values in expected.items():
            close(ours[array], values)
        with Convolutions() as on_cpu:
            kit.embed(backbone, pixels)
        with Convolutions() as on_gpu:
            again = kit.embed(backbone, pixels.as_subclass(OnGpu))
        caps = 2 * model_name.startswith("VideoPrism")  # which caps attention by tanh
        assert (on_cpu.count > 0, on_gpu.count) == (name.startswith("v"), caps)
        for array, values in expected.items():
            close(again[array].as_subclass(torch.Tensor), values)
        if "native" not in expected:
            assert not torch.allclose(ours["native"], ours["mean"], atol=0.01)
        if hasattr(model, "classifier"):
            close(model.classifier(ours["native"].clone()), model(pixels).logits)
        if backbone.image:
            images = pixels[0, :3]
            if model_name == "XCLIPModel":  # which treats an image as a still film
                films = images[:, None].repeat(1, frames, 1, 1, 1)
                embedded = kit.tensor(model.get_video_features(films))
            else:
                embedded = expected["frames"][0, :3]
            close(backbone.compute(backbone.image, (images,), 3)["native"], embedded)
            assert (embedded.norm(dim=1) - 1).abs().min() > 0.01  # not normalised
            close(kit.embed(backbone, pixels)["native"], ours["native"], 0)  # nothing stays changed


TEXTS = [
    "a photo of a person",
    "An ANGRY  person, 7 naïve cafés",
    "engineer",
    "a picture of a happy woman " * 40,
]
MODELS = {
    "tiny-clip": "CLIPModel",
    "tiny-xclip": "XCLIPModel",
    "tiny-siglip": "SiglipModel",
    "tiny-clap": "ClapModel",
}


def text_features(folder, name, texts=TEXTS):
    """Return transformers' text features; SigLIP was trained on padded texts."""
    model = getattr(transformers, name).from_pretrained(folder).eval()
    padding = "max_length" if name == "SiglipModel" else True
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokens = tokenizer(texts, truncation=True, max_length=77, padding=padding, return_tensors="pt")
    with torch.no_grad():
        return kit.tensor(model.get_text_features(**tokens))


@pytest.mark.parametrize("name", MODELS)
def test_texts_are_embedded_as_by_transformers(checkpoints, name):
    folder = checkpoints[name]
    backbone = of.load_backbone(folder, "cpu")
    ours = backbone.embed("text", TEXTS)["native"]
    assert ours.shape == (4, *backbone.text.arrays[0].shape)
    assert ours.dtype == torch.float32
    expected = text_features(folder, MODELS[name])
    if name == "tiny-clap":  # for which transformers returns only the direction
        expected *= ours.norm(dim=1, keepdim=True)
    close(ours, expected, 1e-5)
    # The other texts of a batch change nothing.
    alone = backbone.embed("text", TEXTS[2:3])["native"]
    close(alone, ours[2:3], 1e-5)

    # Tokens are counted before they are cut.
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    counts = backbone.text.tokenizer.count(TEXTS)
    assert counts == [len(tokenizer(text)["input_ids"]) for text in TEXTS]
    assert counts[3] > backbone.text.tokenizer.max_tokens
    longer = TEXTS[3] + " and so on"
    cut, same = backbone.embed("text", [TEXTS[3], longer])["native"]
    close(cut, same, 1e-6)


def swap_words(folder):
    words = json.loads((folder / "vocab.json").read_text())
    kit.edit_json(folder / "vocab.json", **{"a</w>": words["b</w>"], "b</w>": words["a</w>"]})


def test_the_record_distinguishes_two_tokenizers(copy):
    folder = copy("tiny-clip")
    before = of.load_backbone(folder, "cpu").text.recipe()["texts"]
    assert (before["longest"], before["padding"]) == (77, "longest")
    swap_words(folder)
    after = of.load_backbone(folder, "cpu").text.recipe()["texts"]
    assert before["vocabulary_sha256"] != after["vocabulary_sha256"]


def test_a_mismatched_tokenizer_is_one_line(copy):
    folder = copy("tiny-clip")
    more = {f"more{number}</w>": number for number in range(566, 575)}
    kit.edit_json(folder / "vocab.json", **more)
    for facts in ("575 tokens, but the network has 566", r"has no tokenizer \(tokenizer.json or"):
        with pytest.raises(BackboneError, match=facts) as caught:
            of.load_backbone(folder, "cpu").embed("text", TEXTS)
        assert "\n" not in str(caught.value)
        (folder / "vocab.json").unlink(missing_ok=True)
