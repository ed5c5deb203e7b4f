"""GPUs: what they compute, and the benchmark, which must also run on a CPU."""

import pytest
import torch

import obygaze_features as of
from obygaze_features.extraction.probe import embed_probe
from tests.kit.models import TINY, Checkpoints


@pytest.mark.gpu
@pytest.mark.parametrize("name", TINY)
@pytest.mark.parametrize(("precision", "limit"), [
    ("float32", 1e-4), ("tf32", 1e-4), ("bfloat16", 1e-3),
])  # fmt: skip
def test_a_gpu_computes_what_a_cpu_does(tmp_path, name, precision, limit):
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    folder = Checkpoints(tmp_path)[name]
    expected = embed_probe(of.load_backbone(folder, "cpu"))
    computed = embed_probe(of.load_backbone(folder, "cuda", precision=precision))
    for array, values in expected.items():
        left, right = (torch.from_numpy(x).double().flatten() for x in (values, computed[array]))
        is_number = ~left.isnan()
        cosine = torch.cosine_similarity(left[is_number], right[is_number], dim=0)
        assert 1 - cosine < limit, array
