"""`obygaze features backbones`, `prefetch` and `make-weights`: where backbones come from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from obygaze_features.common.cli import (
    echo,
    echo_json,
    folder_argument,
    json_option,
    overwrite_option,
)
from obygaze_features.common.tables import align

if TYPE_CHECKING:
    from obygaze_features.backbones import Family, KnownCheckpoint
    from obygaze_features.store import ArraySpec


@click.command()
@json_option
def backbones(as_json: bool) -> None:
    """List the backbones, their origins and their arrays.

    Families that also take images, or images and texts, embed them as `native`. Any other
    checkpoint of these families works too: as NAME=FOLDER, or as OWNER/NAME on the Hugging Face
    hub.

    \b
    Examples:
      obygaze features backbones
      obygaze features backbones --json
    """
    if as_json:
        echo_json(_cards())
    else:
        echo("\n\n".join(_describe()))


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
def prefetch(names: tuple[str, ...]) -> None:
    """Download backbones for a machine without network.

    A NAME is one that `obygaze features backbones` lists, one that `obygaze features
    caption-scores` takes, or OWNER/NAME on the Hugging Face hub. The command
    prints their folders. Cached files are not downloaded again; HF_HOME sets the hub's cache.

    \b
    Examples:
      obygaze features prefetch xclip-kinetics vivit
      obygaze features prefetch gpt2 roberta-large-nli-stsb-mean-tokens
      HF_HOME=/scratch/hub obygaze features prefetch microsoft/xclip-base-patch32
    """
    from obygaze_features.backbones.checkpoints import prefetch as prefetch_backbone
    from obygaze_features.language.models import is_text_model
    from obygaze_features.language.models import prefetch as prefetch_text_model

    for name in names:
        echo(f"Fetching {name}", err=True)
        path = prefetch_text_model(name) if is_text_model(name) else prefetch_backbone(name)
        echo(f"{name}: {path}")


@click.command("make-weights")
@click.argument("name")
@folder_argument("folder")
@overwrite_option
def make_weights(name: str, folder: Path, overwrite: bool) -> None:
    """Write a checkpoint of untrained random weights.

    NAME is tiny-xclip, tiny-vivit, tiny-clap or tiny-xclip-lsmdc. They serve to try the software
    without a download. Features made with them mean nothing.

    \b
    Examples:
      obygaze features make-weights tiny-xclip demo/weights
    """
    from obygaze_features.backbones import known_checkpoints
    from obygaze_features.backbones.weights import write_random_weights
    from obygaze_features.errors import UsageError

    writers = {item.name: item.write for item in known_checkpoints().values() if item.write}
    if name not in writers:
        raise UsageError(f"no random weights are called {name!r}; use one of {', '.join(writers)}")
    write_random_weights(writers[name], folder, overwrite=overwrite)
    echo(f"SYNTHETIC {name} with random weights in {folder}")


def _describe() -> Iterator[str]:
    """Yield the table of checkpoints, other packages' backbones, and each family's arrays."""
    from obygaze_features.backbones import families, known_checkpoints
    from obygaze_features.backbones.registry import load_plugins

    header = ["name", "sees or hears", "from", "keeps frames", "per clip"]
    rows = [
        [item.name, _takes(item), _source(item), _frames(item), f"{item.bytes_per_clip:,} B"]
        for item in known_checkpoints().values()
    ]
    yield align(header, rows, left=3)
    plugins, problems = load_plugins()
    lines = [f"  {plugin.name}: {plugin}" for plugin in plugins]
    lines += [f"  {plugin.name} cannot be used: {reason}" for plugin, reason in problems.items()]
    if lines:
        yield "\n".join(["From other packages:", *lines])
    yield "The arrays of each family's first checkpoint; others differ in frames and width."
    for family in families():
        yield _describe_family(family)
    yield "From installed libraries: timm:NAME, torchvision:NAME; NAME.random, NAME@LAYER"


def _describe_family(family: Family) -> str:
    checkpoint = family.checkpoints[0]
    lines = [f"{checkpoint.name}: {checkpoint.title}", f"  takes: {checkpoint.sampling.words}"]
    if others := [kind for kind, is_taken in _also_takes(family).items() if is_taken]:
        lines.append(f"  also takes {' and '.join(others)}")
    for array in checkpoint.arrays:
        size, note = f"{array.row_bytes:,} B", " (only on request)" if array.on_request else ""
        lines.append(
            f"  {array.name:<16}{_shape(array):>10} {array.dtype:<8}{size:>12}"
            f"  {array.meaning}{note}"
        )
    stated = "; ".join(f"{key} {text}" for key, text in checkpoint.credits.items())
    if about := checkpoint.how_to_get or stated:
        lines.append(f"  {about}")
    return "\n".join(lines)


def _cards() -> dict[str, object]:
    """Return the checkpoints and plug-ins as JSON values, by name."""
    from obygaze_features.backbones import families
    from obygaze_features.backbones.backbone import Family
    from obygaze_features.backbones.registry import load_plugins

    cards: dict[str, object] = {
        checkpoint.name: _as_json(checkpoint, family)
        for family in families()
        for checkpoint in family.checkpoints
    }
    for plugin, loaded in load_plugins()[0].items():
        if not isinstance(loaded, Family):
            cards[plugin.name] = {"title": str(plugin), "package": plugin.package}
    return cards


def _frames(checkpoint: KnownCheckpoint) -> str:
    return next((_shape(spec) for spec in checkpoint.arrays if spec.name == "frames"), "")


def _shape(array: ArraySpec) -> str:
    return " x ".join(map(str, array.shape))


def _takes(checkpoint: KnownCheckpoint) -> str:
    if checkpoint.hears:
        return f"{checkpoint.sampling.window:g} s of sound"
    return f"{checkpoint.sampling.frames} frames" if checkpoint.sampling.frames else "texts"


def _also_takes(family: Family) -> dict[str, bool]:
    hears = any(checkpoint.hears for checkpoint in family.checkpoints)
    images = not hears and (family.embeds_texts or family.embeds_images)
    return {"images": images, "texts": family.embeds_texts}


def _source(checkpoint: KnownCheckpoint) -> str:
    if checkpoint.write:
        return "made here, no download"
    return checkpoint.repository or f"a file of yours, see below: {checkpoint.name}=FILE"


def _as_json(checkpoint: KnownCheckpoint, family: Family) -> dict[str, object]:
    return {
        "title": checkpoint.title,
        "package": family.plugin.package if family.plugin else "obygaze",
        "images_and_texts": family.embeds_texts and not checkpoint.hears,
        **_also_takes(family),
        "window_s": checkpoint.sampling.window if checkpoint.hears else None,
        "repository": checkpoint.repository,
        "needs_download": checkpoint.write is None,
        "obtain": checkpoint.how_to_get or None,
        **checkpoint.credits,
        "frames": checkpoint.sampling.frames,
        "sampling": checkpoint.sampling.words,
        "bytes_a_clip": checkpoint.bytes_per_clip,
        "arrays": {
            array.name: {
                "shape": array.shape,
                "dtype": array.dtype,
                "bytes": array.row_bytes,
                "meaning": array.meaning,
            }
            for array in checkpoint.arrays
        },
    }
