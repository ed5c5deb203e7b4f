"""The contract of a backbone, and the parts that a family of checkpoints provides."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from obygaze_features.backbones.devices import (
    arithmetic,
    is_asynchronous_error,
    is_out_of_memory,
    move_to_device,
)
from obygaze_features.backbones.sampling import Sampling
from obygaze_features.backbones.sound import SoundSampling
from obygaze_features.common.plugins import Plugin, plugin_errors
from obygaze_features.errors import BrokenBackbone, UsageError
from obygaze_features.store import ArraySpec
from obygaze_features.store.format import CREDITS

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

    from obygaze_features.backbones.preprocess import Preprocessing
    from obygaze_features.backbones.weights import Tokenizer

RANDOM_WEIGHTS_NOTE = "random weights, trained on nothing"
"""The value of ``synthetic`` in the configuration of a checkpoint of random weights."""
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""The mean and standard deviation of ImageNet's pixels, per channel."""
NO_CLIPS = Sampling(0)
"""The sampling of models of texts."""


@dataclass(frozen=True)
class TextTower:
    """The part of a backbone that reads texts.

    Parameters
    ----------
    modules
        The modules with the weights; they move to the device on first use.
    encode
        From token ids (a tokenizer's output) to embeddings ``[B,D]``.
    load_tokenizer
        A function that reads the checkpoint's tokenizer.
    """

    modules: Sequence[Module]
    encode: Callable[[Mapping[str, Tensor]], Tensor]
    load_tokenizer: Callable[[], Tokenizer]


@dataclass(frozen=True)
class Backbone:
    """A frozen network that embeds clips, and images and texts if it can.

    A family's `load` sets the fields up to `text_tower`; `load_backbone` sets the rest.

    Parameters
    ----------
    module
        The module with the weights of the vision side.
    sampling
        The frames of a clip that the network sees, or the windows of sound that it hears.
    preprocessing
        The way frames and images (`Preprocessing`), or sound (`SoundPreprocessing`), become input.
    arrays
        The arrays that `embed_clips` returns.
    encode_clips
        From input ``[B,T,3,h,w]`` (of sound ``[B,W,...]``), a mask ``[B,T]`` that is false for
        padding, and the names of the requested arrays, to those arrays (and possibly others).
        Tokens of padding are NaN.
    weights
        The files of weights.
    config
        The checkpoint's configuration.
    embedding
        The array of an image's or a text's embedding; None for networks that take only clips.
    encode_images
        From input ``[B,3,h,w]`` to embeddings ``[B,D]``.
    text_tower
        The part that reads texts.
    per_frame
        True if it embeds each frame of a clip separately, by `encode_images`. At a rate of frames
        it then has only the array `frames` and its pools, such as `native`, `mean` and `max`.
    mask_on_cpu
        True if `encode_clips` only counts the mask's values, and so gets the mask on the CPU:
        reading it from a GPU would mean waiting for the GPU's work.
    licence, citation, paper
        Credits of the weights, if known; the paper by its address.
    name
        The name of its store.
    device
        The device that it runs on.
    precision
        The number format of its computations.
    about
        ``name``, ``family``, ``revision``, ``weights_sha256``, ``config`` and `CREDITS`, for the
        store.
    for_clips
        True if `arrays` are those of clips; see `for_images_and_texts`.
    plugin
        The object of another package that made it.
    """

    module: Module
    sampling: Sampling | SoundSampling
    preprocessing: Any
    arrays: tuple[ArraySpec, ...]
    encode_clips: Callable[[Tensor, Tensor, frozenset[str]], Mapping[str, Tensor]]
    weights: tuple[Path, ...]
    config: Mapping[str, Any]
    embedding: ArraySpec | None = None
    encode_images: Callable[[Tensor], Tensor] | None = None
    text_tower: TextTower | None = None
    per_frame: bool = False
    mask_on_cpu: bool = False
    licence: str = ""
    citation: str = ""
    paper: str = ""
    name: str = ""
    device: str = "cpu"
    precision: str = "float32"
    about: Mapping[str, Any] = field(default_factory=dict)
    for_clips: bool = True
    plugin: Plugin | None = None

    @staticmethod
    def from_torch(
        net: Module,
        *,
        frames: int = 16,
        size: int = 224,
        mean: Sequence[float] = IMAGENET_MEAN,
        std: Sequence[float] = IMAGENET_STD,
        transform: Callable[[Tensor], Tensor] | Preprocessing | None = None,
        name: str = "",
        layer: str | None = None,
        layout: str | None = None,
        licence: str = "",
        citation: str = "",
        paper: str = "",
    ) -> Backbone:
        """Make a backbone of a torch module, which is switched to ``eval()``.

        Output ``[B,D]`` is the array `native`. Output ``[B,T,D]``, with T frames or a part of them,
        is `frames`, and `native` is its mean. Axes in between are averaged: the positions of
        ``[B,C,h,w]`` and ``[B,C,T,h,w]`` (of a network that takes ``BTCHW``, also ``[B,T,C,h,w]``),
        and tokens that do not match frames.

        Parameters
        ----------
        net
            The network.
        frames
            The number of frames that it gets from a clip, evenly spread.
        size, mean, std
            The shorter side of a frame is scaled to this many pixels, and the middle is cropped;
            then values from 0 to 1 are normalised.
        transform
            Replaces this: from a frame, uint8 ``[3,H,W]``, to the input ``[3,h,w]``.
        name
            The name of the store (default: that of the network's class).
        layer
            Take the output of this layer, such as ``blocks.10``: a name in ``net.named_modules()``.
        layout
            The network's input: clips as ``BTCHW`` or ``BCTHW``, or each frame separately, ``BCHW``
            (default: the first of the three that it accepts).
        licence, citation, paper
            Credits of the weights, for the store.

        Examples
        --------
        ::

            Backbone.from_torch(net, frames=16, size=224, name="mine")
            Backbone.from_torch(vit, layer="blocks.10", transform=transform)
        """
        from obygaze_features.backbones.own import make_preprocessing, wrap_module

        return wrap_module(
            net,
            make_preprocessing(size, mean, std, transform),
            frames=frames,
            name=name,
            layer=layer,
            layout=layout,
            licence=licence,
            citation=citation,
            paper=paper,
        )

    def embed_clips(self, pixels: Tensor, present: Tensor) -> dict[str, Tensor]:
        """Embed a batch of clips: return a float32 tensor ``[B, ...]`` for each of `arrays`.

        Parameters
        ----------
        pixels
            Preprocessed frames ``[B,T,3,h,w]``, or windows of sound ``[B,W,...]``.
        present
            ``[B,T]``, false where a clip has no frame and `pixels` is padding.
        """
        # Some networks accept any multiple of their frame count, which would mix clips.
        count = self.sampling.frames
        assert pixels.shape[1] == count, f"{pixels.shape[1]} frames per clip, not {count}"
        names = frozenset(spec.name for spec in self.arrays)
        return self._encode(
            len(pixels), self.arrays, lambda: self.encode_clips(pixels, present, names)
        )

    def embed_images(self, pixels: Tensor) -> Tensor:
        """Embed preprocessed images ``[B,3,h,w]`` as ``[B,D]`` in float32, not normalised."""
        spec, encode = self.image_text_embedding(), self.encode_images
        assert encode
        return self._encode(len(pixels), (spec,), lambda: {spec.name: encode(pixels)})[spec.name]

    def embed_texts(self, texts: Sequence[str]) -> Tensor:
        """Embed texts as ``[B,D]`` in float32, in the same space as images."""
        tokens, spec = self.tokenizer(texts), self.image_text_embedding()
        tower = self._loaded_text_tower

        def encode() -> dict[str, Tensor]:
            ids = {name: values.to(self.device) for name, values in tokens.items()}
            return {spec.name: tower.encode(ids)}

        return self._encode(len(texts), (spec,), encode)[spec.name]

    def embed_text_arrays(self, texts: Sequence[str]) -> dict[str, Tensor]:
        """Return the arrays that a store of texts gets."""
        return {self.image_text_embedding().name: self.embed_texts(texts)}

    def _encode(
        self, count: int, specs: Sequence[ArraySpec], encode: Callable[[], Mapping[str, Tensor]]
    ) -> dict[str, Tensor]:
        """Run the network on `count` inputs, and check its output."""
        import torch

        with (
            self.errors(),
            torch.inference_mode(),
            arithmetic(torch.device(self.device).type, self.precision),
        ):
            outputs = encode()
            for spec in specs:
                if spec.name not in outputs:
                    raise BrokenBackbone(f"{self.label} returns no array {spec.name}")
                shape = tuple(outputs[spec.name].shape)
                if shape != (count, *spec.shape):
                    raise BrokenBackbone(
                        f"{self.label}: {spec.name} has the shape {shape}, not "
                        f"{(count, *spec.shape)}"
                    )
            return {spec.name: outputs[spec.name].float() for spec in specs}

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Raise what another package's code raises as `BrokenBackbone`, except a GPU's errors."""
        try:
            yield
        except (Exception, SystemExit) as problem:
            if not self.plugin or is_out_of_memory(problem) or is_asynchronous_error(problem):
                raise
            with plugin_errors(self.plugin, BrokenBackbone):
                raise

    @property
    def hears(self) -> bool:
        """True if its input is a clip's sound, not its frames."""
        return isinstance(self.sampling, SoundSampling)

    @property
    def label(self) -> str:
        """Its name for messages, with the package of a plug-in."""
        return f"{self.name} ({self.plugin})" if self.plugin else self.name

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of its texts, read on first use."""
        self.check_reads_texts()
        assert self.text_tower
        return self.text_tower.load_tokenizer()

    def image_text_embedding(self) -> ArraySpec:
        """Return the array of an image's or a text's embedding; raise if it has none."""
        if self.embedding is None:
            raise self._reads_no("texts or single images")
        return self.embedding

    def check_reads_texts(self) -> None:
        """Raise `UsageError` if it does not read texts."""
        self.image_text_embedding()
        if self.text_tower is None:
            raise self._reads_no("texts, only images")

    def _reads_no(self, inputs: str) -> UsageError:
        family = self.about.get("family")
        return UsageError(
            f"{self.name}: the family {family} does not read {inputs}; choose another: "
            "obygaze features backbones"
        )

    def for_images_and_texts(self, *, texts: bool = False, images: bool = False) -> Backbone:
        """Return the backbone for a store of images and texts: its only array is `embedding`.

        With `texts` or `images` it must read these.
        """
        if texts:
            self.check_reads_texts()
        if images and self.embedding and not self.encode_images:
            raise self._reads_no("images")
        return self.with_changes(arrays=(self.image_text_embedding(),), for_clips=False)

    def without_network(self) -> Backbone:
        """Return only its sampling and preprocessing, for processes that prepare its input."""
        nothing = dict.fromkeys(("module", "encode_clips", "encode_images", "text_tower"))
        return self.with_changes(**nothing, device="cpu")

    def with_changes(self, **changes: Any) -> Backbone:
        """Return a copy with other fields; unlike `dataclasses.replace`, also for subclasses."""
        clone = copy(self)
        for name in ("tokenizer", "_loaded_text_tower"):
            vars(clone).pop(name, None)
        vars(clone).update(changes)
        return clone

    @cached_property
    def _loaded_text_tower(self) -> TextTower:
        assert self.text_tower
        for module in self.text_tower.modules:
            move_to_device(module, self.device, self.name)
        return self.text_tower


@dataclass(frozen=True)
class KnownCheckpoint:
    """A checkpoint that users can name.

    Parameters
    ----------
    name
        The name that users type.
    title
        One line of description.
    sampling
        The frames of a clip that it takes, or windows of its sound; none for models of texts.
    arrays
        All arrays that a store can hold.
    repository
        Its repository on the Hugging Face hub.
    write
        A function that writes it into an empty folder from a seed: a checkpoint of random weights.
    how_to_get
        Instructions for users, if it is neither on the hub nor made of random weights.
    credits
        The known entries of `CREDITS`.
    """

    name: str
    title: str
    sampling: Sampling | SoundSampling = NO_CLIPS
    arrays: tuple[ArraySpec, ...] = ()
    repository: str | None = None
    write: Callable[[Path, int], None] | None = None
    how_to_get: str = ""
    credits: Mapping[str, str] = field(default_factory=dict)

    @property
    def hears(self) -> bool:
        """True if it takes a clip's sound, not its frames."""
        return isinstance(self.sampling, SoundSampling)

    @property
    def bytes_per_clip(self) -> int:
        """The size of a clip in a store, without arrays on request."""
        return sum(spec.row_bytes for spec in self.arrays if not spec.on_request)


def published(
    family: str, arrays: Callable[..., tuple[ArraySpec, ...]] = lambda: ()
) -> tuple[KnownCheckpoint, ...]:
    """Return a family's published checkpoints from ``published.toml``; `arrays` takes sizes."""
    tables = _read_published()
    shared = tables["credits"].get(family, {})
    return tuple(
        KnownCheckpoint(
            row["name"],
            row["title"],
            SoundSampling(*row["sound"]) if "sound" in row else Sampling(row.get("frames", 0)),
            arrays(**row.get("sizes", {})),
            row["repository"],
            credits={key: row[key] for key in CREDITS if key in row},
        )
        for row in (shared | row for row in tables[family])
    )


@cache
def _read_published() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("published.toml").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Family:
    """Checkpoints of one layout.

    Parameters
    ----------
    name
        The name recorded in stores.
    model_type
        ``model_type`` in ``config.json``; None for a layout without such a file.
    checkpoints
        The checkpoints that users can name.
    load
        From a checkpoint's path and a preprocessing mode to its backbone.
    embeds_texts
        True if it also embeds texts, and images if it sees.
    embeds_images
        True if it also embeds images.
    plugin
        The entry point of the package that provides it; set by the registry.
    """

    name: str
    model_type: str | None
    checkpoints: tuple[KnownCheckpoint, ...]
    load: Callable[[Path, str], Backbone]
    embeds_texts: bool = False
    embeds_images: bool = False
    plugin: Plugin | None = None
