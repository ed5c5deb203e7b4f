"""What a GPU computes."""

import pytest
import torch

import obygaze_features as of
from tests.backbones.conftest import noise
from tests.kit.models import TINY, Checkpoints


def embed_probe(backbone):
    if backbone.name == "tiny-clap":
        return backbone.embed("clip", [backbone.clip.preprocessing.inputs(noise(40_000))])
    shape = (backbone.clip.sampling.frames, 3, 32, 32)
    chance = torch.Generator().manual_seed(0)
    frames = torch.randint(256, shape, generator=chance, dtype=torch.uint8)
    return backbone.embed("clip", [frames])


@pytest.mark.gpu
@pytest.mark.parametrize("name", TINY)
@pytest.mark.parametrize(
    ("precision", "limit"), [("float32", 1e-4), ("tf32", 1e-4), ("bfloat16", 1e-3)]
)
def test_a_gpu_computes_what_a_cpu_does(tmp_path, name, precision, limit):
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    folder = Checkpoints(tmp_path)[name]
    expected = embed_probe(of.load_backbone(folder, "cpu"))
    computed = embed_probe(of.load_backbone(folder, "cuda", precision=precision))
    for array, values in expected.items():
        left = values.cpu().double().flatten()
        right = computed[array].cpu().double().flatten()
        is_number = ~left.isnan()
        cosine = torch.cosine_similarity(left[is_number], right[is_number], dim=0)
        assert 1 - cosine < limit, array
