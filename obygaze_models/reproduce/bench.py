"""The bench on which tables are reproduced: manifest, stores, settings, and runs done once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from obygaze_features.errors import ExperimentError
from obygaze_features.manifests import Manifest
from obygaze_features.store import Store, open_store
from obygaze_models.experiments.experiment import Experiment
from obygaze_models.experiments.plan import RELEASED, RELEASED_CONCEPTS
from obygaze_models.experiments.run import run_experiment
from obygaze_models.experiments.run_folder import Results, read_results
from obygaze_models.published import DATASET, SLOTS, papers_backbone, papers_slot
from obygaze_models.warnings import synthetic_warnings

__all__ = ["PROTOCOLS", "STORES", "Bench", "Feature", "Setting"]

PROTOCOLS = ("released", "leak-free", "paper")
"""The paper's three readings, in the order of the tables."""
STORES = {
    "xclip": "X-CLIP on Kinetics",
    "vivit": "ViViT-B/16",
    "lsmdc": "X-CLIP retrained on LSMDC",
}
BY_FRAME = ("xclip", "lsmdc")
"""Those whose tokens are one a frame, so that the maximum over frames is that over all tokens."""
LEVELS = ("EN", "HN", "S")
RELEASED_LABELS = "released"


@dataclass(frozen=True)
class Setting:
    """How train and test are drawn, and from which label set.

    `title` is what stands above its block; `key` what its runs' folders begin with.
    """

    key: str
    protocol: str
    labels: str | None
    title: str


@dataclass(frozen=True)
class Feature:
    """An array of a store, and how it is pooled; a row of Table 2."""

    store: str
    array: str
    pooling: str | None
    name: str

    @property
    def key(self) -> str:
        """What its runs' folders are called after."""
        return f"{self.store}-{self.name}"


@dataclass(eq=False)
class Bench:
    """What all tables and figures share.

    Parameters
    ----------
    manifest, stores
        Folders: of the annotations, and of the features by the names of their backbones, as
        ``obygaze features extract`` takes them; then by their names in `STORES`.
    folder
        Where the runs are kept, each in a folder of its own.
    protocols
        Which of `PROTOCOLS`.
    seed
        Of all draws.
    say
        Told what is being run.
    """

    manifest: Path
    stores: dict[str, Path]
    folder: Path
    protocols: Sequence[str] = PROTOCOLS
    seed: int = 0
    say: Callable[[str], None] = lambda _: None
    runs: dict[str, Results] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.read = Manifest.load(self.manifest)
        paths, self.stores = self.stores, {}
        self.open: dict[str, Store] = {}
        for name, path in paths.items():
            slot = _slot(name, store := open_store(path))
            if slot in self.open:
                raise ExperimentError(
                    f"{self.open[slot].where} and {store.where} are both stores of "
                    f"{STORES[slot]}; give one of them"
                )
            self.stores[slot], self.open[slot] = path, store

    def run(self, setting: Setting, feature: Feature, of: str, **given: Any) -> Results:
        """The results of an experiment, which is run where it has not been yet.

        Parameters
        ----------
        of
            What its folder's name ends with.
        given
            What an `Experiment` takes past the setting's and the feature's part.
        """
        key = f"{setting.key}/{feature.key}-{of}"
        if key not in self.runs:
            self.say(f"run {len(self.runs) + 1}: {given['name']}")
            experiment = Experiment(
                manifest=self.manifest,
                store=self.stores[feature.store],
                array=feature.array,
                pooling=feature.pooling,
                labels=setting.labels,
                protocol=setting.protocol,
                seed=self.seed,
                **given,
            )
            run_experiment(experiment, self.folder / key)
            self.runs[key] = read_results(self.folder / key)
        return self.runs[key]

    def settings(self) -> list[Setting]:
        """The released splits, ours on the very same clips, then the paper's text and ours on all.

        Those that the manifest has no labels or splits for are left out; `lacking` names them.
        """
        found = []
        labels = self.released_labels
        if "released" in self.protocols and self.has_released_splits:
            title = "Released: the authors' splits, as their code uses them"
            found.append(Setting("released", "released", labels, title))
        if "leak-free" in self.protocols and labels:
            title = "Leak-free, on the label set that was released"
            found.append(Setting("leak-free-released-labels", "leak-free", labels, title))
        if "paper" in self.protocols:
            title = "Paper: the text of version 1, appendix 8, on all clips"
            found.append(Setting("paper", "paper", None, title))
        if "leak-free" in self.protocols:
            title = "Leak-free, on all clips"
            found.append(Setting("leak-free", "leak-free", None, title))
        return found

    def lacking(self) -> list[str]:
        """What the manifest lacks for a protocol that was asked for."""
        if "released" not in self.protocols or self.has_released_splits:
            return []
        if not self.is_papers:
            return [f"the released protocol: it is of {DATASET}, and this is {self.read.name}"]
        return [
            f"the released protocol: the manifest {self.read.name!r} has no splits of the authors; "
            f"add them with: obygaze manifests import obygaze12-splits SOURCE -o {self.manifest}"
        ]

    @property
    def is_papers(self) -> bool:
        """Whether the clips are the paper's, so that its numbers may stand beside ours."""
        return self.read.name == DATASET

    @property
    def mark(self) -> str:
        """What is added to titles where what was made up must not pass for a result."""
        backbones = [of.attributes["backbone"] for of in self.open.values()] or [{}]
        made_up = any(synthetic_warnings(self.read.items, backbone) for backbone in backbones)
        return " (NOT A REAL RESULT: synthetic)" if made_up else ""

    def published(self, store: str) -> bool:
        """Whether the paper's row may stand beneath ours: its clips, and its checkpoint."""
        return (
            self.is_papers and papers_backbone(self.open[store].attributes["backbone"]) is not None
        )

    @property
    def has_released_splits(self) -> bool:
        """Whether the authors' splits and runs are in the manifest."""
        splits = {*RELEASED.values(), RELEASED_CONCEPTS}
        return splits <= set(self.read.split_names) and bool(self.read.run_names)

    @property
    def released_labels(self) -> str | None:
        """The label set that the released splits were made from, if the manifest has it."""
        return RELEASED_LABELS if RELEASED_LABELS in self.read.label_names else None

    def feature(self, store: str, name: str) -> Feature | str:
        """``native``, or ``max`` over all tokens; a text says why it is not to be had."""
        if store not in self.open:
            return f"needs the store of {STORES[store]}; give --store {SLOTS[store][0]}=FOLDER"
        arrays = {one.name for one in self.open[store].specs}
        if name in arrays:
            return Feature(store, name, None, name)
        for tokens in ("tokens", *(("frames",) if store in BY_FRAME else ())):
            if name == "max" and tokens in arrays:
                return Feature(store, tokens, "max", name)
        return (
            f"{self.stores[store]} has no array {name}; extract it with: obygaze features extract "
            f"--arrays {name}"
        )


def _slot(name: str, store: Store) -> str:
    """Which of `STORES` a store that was given under a backbone's name is."""
    backbone = store.attributes["backbone"]
    slot, recorded = papers_slot(backbone), backbone["name"]
    meant = next((slot for slot, names in SLOTS.items() if name in names), None)
    if slot and (slot == meant or name == recorded):
        return slot
    if slot is None:
        backbones = ", ".join(names[0] for names in SLOTS.values())
        raise ExperimentError(
            f"{store.where} is a store of {recorded}, which is in no table of the paper; give "
            f"stores of {backbones}"
        )
    raise ExperimentError(
        f"{store.where} is a store of {recorded} (got --store {name}=); give it as "
        f"--store {recorded}={store.where}"
    )
