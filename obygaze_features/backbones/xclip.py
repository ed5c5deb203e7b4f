"""X-CLIP (Ni et al., 2022) in Hugging Face's form: 8, 16 or 32 frames to a clip embedding."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from obygaze_features.backbones.backbone import SYNTHETIC_WORDS, Card, Family, Network, TowerNetwork
from obygaze_features.backbones.checkpoint import load_model, weight_files
from obygaze_features.backbones.made_up import TINY, video_processor, write_random
from obygaze_features.backbones.made_up_words import clip_text, write_clip_tokenizer
from obygaze_features.backbones.sampling import Sampling
from obygaze_features.backbones.tokens import read_tokenizer
from obygaze_features.common.files import read_json
from obygaze_features.common.package import need
from obygaze_features.errors import BackboneError
from obygaze_features.store import ArraySpec

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["FAMILY", "load", "load_towers", "write_xclip"]


def _arrays(frames: int, dim: int, tokens: int, width: int) -> tuple[ArraySpec, ...]:
    """What can be kept, of `tokens` tokens a frame, `width` wide and projected to `dim`."""
    return (
        ArraySpec("native", (dim,), "float32", "clip embedding, after the temporal transformer"),
        ArraySpec("max", (dim,), "float32", "maximum over `frames`"),
        ArraySpec("mean", (dim,), "float32", "mean over `frames`"),
        ArraySpec("frames", (frames, dim), "float16", "projected class token of each frame"),
        ArraySpec("frames_temporal", (frames, dim), "float16", "`frames` after temporal mixing"),
        ArraySpec(
            "tokens",
            (frames * tokens, width),
            "float16",
            f"all tokens, {tokens} a frame, class token first, neither normalised nor projected",
        ),
    )


def load(path: Path, mode: str) -> Network:
    """Load an X-CLIP from a folder with ``config.json`` and its kin."""
    need("transformers", extra="extract")
    from torch.nn import ModuleList
    from transformers import XCLIPModel

    from obygaze_features.backbones.preprocess import read_preprocessing

    files = weight_files(path)
    preprocessing = read_preprocessing(path, mode)
    model = load_model(XCLIPModel, path, files)
    settings = model.config.vision_config
    preprocessing.check_size(settings.image_size, path)
    frames = settings.num_frames
    tokens = model.vision_model.embeddings.num_positions
    # Without the text tower, which has nothing to do with clips.
    vision, project, mix = model.vision_model, model.visual_projection, model.mit

    def compute(pixels: Tensor, present: Tensor, wanted: frozenset[str]) -> dict[str, Tensor]:
        """The parts one by one: `get_video_features` does not give the tokens."""
        seen = vision(pixels.flatten(0, 1))
        embedded = project(seen.pooler_output).unflatten(0, (-1, frames))
        found = {"frames": embedded}
        found["max"], found["mean"] = embedded.float().amax(1), embedded.float().mean(1)
        if wanted & {"native", "frames_temporal"}:
            # By position: up to transformers 4 this is a bare tuple.
            found["frames_temporal"], found["native"] = mix(embedded)[:2]
        if "tokens" in wanted:
            found["tokens"] = seen.last_hidden_state.unflatten(0, (-1, frames)).flatten(1, 2)
        return found

    return Network(
        module=ModuleList([vision, project, mix]),
        compute=compute,
        sampling=Sampling(frames),
        preprocessing=preprocessing,
        arrays=_arrays(frames, model.config.projection_dim, tokens, settings.hidden_size),
        weights=files,
        config=read_json(path / "config.json", BackboneError),
    )


def load_towers(path: Path, mode: str) -> TowerNetwork:
    """Load an X-CLIP for pictures, each taken for a film that stands still, and for texts."""
    need("transformers", extra="extract")
    from transformers import XCLIPModel

    from obygaze_features.backbones.preprocess import read_preprocessing

    files = weight_files(path)
    preprocessing = read_preprocessing(path, mode)
    model = load_model(XCLIPModel, path, files)
    settings, reads = model.config.vision_config, model.config.text_config
    preprocessing.check_size(settings.image_size, path)
    frames = settings.num_frames
    # Frames that are alike tell each other nothing new: one is seen instead of all.
    for layer in model.vision_model.encoder.layers:
        layer.num_frames = 1

    def see(pixels: Tensor) -> Tensor:
        one = model.visual_projection(model.vision_model(pixels).pooler_output)
        embedded: Tensor = model.mit(one[:, None].expand(-1, frames, -1))[1]
        return embedded

    def read(tokens: Mapping[str, Tensor]) -> Tensor:
        embedded: Tensor = model.text_projection(model.text_model(**tokens).pooler_output)
        return embedded

    return TowerNetwork(
        module=model,
        see=see,
        read=read,
        tokens=read_tokenizer(path, reads.max_position_embeddings, reads.vocab_size),
        dim=model.config.projection_dim,
        meaning="embedding of a film that shows the image throughout, or end token of a text",
        preprocessing=preprocessing,
        weights=files,
        config=read_json(path / "config.json", BackboneError),
    )


_TINY = {
    **TINY,
    "num_frames": 8,
    "mit_hidden_size": 32,
    "mit_intermediate_size": 64,
    "mit_num_attention_heads": 2,
}
_FULL = {"patch_size": 16, "num_frames": 32}
"""What differs from the defaults of XCLIPVisionConfig, which are B/32 at 8 frames."""


def write_xclip(folder: Path, seed: int, vision: dict[str, Any], dim: int) -> None:
    """Write an X-CLIP of random weights; the text tower and its vocabulary are small."""
    need("transformers", extra="extract")
    from transformers import XCLIPConfig, XCLIPModel

    config = XCLIPConfig(
        text_config=clip_text(),
        vision_config=vision,
        projection_dim=dim,
        prompt_num_attention_heads=2,
        synthetic=SYNTHETIC_WORDS,
    )
    processor = video_processor(config.vision_config.image_size)
    write_random(folder, lambda: XCLIPModel(config), processor, seed)
    write_clip_tokenizer(folder, config.text_config.max_position_embeddings)


def _published(
    tail: str, title: str, *, name: str = "", frames: int, large: bool = False, grid: int
) -> Card:
    """A published checkpoint, whose pictures are cut into `grid` x `grid` patches."""
    dim, width = (768, 1024) if large else (512, 768)
    arrays = _arrays(frames, dim, 1 + grid * grid, width)
    return Card(name or tail, title, Sampling(frames), arrays, repository=f"microsoft/{tail}")


CARDS = (
    _published(
        "xclip-base-patch16-zero-shot",
        "X-CLIP B/16, Kinetics-400, for zero-shot use: the paper's X-CLIP",
        name="xclip-kinetics",
        frames=32,
        grid=14,
    ),
    _published("xclip-base-patch32", "X-CLIP B/32, Kinetics-400", frames=8, grid=7),
    _published("xclip-base-patch32-16-frames", "X-CLIP B/32, Kinetics-400", frames=16, grid=7),
    _published("xclip-base-patch16", "X-CLIP B/16, Kinetics-400", frames=8, grid=14),
    _published("xclip-base-patch16-16-frames", "X-CLIP B/16, Kinetics-400", frames=16, grid=14),
    _published("xclip-large-patch14", "X-CLIP L/14, Kinetics-400", frames=8, large=True, grid=16),
    _published(
        "xclip-large-patch14-16-frames",
        "X-CLIP L/14 at 336 pixels, Kinetics-400",
        frames=16,
        large=True,
        grid=24,
    ),
    _published("xclip-base-patch16-kinetics-600", "X-CLIP B/16, Kinetics-600", frames=8, grid=14),
    _published(
        "xclip-base-patch16-kinetics-600-16-frames",
        "X-CLIP B/16, Kinetics-600",
        frames=16,
        grid=14,
    ),
    _published(
        "xclip-large-patch14-kinetics-600",
        "X-CLIP L/14, Kinetics-600",
        frames=8,
        large=True,
        grid=16,
    ),
    *(
        _published(
            f"xclip-base-patch16-{short}-{shots}-shot",
            f"X-CLIP B/16, {shots} clips a class of {long}",
            frames=32,
            grid=14,
        )
        for short, long in (("hmdb", "HMDB-51"), ("ucf", "UCF-101"))
        for shots in (2, 4, 8, 16)
    ),
    Card(
        "tiny-xclip",
        "a small X-CLIP of random weights",
        Sampling(8),
        _arrays(8, 32, 17, 32),
        write=lambda folder, seed: write_xclip(folder, seed, _TINY, 32),
    ),
    Card(
        "random-xclip",
        "X-CLIP B/16 of random weights, of the size of xclip-kinetics",
        Sampling(32),
        _arrays(32, 512, 197, 768),
        write=lambda folder, seed: write_xclip(folder, seed, _FULL, 512),
    ),
)

FAMILY = Family("xclip", "xclip", CARDS, load, load_towers)
