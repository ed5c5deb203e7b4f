"""The contract of every family, on small checkpoints in the published layouts."""

import hashlib
import json

import pytest
import torch
from safetensors.torch import load_file, save_file

import obygaze_features as of
from obygaze_features.errors import BackboneError, UsageError
from tests.backbones.conftest import as_pickle, clips_for, embed, in_shards
from tests.kit.models import CHECKPOINTS, TINY, write_checkpoint

FRAMES = "native max mean frames tokens"
MIXED = "native max mean frames frames_temporal tokens"
ARRAYS = {
    "tiny-xclip": MIXED,
    "tiny-xclip-lsmdc": MIXED,
    "tiny-vivit": f"native cls {FRAMES[7:]}",
    "tiny-timesformer": f"native cls {FRAMES[7:]}",
    "tiny-clap": "native frames",
}
"""The arrays of each family; the others have those of `FRAMES`."""


@pytest.mark.parametrize("name", TINY)
def test_arrays_are_as_announced_and_chosen_by_name(checkpoints, name):
    arrays = ARRAYS.get(name, FRAMES).split()
    default = of.load_backbone(checkpoints[name], "cpu")
    assert [spec.name for spec in default.arrays] == [name for name in arrays if name != "tokens"]
    assert default.clip.sampling == CHECKPOINTS[name].sampling
    assert repr(default).startswith(f"Backbone('{name}', cpu, float32, native")
    backbone = of.load_backbone(checkpoints[name], "cpu", arrays=arrays)
    pixels = clips_for(backbone)
    values = embed(backbone, pixels)
    for spec in backbone.arrays:
        is_large = spec.name in ("frames", "frames_temporal", "tokens")
        assert spec.dtype == ("float16" if is_large else "float32")
        assert values[spec.name].shape == (2, *spec.shape)
        alone = embed(of.load_backbone(checkpoints[name], "cpu", arrays=[spec.name]), pixels)
        assert list(alone) == [spec.name]
        torch.testing.assert_close(alone[spec.name], values[spec.name], atol=1e-6, rtol=0)
    with pytest.raises(UsageError, match=rf"no array 'other'; it has {', '.join(arrays)}"):
        of.load_backbone(checkpoints[name], "cpu", arrays=["native", "other"])


@pytest.mark.parametrize("name", TINY)
def test_features_do_not_depend_on_batches_or_runs(checkpoints, name):
    backbone = of.load_backbone(checkpoints[name], "cpu")
    pixels = clips_for(backbone, 3)
    together = embed(backbone, pixels)
    again = embed(backbone, pixels)
    for array, values in embed(backbone, pixels[1:2]).items():
        assert torch.equal(together[array], again[array])
        torch.testing.assert_close(together[array][1:2], values, atol=1e-5, rtol=0)
    count = 2 * backbone.clip.sampling.frames
    longer = torch.zeros(count, *pixels.shape[2:], dtype=torch.uint8)
    with pytest.raises(BackboneError, match=f"{count} frames or windows"):
        backbone.embed("clip", [longer])
    half = of.load_backbone(checkpoints[name], "cpu", precision="bfloat16")
    for array, values in embed(half, pixels).items():
        assert values.dtype == torch.float32
        assert not torch.equal(values, together[array])
        assert torch.cosine_similarity(values, together[array], dim=-1).min() > 0.999


@pytest.mark.parametrize("name", TINY)
def test_weights_config_and_preprocessing_are_recorded(checkpoints, name, tmp_path):
    folder = checkpoints[name]
    backbone = of.load_backbone(folder, "cpu")
    about = backbone.about
    is_folder = name != "tiny-xclip-lsmdc"
    file = folder / ("model.safetensors" if is_folder else "pytorch_model.bin.0")
    assert about["weights_sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()
    assert (about["name"], about["family"]) == (name, name.removeprefix("tiny-"))
    assert about["config"]["synthetic"] == "random weights, trained on nothing"
    if is_folder:
        assert about["config"] == json.loads((folder / "config.json").read_text())
    recorded = backbone.clip.recipe()
    author = of.load_backbone(folder, "cpu", mode="author").clip.recipe()
    if name == "tiny-clap":
        assert author == recorded
        assert recorded["extractor"]["sampling_rate"] == backbone.clip.sampling.rate
    else:
        facts = (recorded["crop"], recorded["mode"], len(recorded["mean"]))
        assert facts == ((32, 32), "standard", 3)
        # Without a config.json, the published rule follows the authors' code.
        assert author["squash"] == ((224, 224) if is_folder else None)
    # A seed gives the same weights.
    for seed, is_same in ((0, True), (1, False)):
        written = write_checkpoint(name, tmp_path / str(seed), seed=seed) / file.name
        assert (written.read_bytes() == file.read_bytes()) is is_same


def test_weights_may_be_in_several_files_or_a_pickle(checkpoints, copy):
    name = "tiny-vivit"
    backbone = of.load_backbone(checkpoints[name], "cpu")
    pixels = clips_for(backbone, 1)
    expected = embed(backbone, pixels)
    folder = in_shards(copy(name))
    parts = sorted(folder.glob("model-*.safetensors"))
    # A tensor that the network does not use is ignored.
    more = load_file(parts[0]) | {"more": torch.ones(2)}
    save_file(more, parts[0], metadata={"format": "pt"})
    sharded = of.load_backbone(folder, "cpu")
    content = b"".join(part.read_bytes() for part in parts)
    assert sharded.about["weights_sha256"] == hashlib.sha256(content).hexdigest()
    parts[1].unlink()
    with pytest.raises(BackboneError, match=f"lacks {parts[1].name}, which"):
        of.load_backbone(folder, "cpu")

    (folder / "model.safetensors.index.json").unlink()
    as_pickle(checkpoints[name], folder)
    for other in (sharded, of.load_backbone(folder, "cpu")):
        for array, values in embed(other, pixels).items():
            assert torch.equal(values, expected[array])
