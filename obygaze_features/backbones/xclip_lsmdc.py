"""X-CLIP (Ma et al., 2022) as its own code saves it: the backbone that was trained on LSMDC.

Not to be taken for the X-CLIP of Ni et al. in `xclip`. CLIP sees each frame alone, once a second;
a small transformer then mixes the frames. A checkpoint is a bare state dict of which only the
video side is read.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from obygaze_features.backbones.backbone import SYNTHETIC_WORDS, Card, Family, Network
from obygaze_features.backbones.sampling import Sampling
from obygaze_features.common.package import need
from obygaze_features.errors import BackboneError
from obygaze_features.store import ArraySpec

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

__all__ = ["FAMILY", "load", "write_xclip_lsmdc"]

VISION, MIXER, PLACES, FRAMES = (
    "clip.visual.",
    "transformerClip.",
    "frame_position_embeddings.weight",
    "frame_mat_weight",
)
"""Where in the state dict the video side is."""
MARK = "synthetic"
"""A tensor in checkpoints of random weights, so that the file alone says what it is."""
RATE = 1.0
EPS = 1e-12
_NUMBERED = re.compile(r"pytorch_model\.bin(\.\d+)?")


def _arrays(frames: int, dim: int, tokens: int) -> tuple[ArraySpec, ...]:
    """What can be kept, of `tokens` tokens a frame, projected to `dim`."""
    return (
        ArraySpec("native", (dim,), "float32", "clip embedding: mean of `frames_temporal`, unit"),
        ArraySpec("max", (dim,), "float32", "maximum over `frames`, padding apart"),
        ArraySpec("mean", (dim,), "float32", "mean over `frames`, padding apart"),
        ArraySpec("frames", (frames, dim), "float16", "projected class token of each frame", True),
        ArraySpec(
            "frames_temporal", (frames, dim), "float16", "`frames` after temporal mixing", True
        ),
        ArraySpec(
            "tokens",
            (frames * tokens, dim),
            "float16",
            f"all projected tokens, {tokens} a frame, class token first",
            padded=True,
        ),
    )


def load(path: Path, mode: str) -> Network:
    """Load a checkpoint file, or the one in a folder. Both modes of preprocessing are the same:
    the checkpoint's published rule is also its authors' code.
    """
    torch = need("torch", extra="extract")
    from torch.nn import ModuleDict, ParameterDict
    from torch.nn.functional import normalize

    from obygaze_features.backbones.openai_clip import Transformer, VisionTransformer
    from obygaze_features.backbones.preprocess import CLIP_TORCHVISION

    file = _file_of(path)
    state = _read(file)
    sizes = _sizes(state, file)
    frames, dim = sizes["frames"], sizes["dim"]
    with torch.device("meta"):
        vision = VisionTransformer(
            sizes["image_size"], sizes["patch_size"], sizes["width"], sizes["layers"], dim
        )
        mixer = Transformer(dim, sizes["temporal_layers"], EPS)
    _fill(vision, VISION, state, file)
    _fill(mixer, MIXER, state, file)
    places = state[PLACES].float()[:frames]
    others = ParameterDict({"places": torch.nn.Parameter(places, requires_grad=False)})

    def compute(pixels: Tensor, present: Tensor, wanted: frozenset[str]) -> dict[str, Tensor]:
        seen = vision(pixels.flatten(0, 1)).unflatten(0, (-1, frames))
        embedded = vision.embed(seen[:, :, 0]).float()
        here = present[..., None]
        count = here.sum(1)
        found = {
            "frames": embedded.where(here, math.nan),
            "max": embedded.where(here, -math.inf).amax(1),
            "mean": embedded.where(here, 0).sum(1) / count,
        }
        if wanted & {"native", "frames_temporal"}:
            mixed = (embedded + mixer(embedded + others["places"], present)).float()
            found["frames_temporal"] = mixed.where(here, math.nan)
            unit = normalize(mixed, dim=-1)
            found["native"] = normalize(unit.where(here, 0).sum(1) / count, dim=-1)
        if "tokens" in wanted:
            tokens = vision.embed(seen).float().where(here[..., None], math.nan)
            found["tokens"] = tokens.flatten(1, 2)
        return found

    synthetic = {"synthetic": SYNTHETIC_WORDS} if MARK in state else {}
    return Network(
        module=ModuleDict({"vision": vision, "mixer": mixer, "others": others}),
        compute=compute,
        sampling=Sampling(frames, RATE),
        preprocessing=CLIP_TORCHVISION.at(sizes["image_size"]),
        arrays=_arrays(frames, dim, 1 + (sizes["image_size"] // sizes["patch_size"]) ** 2),
        weights=(file,),
        config={"layout": "X-CLIP of Ma et al.", **sizes, **synthetic},
    )


def _file_of(path: Path) -> Path:
    if path.is_file():
        return path
    files = sorted(file for file in path.iterdir() if _NUMBERED.fullmatch(file.name))
    if not files:
        raise BackboneError(
            f"{path} is no checkpoint: it has neither config.json nor pytorch_model.bin.N"
        )
    if len(files) > 1:
        raise BackboneError(
            f"{path} holds {len(files)} checkpoints; name one of them: "
            f"NAME={files[0]} ... {files[-1].name}"
        )
    return files[0]


def _read(file: Path) -> dict[str, Tensor]:
    """The tensors of a state dict; nothing else is ever unpickled."""
    torch = need("torch", extra="extract")
    wrong = f"{file} is not a checkpoint of X-CLIP by Ma et al."
    try:
        state = torch.load(file, map_location="cpu", weights_only=True)
    except OSError as problem:
        raise BackboneError(f"{file} cannot be read: {problem.strerror or problem}") from None
    except Exception as problem:  # zip, pickle and torch have each their own errors
        if "weights_only" in str(problem):
            reason = "it holds more than tensors, which is not loaded because it could run code"
        else:
            reason = "it cannot be read; is it complete? fetch it once more"
        raise BackboneError(f"{wrong}: {reason}") from None
    if not isinstance(state, dict) or not all(isinstance(v, torch.Tensor) for v in state.values()):
        raise BackboneError(f"{wrong}: it holds something else than tensors by name")
    return state


def _sizes(state: dict[str, Tensor], file: Path) -> dict[str, int]:
    """The sizes of a network, from the shapes of its weights."""

    def shape(name: str, rank: int) -> tuple[int, ...]:
        if name not in state:
            raise BackboneError(
                f"{file} is not a checkpoint of X-CLIP by Ma et al.: it lacks {name}; "
                "of any other backbone, give the folder that holds its config.json"
            )
        if state[name].ndim != rank:
            raise BackboneError(f"{file}: {name} has the shape {tuple(state[name].shape)}")
        return tuple(state[name].shape)

    width, _, patch, _ = shape(f"{VISION}conv1.weight", 4)
    tokens, _ = shape(f"{VISION}positional_embedding", 2)
    _, dim = shape(f"{VISION}proj", 2)
    frames, _ = shape(FRAMES, 2)
    places, _ = shape(PLACES, 2)
    side = math.isqrt(tokens - 1)
    if side * side + 1 != tokens or frames > places or width % 64 or dim % 64:
        raise BackboneError(
            f"{file} has sizes that no X-CLIP has: {tokens - 1} patches, width {width}, "
            f"embedding {dim}, {frames} frames at {places} places"
        )
    return {
        "frames": frames,
        "image_size": side * patch,
        "patch_size": patch,
        "width": width,
        "layers": _layers(state, f"{VISION}transformer."),
        "dim": dim,
        "temporal_layers": _layers(state, MIXER),
    }


def _layers(state: dict[str, Tensor], prefix: str) -> int:
    found = (re.match(re.escape(prefix) + r"resblocks\.(\d+)\.", name) for name in state)
    return 1 + max((int(match[1]) for match in found if match), default=-1)


def _fill(module: Module, prefix: str, state: dict[str, Tensor], file: Path) -> None:
    """Give a module its weights, in float32, and refuse what does not fit."""
    own = module.state_dict()
    lacking = [name for name in own if prefix + name not in state]
    if lacking:
        raise BackboneError(f"{file} lacks {len(lacking)} weights, such as {prefix}{lacking[0]}")
    for name, wanted in own.items():
        found = state[prefix + name].shape
        if found != wanted.shape:
            raise BackboneError(
                f"{file}: {prefix}{name} has the shape {tuple(found)}, not {tuple(wanted.shape)}"
            )
    module.load_state_dict({name: state[prefix + name].float() for name in own}, assign=True)


def write_xclip_lsmdc(folder: Path, seed: int, sizes: dict[str, int]) -> None:
    """Write a state dict of random weights; of the text side there is one tensor."""
    torch = need("torch", extra="extract")
    from obygaze_features.backbones.openai_clip import Transformer, VisionTransformer

    dim, frames = sizes["dim"], 12
    modules: dict[str, Module] = {
        VISION: VisionTransformer(
            sizes["image_size"], sizes["patch_size"], sizes["width"], sizes["layers"], dim
        ),
        MIXER: Transformer(dim, 4, EPS),
    }
    random = torch.Generator().manual_seed(seed)
    state: dict[str, Any] = {"clip.logit_scale": torch.tensor(4.6), MARK: torch.ones(())}
    for prefix, module in modules.items():
        for name, weights in module.state_dict().items():
            if "ln_" in name:
                values = torch.ones_like(weights) if name.endswith("weight") else weights * 0
            else:
                values = torch.randn(weights.shape, generator=random)
                values *= 0.5 / math.sqrt(weights[0].numel() if weights.ndim > 1 else len(weights))
            # As in the published ones, where CLIP's matrices are halves.
            halve = prefix == VISION and weights.ndim > 1 and "embedding" not in name
            state[prefix + name] = values.half() if halve else values
    state[PLACES] = 0.02 * torch.randn(77, dim, generator=random)
    state[FRAMES] = torch.eye(frames)
    torch.save(state, folder / "pytorch_model.bin.0")


_TINY = {"image_size": 32, "patch_size": 8, "width": 64, "layers": 2, "dim": 64}
_FULL = {"image_size": 224, "patch_size": 32, "width": 768, "layers": 12, "dim": 512}

CARDS = (
    Card(
        "xclip-lsmdc",
        "X-CLIP of Ma et al., trained on LSMDC: the paper's second X-CLIP",
        Sampling(12, RATE),
        _arrays(12, 512, 50),
        obtain=(
            "no public download is known: train it with https://github.com/xuguohai/X-CLIP or ask "
            "the authors of ObyGaze12, and give xclip-lsmdc=FILE (pytorch_model.bin.N)"
        ),
    ),
    Card(
        "tiny-xclip-lsmdc",
        "a small X-CLIP of Ma et al.'s kind, of random weights",
        Sampling(12, RATE),
        _arrays(12, 64, 17),
        write=lambda folder, seed: write_xclip_lsmdc(folder, seed, _TINY),
    ),
    Card(
        "random-xclip-lsmdc",
        "X-CLIP of Ma et al.'s kind (B/32), of random weights, of the size of xclip-lsmdc",
        Sampling(12, RATE),
        _arrays(12, 512, 50),
        write=lambda folder, seed: write_xclip_lsmdc(folder, seed, _FULL),
    ),
)

FAMILY = Family("xclip-lsmdc", None, CARDS, load)
