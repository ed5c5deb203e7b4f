"""Grad-CAM against finite differences in transformers' own models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer, CLIPModel, SiglipModel, XCLIPModel

from obygaze_features.backbones.preprocess import normalise
from obygaze_features.errors import UsageError
from obygaze_features.saliency import grad_cam, load_grad_cam_model
from tests.saliency.conftest import TINY

TEXTS = ["a photo of a woman", "an angry person"]
KINDS = {"tiny-clip": CLIPModel, "tiny-xclip": XCLIPModel, "tiny-siglip": SiglipModel}


def tensor(found: Any) -> torch.Tensor:
    """What `get_image_features` and its kin give differs by version."""
    return found if isinstance(found, torch.Tensor) else found.pooler_output


class Oracle:
    """The published model in double precision, whose activations can be pushed."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.model = KINDS[name].from_pretrained(folder).double().eval()
        tokenizer = AutoTokenizer.from_pretrained(folder)
        padding = "max_length" if name == "tiny-siglip" else True
        tokens = tokenizer(TEXTS, padding=padding, return_tensors="pt", truncation=True)
        with torch.no_grad():
            self.texts = tensor(self.model.get_text_features(**tokens))
        self.push = torch.zeros(())
        self.seen = torch.zeros(())
        self.first = 0 if name == "tiny-siglip" else 1

        def pushed(layer: Any, given: Any, made: torch.Tensor) -> torch.Tensor:
            self.seen = made
            more = made.clone()
            more[:, self.first : self.first + 16] += self.push
            return more

        self.model.vision_model.encoder.layers[-1].layer_norm1.register_forward_hook(pushed)

    def cosines(self, pixels: torch.Tensor, push: torch.Tensor) -> torch.Tensor:
        """With so much added to each channel of every patch; X-CLIP sees a film of one picture."""
        self.push = push
        with torch.no_grad():
            if self.name == "tiny-xclip":
                films = pixels[:, None].expand(-1, 8, -1, -1, -1)
                seen = tensor(self.model.get_video_features(pixel_values=films))
            else:
                seen = tensor(self.model.get_image_features(pixel_values=pixels))
        return torch.cosine_similarity(seen, self.texts)

    def maps(self, pixels: torch.Tensor) -> torch.Tensor:
        """Weights by central differences: of all patches at once, so divided by their number."""
        weights = []
        for channel in range(32):
            push = torch.zeros(32, dtype=torch.double)
            push[channel] = 1e-5
            more, less = self.cosines(pixels, push), self.cosines(pixels, -push)
            weights.append((more - less) / 2e-5 / 16)
        self.cosines(pixels, torch.zeros(()))
        every = 8 if self.name == "tiny-xclip" else 1
        patches = self.seen[::every, self.first : self.first + 16]
        return torch.einsum("bpc,cb->bp", patches, torch.stack(weights)).relu().view(-1, 4, 4)


@pytest.mark.parametrize("name", TINY)
def test_maps_are_what_finite_differences_say(checkpoints, name):
    model = load_grad_cam_model(str(checkpoints[name]), "cpu")
    chance = torch.Generator().manual_seed(2)
    pictures = torch.randint(0, 256, (2, 3, 32, 32), generator=chance, dtype=torch.uint8)
    near, maps = grad_cam(model, pictures, model.embed_texts(TEXTS))
    oracle = Oracle(name, checkpoints[name])
    pixels = normalise(pictures, model.backbone.preprocessing).double()
    wanted = oracle.maps(pixels)
    assert wanted.amax((1, 2)).min() > 0
    np.testing.assert_allclose(maps, wanted, atol=2e-5 * float(wanted.max()) + 1e-7)
    np.testing.assert_allclose(near, oracle.cosines(pixels, torch.zeros(())), atol=1e-6)


@pytest.mark.parametrize("name", TINY)
def test_pictures_of_a_batch_do_not_change_one_another(checkpoints, name):
    model = load_grad_cam_model(str(checkpoints[name]), "cpu")
    chance = torch.Generator().manual_seed(3)
    pictures = torch.randint(0, 256, (3, 3, 32, 32), generator=chance, dtype=torch.uint8)
    texts = model.embed_texts([TEXTS[0], TEXTS[1], TEXTS[0]])
    near, maps = grad_cam(model, pictures, texts)
    for row in range(3):
        one, its = grad_cam(model, pictures[row : row + 1], texts[row : row + 1])
        np.testing.assert_allclose(its[0], maps[row], atol=1e-6)
        np.testing.assert_allclose(one[0], near[row], atol=1e-6)
    # Nothing stays on the network that would slow it, or change it.
    assert not model.layer._forward_hooks


def test_a_backbone_that_reads_no_texts_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(UsageError, match="the family vivit reads no texts"):
        load_grad_cam_model("tiny-vivit", "cpu")
