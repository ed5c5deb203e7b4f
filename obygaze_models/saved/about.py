"""What is kept with a saved model, and said of it: ``model.json``, ``README.md``, what it has seen.

What is read from JSON is checked before anything uses it: another type is one clear error.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import numpy as np

from obygaze_features.common.files import read_format
from obygaze_features.common.text import counted, is_folder_of
from obygaze_features.errors import ExperimentError
from obygaze_features.items.items import media_stem
from obygaze_features.manifests import Items, Manifest
from obygaze_features.manifests.splits import meet_in_time
from obygaze_models.data.warnings import RunWarning
from obygaze_models.estimators.facts import Facts
from obygaze_models.scoring.metrics import CLASSES, CONCEPTS
from obygaze_models.scoring.values import NUMBER, ORDERED

T = TypeVar("T")
FORMAT = "obygaze-model"
FORMAT_VERSION, EARLIEST = 3, 2
HEADER, CARD = "model.json", "README.md"
_CARD = Path(__file__).with_name("model_card.md")
MAKE = "obygaze models train"
REMEDY = f"train the model again ({MAKE})"
WHOLE = (-math.inf, math.inf)
SEEN_RENAMED = "under another id"
"""For clips that show seconds of a file which the model has seen under other ids."""
#: Exceptions raised for JSON that is invalid, too deep, or of the wrong type.
_PROBLEMS = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)


class Backbone(msgspec.Struct, frozen=True):
    """What made the features; for several stores with a part for each."""

    name: str = ""
    weights_sha256: str = ""
    config: dict[str, Any] = {}
    parts: tuple[Backbone, ...] = ()

    @property
    def each(self) -> tuple[Backbone, ...]:
        """The backbone of each store."""
        return self.parts or (self,)


class Features(msgspec.Struct, frozen=True):
    """The features that a model reads; without a backbone nobody knows which."""

    backbone: Backbone | None = None
    preprocessing: dict[str, Any] = {}
    array: str = ""
    shape: list[int] | None = None
    pooling: str | None = None
    missing: str = "drop"

    @property
    def stores(self) -> int:
        """The number of stores."""
        return len(self.backbone.each) if self.backbone else 1


class Description(msgspec.Struct):
    """The keys that obygaze reads; others are anybody's."""

    model: str = ""
    estimator: str = ""
    options: dict[str, Any] = {}
    reads: str = ""
    task: str = ""
    learns: dict[str, Any] = {}
    classes: list[str] = []
    levels: dict[str, str] = {}
    senses: dict[str, str] = {}
    facts: dict[str, Any] = {}
    features: Features = Features()
    seen: list[str] = []
    footage: dict[str, list[tuple[float, float] | None]] = {}
    warnings: list[RunWarning] = []
    cut: Annotated[float, msgspec.Meta(gt=0, lt=1)] = 0.5
    spread: tuple[float, float] = (1.0, 0.0)


class Header(msgspec.Struct):
    """The content of a saved model's ``model.json``."""

    about: dict[str, Any]
    model: dict[str, Any]
    files: dict[Annotated[str, msgspec.Meta(pattern=r"^model[^/\\\0]*\Z")], str]
    requires: dict[str, str] = {}


class About(dict[str, Any]):
    """What is kept with a model, as JSON, and in `said` as types."""

    def __init__(self, values: Mapping[str, Any], where: object = "the model") -> None:
        super().__init__(values)
        self._where = where

    @cached_property
    def said(self) -> Description:
        """The keys that obygaze reads; `ExperimentError` if one has another type."""
        return convert(dict(self), Description, f"{self._where}/{HEADER} (about)", REMEDY)

    @property
    def target_key(self) -> str:
        """The key of the target that the model predicts."""
        return str(self.said.learns.get("target_key", CLASSES))

    @property
    def is_numeric(self) -> bool:
        """Whether it predicts numbers or positions of ordered levels."""
        return self.target_key in (NUMBER, ORDERED)

    def require_classes(self, what: str) -> None:
        """Raise if the model tells no classes apart, which some command needs."""
        if self.target_key != CLASSES:
            raise ExperimentError(
                f"{self._where}: {what} needs a model that tells classes apart (got target = "
                f'"{self.target_key}"). Use models run, compare or predict.'
            )

    def __missing__(self, key: str) -> Any:
        raise ExperimentError(f"{self._where} does not say its {key}; {REMEDY}")

    def require(self, *keys: str) -> Description:
        """Return what is said; `ExperimentError` if one of these keys is missing."""
        for key in keys:
            self[key]
        return self.said


def said_of(about: Mapping[str, Any]) -> Description:
    """Return what is said of a model, as types."""
    return (about if isinstance(about, About) else About(about)).said


def read_about(path: Path) -> About:
    """Return a model's description, without loading it."""
    about = read_header(Path(path))[1]
    _ = about.said  # so that its types are checked
    return about


def read_header(path: Path) -> tuple[Header, About]:
    """Return the content of a model's header, and its description."""
    if not (path / HEADER).is_file():
        # A folder of models, or a run, which keeps them two folders further down.
        for pattern in ("*", "models/*/*"):
            if inside := sorted(path.glob(f"{pattern}/{HEADER}")):
                raise ExperimentError(
                    f"{is_folder_of(path, 'model', inside[0].parent)} "
                    f"(all of them: obygaze models list {path})"
                )
    header = read_format(path / HEADER, FORMAT, FORMAT_VERSION, ExperimentError, make=MAKE)
    if header["format_version"] < EARLIEST:
        raise ExperimentError(f"{path} was saved by an earlier obygaze (0.1); {REMEDY}")
    if header.pop("sha256", None) != digest_of(header):
        raise damaged(path / HEADER, "its digest differs")
    typed = convert(header, Header, path / HEADER, REMEDY)
    return typed, About(typed.about, path)


def digest_of(header: Mapping[str, Any]) -> str:
    """Return the digest of the header's content: spaces and line ends do not matter."""
    return hashlib.sha256(json.dumps(header, sort_keys=True).encode()).hexdigest()


def convert(value: Any, kind: type[T], where: object, remedy: str, *, strict: bool = True) -> T:
    """Return parsed JSON, or texts (not `strict`), as a type."""
    try:
        return msgspec.convert(value, kind, strict=strict)
    except _PROBLEMS as problem:
        raise damaged(where, problem, remedy) from None


def damaged(where: object, reason: object, remedy: str = REMEDY) -> ExperimentError:
    """Return the error for a file, or a model, that cannot be used."""
    return ExperimentError(f"{where} is damaged, or was edited ({reason}); {remedy}")


def footage_of(items: Items, ids: Iterable[str]) -> dict[str, list[list[float] | None]]:
    """Return the file of each clip, without its extension: start and end, or None for all of it.

    It is kept with a model as ``footage``. Clips with neither file nor times are left out.
    """
    files: dict[str, list[list[float] | None]] = {}
    for name, span in _spans(items, ids):
        if name:
            files.setdefault(name, []).append(span)
    return files


def _spans(items: Items, ids: Iterable[str]) -> list[tuple[str, list[float] | None]]:
    """Return each clip's file, as in `footage_of`, and its start and end.

    Clips of a film with times have the film for a file. The file is empty where there is neither.
    """
    spans = []
    rows = [items.row(clip) for clip in ids]
    times = zip(rows, items.starts[rows].tolist(), items.ends[rows].tolist(), strict=True)
    for row, start, end in times:
        name = items.films[row] if math.isfinite(start) else ""
        if items.media[row]:
            name = media_stem(items.media[row])
        spans.append((name, [start, end] if math.isfinite(start + end) else None))
    return spans


def seen_in_training(about: Mapping[str, Any], items: Items, ids: Sequence[str]) -> list[str]:
    """Return for each clip whether a model has seen it: ``yes``, `SEEN_RENAMED` or ``no``.

    Parameters
    ----------
    about
        What `load_model` gave beside the model.
    items
        Those of the store that is asked about.
    ids
        Some of them.
    """
    said = said_of(about)
    trained_on = frozenset(said.seen)
    spans: list[tuple[str, Any]] = [(n, span) for n, own in said.footage.items() for span in own]
    others, tested = np.split(np.arange(len(spans) + len(ids)), [len(spans)])
    spans += _spans(items, ids)
    _, files = np.unique([name for name, _ in spans], return_inverse=True)
    times = np.array([span or WHOLE for _, span in spans], dtype=float).reshape(-1, 2)
    renamed = meet_in_time((files, *times.T), tested, others).tolist()
    return [
        "yes" if clip in trained_on else SEEN_RENAMED if meets else "no"
        for clip, meets in zip(ids, renamed, strict=True)
    ]


def read_models(folder: Path) -> dict[str, About]:
    """Read what is known of each model in a folder, by its place there."""
    if not folder.is_dir():
        raise ExperimentError(f"there is no folder {folder}")
    models = {
        str(path.parent.relative_to(folder)): read_about(path.parent)
        for path in sorted(folder.rglob("model.json"))
    }
    if not models:
        raise ExperimentError(f"{folder} holds no models; obygaze models run and train make some")
    return models


def say_seen(seen: Mapping[str, str]) -> Iterator[str]:
    """Yield which predictions are no test, by clip -> what `seen_in_training` said of it."""
    counts, total = Counter(seen.values()), counted(len(seen), "clip")
    if counts["yes"]:
        yield f"{counts['yes']:,} of {total} were used to train the model: on these this is no test"
    if renamed := counts[SEEN_RENAMED]:
        clips = counted(renamed, "clip shows", "clips show")
        yield f"{clips} seconds of files that it was trained on, under other ids"


def model_card(
    name: str, about: Mapping[str, Any], manifest: Manifest, *, trained: int, validated: int
) -> str:
    """Return the card of a model.

    Parameters
    ----------
    name
        Its heading.
    about
        What was said when the model was saved.
    manifest
        Whose clips it was trained on.
    trained, validated
        How many clips it learnt to tell apart, and how many stopped it.
    """
    said = said_of(about)
    features = said.features
    backbone = features.backbone or Backbone()
    weights = [f"`{part.weights_sha256}`" for part in backbone.each]
    reading = f", {features.pooling} over its tokens" if features.pooling else ""
    if said.reads == "frames" and features.shape:
        reading = f", the sequence of {features.shape[0]} frames of a clip"
    options = ", ".join(f"{key} = {value}" for key, value in said.options.items())
    more = len(said.seen) - trained - validated
    purpose = "its concepts were learnt from" if "concepts" in said.facts else "it counted"
    classes, negative, positive = ", ".join(said.classes), said.classes[0], said.classes[-1]
    does = f"Tells {classes} apart, clip by clip,"
    meaning = (
        f'"{positive}" is what annotators of these films called so, under their definition; '
        f'"{negative}" is\n  not the absence of anything else.'
    )
    if said.learns.get("target_key") == CONCEPTS:
        does = f"Says which of {classes} a clip shows,"
        meaning = "A concept is what annotators of these films called so, under their definition."
    if said.learns.get("target_key") in (NUMBER, ORDERED):
        does = f"Predicts {said.task}, a number for each clip,"
        meaning = "The numbers are on the scale of the annotators of these films."
    facts = describe_facts(said.facts)
    if "cut" in about:
        facts.append(f'cut, above which it says "{positive}": {said.cut:.2f}')
    return _CARD.read_text(encoding="utf-8").format(
        name=name,
        said=said,
        backbone=backbone,
        manifest=manifest,
        warnings="".join(f"\n**{warning}**\n" for warning in said.warnings),
        does=does,
        meaning=meaning,
        options=f" ({options})" if options else "",
        reading=reading,
        weights=" and ".join(weights),
        trained=counted(trained, "clip"),
        validated=validated,
        more=f"; {more:,} more, which {purpose}" if more > 0 else "",
        licence=manifest.licence or "licence not stated",
        citation=manifest.citation or "",
        facts="".join(f"- {line}\n" for line in facts),
    )


def describe_facts(facts: Mapping[str, Any]) -> list[str]:
    """Return a line for each fact that is one number or word, and a few lines on concepts."""
    lines = [
        f"{key.replace('_', ' ')}: {f'{value:.3g}' if isinstance(value, float) else value}"
        for key, value in facts.items()
        if isinstance(value, str | int | float)
    ]
    of_concepts = msgspec.convert(facts, Facts)
    if of_concepts.concepts:
        learned = ", ".join(f"{name} {q.auc:.2f}" for name, q in of_concepts.concepts.items())
        lines.append(f"concepts, each with its AUC on the clips it was measured on: {learned}")
    if of_concepts.skipped:
        lines.append(f"concepts that could not be learned: {', '.join(of_concepts.skipped)}")
    if of_concepts.unreliable:
        lines.append(f"concepts that are unreliable: {', '.join(of_concepts.unreliable)}")
    return lines
