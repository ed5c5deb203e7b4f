"""Bottlenecks and networks trained on small clips with a known signal."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import pytest

from obygaze_models.dataset import ClipDataset
from obygaze_models.estimators.concepts import ConceptBank, DegenerateConcept
from obygaze_models.estimators.mlp import MLPProbe
from tests.estimators.clips import small_clips


@dataclass(frozen=True)
class Clips:
    """Clips, their labels (two and three classes), and the concepts' directions."""

    known: ClipDataset
    y: np.ndarray
    levels: np.ndarray
    bank: ConceptBank

    @property
    def X(self) -> np.ndarray:
        return self.known.X


@pytest.fixture(scope="session")
def clips() -> Clips:
    known = small_clips()
    levels = np.array(known.levels)
    bank = ConceptBank(C=1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DegenerateConcept)
        bank.fit(known.X, known.concepts.astype(int), concept_names=known.concept_names)
    codes = np.searchsorted(("EN", "HN", "S"), levels)
    return Clips(known, (codes == 2).astype(int), codes, bank)


@pytest.fixture(scope="session")
def network(clips) -> MLPProbe:
    """Three classes, two hidden layers."""
    return MLPProbe((12, 6), early_stopping=False, max_iter=8, random_state=1).fit(
        clips.X, clips.levels
    )


def torch_logits(model, layer):
    """A torch module of what comes after a layer, with the model's weights, in float64."""
    import torch

    parts = []
    pairs = list(zip(model.coefs_, model.intercepts_, strict=True))[layer:]
    for place, (weight, offset) in enumerate(pairs):
        linear = torch.nn.Linear(*weight.shape, dtype=torch.float64)
        linear.weight.data = torch.tensor(weight.T, dtype=torch.float64)
        linear.bias.data = torch.tensor(offset, dtype=torch.float64)
        parts += [linear] if place == len(pairs) - 1 else [linear, torch.nn.ReLU()]
    return torch.nn.Sequential(*parts)
