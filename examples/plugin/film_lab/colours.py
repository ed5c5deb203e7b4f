# film_lab/colours.py
from torch import Tensor
from torch.nn import Identity

from obygaze_features.backbones import Backbone
from obygaze_features.backbones.preprocess import Preprocessing
from obygaze_features.backbones.readers import FrameReader
from obygaze_features.sampling import Sampling
from obygaze_features.store import ArraySpec

PREPROCESSING = Preprocessing(
    shortest_edge=32,
    filter="bilinear",
    crop=(32, 32),
    scale=1 / 255,
    mean=(0.5,) * 3,
    std=(1.0,) * 3,
)
ARRAYS = (
    ArraySpec("native", (3,), "float32", "mean colour of the clip"),
    ArraySpec("frames", (8, 3), "float16", "mean colour of each frame"),
)


def colours(mode: str) -> Backbone:
    """Return a backbone that computes the mean colour of eight frames."""

    def encode(pixels: Tensor, present: Tensor, names: frozenset[str]) -> dict[str, Tensor]:
        frames = pixels.mean((-1, -2))  # from [B, 8, 3, h, w]
        return {"native": frames.mean(1), "frames": frames}

    clip = FrameReader(Sampling(8), PREPROCESSING, ARRAYS, encode)
    return Backbone(Identity(), clip=clip)
