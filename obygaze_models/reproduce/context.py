"""The parts that all tables and figures share: definition, manifest, stores and settings."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from obygaze_features.common.package import reference_json
from obygaze_features.errors import ExperimentError, ManifestError
from obygaze_features.manifests import Manifest
from obygaze_features.store import Store, open_store
from obygaze_models.data.warnings import origin_warnings, unique_warnings
from obygaze_models.experiments.division import RELEASED, RELEASED_CONCEPTS
from obygaze_models.experiments.experiment import Experiment
from obygaze_models.experiments.published import BACKBONES, DATASET, paper_row, slot_of
from obygaze_models.experiments.tables import Run
from obygaze_models.reproduce.render import Artifacts, Missing, without_vain_comparison

PROTOCOLS = ("released", "leak-free", "paper")
"""The paper's three protocols, in the order of the tables."""
LEVELS = ("EN", "HN", "S")
RELEASED_LABELS = "released"
SAME_LABELS = "leak-free-released-labels"
"""The key of the setting that differs from the released setting only in its folds."""
# The fields of `Setting`: key, protocol, True for the released label set, title.
_SETTINGS = (
    ("released", "released", True, "Released: the authors' splits, as their code uses them"),
    (SAME_LABELS, "leak-free", True, "Leak-free, on the label set that was released"),
    ("paper", "paper", False, "Paper: the text of version 1, appendix 8, on all clips"),
    ("leak-free", "leak-free", False, "Leak-free, on all clips"),
)

Runs = Mapping[Any, Run]
"""The runs of a table, by the keys of the table's experiments."""


class Unavailable(ExperimentError):
    """The error raised if part of a table cannot be made. Its message gives the reason."""


@dataclass(frozen=True)
class Setting:
    """A protocol for drawing training and test clips, with a label set.

    `title` is the heading of the setting's blocks, and `key` the folder with its run folders.
    """

    key: str
    protocol: str
    labels: str | None
    title: str


@dataclass(frozen=True)
class Planned:
    """An experiment, and the folder for its run. Tables that need the same run share the folder."""

    folder: str
    experiment: Experiment


@dataclass(frozen=True)
class Needs:
    """The requirements of a table: experiments by key, and the parts that cannot be made."""

    experiments: dict[Hashable, Planned] = field(default_factory=dict)
    missing: list[Missing] = field(default_factory=list)

    @contextmanager
    def lacking(self, part: str) -> Iterator[None]:
        """Record a part as missing if the body of the ``with`` statement raises `Unavailable`."""
        try:
            yield
        except Unavailable as problem:
            missing = Missing(part, str(problem))
            if missing not in self.missing:
                self.missing.append(missing)


@dataclass
class Target:
    """A table or figure of `reproduce`, and a decorator for the function that makes it from runs.

    Parameters
    ----------
    name
        The name of the target, and of the files of its first table.
    title, about
        The title in the paper, and a description of the content.
    needs
        A function that returns the target's experiments. Each experiment is run once, even if
        several targets need it. The decorated function gets the runs by the same keys. By default,
        nothing is trained.
    draws
        True if the target has figures.
    """

    name: str
    title: str
    about: str = ""
    needs: Callable[[ReproductionContext], Needs] | None = None
    draws: bool = False

    def __call__(self, compose: _Compose) -> _Compose:
        """Add the target to `TARGETS`."""
        self.compose = compose
        TARGETS[self.name] = self
        return compose

    def make(
        self, context: ReproductionContext, needs: Needs, run_of: Mapping[str, Run]
    ) -> Artifacts:
        """Make the target's tables and figures. `run_of` maps the folders to runs."""
        runs = {key: run_of[planned.folder] for key, planned in needs.experiments.items()}
        artifacts = self.compose(context, runs)
        first, *others = artifacts.tables
        tables = [replace(first, title=self.title, about=self.about, missing=needs.missing)]
        tables += [replace(table, title=f"{self.title}, {table.title}") for table in others]
        for number, table in enumerate(tables):
            name = f"{self.name}-{table.name}" if table.name else self.name
            table = replace(table, name=name, notes=unique_warnings(table.notes))
            tables[number] = without_vain_comparison(table)
        return replace(artifacts, tables=tables)


TARGETS: dict[str, Target] = {}
"""The tables and figures of the paper, by name."""
_Compose = Callable[["ReproductionContext", Runs], Artifacts]


class ReproductionContext:
    """The shared input of all tables and figures.

    Parameters
    ----------
    manifest
        The folder of the manifest with clips and labels.
    stores
        The folders of the features, by the backbone's name in ``obygaze features extract``.
    protocols
        The protocols to use, from `PROTOCOLS`.
    seed
        The seed of all experiments.

    Attributes
    ----------
    stores
        The open stores, by slot (see `obygaze_models.experiments.published.BACKBONES`).
    has_papers_clips
        True if the clips are the paper's, so that its numbers can be compared with ours.
    has_released_splits
        True if the manifest has the authors' splits and runs.
    released_labels
        The label set of the released splits, if the manifest has it.
    """

    def __init__(
        self,
        manifest: Path,
        stores: Mapping[str, Path],
        *,
        protocols: Sequence[str] = PROTOCOLS,
        seed: int = 0,
    ) -> None:
        self.manifest_folder = manifest
        self.manifest = Manifest.load(manifest)
        self.has_papers_clips = self.manifest.name == DATASET
        splits, has_runs = set(self.manifest.split_names), bool(self.manifest.run_names)
        self.has_released_splits = has_runs and splits >= {*RELEASED.values(), RELEASED_CONCEPTS}
        has_labels = RELEASED_LABELS in self.manifest.label_names
        self.released_labels = RELEASED_LABELS if has_labels else None
        self.protocols = protocols
        self.seed = seed
        self.stores: dict[str, Store] = {}
        self._paths: dict[str, Path] = {}
        for name, path in stores.items():
            store = open_store(path)
            slot = _checked_slot(name, store)
            if slot in self.stores:
                raise ExperimentError(
                    f"{self.stores[slot].where} and {store.where} are both stores of "
                    f"{BACKBONES[slot].title}. Pass only one of these stores"
                )
            self.stores[slot], self._paths[slot] = store, path

    def plan(
        self, setting: Setting, slot: str, feature: str, suffix: str, **options: Any
    ) -> Planned:
        """Plan an experiment for a setting; raise `Unavailable` if a store lacks the feature.

        Parameters
        ----------
        slot, feature
            The backbone, and the array to read: ``native`` or ``max``.
        suffix
            The end of the run folder's name.
        options
            The other fields of `Experiment`.
        """
        self.require_feature(slot, feature)
        experiment = Experiment(
            manifest=str(self.manifest_folder),
            store=str(self._paths[slot]),
            array=feature,
            labels=setting.labels,
            protocol=setting.protocol,
            seed=self.seed,
            # Our protocols draw their own folds, whatever splits the manifest has.
            **{"split": None if setting.protocol == "released" else ""} | options,
        )
        return Planned(f"{setting.key}/{slot}-{feature}-{suffix}", experiment)

    def settings(self) -> list[Setting]:
        """Return the settings of the chosen protocols, if the manifest has the labels and splits.

        The settings are the released splits, our splits of the same clips, the splits described in
        the paper's text, and our splits of all clips.
        """
        labels = self.released_labels
        return [
            Setting(key, protocol, labels if released else None, title)
            for key, protocol, released, title in _SETTINGS
            if protocol in self.protocols
            and (self.has_released_splits if key == "released" else labels or not released)
        ]

    def concept_costs(self, reading: str) -> dict[str, float]:
        """Return the C of each concept's vector in a reading, or {} if validation chooses it."""
        published = reference_json("readings.json")[reading].get("concept_C", {})
        try:
            return {self.manifest.scheme.concept(name): C for name, C in published.items()}
        except ManifestError as problem:
            raise Unavailable(
                f"the bottlenecks need the paper's eight concepts: {problem}"
            ) from None

    def needs(self) -> Needs:
        """Return what is missing: the released protocol, if it is chosen and lacks its splits."""
        if "released" not in self.protocols or self.has_released_splits:
            return Needs()
        need = (
            f"the manifest {self.manifest.name!r} lacks the authors' splits. Add them with: "
            f"obygaze manifests import obygaze12 SOURCE --splits FOLDER -o {self.manifest_folder} "
            "--overwrite"
        )
        if not self.has_papers_clips:
            need = f"needs the clips of {DATASET} (the manifest is {self.manifest.name})"
        return Needs(missing=[Missing("the released protocol", need)])

    @property
    def title_suffix(self) -> str:
        """The suffix of all titles if clips or features are synthetic."""
        stores = [None, *(store.attributes for store in self.stores.values())]
        warnings = [w for store in stores for w in origin_warnings(self.manifest.items, store)]
        synthetic = "synthetic" in {warning.code for warning in warnings}
        return " (NOT A REAL RESULT: synthetic)" if synthetic else ""

    def is_published(self, slot: str) -> bool:
        """Return True if the paper has numbers for these clips and the store's checkpoint."""
        backbone = self.stores[slot].attributes["backbone"]
        return self.has_papers_clips and paper_row(backbone) is not None

    def require_feature(self, slot: str, name: str) -> None:
        """Raise `Unavailable` unless a slot has a store with the array."""
        backbone = BACKBONES[slot]
        if slot not in self.stores:
            raise Unavailable(
                f"needs the store of {backbone.title}. Add --store {backbone.names[0]}=FOLDER"
            )
        arrays = {spec.name for spec in self.stores[slot].specs}
        if name in arrays:
            return
        remedy = f"Extract it with: obygaze features extract --arrays {name}"
        if any(spec.meaning.startswith("imported") for spec in self.stores[slot].specs):
            remedy = f"Import all arrays into one store, {name} too, with of.import_features"
        raise Unavailable(f"{self._paths[slot]} has no array {name}. {remedy}")


def _checked_slot(name: str, store: Store) -> str:
    """Return a store's slot; raise `ExperimentError` if `name` is the name of another backbone."""
    backbone = store.attributes["backbone"]
    slot, recorded = slot_of(backbone), backbone["name"]
    named = next((slot for slot in BACKBONES if name in BACKBONES[slot].names), None)
    if slot and (slot == named or name == recorded):
        return slot
    if slot is None:
        names = ", ".join(backbone.names[0] for backbone in BACKBONES.values())
        raise ExperimentError(
            f"{store.where} is a store of {recorded}, which no table of the paper uses. Pass "
            f"stores of {names}"
        )
    raise ExperimentError(
        f"{store.where} is a store of {recorded} (got --store {name}=). Pass the store as "
        f"--store {recorded}={store.where}"
    )
