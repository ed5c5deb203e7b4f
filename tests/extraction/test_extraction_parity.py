"""What is put into a store: which frames, and what the network makes of these. Frames are taken by
number from all frames decoded in order; the network and its preprocessing are compared with those
of transformers elsewhere."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import obygaze_features as of
from obygaze_features.errors import StoreError
from tests.backbones.conftest import run
from tests.kit.films import clips, everything, read_frame_number, write_clip
from tests.kit.floats import close
from tests.kit.models import with_clip


@pytest.mark.parametrize("name", ["tiny-xclip", "tiny-vivit", "tiny-dinov2"])
def test_a_store_holds_the_features_of_its_frames(checkpoints, films, tmp_path, name):
    """clip0 has five frames, fewer than each of these backbones takes."""
    backbone = of.load_backbone(checkpoints[name], "cpu")
    sharper = replace(backbone.clip.preprocessing, filter="bicubic")
    second = with_clip(backbone, preprocessing=sharper).with_changes(name="sharper")
    both = [backbone, second]
    summary = of.extract(clips("clip0.mp4", "clip5.mp4"), films, both, tmp_path)
    count = backbone.clip.sampling.frames
    assert summary.frames == 5 + count  # both take the same
    for own, path in zip(both, summary.stores, strict=True):
        store = of.open_store(path)
        for clip in ("clip0", "clip5"):
            oracle = everything(films / f"{clip}.mp4")
            row = store[clip]
            numbers = [int(i * len(oracle) / count) for i in range(count)]
            assert row["frame_index"].tolist() == numbers
            np.testing.assert_allclose(row["frame_time"], np.array(numbers) / 24, atol=1e-3)
            pixels = own.clip.preprocessing.apply(torch.from_numpy(oracle[numbers]))[None]
            present = torch.ones(1, count, dtype=torch.bool)
            for array, values in run(own, pixels, present).items():
                assert row[array] == close(values[0], eps=2**-9), array  # some arrays are float16


def see_number(frame: torch.Tensor) -> torch.Tensor:
    """Return the number drawn into a frame, as an input of one pixel."""
    number = read_frame_number(frame.permute(1, 2, 0).numpy())
    return torch.full((3, 1, 1), float(number))


class Numbers(torch.nn.Module):
    def forward(self, pixels):
        return pixels[:, :1, 0, 0]


def test_a_rate_takes_as_many_frames_as_a_clip_needs(films, tmp_path):
    """At 24 fps clip0 has 5 frames and clip5 40."""
    write_clip(tmp_path / "long.mp4", "S", seconds=6)
    for name in ("clip0.mp4", "clip5.mp4"):
        (tmp_path / name).symlink_to(films / name)
    alone = of.Backbone.from_torch(Numbers(), frames=8, transform=see_number, layout="BCHW")
    three = clips("clip0.mp4", "clip5.mp4", "long.mp4")
    options = {"sampling": "24 fps", "frames": 135}
    summary = of.extract(three, tmp_path, alone, tmp_path / "s", **options)
    assert (summary.done, summary.frames) == (3, 5 + 40 + 135)
    assert summary.notes == {"too many frames at this rate, so some were left out": 1}
    store = of.open_store(summary.stores[0])
    spread = np.linspace(0, 143, 135, dtype=int)
    expected = {"clip0": np.arange(5), "clip5": np.arange(40), "long": spread}
    for clip, numbers in expected.items():
        row = store[clip]
        count = len(numbers)
        padded = np.pad(numbers.astype(float), (0, 135 - count), constant_values=np.nan)
        np.testing.assert_array_equal(row["frames"][:, 0], padded)
        np.testing.assert_array_equal(row["frame_index"], np.nan_to_num(padded, nan=-1))
        np.testing.assert_allclose(row["frame_time"], padded / 24, atol=1e-3)
        assert row["native"] == close([numbers.mean()], eps=1e-6)
    assert of.verify(summary.stores[0]) == []

    four = of.extract(three, tmp_path, alone, tmp_path / "four", frames=4)
    store = of.open_store(four.stores[0])
    assert store["clip5"]["frames"][:, 0].tolist() == [0, 10, 20, 30]
    assert not any(spec.padded for spec in store.specs)

    with pytest.raises(StoreError, match=r"differs in preprocessing\.sampling .24 a second"):
        of.extract(three, tmp_path, alone, tmp_path / "s", **options | {"frames": 134})
