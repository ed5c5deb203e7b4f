"""The interface of backbones, and of the families of checkpoints that provide them."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from obygaze_features.backbones.devices import arithmetic, move_to_device
from obygaze_features.errors import BackboneError, UsageError
from obygaze_features.sampling import Sampling, SoundSampling
from obygaze_features.store import ArraySpec

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

    from obygaze_features.backbones.preprocess import Preprocessing
    from obygaze_features.backbones.weights import Tokenizer

CREDITS = ("licence", "citation", "paper")
"""The keys in a backbone's description that credit the authors of its weights."""
RANDOM_WEIGHTS_NOTE = "random weights, trained on nothing"
"""The value of ``synthetic`` in the configuration of a checkpoint with random weights."""
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
"""The mean and standard deviation of ImageNet's pixels for each channel."""
NO_CLIPS = Sampling(0)
"""The sampling of backbones that read only texts."""


@dataclass(frozen=True)
class TextTower:
    """The part of a backbone that reads texts.

    Parameters
    ----------
    modules
        The modules with the weights, which are moved to the device on first use.
    encode
        A function that maps token ids (a tokenizer's output) to arrays, such as ``native``, the
        embeddings ``[B,D]``.
    load_tokenizer
        A function that reads the checkpoint's tokenizer.
    """

    modules: Sequence[Module]
    encode: Callable[[Mapping[str, Tensor]], Mapping[str, Tensor]]
    load_tokenizer: Callable[[], Any]


@dataclass(frozen=True, repr=False)
class Backbone:
    """A frozen network that embeds clips, images or texts.

    A family's `load` sets the fields up to `mask_on_cpu`; `load_backbone` sets the credits of known
    checkpoints, `name`, `device`, `precision` and `about`.

    Parameters
    ----------
    module
        The module with the weights of the vision or audio tower.
    sampling
        The rule that samples frames of a clip, or windows of its sound.
    preprocessing
        The steps that turn frames and images (`Preprocessing`) or sound (`SoundPreprocessing`) into
        input.
    arrays
        The arrays that `embed_clips` returns.
    encode_clips
        A function of the input ``[B,T,3,h,w]`` (``[B,W,...]`` for sound), a mask ``[B,T]`` that is
        false for padding, and the names of the requested arrays. It returns these arrays, and
        possibly others. It sets the tokens of padding to NaN.
    weights
        The paths of the weight files.
    config
        The checkpoint's configuration.
    embedding
        The array for the embedding of an image or text; None for networks that take only clips.
    encode_images
        A function that maps input ``[B,3,h,w]`` to embeddings ``[B,D]``.
    text_tower
        The part that reads texts.
    per_frame
        True if each frame of a clip is embedded separately, by `encode_images`. If frames are
        sampled at a rate, the backbone then has only the array `frames` and arrays pooled from it,
        such as `native`, `mean` and `max`.
    mask_on_cpu
        True if `encode_clips` only counts the values of the mask, and so reads no padding, whose
        values are undefined. It then gets the mask on the CPU, because reading it from a GPU would
        mean waiting for the GPU.
    licence, citation, paper
        The credits for the weights, if known; `paper` is a URL.
    name
        The name of the backbone's store.
    device
        The device that the backbone runs on.
    precision
        The number format in which the backbone computes.
    about
        The ``name``, ``family``, ``revision``, ``weights_sha256``, ``config`` and `CREDITS` that
        the store records.
    for_clips
        True if `arrays` are for clips; see `for_images_and_texts`.
    """

    module: Module
    sampling: Sampling | SoundSampling
    preprocessing: Any
    arrays: tuple[ArraySpec, ...]
    encode_clips: Callable[[Tensor, Tensor, frozenset[str]], Mapping[str, Tensor]]
    weights: tuple[Path | str, ...]
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

    def __post_init__(self) -> None:
        for file in self.weights:
            if not isinstance(file, str | Path) or not Path(file).is_file():
                raise BackboneError(f"weights must be a tuple of files ({file} is not a file)")

    def __repr__(self) -> str:
        arrays = ", ".join(spec.name for spec in self.arrays)
        return f"Backbone({self.name!r}, {self.device}, {self.precision}, {arrays})"

    @staticmethod
    def from_torch(
        net: Module,
        *,
        frames: int = 16,
        size: int = 224,
        mean: Sequence[float] = IMAGENET_MEAN,
        std: Sequence[float] = IMAGENET_STD,
        transform: Callable[[Tensor], Tensor] | Preprocessing | None = None,
        layout: str = "BCHW",
        layer: str | None = None,
        **stated: str,
    ) -> Backbone:
        """Make a backbone from a torch module, which is switched to ``eval()``.

        If the network takes single frames, their embeddings become the array `frames`, and the mean
        of a clip's frames becomes `native`. If it takes clips, an output ``[B,D]`` becomes
        `native`; an output ``[B,T,D]``, where T divides the number of frames, becomes `frames`, and
        its mean becomes `native`. Other axes are averaged: the positions in ``[B,C,h,w]`` and
        ``[B,C,T,h,w]`` (and ``[B,T,C,h,w]`` for a network that takes ``BTCHW``), and tokens that do
        not match frames.

        Parameters
        ----------
        net
            The network.
        frames
            The number of frames to sample evenly from a clip.
        size, mean, std
            The shorter side of each frame is scaled to `size` pixels and the middle is cropped.
            Then pixel values (0 to 1) are normalised with `mean` and `std`.
        transform
            A function that replaces these steps and maps a frame, uint8 ``[3,H,W]``, to the
            network's input ``[3,h,w]``; or a `Preprocessing`.
        layout
            The layout of the network's input: single frames as ``BCHW``, or clips as ``BTCHW`` or
            ``BCTHW``.
        layer
            The layer whose output to use, such as ``blocks.10``, named as in
            ``net.named_modules()``.
        stated
            The `name` of the store (default: the name of the network's class), and the `licence`,
            `citation` and `paper` of the weights, which the store records.

        Examples
        --------
        ::

            Backbone.from_torch(resnet, frames=16, size=224, name="mine")
            Backbone.from_torch(vit, layer="blocks.10", transform=transform)
            Backbone.from_torch(r3d, layout="BCTHW", licence="MIT")
        """
        from obygaze_features.backbones.from_torch import make_preprocessing, read_module

        preprocessing = make_preprocessing(size, mean, std, transform)
        fields = read_module(net, preprocessing, frames, layout, layer)
        return Backbone(**{"name": type(net).__name__, **fields, **stated})

    def embed_clips(self, pixels: Tensor, present: Tensor) -> dict[str, Tensor]:
        """Embed a batch of clips; return a float32 tensor ``[B, ...]`` for each of `arrays`.

        Parameters
        ----------
        pixels
            Preprocessed frames ``[B,T,3,h,w]``, or windows of sound ``[B,W,...]``.
        present
            A mask ``[B,T]`` that is false where `pixels` is padding.
        """
        import torch

        # Some networks accept any multiple of their frame count, and would mix clips.
        count = self.sampling.frames
        assert pixels.shape[1] == count, f"{pixels.shape[1]} frames per clip, not {count}"
        names = frozenset(spec.name for spec in self.arrays)
        with torch.inference_mode(), arithmetic(self.device, self.precision):
            outputs = self.encode_clips(pixels, present, names)
            return self._check(outputs, len(pixels), self.arrays)

    def embed_images(self, pixels: Tensor) -> Tensor:
        """Return unnormalised float32 embeddings ``[B,D]`` of preprocessed images ``[B,3,h,w]``."""
        import torch

        self.check_reads("image")
        assert self.encode_images
        assert self.embedding
        name = self.embedding.name
        with torch.inference_mode(), arithmetic(self.device, self.precision):
            outputs = {name: self.encode_images(pixels)}
            return self._check(outputs, len(pixels), [self.embedding])[name]

    def embed_texts(self, texts: Sequence[str]) -> Tensor:
        """Embed texts as float32 ``[B,D]``, in the space of the backbone's images or sound."""
        return self.embed_text_arrays(texts)["native"]

    def embed_text_arrays(self, texts: Sequence[str]) -> dict[str, Tensor]:
        """Embed texts; return the arrays that a store of texts has."""
        import torch

        tokens = self.tokenizer(texts)
        assert self.text_tower
        assert self.embedding
        for module in self.text_tower.modules:
            move_to_device(module, self.device, self.name)
        ids = {name: values.to(self.device) for name, values in tokens.items()}
        specs = [self.embedding] if self.for_clips else self.arrays
        with torch.inference_mode(), arithmetic(self.device, self.precision):
            return self._check(self.text_tower.encode(ids), len(texts), specs)

    def _check(
        self,
        outputs: Mapping[str, Tensor],
        count: int,
        specs: Sequence[ArraySpec],
    ) -> dict[str, Tensor]:
        """Return the arrays in `specs`, in float32, after checking their shapes."""
        arrays = {}
        for spec in specs:
            if spec.name not in outputs:
                raise BackboneError(
                    f"{self.name} does not return the array {spec.name}; leave it out of `arrays`"
                )
            values = outputs[spec.name]
            expected = (count, *spec.shape)
            if values.shape != expected:
                shape = tuple(values.shape)
                raise BackboneError(
                    f"{self.name}: {spec.name} has shape {shape}, expected {expected}"
                )
            arrays[spec.name] = values.float()
        return arrays

    @property
    def hears(self) -> bool:
        """True if the input is the sound of a clip rather than its frames."""
        return isinstance(self.sampling, SoundSampling)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer for texts, loaded on first use."""
        self.check_reads("text")
        assert self.text_tower is not None
        tokenizer: Tokenizer = self.text_tower.load_tokenizer()
        return tokenizer

    def check_reads(self, *kinds: str) -> None:
        """Raise `UsageError` if a kind of item, ``text`` or ``image``, cannot be read."""
        readers = {"text": self.text_tower, "image": self.encode_images}
        for kind in kinds:
            if not readers[kind]:
                raise UsageError(
                    f"{self.name} does not read {kind}s. Choose another backbone; this command "
                    "lists all of them: obygaze features backbones"
                )

    def for_images_and_texts(self, *kinds: str) -> Backbone:
        """Return a copy of the backbone that computes only the arrays of images and texts.

        Raises `UsageError` if it cannot read items of these kinds, ``text`` or ``image``.
        """
        self.check_reads(*kinds)
        if not self.for_clips:
            return self
        assert self.embedding
        return self.with_changes(arrays=(self.embedding,), for_clips=False)

    def with_changes(self, **changes: Any) -> Backbone:
        """Return a copy with changed fields, made without calling ``__init__``."""
        clone = copy(self)
        vars(clone).update(changes)
        return clone


@dataclass(frozen=True)
class KnownCheckpoint:
    """A checkpoint that users can refer to by name.

    Parameters
    ----------
    name
        The name that users type.
    title
        A one-line description.
    sampling
        The rule that samples a clip's frames or windows of sound; `NO_CLIPS` for text models.
    repository
        The repository on the Hugging Face Hub, if the checkpoint is published there.
    write
        For checkpoints that are made on this machine, a function that writes the checkpoint into an
        empty folder, given a seed.
    credits
        The entries of `CREDITS` that are known.
    """

    name: str
    title: str
    sampling: Sampling | SoundSampling = NO_CLIPS
    repository: str | None = None
    write: Callable[[Path, int], None] | None = None
    credits: Mapping[str, str] = field(default_factory=dict)


def published(family: str) -> tuple[KnownCheckpoint, ...]:
    """Return a family's checkpoints from ``published.toml``."""
    tables = _read_published()
    checkpoints = []
    for row in tables[family]:
        facts = tables["credits"].get(family, {}) | row
        sampling: Sampling | SoundSampling = Sampling(facts.get("frames", 0))
        if "sound" in facts:
            sampling = SoundSampling(*facts["sound"])
        credit = {key: facts[key] for key in CREDITS if key in facts}
        checkpoints.append(
            KnownCheckpoint(row["name"], row["title"], sampling, row["repository"], credits=credit)
        )
    return tuple(checkpoints)


@cache
def _read_published() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("published.toml").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Family:
    """A family of checkpoints with the same layout.

    Parameters
    ----------
    name
        The family's name, as recorded in stores.
    model_type
        The ``model_type`` in ``config.json``; None for a layout without this file.
    checkpoints
        The checkpoints that users can refer to by name.
    load
        A function that returns the backbone for a checkpoint's path and a preprocessing mode.
    embeds_texts
        True if the family embeds texts in the same space as images or sound.
    """

    name: str
    model_type: str | None
    checkpoints: tuple[KnownCheckpoint, ...]
    load: Callable[[Path, str], Backbone]
    embeds_texts: bool = False
