"""Bottlenecks and networks trained on small clips with a known signal."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import obygaze_models as om
from tests.kit.clips import small_clips


@pytest.fixture(scope="session")
def clips() -> SimpleNamespace:
    """Clips, their labels (two and three classes), and a bank of the concepts' directions."""
    data = small_clips()
    bank = om.ConceptBank(C=1.0)
    bank.fit(data.X, data.concepts.astype(int), concept_names=data.concept_names)
    codes = np.searchsorted(("EN", "HN", "S"), np.array(data.levels))
    return SimpleNamespace(data=data, X=data.X, y=(codes == 2).astype(int), levels=codes, bank=bank)


@pytest.fixture(scope="session")
def network(clips) -> om.MLPProbe:
    """Three classes, two hidden layers."""
    network = om.MLPProbe((12, 6), early_stopping=False, max_iter=8, random_state=1)
    return network.fit(clips.X, clips.levels)


@pytest.fixture(scope="session")
def torch_logits():
    """A torch module with the model's weights, in float64."""
    import torch

    def torch_logits(model):
        parts = []
        for weight, offset in zip(model.coefs_, model.intercepts_, strict=True):
            linear = torch.nn.Linear(*weight.shape, dtype=torch.float64)
            linear.weight.data = torch.tensor(weight.T, dtype=torch.float64)
            linear.bias.data = torch.tensor(offset, dtype=torch.float64)
            parts += [linear, torch.nn.ReLU()]
        return torch.nn.Sequential(*parts[:-1])

    return torch_logits
