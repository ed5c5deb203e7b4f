"""Write saliency maps of a manifest's images, and the mean map of each group.

A map is the Grad-CAM for the cosine of an image and a text, in a model with a vision transformer
and a text tower.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.nn import Module
from torch.nn.functional import cosine_similarity

from obygaze_features.backbones import Backbone, load_backbone
from obygaze_features.backbones.devices import arithmetic, explain_out_of_memory
from obygaze_features.backbones.preprocess import normalise, resize_and_crop
from obygaze_features.common.files import new_folder, to_json, write_text
from obygaze_features.common.formatting import counted, shorten
from obygaze_features.common.names import file_names, unknown_name
from obygaze_features.common.progress import progress
from obygaze_features.common.tables import format_rows
from obygaze_features.errors import UsageError, VideoError
from obygaze_features.extraction.job import check_items
from obygaze_features.extraction.reader import portable_reason, read_picture
from obygaze_features.items.media import IMAGE_SUFFIXES, MediaFolder
from obygaze_features.manifests import Item, Manifest
from obygaze_features.manifests.importers.prompts import with_article

RECORD = "saliency.json"
"""The file that records the settings, and that marks a folder as a folder of maps."""
IMAGES_PER_BATCH = 16
_FIELD = re.compile(r"\{([^{}]*)\}")
_COLOURS = ((176, 18, 32), (214, 40, 28), (240, 96, 24), (252, 170, 32), (255, 226, 74))
"""The colours from lowest to highest, without blue, so that heat looks warm over any image."""
_MAX_OPACITY = 0.92
_BRIGHTNESS = 0.75
"""The brightness of the image below the heat."""

Bytes = NDArray[np.uint8]
Values = NDArray[np.float32]


def write_saliency(
    manifest: Manifest,
    images: Path,
    model: GradCamModel,
    text: str,
    folder: Path,
    *,
    by: str | None = None,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Write saliency maps of a manifest's images for a text, as numbers and as pictures.

    Parameters
    ----------
    manifest, images
        The images, and the folder of their files.
    text
        The text to compare images with; ``{column}`` is replaced by an image's cell of that column.
    by
        The column of the manifest that defines groups to average (default: a single group).

    Returns
    -------
    dict
        The number of images in each of the ``groups``, the ids and reasons of images that
        ``failed``, and the texts that were ``cut`` at the network's maximum length. An image whose
        `by` cell is empty is in no group.
    """
    check_items(manifest, ("image",))
    items = list(manifest.items)
    columns = {"film": manifest.items.films, **manifest.items.extra}
    texts = _fill_in(text, columns, len(items))
    groups: Sequence[str] = ["all"] * len(items)
    if by is not None:
        groups = _column(by, columns)
    media = MediaFolder(images.resolve(), IMAGE_SUFFIXES)
    failed: dict[str, str] = {}
    rows = []
    maps = []
    members: dict[str, list[Values]] = {}
    image_sums: dict[str, Any] = {}
    with (
        warnings.catch_warnings(),
        new_folder(folder, overwrite=overwrite, marker=RECORD, allow_missing=True) as new,
    ):
        # Readable files with minor errors need no warning.
        warnings.filterwarnings("ignore", module=r"PIL\.")
        for row, image, cosine, values in _compute(model, media, items, texts, failed):
            item = items[row].id
            group = groups[row]
            peak = values.max()
            scaled = values / (peak or np.float32(1))
            _save_picture(new / "images" / f"{item}.png", image, scaled)
            maps.append(values)
            found = {"id": item, "group": group, "text": texts[row]}
            rows.append({**found, "similarity": cosine, "peak": float(peak)})
            if group:
                members.setdefault(group, []).append(scaled)
                image_sums[group] = image_sums.get(group, 0.0) + image.astype(np.float64)
        if not rows:
            reason = next(iter(failed.values()), "the manifest is empty")
            raise VideoError(f"could not map any of {counted(len(items), 'image')}: {reason}")

        np.save(new / "maps.npy", np.stack(maps), allow_pickle=False)
        write_text(new / "images.csv", format_rows(rows, number=repr))
        result = {
            "groups": {group: len(scaled) for group, scaled in members.items()},
            "failed": failed,
            "cut": [text for text in dict.fromkeys(texts) if model.cuts(text)],
        }
        record = {
            "backbone": {k: value for k, value in model.backbone.about.items() if k != "config"},
            "preprocessing": model.backbone.reader("image").preprocessing.attributes(),
            "grid": model.grid,
            "text": text,
            "by": by,
        }
        record |= result | _write_groups(new, members, image_sums)
        write_text(new / RECORD, to_json(record))
    return result


def _write_groups(
    folder: Path,
    members: Mapping[str, Sequence[Values]],
    image_sums: Mapping[str, Any],
) -> dict[str, Any]:
    """Write each group's mean map, on a common scale; return the pictures and the scale."""
    means = {}
    highest = 0.0
    for name, maps in members.items():
        means[name] = np.stack(maps).mean(0, dtype=np.float64)
        highest = max(highest, float(means[name].max()))
    highest = highest or 1.0
    pictures = dict(zip(means, file_names(means, ".png"), strict=True))
    rows = []
    for name, mean in means.items():
        count = len(members[name])
        image = np.round(image_sums[name] / count).astype(np.uint8)
        scaled = (mean / highest).astype("float32")
        _save_picture(folder / "groups" / pictures[name], image, scaled)
        for (row, column), value in np.ndenumerate(mean):
            cell = {"row": row, "column": column, "value": float(value)}
            rows.append({"group": name, "images": count, **cell})
    write_text(folder / "groups.csv", format_rows(rows, number=repr))
    return {"pictures": pictures, "brightest_at": highest}


def _column(name: str, columns: Mapping[str, Sequence[str]]) -> Sequence[str]:
    if name not in columns:
        raise UsageError(unknown_name("column", name, columns))
    return columns[name]


def _fill_in(text: str, columns: Mapping[str, Sequence[str]], count: int) -> list[str]:
    """Return each image's text, with column names in braces replaced by the image's values."""
    start, *pieces = _FIELD.split(text)
    texts = [start] * count
    for name, after in zip(pieces[::2], pieces[1::2], strict=True):
        cells = _column(name, columns)
        if "" in cells:
            raise UsageError(f"--text {shorten(text)}: fill in the empty cells of column {name!r}")
        for row, cell in enumerate(cells):
            texts[row] = with_article(texts[row] + "{}", cell) + after
    if re.search("[{}]", _FIELD.sub("", text)):
        raise UsageError(f"--text {shorten(text)}: unmatched brace. Write {{COLUMN}}")
    return texts


def _read(model: GradCamModel, media: MediaFolder, item: Item) -> Tensor | str:
    """Return an image resized for the network, or the reason why it cannot be read."""
    try:
        image = read_picture(media.find(item))
    except VideoError as problem:
        return portable_reason(problem, media.root)
    return resize_and_crop(image[None], model.backbone.reader("image").preprocessing)[0]


def _compute(
    model: GradCamModel,
    media: MediaFolder,
    items: Sequence[Item],
    texts: Sequence[str],
    failed: dict[str, str],
) -> Iterator[tuple[int, Bytes, float, Values]]:
    """Yield each readable image's row, pixels, cosine and map; add other images to `failed`."""
    embeddings = {text: model.embed_texts([text])[0] for text in dict.fromkeys(texts)}
    starts = range(0, len(items), IMAGES_PER_BATCH)
    with ThreadPoolExecutor() as pool:
        for start in progress(starts, "Saliency", unit="batch"):
            batch = items[start : start + IMAGES_PER_BATCH]
            images = {}
            for row, image in enumerate(pool.map(partial(_read, model, media), batch), start):
                if isinstance(image, str):
                    failed[items[row].id] = image
                else:
                    images[row] = image
            if not images:
                continue
            pixels = torch.stack(list(images.values()))
            targets = torch.stack([embeddings[texts[row]] for row in images])
            cosines, maps = grad_cam(model, pixels, targets)
            seen = pixels.permute(0, 2, 3, 1).numpy()
            yield from zip(images, seen, cosines.tolist(), maps.numpy(), strict=True)


def _save_picture(path: Path, image: Bytes, values: Values) -> None:
    """Write an image overlaid with a map of values from 0 to 1."""
    path.parent.mkdir(exist_ok=True)
    height, width = image.shape[:2]
    # Interpolate between the centres of patches.
    enlarged = Image.fromarray(values).resize((width, height), Image.Resampling.BILINEAR)
    Image.fromarray(overlay(image, np.asarray(enlarged))).save(path)


def overlay(image: Bytes, values: Values) -> Bytes:
    """Return an image ``[h,w,3]`` overlaid with the colours for values from 0 to 1.

    The image is drawn in grey, because skin and clothes can look like heat, and darkened, because
    the colour of the highest heat is light.
    """
    values = np.clip(values, 0, 1)
    grey = _BRIGHTNESS * (image @ (0.299, 0.587, 0.114))[..., None]
    opacity = _MAX_OPACITY * (1 - (1 - values[..., None]) ** 2)
    stops = np.linspace(0, 1, len(_COLOURS))
    channels = [np.interp(values, stops, channel) for channel in zip(*_COLOURS, strict=True)]
    mixed = grey * (1 - opacity) + np.stack(channels, axis=-1) * opacity
    return np.round(mixed).astype(np.uint8)


@dataclass(frozen=True)
class GradCamModel:
    """A backbone that embeds images and texts, with its numbers of rows and columns of patches."""

    backbone: Backbone
    grid: tuple[int, int]

    @property
    def layer(self) -> Module:
        """The layer whose activations the maps show: the first layer norm of the last layer.

        At the output of the last layer of a network with a class token, the gradient of every patch
        would be zero, because only the class token is used after it.
        """
        layer: Module = self._vision.encoder.layers[-1].layer_norm1
        return layer

    @property
    def patches(self) -> slice:
        """The slice of patch tokens, without the class token and X-CLIP's message token."""
        first = int(hasattr(self._vision.embeddings, "class_embedding"))
        return slice(first, first + self.grid[0] * self.grid[1])

    @property
    def _vision(self) -> Any:
        return self.backbone.module["vision"]

    def embed_texts(self, texts: Sequence[str]) -> Tensor:
        """Return the embeddings ``[B,D]`` of texts."""
        embeddings = self.backbone.embed("text", texts)["native"]
        return embeddings.clone()  # autograd refuses inference tensors

    def cuts(self, text: str) -> bool:
        """Return True if a text is too long for the network, which reads only its start."""
        tokenizer = self.backbone.reader("text").tokenizer
        cut: bool = tokenizer.count([text])[0] > tokenizer.max_tokens
        return cut


def load_grad_cam_model(spec: str | Path, device: str | None) -> GradCamModel:
    """Load a backbone for saliency maps; `spec` is the same as for `load_backbone`."""
    backbone = load_backbone(spec, device).for_images_and_texts("text", "image")
    config: Any = backbone.module["vision"].config
    side = config.image_size // config.patch_size
    return GradCamModel(backbone, (side, side))


def grad_cam(model: GradCamModel, images: Tensor, texts: Tensor) -> tuple[Tensor, Tensor]:
    """Return the cosines ``[B]`` of images and texts, and their maps ``[B,rows,columns]``.

    A map is the sum of the activations over channels, each weighted by its mean gradient over
    patches. Negative sums become zero. `images` are bytes ``[B,3,h,w]`` from `resize_and_crop`, and
    `texts` are embeddings ``[B,D]`` from `GradCamModel.embed_texts`.
    """
    backbone = model.backbone
    reader = backbone.reader("image")
    activations = []

    def record(layer: Module, inputs: Any, output: Tensor) -> Tensor:
        # Gradients are needed only back to this layer, so earlier layers take no memory.
        activations.append(output.detach().requires_grad_())
        return activations[-1]

    with (
        model.layer.register_forward_hook(record),
        explain_out_of_memory(backbone.name, backbone.device),
        torch.enable_grad(),
        arithmetic(backbone.device, "float32"),
    ):
        pixels = normalise(images.to(backbone.device), reader.preprocessing)
        cosines = cosine_similarity(reader.embed(pixels), texts.to(backbone.device))
        (gradient,) = torch.autograd.grad(cosines.sum(), activations)
    weights = gradient[:, model.patches].mean(1, keepdim=True)
    weighted = activations[0][:, model.patches] * weights
    maps = weighted.sum(2).clamp(min=0).unflatten(1, model.grid)
    return cosines.detach().cpu(), maps.detach().cpu()
