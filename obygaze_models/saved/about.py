"""The description of a saved model: ``model.json``, ``README.md``, and the clips it has seen.

JSON is checked before it is used. Values of the wrong type raise `ExperimentError`.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.files import read_format
from obygaze_features.common.text import counted, is_folder_of
from obygaze_features.errors import ExperimentError
from obygaze_features.items.items import media_stem
from obygaze_features.manifests import Items, Manifest
from obygaze_features.manifests.splits import meet_in_time
from obygaze_models.data.tasks import Task
from obygaze_models.data.warnings import RunWarning
from obygaze_models.estimators.outputs import Facts
from obygaze_models.scoring.metrics import CLASSES
from obygaze_models.scoring.values import NUMBER

T = TypeVar("T")
FORMAT = "obygaze-model"
FORMAT_VERSION = 3
HEADER, CARD = "model.json", "README.md"
_CARD = Path(__file__).with_name("model_card.md")
MAKE = "obygaze models train"
REMEDY = f"train the model again ({MAKE})"
WHOLE = (-math.inf, math.inf)
SEEN_RENAMED = "under another id"
"""The value for clips that overlap in time with clips that the model has seen under other ids."""
SEEN_BY_OTHERS = "by other fits"
"""The value for clips of cross-validated runs that only fits for other clips may have seen."""
# Exceptions raised for JSON that is invalid, too deep, or of the wrong type.
_PROBLEMS = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)


class Backbone(msgspec.Struct, frozen=True):
    """The backbone of the features. For several stores, `parts` has each store's backbone."""

    name: str = ""
    weights_sha256: str = ""
    config: dict[str, Any] = {}
    parts: tuple[Backbone, ...] = ()

    @property
    def each(self) -> tuple[Backbone, ...]:
        """The backbone of each store."""
        return self.parts or (self,)


class Features(msgspec.Struct, frozen=True):
    """The features that a model reads. They are unknown if `backbone` is None."""

    backbone: Backbone | None = None
    preprocessing: dict[str, Any] = {}
    array: str = ""
    shape: list[int] | None = None

    @property
    def stores(self) -> int:
        """The number of stores."""
        return len(self.backbone.each) if self.backbone else 1


class Description(msgspec.Struct):
    """The keys of a description that obygaze reads. Users can add other keys."""

    model: str = ""
    estimator: str = ""
    options: dict[str, Any] = {}
    reads: str = ""
    task: str = ""
    learns: Task | None = None
    classes: list[str] = []
    levels: dict[str, str] = {}
    senses: dict[str, str] = {}
    facts: dict[str, Any] = {}
    features: Features = Features()
    seen: list[str] = []
    footage: dict[str, list[tuple[float, float] | None]] = {}
    seen_groups: dict[str, list[str]] = {}
    warnings: list[RunWarning] = []
    cut: Annotated[float, msgspec.Meta(gt=0, lt=1)] = 0.5


class Header(msgspec.Struct):
    """The content of a saved model's ``model.json``."""

    about: dict[str, Any]
    model: dict[str, Any]
    files: dict[Annotated[str, msgspec.Meta(pattern=r"^model[^/\\\0]*\Z")], str]
    requires: dict[str, str] = {}


class About(dict[str, Any]):
    """A model's description: a dictionary of JSON values, with a typed form in `description`."""

    def __init__(self, values: Mapping[str, Any], where: object = "the model") -> None:
        super().__init__(values)
        self._where = where

    @cached_property
    def description(self) -> Description:
        """The keys that obygaze reads. Raises `ExperimentError` if a value has the wrong type."""
        return convert(dict(self), Description, f"{self._where}/{HEADER} (about)", REMEDY)

    @property
    def target_key(self) -> str:
        """The key of the target that the model predicts."""
        task = self.description.learns
        return task.target_key if task else CLASSES

    @property
    def is_numeric(self) -> bool:
        """True if the model predicts numbers."""
        return self.target_key == NUMBER

    def require_classes(self, operation: str) -> None:
        """Raise `ExperimentError` if an operation needs classes, but the model predicts none."""
        if self.target_key != CLASSES:
            raise ExperimentError(
                f"{self._where}: {operation} needs a model that predicts classes (got target = "
                f'"{self.target_key}"). Train one with target = "classes".'
            )

    def __missing__(self, key: str) -> Any:
        raise ExperimentError(f"{self._where} has no {key} in its description; {REMEDY}")

    @property
    def learned_task(self) -> Task:
        """The task; raises `ExperimentError` if the description has none."""
        task = self.description.learns
        if task is None:
            raise ExperimentError(f"{self._where} has no task in its description; {REMEDY}")
        return task

    def require(self, *keys: str) -> Description:
        """Return the description; raise `ExperimentError` if one of these keys is missing."""
        for key in keys:
            self[key]
        return self.description


def description_of(about: Mapping[str, Any]) -> Description:
    """Return a model's description as a typed object."""
    return (about if isinstance(about, About) else About(about)).description


def read_about(path: Path) -> About:
    """Read a model's description without loading the model."""
    about = read_header(Path(path))[1]
    _ = about.description  # checks its types
    return about


def read_header(path: Path) -> tuple[Header, About]:
    """Read a model's header and description."""
    if not (path / HEADER).is_file():
        # This may be a folder of models, or a run, which has models two levels down.
        for pattern in ("*", "models/*/*"):
            if inside := sorted(path.glob(f"{pattern}/{HEADER}")):
                raise ExperimentError(
                    f"{is_folder_of(path, 'model', inside[0].parent)} "
                    f"(list all: obygaze models list {path})"
                )
    header = read_format(path / HEADER, FORMAT, FORMAT_VERSION, ExperimentError, make=MAKE)
    if header["format_version"] < FORMAT_VERSION:
        raise ExperimentError(
            f"{path} was saved by an earlier obygaze (format version {header['format_version']}); "
            f"{REMEDY}"
        )
    if header.pop("sha256", None) != digest_of(header):
        raise damaged(path / HEADER, "its checksum does not match")
    typed = convert(header, Header, path / HEADER, REMEDY)
    return typed, About(typed.about, path)


def digest_of(header: Mapping[str, Any]) -> str:
    """Return the digest of a header's content, ignoring spaces and line ends."""
    return hashlib.sha256(json.dumps(header, sort_keys=True).encode()).hexdigest()


def convert(value: Any, kind: type[T], where: object, remedy: str, *, strict: bool = True) -> T:
    """Convert parsed JSON to a type, or raise the error for damaged files.

    If `strict` is False, strings are converted to the types of the fields.
    """
    try:
        return msgspec.convert(value, kind, strict=strict)
    except _PROBLEMS as problem:
        raise damaged(where, problem, remedy) from None


def damaged(where: object, reason: object, remedy: str = REMEDY) -> ExperimentError:
    """Return the error for a damaged or edited file or model."""
    return ExperimentError(f"{where} is damaged or was edited ({reason}); {remedy}")


def footage_of(items: Items, ids: Iterable[str]) -> dict[str, list[list[float] | None]]:
    """Map the files of clips (without extensions) to the start and end of each clip in the file.

    Models store this as ``footage``. The span of a clip that is a whole file is None. Clips that
    have neither a file nor times are left out.
    """
    files: dict[str, list[list[float] | None]] = {}
    spans = _all_spans(items)
    for name, span in (spans[items.row(clip)] for clip in ids):
        if name:
            files.setdefault(name, []).append(span)
    return files


@lru_cache(1)
def _all_spans(items: Items) -> list[tuple[str, list[float] | None]]:
    """Return the spans of all clips. They are cached, because each fit of a run needs them."""
    files, times = _files_and_times(items, items.ids)
    spans = (span if math.isfinite(span[0]) else None for span in times.tolist())
    return list(zip(files, spans, strict=True))


def _files_and_times(items: Items, ids: Iterable[str]) -> tuple[list[str], NDArray[np.float64]]:
    """Return the file (as in `footage_of`) of each clip, and its start and end [clips, 2].

    Clips with times but without a file get their film as the file. The file is "" for clips that
    have neither. The times of a clip that is a whole file are `WHOLE`.
    """
    rows = [items.row(clip) for clip in ids]
    times = np.stack([items.starts[rows], items.ends[rows]], axis=1)
    has_start, is_span = np.isfinite(times[:, 0]).tolist(), np.isfinite(times).all(axis=1)
    times[~is_span] = WHOLE
    media, films = items.media, items.films
    files = [
        media_stem(media[row]) or (films[row] if timed else "")
        for row, timed in zip(rows, has_start, strict=True)
    ]
    return files, times


def seen_in_training(about: Mapping[str, Any], items: Items, ids: Sequence[str]) -> list[str]:
    """Return whether a model has seen each clip: ``yes``, `SEEN_RENAMED` or ``no``.

    Parameters
    ----------
    about
        The model's description, from `load_model`.
    items
        The items of the store.
    ids
        The ids of the clips to check, which must be among these items.
    """
    info = description_of(about)
    trained_on = frozenset(info.seen)
    own_files = [name for name, spans in info.footage.items() for _ in spans]
    own_times = [span or WHOLE for spans in info.footage.values() for span in spans]
    files, times = _files_and_times(items, ids)
    others, tested = np.split(np.arange(len(own_files) + len(files)), [len(own_files)])
    _, file_numbers = np.unique(own_files + files, return_inverse=True)
    times = np.concatenate([np.array(own_times, float).reshape(-1, 2), times])
    meetings = meet_in_time((file_numbers, *times.T), tested, others)

    # Ids of spans are often running numbers of a table, so a span counts only where it was seen.
    are_spans = len(own_files) == len(trained_on) and bool(np.isfinite(times[others]).all())
    is_elsewhere = ~meetings & are_spans & np.isfinite(times[tested, 0])
    seen = []
    for clip, meets, differs in zip(ids, meetings, is_elsewhere, strict=True):
        if clip in trained_on and not differs:
            seen.append("yes")
        else:
            seen.append(SEEN_RENAMED if meets else "no")
    return seen


def read_models(folder: Path) -> dict[str, About]:
    """Read the descriptions of all models in a folder, by relative path."""
    if not folder.is_dir():
        raise ExperimentError(f"the folder {folder} does not exist")
    models = {
        str(path.parent.relative_to(folder)): read_about(path.parent)
        for path in sorted(folder.rglob("model.json"))
    }
    if not models:
        raise ExperimentError(f"{folder} has no models. Train one: obygaze models train")
    return models


def describe_seen(seen: Mapping[str, str]) -> Iterator[str]:
    """Yield warnings about clips that the model has seen, which therefore cannot test it.

    `seen` maps each clip to its value from `seen_in_training`.
    """
    counts = Counter(seen.values())
    total = counted(len(seen), "clip was", "clips were")
    if counts["yes"]:
        yield f"{counts['yes']:,} of {total} used to train the model and cannot test it"
    if renamed := counts[SEEN_RENAMED]:
        clips = counted(renamed, "clip shows", "clips show")
        yield f"{clips} parts of files that the model was trained on, under other ids"


def model_card(
    name: str, about: Mapping[str, Any], manifest: Manifest, *, trained: int, validated: int
) -> str:
    """Return the text of a model card.

    Parameters
    ----------
    name
        The heading.
    about
        The model's description.
    manifest
        The manifest of the training clips.
    trained, validated
        The numbers of training and validation clips.
    """
    info = description_of(about)
    features = info.features
    backbone = features.backbone or Backbone()
    weights = [f"`{part.weights_sha256}`" for part in backbone.each]
    reading = ""
    if info.reads == "frames" and features.shape:
        reading = f", the sequence of {features.shape[0]} frames of a clip"
    options = ", ".join(f"{key} = {value}" for key, value in info.options.items())
    more = len(info.seen) - trained - validated
    purpose = "to learn its concepts" if "concepts" in info.facts else "to count classes"
    classes, negative, positive = ", ".join(info.classes), info.classes[0], info.classes[-1]
    does = f"Classifies film clips as {classes},"
    meaning = (
        f'"{positive}" means that annotators of these films gave a clip this label, by their\n'
        f'  definition. "{negative}" does not mean that everything else is absent.'
    )
    if info.learns and info.learns.target.is_numeric:
        does = f"Predicts {info.task}, a number for each clip,"
        meaning = "The numbers are on the scale of the annotators of these films."
    facts = describe_facts(info.facts)
    if "cut" in about:
        facts.append(f'threshold for "{positive}": {info.cut:.2f}')
    return _CARD.read_text(encoding="utf-8").format(
        name=name,
        info=info,
        backbone=backbone,
        manifest=manifest,
        warnings="".join(f"\n**{warning}**\n" for warning in info.warnings),
        does=does,
        meaning=meaning,
        options=f" ({options})" if options else "",
        reading=reading,
        weights=" and ".join(weights),
        trained=counted(trained, "clip"),
        validated=f", and {validated:,} for\n  validation" if validated else "",
        more=f"; {more:,} more {purpose}" if more > 0 else "",
        licence=manifest.licence or "licence not stated",
        citation=manifest.citation or "",
        facts="".join(f"- {line}\n" for line in facts),
    )


def describe_facts(facts: Mapping[str, Any]) -> list[str]:
    """Describe the facts that are numbers or strings, and the concepts, one line each."""
    lines = [
        f"{key.replace('_', ' ')}: {f'{value:.3g}' if isinstance(value, float) else value}"
        for key, value in facts.items()
        if isinstance(value, str | int | float)
    ]
    of_concepts = msgspec.convert(facts, Facts)
    if of_concepts.concepts:
        learned = ", ".join(f"{name} {q.auc:.2f}" for name, q in of_concepts.concepts.items())
        lines.append(f"concepts and their AUC: {learned}")
    if of_concepts.skipped:
        lines.append(f"concepts that could not be learned: {', '.join(of_concepts.skipped)}")
    if of_concepts.unreliable:
        lines.append(f"unreliable concepts: {', '.join(of_concepts.unreliable)}")
    return lines
