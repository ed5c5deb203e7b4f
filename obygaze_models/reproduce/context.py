"""What all tables and figures share: the manifest, the stores, and each run made only once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from obygaze_features.errors import ExperimentError
from obygaze_features.manifests import Manifest
from obygaze_features.store import Store, open_store
from obygaze_models.data.warnings import origin_warnings
from obygaze_models.experiments.division import RELEASED, RELEASED_CONCEPTS
from obygaze_models.experiments.experiment import Experiment
from obygaze_models.experiments.fit import FitMemo
from obygaze_models.experiments.published import BACKBONES, DATASET, is_checkpoint_of_paper, slot_of
from obygaze_models.experiments.run import run_experiment
from obygaze_models.experiments.run_folder import Run, load_run
from obygaze_models.reproduce.render import Artifacts, Table, without_vain_comparison

PROTOCOLS = ("released", "leak-free", "paper")
"""The paper's three protocols, in the order of the tables."""
LEVELS = ("EN", "HN", "S")
RELEASED_LABELS = "released"
SAME_LABELS = "leak-free-released-labels"
"""The key of the setting that differs from the released one only in its folds."""
#: The settings of `Setting`: key, protocol, whether on the label set that was released, title.
_SETTINGS = (
    ("released", "released", True, "Released: the authors' splits, as their code uses them"),
    (SAME_LABELS, "leak-free", True, "Leak-free, on the label set that was released"),
    ("paper", "paper", False, "Paper: the text of version 1, appendix 8, on all clips"),
    ("leak-free", "leak-free", False, "Leak-free, on all clips"),
)
#: Backbones with one token a frame: the maximum over frames is the maximum over all tokens.
_ONE_TOKEN_A_FRAME = ("xclip", "lsmdc")


_Make = TypeVar("_Make", bound="Callable[[ReproductionContext], Artifacts]")
Pending = Callable[[], Run]
"""A run that was asked for: waits for it."""
_MEMO = FitMemo()
"""Of this process, where it makes runs for another."""


def make_run(experiment: Experiment, folder: Path) -> None:
    """Make a run for another process."""
    run_experiment(experiment, folder, memo=_MEMO)


class Unavailable(ExperimentError):
    """A part of a table that cannot be made from these stores; the message says what it needs."""


class NotYet(Exception):
    """A table waits for its first run, while all are asked for theirs."""


@dataclass(frozen=True)
class Setting:
    """How training and test clips are drawn, and from which label set.

    `title` is the heading of its blocks; its run folders are in a folder named `key`.
    """

    key: str
    protocol: str
    labels: str | None
    title: str


@dataclass(frozen=True)
class Feature:
    """An array of a store, and how it is pooled."""

    slot: str
    array: str
    pooling: str | None
    name: str

    @property
    def key(self) -> str:
        """The beginning of its run folders' names."""
        return f"{self.slot}-{self.name}"


@dataclass(frozen=True)
class Target:
    """A table or figure: what makes it, and whether it needs runs, and draws."""

    make: Callable[[ReproductionContext], Artifacts]
    trains: bool
    draws: bool


TARGETS: dict[str, Target] = {}
"""The tables and figures of the paper by name, in the order of the modules that define them."""


def target(
    name: str, title: str = "", part: str = "all rows", *, trains: bool = True, draws: bool = False
) -> Callable[[_Make], _Make]:
    """Let `reproduce` make a table or figure.

    Parameters
    ----------
    name, title
        Of the target; where it is `Unavailable`, a table of this title says what is missing.
    part
        What is missing then.
    """

    def register(make: _Make) -> _Make:
        def make_or_explain(context: ReproductionContext) -> Artifacts:
            try:
                made = make(context)
                return replace(made, tables=list(map(without_vain_comparison, made.tables)))
            except Unavailable as problem:
                return Artifacts([Table(name, title, (), (), missing=[f"{part}: {problem}"])])

        TARGETS[name] = Target(make_or_explain, trains, draws)
        return make

    return register


class ReproductionContext:
    """What all tables and figures share.

    Parameters
    ----------
    manifest
        The folder of the clips and their labels.
    stores
        The folders of the features, by the name of a backbone as ``obygaze features extract``
        takes it.
    folder
        Where run folders are written.
    protocols
        Which of `PROTOCOLS`.
    seed
        Seed of all draws.
    log
        Called with the name of what is made next.
    pool
        Processes that make the runs; by default this one does, when their results are asked for.

    Attributes
    ----------
    stores
        The open stores, by slot (see `obygaze_models.experiments.published.BACKBONES`).
    has_papers_clips
        Whether the clips are the paper's, so that its numbers can be compared with ours.
    has_released_splits
        Whether the authors' splits and runs are in the manifest.
    released_labels
        The label set that the released splits were made from, if the manifest has it.
    """

    def __init__(
        self,
        manifest: Path,
        stores: Mapping[str, Path],
        folder: Path,
        *,
        protocols: Sequence[str] = PROTOCOLS,
        seed: int = 0,
        log: Callable[[str], None] = lambda _: None,
        pool: Executor | None = None,
    ) -> None:
        self.manifest_folder = manifest
        self.manifest = Manifest.load(manifest)
        self.has_papers_clips = self.manifest.name == DATASET
        splits, has_runs = set(self.manifest.split_names), bool(self.manifest.run_names)
        self.has_released_splits = has_runs and splits >= {*RELEASED.values(), RELEASED_CONCEPTS}
        has_labels = RELEASED_LABELS in self.manifest.label_names
        self.released_labels = RELEASED_LABELS if has_labels else None
        self.folder = folder
        self.protocols = protocols
        self.seed = seed
        self.log = log
        self._pool = pool
        self._asked: dict[str, Pending] = {}
        self._asking = False
        self.stores: dict[str, Store] = {}
        self._paths: dict[str, Path] = {}
        self._memo = FitMemo()
        for name, path in stores.items():
            store = open_store(path)
            slot = _checked_slot(name, store)
            if slot in self.stores:
                raise ExperimentError(
                    f"{self.stores[slot].where} and {store.where} are both stores of "
                    f"{BACKBONES[slot].title}; give one of them"
                )
            self.stores[slot], self._paths[slot] = store, path

    def run(self, setting: Setting, feature: Feature, suffix: str, **options: Any) -> Pending:
        """Ask for the run of an experiment, which is made only once.

        Parameters
        ----------
        suffix
            The end of the run folder's name.
        options
            The fields of `Experiment` that setting and feature do not give.
        """
        key = f"{setting.key}/{feature.key}-{suffix}"
        if key in self._asked:
            self._asked[key] = self._asked.pop(key)  # in the order of the tables
            return self._asked[key]
        experiment = Experiment(
            manifest=str(self.manifest_folder),
            store=str(self._paths[feature.slot]),
            array=feature.array,
            pooling=feature.pooling,
            labels=setting.labels,
            protocol=setting.protocol,
            seed=self.seed,
            # Our protocols draw folds of their own, whatever splits the manifest has.
            **{"split": None if setting.protocol == "released" else ""} | options,
        )
        folder = self.folder / key
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _lost_processes():
            job = self._pool.submit(make_run, experiment, folder) if self._pool else None

        @cache
        def pending() -> Run:
            if self._asking:
                raise NotYet
            self.log(f"run: {experiment.name}")
            if job is None:
                return run_experiment(experiment, folder, memo=self._memo)
            with _lost_processes():
                job.result()
            return load_run(folder)

        self._asked[key] = pending
        return pending

    def ask_for_runs(self, targets: Sequence[Target]) -> None:
        """Let each table ask for its runs, so that processes are busy before any is awaited.

        The last ask first: films left out take longest.
        """
        self._asking = True
        for table in reversed(targets):
            with suppress(NotYet):
                table.make(self)
        self._asking = False

    @property
    def runs(self) -> dict[str, Run]:
        """The runs that were asked for, by key."""
        return {key: pending() for key, pending in self._asked.items()}

    def settings(self) -> list[Setting]:
        """The settings that were asked for and that the manifest has labels and splits for.

        The released splits; ours on the same clips; the paper's text and ours on all clips.
        """
        labels = self.released_labels
        return [
            Setting(key, protocol, labels if released else None, title)
            for key, protocol, released, title in _SETTINGS
            if protocol in self.protocols
            and (self.has_released_splits if key == "released" else labels or not released)
        ]

    def missing_requirements(self) -> list[str]:
        """What the manifest lacks for a protocol that was asked for."""
        if "released" not in self.protocols or self.has_released_splits:
            return []
        if not self.has_papers_clips:
            return [
                f"the released protocol: it needs the clips of {DATASET}, and this manifest is "
                f"{self.manifest.name}"
            ]
        return [
            f"the released protocol: the manifest {self.manifest.name!r} has no splits of the "
            "authors; add them with: obygaze manifests import obygaze12-splits SOURCE "
            f"-o {self.manifest_folder}"
        ]

    @property
    def title_suffix(self) -> str:
        """The end of all titles where clips or features are synthetic."""
        stores = [None, *(store.attributes for store in self.stores.values())]
        warnings = [w for store in stores for w in origin_warnings(self.manifest.items, store)]
        synthetic = any(warning.code == "synthetic" for warning in warnings)
        return " (NOT A REAL RESULT: synthetic)" if synthetic else ""

    def is_published(self, slot: str) -> bool:
        """Whether the paper has numbers for these clips and this store's checkpoint."""
        backbone = self.stores[slot].attributes["backbone"]
        return self.has_papers_clips and is_checkpoint_of_paper(backbone)

    def feature(self, slot: str, name: str) -> Feature:
        """The array ``native``, or ``max`` over all tokens; `Unavailable` if there is none."""
        backbone = BACKBONES[slot]
        if slot not in self.stores:
            raise Unavailable(
                f"needs the store of {backbone.title}; give --store {backbone.names[0]}=FOLDER"
            )
        arrays = {spec.name for spec in self.stores[slot].specs}
        if name in arrays:
            return Feature(slot, name, None, name)
        tokens = ("tokens", "frames") if slot in _ONE_TOKEN_A_FRAME else ("tokens",)
        for array in tokens if name == "max" else ():
            if array in arrays:
                return Feature(slot, array, "max", name)
        remedy = f"extract it with: obygaze features extract --arrays {name}"
        if any(spec.meaning.startswith("imported from") for spec in self.stores[slot].specs):
            others = "".join(f"{array}=FILE " for array in sorted(arrays))
            remedy = f"import it beside the others: obygaze stores import npy {others}{name}=FILE"
        raise Unavailable(f"{self._paths[slot]} has no array {name}; {remedy}")


@contextmanager
def _lost_processes() -> Iterator[None]:
    try:
        yield
    except BrokenProcessPool:
        raise ExperimentError(
            "a process that made runs was ended; if memory is short, free some, or "
            "reproduce one table or figure at a time, which needs one process"
        ) from None


def _checked_slot(name: str, store: Store) -> str:
    """The slot of a store; `ExperimentError` if it was given under another backbone's name."""
    backbone = store.attributes["backbone"]
    slot, recorded = slot_of(backbone), backbone["name"]
    named = next((slot for slot in BACKBONES if name in BACKBONES[slot].names), None)
    if slot and (slot == named or name == recorded):
        return slot
    if slot is None:
        names = ", ".join(backbone.names[0] for backbone in BACKBONES.values())
        raise ExperimentError(
            f"{store.where} is a store of {recorded}, which is in no table of the paper; give "
            f"stores of {names}"
        )
    raise ExperimentError(
        f"{store.where} is a store of {recorded} (got --store {name}=); give it as "
        f"--store {recorded}={store.where}"
    )
