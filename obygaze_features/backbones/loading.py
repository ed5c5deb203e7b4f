"""How a backbone is asked for, and made ready to run."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from obygaze_features.backbones.backbone import ON_REQUEST, Backbone, Network
from obygaze_features.backbones.devices import arithmetic, check_precision, device_of, move
from obygaze_features.backbones.finding import family_of, find, sha256_of
from obygaze_features.errors import UsageError
from obygaze_features.store import ArraySpec

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["load_backbone"]


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
    check_precision(precision)
    where = device_of(device)
    found = find(spec)
    family = family_of(found.path)
    network = family.load(found.path, mode)
    chosen = _choose(network.arrays, arrays, found.name)
    move(network.module, where, found.name)
    return Backbone(
        name=found.name,
        sampling=network.sampling,
        preprocessing=network.preprocessing,
        arrays=chosen,
        forward=partial(_forward, network, tuple(one.name for one in chosen), precision),
        device=where,
        about={
            "name": found.backbone,
            "family": family.name,
            "revision": found.revision,
            "weights_sha256": sha256_of(network.weights),
            "config": dict(network.config),
        },
        precision=precision,
    )


def _forward(
    network: Network, names: tuple[str, ...], precision: str, pixels: Tensor, present: Tensor
) -> dict[str, Tensor]:
    import torch

    # Some networks take any multiple of their frames, and mix clips.
    count = network.sampling.frames
    assert pixels.shape[1] == count, f"{pixels.shape[1]} frames a clip, not {count}"
    with torch.inference_mode(), arithmetic(pixels.device.type, precision):
        found = network.compute(pixels, present, frozenset(names))
    return {name: found[name].float() for name in names}


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
