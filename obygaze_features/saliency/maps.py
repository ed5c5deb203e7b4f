"""Write saliency maps of a manifest's images, and the mean map of each group.

A map is the Grad-CAM for the cosine of an image and a text, in a model with a vision transformer
and a text tower.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont, ImageOps
from torch import Tensor
from torch.nn import Module
from torch.nn.functional import cosine_similarity

from obygaze_features.backbones import Backbone, load_backbone
from obygaze_features.backbones.devices import arithmetic, explain_out_of_memory
from obygaze_features.backbones.preprocess import normalise, resize_and_crop
from obygaze_features.common.files import new_folder, to_json, write_bytes, write_text
from obygaze_features.common.progress import meter
from obygaze_features.common.tables import format_rows
from obygaze_features.common.text import counted, shorten, unknown_name
from obygaze_features.errors import UsageError, VideoError
from obygaze_features.extraction.job import check_items
from obygaze_features.extraction.reader import portable_reason, read_picture
from obygaze_features.items.items import safe_id
from obygaze_features.items.media import IMAGE_SUFFIXES, MediaFolder
from obygaze_features.manifests import Item, Manifest
from obygaze_features.manifests.importers.prompts import with_article

RECORD = "saliency.json"
"""The file that records the settings, and that marks a folder as a folder of maps."""
IMAGES_PER_BATCH = 16
_FIELD = re.compile(r"\{([^{}]*)\}")
_ALL_IMAGES = "all"
_HEAT_COLOURS = (
    (10, 8, 46), (66, 16, 105), (132, 32, 107), (196, 56, 78), (240, 112, 32), (250, 182, 44),
    (252, 250, 190),
)  # fmt: skip
"""The colours from lowest to highest. Each is lighter than the one before, so that maps also work
in print and for colour-blind readers.
"""
_OVERLAY_COLOURS = ((176, 18, 32), (214, 40, 28), (240, 96, 24), (252, 170, 32), (255, 226, 74))
"""The colours over an image, without blue, so that heat looks warm over any image."""
_MAX_OPACITY, _BRIGHTNESS = 0.92, 0.75
"""The maximum opacity of heat, and the brightness of the image below it."""
_MIN_SIDE = 224
"""The minimum size of a picture's shorter side, in pixels."""
_PAPER, _INK = (251, 250, 247), (31, 35, 40)
_TITLE_HEIGHT, _BAR_HEIGHT, _FOOTER_HEIGHT = 22, 10, 34

Bytes = NDArray[np.uint8]
Values = NDArray[np.float32]


@dataclass(frozen=True)
class SaliencyResult:
    """The number of images per group, failures, texts that were cut, and ids without a group."""

    groups: dict[str, int]
    failed: dict[str, str]
    cut: list[str]
    ungrouped: list[str]


def write_saliency(
    manifest: Manifest,
    images: str | Path,
    model: GradCamModel,
    text: str,
    folder: str | Path,
    *,
    by: str | None = None,
    overwrite: bool = False,
) -> SaliencyResult:
    """Write saliency maps of a manifest's images for a text, as numbers and as pictures.

    Parameters
    ----------
    manifest, images
        The images, and the folder of their files.
    text
        The text to compare images with; ``{column}`` is replaced by the image's value in a column.
    by
        The column of the manifest that defines groups to average (default: a single group).
    """
    check_items(manifest, ("image",))
    items = list(manifest.items)
    columns = {"film": manifest.items.films, **manifest.items.extra}
    texts = _fill_in(text, columns, len(items))
    groups = [_ALL_IMAGES] * len(items) if by is None else _groups_by(by, columns)
    cut = _long_texts(model, texts)
    failed: dict[str, str] = {}
    done: list[tuple[int, float, Values]] = []
    image_sums: dict[str, NDArray[np.float64]] = {}
    media = MediaFolder(Path(images).resolve(), IMAGE_SUFFIXES)
    with (
        warnings.catch_warnings(),
        new_folder(Path(folder), overwrite=overwrite, marker=RECORD, allow_missing=True) as new,
    ):
        # Readable files with minor errors need no warning.
        warnings.filterwarnings("ignore", module=r"PIL\.")
        for row, cosine, values, image in _compute(model, media, items, texts, failed):
            done.append((row, cosine, values))
            if group := groups[row]:
                image_sums[group] = image_sums.get(group, 0.0) + image.astype(np.float64)
            drawn = overlay(image, upscale(_scaled(values), *image.shape[:2]))
            title, peak = items[row].id, float(values.max())
            file = encode_png(drawn, title, peak, is_overlay=True)
            write_bytes(new / "images" / f"{title}.png", file)
        if not done:
            reason = next(iter(failed.values()), "the manifest is empty")
            raise VideoError(f"could not map any of {counted(len(items), 'image')}: {reason}")
        ungrouped = [items[row].id for row, *_ in done if not groups[row]]
        _write_maps(new, done, items, groups, texts)
        members = {
            name: [_scaled(values) for row, _, values in done if groups[row] == name]
            for name in image_sums
        }
        backbone = model.backbone
        about = {
            "backbone": {key: value for key, value in backbone.about.items() if key != "config"},
            "preprocessing": backbone.preprocessing.attributes(),
            "text": text,
            "by": by,
            "grid": model.grid,
            **_write_groups(new, members, image_sums),
            "failed": failed,
            "cut": cut,
            "ungrouped": ungrouped,
        }
        write_text(new / RECORD, to_json(about))
    counts = {name: len(maps) for name, maps in members.items()}
    return SaliencyResult(counts, failed, cut, ungrouped)


def _groups_by(by: str, columns: Mapping[str, Sequence[str]]) -> Sequence[str]:
    """Return each image's group; raise `UsageError` if the column is unknown or empty."""
    if by not in columns:
        raise UsageError(f"--by: {unknown_name('column', by, columns)}")
    groups = columns[by]
    if "" in groups and not any(groups):
        raise UsageError(f"--by {by}: the column is empty for all images; choose another column")
    return groups


def _write_maps(
    folder: Path,
    maps: Sequence[tuple[int, float, Values]],
    items: Sequence[Item],
    groups: Sequence[str],
    texts: Sequence[str],
) -> None:
    """Write the maps as one array, with a table of their images."""
    np.save(folder / "maps.npy", np.stack([values for *_, values in maps]), allow_pickle=False)
    rows = [
        {
            "id": items[row].id,
            "group": groups[row],
            "text": texts[row],
            "similarity": cosine,
            "peak": float(values.max()),
        }
        for row, cosine, values in maps
    ]
    write_text(folder / "images.csv", format_rows(rows, number=repr))


def _scaled(values: Values) -> Values:
    """Scale a map to a maximum of 1, unless it is zero everywhere."""
    return values / (values.max() or np.float32(1))


def _fill_in(text: str, columns: Mapping[str, Sequence[str]], count: int) -> list[str]:
    """Return each image's text, with column names in braces replaced by the image's values."""
    fields = list(_FIELD.finditer(text))
    if not {"{", "}"}.isdisjoint(_FIELD.sub("", text)):
        raise UsageError(f"--text {shorten(text)}: unmatched brace. Write {{COLUMN}}")
    for name in (match[1] for match in fields):
        if name not in columns:
            raise UsageError(f"--text {shorten(text)}: {unknown_name('column', name, columns)}")
        if "" in columns[name]:
            raise UsageError(f"--text {shorten(text)}: fill in the empty cells of column {name!r}")
    texts = [text] * count
    for match in reversed(fields):  # from the end, so that earlier positions stay valid
        start, end = match.span()
        texts = [
            with_article(f"{filled[:start]}{{}}{filled[end:]}", cell)
            for filled, cell in zip(texts, columns[match[1]], strict=True)
        ]
    return texts


def _long_texts(model: GradCamModel, texts: Sequence[str]) -> list[str]:
    """Return the texts that are too long for the network, which reads only their start."""
    tokenizer, distinct = model.backbone.tokenizer, list(dict.fromkeys(texts))
    counts = tokenizer.count(distinct)
    pairs = zip(distinct, counts, strict=True)
    return [text for text, count in pairs if count > tokenizer.max_tokens]


def _read(media: MediaFolder, item: Item, model: GradCamModel) -> Tensor | str:
    """Return an image resized for the network, or the reason why it cannot be read."""
    try:
        image = torch.from_numpy(read_picture(media.find(item)))
    except VideoError as problem:
        return portable_reason(problem, media.root)
    return resize_and_crop(image[None], model.backbone.preprocessing)[0]


def _compute(
    model: GradCamModel,
    media: MediaFolder,
    items: Sequence[Item],
    texts: Sequence[str],
    failed: dict[str, str],
) -> Iterator[tuple[int, float, Values, Bytes]]:
    """Yield each readable image's row, cosine, map and pixels; add other images to `failed`."""
    embeddings = {text: model.embed_texts([text])[0] for text in dict.fromkeys(texts)}
    with meter(len(items), "Saliency", unit="image") as advance, ThreadPoolExecutor() as pool:
        for start in range(0, len(items), IMAGES_PER_BATCH):
            rows = range(start, min(start + IMAGES_PER_BATCH, len(items)))
            images: dict[int, Tensor] = {}
            for row, image in zip(
                rows, pool.map(lambda row: _read(media, items[row], model), rows), strict=True
            ):
                if isinstance(image, str):
                    failed[items[row].id] = image
                else:
                    images[row] = image
            if images:
                batch = torch.stack(list(images.values()))
                targets = torch.stack([embeddings[texts[row]] for row in images])
                cosines, maps = grad_cam(model, batch, targets)
                seen = batch.permute(0, 2, 3, 1).numpy()
                yield from zip(images, cosines.tolist(), maps.numpy(), seen, strict=True)
            advance(len(rows), "")


def _write_groups(
    folder: Path,
    members: Mapping[str, Sequence[Values]],
    image_sums: Mapping[str, NDArray[np.float64]],
) -> dict[str, Any]:
    """Write each group's mean map, on a common scale; return the file names and the scale."""
    means = {name: np.stack(maps).mean(0, dtype=np.float64) for name, maps in members.items()}
    highest = max((float(mean.max()) for mean in means.values()), default=0.0) or 1.0
    rows: list[dict[str, object]] = []
    groups: dict[str, Any] = {}
    used: set[str] = set()
    for name, mean in means.items():
        stem = safe_id(name)
        # Names may differ only in case or punctuation, or equal another name plus "-overlay".
        while used & (names := {stem.lower(), f"{stem.lower()}-overlay"}):
            stem += "-other"
        used |= names
        count = len(members[name])
        image = np.round(image_sums[name] / count).astype(np.uint8)
        values = upscale((mean / highest).astype(np.float32), *image.shape[:2])
        title = f"{name or 'no group'}, {counted(count, 'image')}"
        for suffix, is_overlay, picture in (
            ("", False, heat_map(values)),
            ("-overlay", True, overlay(image, values)),
        ):
            file = encode_png(picture, title, highest, is_overlay=is_overlay)
            write_bytes(folder / "groups" / f"{stem}{suffix}.png", file)
        rows += [
            {"group": name, "images": count, "row": row, "column": column, "value": float(value)}
            for (row, column), value in np.ndenumerate(mean)
        ]
        groups[name] = {"images": count, "pictures": stem}
    write_text(folder / "groups.csv", format_rows(rows, number=repr))
    return {"groups": groups, "brightest_at": highest}


def upscale(values: Values, height: int, width: int) -> Values:
    """Enlarge a map to the size of an image, interpolating between the centres of patches."""
    image = Image.fromarray(np.asarray(values, np.float32))
    return np.asarray(image.resize((width, height), Image.Resampling.BILINEAR))


def heat_map(values: Values) -> Bytes:
    """Return the colours ``[h,w,3]`` for values from 0 to 1."""
    return np.round(_interpolate(values, _HEAT_COLOURS)).astype(np.uint8)


def overlay(image: Bytes, values: Values) -> Bytes:
    """Return an image ``[h,w,3]`` overlaid with the colours for values from 0 to 1.

    The image is drawn in grey, because skin and clothes have similar colours to heat, and darkened,
    because the colour of the highest heat is light.
    """
    grey = _BRIGHTNESS * (image @ (0.299, 0.587, 0.114))[..., None]
    opacity = _MAX_OPACITY * (1 - (1 - np.clip(values, 0, 1)[..., None]) ** 2)
    colours = _interpolate(values, _OVERLAY_COLOURS)
    result: Bytes = np.round(grey * (1 - opacity) + colours * opacity).astype(np.uint8)
    return result


def encode_png(picture: Bytes, title: str, highest: float, *, is_overlay: bool) -> bytes:
    """Return a PNG file with a title (cut off if too long), a picture and a colour bar.

    The picture comes from `heat_map` or `overlay`. Small pictures are enlarged by an integer
    factor.
    """
    factor = -(-_MIN_SIDE // min(picture.shape[:2]))
    drawn = Image.fromarray(picture.repeat(factor, axis=0).repeat(factor, axis=1))
    sheet = ImageOps.expand(drawn, (0, _TITLE_HEIGHT, 0, _FOOTER_HEIGHT), _PAPER)
    values = np.linspace(0, 1, drawn.width, dtype=np.float32)[None].repeat(_BAR_HEIGHT, axis=0)
    paper = np.full((*values.shape, 3), _PAPER, np.uint8)
    bar_top = _TITLE_HEIGHT + drawn.height + 5
    sheet.paste(
        Image.fromarray(overlay(paper, values) if is_overlay else heat_map(values)), (0, bar_top)
    )
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(13)
    while len(title) > 1 and font.getlength(title) > drawn.width - 6:
        title = title.removesuffix("...")[:-1] + "..."
    draw.text((3, 3), title, _INK, font)
    draw.text((3, bar_top + _BAR_HEIGHT), "0", _INK, font)
    draw.text((drawn.width - 3, bar_top + _BAR_HEIGHT), f"{highest:.2g}", _INK, font, anchor="ra")
    file = io.BytesIO()
    sheet.save(file, "PNG")
    return file.getvalue()


def _interpolate(values: Values, colours: Sequence[tuple[int, int, int]]) -> NDArray[np.float64]:
    position = np.clip(values, 0, 1) * (len(colours) - 1)
    stops = np.array(colours, dtype=float)
    channels = [np.interp(position, np.arange(len(stops)), stops[:, c]) for c in range(3)]
    return np.stack(channels, axis=-1)


@dataclass(frozen=True)
class GradCamModel:
    """A backbone that embeds images and texts. `grid` has the number of rows and of columns."""

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
        return self.backbone.embed_texts(texts).clone()  # autograd refuses inference tensors


def load_grad_cam_model(spec: str | Path, device: str | None = None) -> GradCamModel:
    """Load a backbone for saliency maps; `spec` is the same as for `load_backbone`."""
    backbone = load_backbone(spec, device).for_images_and_texts(texts=True, images=True)
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
    assert backbone.encode_images
    activations: list[Tensor] = []

    def record(layer: Module, inputs: Any, output: Tensor) -> Tensor:
        # Gradients are needed only back to this layer, so earlier layers take no memory.
        activations.append(output.detach().requires_grad_())
        return activations[-1]

    hook = model.layer.register_forward_hook(record)
    try:
        with (
            explain_out_of_memory(backbone.name, backbone.device),
            torch.enable_grad(),
            arithmetic(backbone.device, "float32"),
        ):
            pixels = normalise(images.to(backbone.device), backbone.preprocessing)
            cosines = cosine_similarity(backbone.encode_images(pixels), texts.to(backbone.device))
            (gradient,) = torch.autograd.grad(cosines.sum(), activations)
    finally:
        hook.remove()
    weights = gradient[:, model.patches].mean(1, keepdim=True)
    maps = (activations[0][:, model.patches] * weights).sum(2).clamp(min=0)
    return cosines.detach().cpu(), maps.detach().unflatten(1, model.grid).cpu()
