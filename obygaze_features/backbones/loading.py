"""How a backbone is asked for, and made ready to run."""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from obygaze_features.backbones.backbone import ON_REQUEST, Backbone, Card, Family, Network
from obygaze_features.backbones.hub import cached_checkpoint, fetch_checkpoint, is_repository
from obygaze_features.backbones.random_weights import cached_weights
from obygaze_features.backbones.registry import CARDS, FAMILIES
from obygaze_features.common.extras import need
from obygaze_features.common.files import read_json
from obygaze_features.common.words import some
from obygaze_features.errors import BackboneError, UsageError
from obygaze_features.store import ArraySpec

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["PRECISIONS", "load_backbone", "prefetch"]

PRECISIONS = ("float32", "bfloat16", "float16")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def load_backbone(
    spec: str,
    device: str | None = None,
    *,
    mode: str = "standard",
    precision: str = "float32",
    arrays: Sequence[str] | None = None,
) -> Backbone:
    """Load a backbone.

    Parameters
    ----------
    spec
        ``NAME=PATH`` is a checkpoint of a known layout, under a name of your choice; ``PATH``
        alone is named after its folder; ``NAME`` alone is a card in `CARDS`, and ``OWNER/NAME`` a
        checkpoint on the Hugging Face hub, both fetched unless they are in its cache. Either may
        be renamed, too: ``NAME=OWNER/NAME``.
    device
        ``cpu``, ``cuda``, ``cuda:1``, ``mps``; by default a GPU if there is one.
    mode
        How frames are preprocessed, see `read_preprocessing`: ``standard`` or ``author``.
    precision
        ``float32``; or ``bfloat16`` or ``float16``, for what loses little by it. Results are always
        float32.
    arrays
        Which are computed; by default all but ``tokens``. ``NAME:ARRAY`` is meant for the backbone
        of that name alone.
    """
    if precision not in PRECISIONS:
        raise UsageError(f"{precision!r} is no precision; take one of {', '.join(PRECISIONS)}")
    where = _device(device)
    found = _find(spec)
    family = _family_of(found.path)
    network = family.load(found.path, mode)
    chosen = _choose(network.arrays, arrays, found.name)
    _move(network, where, found.name)
    return Backbone(
        name=found.name,
        sampling=network.sampling,
        preprocessing=network.preprocessing,
        arrays=chosen,
        forward=partial(_forward, network, tuple(one.name for one in chosen), precision),
        device=where,
        about={
            "name": family.name,
            "revision": found.revision,
            "weights_sha256": _sha256(network.weights),
            "config": dict(network.config),
        },
        precision=precision,
    )


def prefetch(name: str) -> Path:
    """Get a card's checkpoint, or one of the hub, ahead of a machine without network."""
    if name in CARDS:
        return _checkpoint_of(CARDS[name], fetch=True)
    if is_repository(name) and not Path(name).exists():
        return fetch_checkpoint(name, name, _family_of)
    raise UsageError(f"{name} is nothing that can be fetched; {_near(name)}, or OWNER/NAME")


def _forward(
    network: Network, names: tuple[str, ...], precision: str, pixels: Tensor, present: Tensor
) -> dict[str, Tensor]:
    import torch

    # Some networks take any multiple of their frames, and mix clips.
    count = network.sampling.frames
    assert pixels.shape[1] == count, f"{pixels.shape[1]} frames a clip, not {count}"
    with torch.inference_mode(), _arithmetic(pixels.device.type, precision):
        found = network.compute(pixels, present, frozenset(names))
    return {name: found[name].float() for name in names}


@contextlib.contextmanager
def _arithmetic(device: str, precision: str) -> Iterator[None]:
    """Compute in a number format; float32 is meant exactly, without TensorFloat-32."""
    import torch

    if precision != "float32":
        with torch.autocast(device, getattr(torch, precision)):
            yield
        return
    products, convolutions = torch.backends.cuda.matmul, torch.backends.cudnn
    was = products.allow_tf32, convolutions.allow_tf32
    products.allow_tf32 = convolutions.allow_tf32 = False
    try:
        yield
    finally:
        products.allow_tf32, convolutions.allow_tf32 = was


@dataclass(frozen=True)
class _Found:
    name: str
    path: Path
    revision: str | None = None


def _find(spec: str) -> _Found:
    """The name of a store, and the checkpoint on this machine, fetched if need be."""
    name, equals, given = spec.partition("=")
    if not equals or Path(spec).exists():  # a path may have the sign in it, too
        name, given = "", spec
    path = Path(given)
    own = path.resolve().parent.name if path.is_file() else path.resolve().name
    # Under a name of the user's a path is meant rather than a card, if there is one.
    here = path.exists() and (name or given not in CARDS)
    found = _Found(name or own, path)
    if not _NAME.fullmatch(found.name):
        raise UsageError(f"{found.name!r} cannot name a store; use letters, digits and . _ -")
    if here:
        return found
    if given in CARDS:
        card, path = CARDS[given], _checkpoint_of(CARDS[given])
        return _Found(found.name, path, path.name if card.repository else None)
    if is_repository(given):
        try:
            path = cached_checkpoint(given) or fetch_checkpoint(given, given, _family_of)
        except BackboneError as problem:
            near = _beside(path)
            raise BackboneError(f"there is no folder {given} here{near}, and {problem}") from None
        return _Found(found.name, path, path.name)
    raise BackboneError(f"{given} is neither a checkpoint nor a backbone by name; {_near(given)}")


def _near(name: str) -> str:
    near = difflib.get_close_matches(Path(name).name, CARDS, n=1)
    if near:
        return f"did you mean {near[0]}?"
    return "see those that there are with: obygaze features backbones"


def _beside(path: Path) -> str:
    """What a path that leads nowhere may have meant."""
    there = sorted(one.name for one in path.parent.glob("*")) if path.parent.is_dir() else []
    near = difflib.get_close_matches(path.name, there, n=1)
    if near:
        return f" (did you mean {path.parent / near[0]}?)"
    return f" ({path.parent} has {some(there)})" if there else ""


def _checkpoint_of(card: Card, *, fetch: bool = False) -> Path:
    if card.write:
        return cached_weights(card.name)
    if not card.repository:
        raise BackboneError(f"{card.name} cannot be fetched: {card.obtain}")
    cached = None if fetch else cached_checkpoint(card.repository)
    return cached or fetch_checkpoint(card.repository, card.name, _family_of)


def _family_of(path: Path) -> Family:
    config = path / "config.json"
    content = read_json(config, BackboneError) if config.is_file() else {}
    model_type = content.get("model_type") if isinstance(content, dict) else None
    for family in FAMILIES:
        # What has no config.json is of the one layout that needs none.
        if family.model_type == model_type and (model_type or not config.is_file()):
            return family
    known = ", ".join(family.model_type for family in FAMILIES if family.model_type)
    raise BackboneError(f"{path} is of the type {model_type!r}; known types are: {known}")


def _choose(
    there: tuple[ArraySpec, ...], wanted: Sequence[str] | None, name: str
) -> tuple[ArraySpec, ...]:
    names = [one.name for one in there]
    if wanted is not None:
        pairs = [one.rpartition(":") for one in wanted]
        wanted = [array for owner, _, array in pairs if owner in ("", name)]
        if not wanted:
            raise UsageError(f"no array of {name} is asked for; it has {', '.join(names)}")
    if unknown := [one for one in wanted or () if one not in names]:
        raise UsageError(f"{name} has no array {unknown[0]!r}; it has {', '.join(names)}")
    return tuple(
        one
        for one in there
        if (one.name not in ON_REQUEST if wanted is None else one.name in wanted)
    )


def _move(network: Network, device: str, name: str) -> None:
    import torch

    try:
        network.module.eval().requires_grad_(False).to(device)
    except torch.OutOfMemoryError:
        raise BackboneError(
            f"{device} has no memory left for {name}; see who uses it with nvidia-smi, "
            "or take another --device"
        ) from None


def _device(device: str | None) -> str:
    torch = need("torch", extra="extract")
    if device is None:
        if torch.cuda.is_available():
            return "cuda"
        return "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as problem:
        # What torch says first is a list of every kind of device that anybody ever built.
        reason = str(problem).splitlines()[0]
        known = "" if reason.startswith("Expected one of") else f" ({reason})"
        raise BackboneError(
            f"the device {device!r} cannot be used{known}; this machine has "
            f"{', '.join(_devices())}; see more with: obygaze doctor"
        ) from None
    return device


def _devices() -> list[str]:
    """Those that this machine has."""
    import torch

    cuda = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    return ["cpu", *cuda, *(["mps"] if torch.backends.mps.is_available() else [])]


def _sha256(files: Sequence[Path]) -> str:
    """The SHA-256 of one file, or of several one after another (``cat * | sha256sum``)."""
    digest = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            while piece := file.read(1 << 20):
                digest.update(piece)
    return digest.hexdigest()
