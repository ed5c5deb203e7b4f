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
from tests.backbones.conftest import each, tensor

TEXTS = ["a photo of a woman", "an angry person"]
KINDS = {"tiny-clip": CLIPModel, "tiny-xclip": XCLIPModel, "tiny-siglip": SiglipModel}


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
        self.push = self.activations = torch.zeros(())
        self.first = 0 if name == "tiny-siglip" else 1

        def add_push(layer: Any, inputs: Any, output: torch.Tensor) -> torch.Tensor:
            self.activations = output
            pushed = output.clone()
            pushed[:, self.first : self.first + 16] += self.push
            return pushed

        self.model.vision_model.encoder.layers[-1].layer_norm1.register_forward_hook(add_push)

    def cosines(self, pixels: torch.Tensor, push: torch.Tensor) -> torch.Tensor:
        """With a push on each channel of every patch; X-CLIP sees a film of one picture."""
        self.push = push
        with torch.no_grad():
            if self.name == "tiny-xclip":
                films = pixels[:, None].expand(-1, 8, -1, -1, -1)
                embedded = tensor(self.model.get_video_features(pixel_values=films))
            else:
                embedded = tensor(self.model.get_image_features(pixel_values=pixels))
        return torch.cosine_similarity(embedded, self.texts)

    def maps(self, pixels: torch.Tensor) -> torch.Tensor:
        """Weights by central differences: of all patches at once, so divided by their number."""
        weights = []
        for channel in range(32):
            push = torch.zeros(32, dtype=torch.double)
            push[channel] = 1e-5
            more, less = self.cosines(pixels, push), self.cosines(pixels, -push)
            weights.append((more - less) / 2e-5 / 16)
        self.cosines(pixels, torch.zeros(()))
        step = 8 if self.name == "tiny-xclip" else 1
        patches = self.activations[::step, self.first : self.first + 16]
        return torch.einsum("bpc,cb->bp", patches, torch.stack(weights)).relu().view(-1, 4, 4)


@each(list(KINDS))
def test_maps_are_those_of_finite_differences(checkpoints, name):
    model = load_grad_cam_model(checkpoints[name], "cpu")
    random = torch.Generator().manual_seed(2)
    images = torch.randint(0, 256, (2, 3, 32, 32), generator=random, dtype=torch.uint8)
    texts = model.embed_texts(TEXTS)
    cosines, maps = grad_cam(model, images, texts)
    oracle = Oracle(name, checkpoints[name])
    pixels = normalise(images, model.backbone.preprocessing).double()
    expected = oracle.maps(pixels)
    assert expected.amax((1, 2)).min() > 0
    np.testing.assert_allclose(maps, expected, atol=2e-5 * float(expected.max()) + 1e-7)
    np.testing.assert_allclose(cosines, oracle.cosines(pixels, torch.zeros(())), atol=1e-6)
    # The images of a batch do not change each other, and nothing stays on the network.
    for row in range(2):
        cosine, alone = grad_cam(model, images[row : row + 1], texts[row : row + 1])
        np.testing.assert_allclose(alone[0], maps[row], atol=1e-6)
        np.testing.assert_allclose(cosine[0], cosines[row], atol=1e-6)
    assert not model.layer._forward_hooks


def test_a_backbone_that_reads_no_texts_is_refused(checkpoints):
    with pytest.raises(UsageError, match="the family vivit reads no texts"):
        load_grad_cam_model(checkpoints["tiny-vivit"], "cpu")
