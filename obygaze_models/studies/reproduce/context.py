"""The parts that all tables and figures share: definition, manifest, stores and settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from obygaze_features.common.package import reference_json
from obygaze_features.errors import ExperimentError
from obygaze_features.manifests import Manifest
from obygaze_features.store import Store, open_store
from obygaze_models.data.run_warning import origin_warnings
from obygaze_models.experiments.experiment import Experiment
from obygaze_models.results.run import Run
from obygaze_models.studies.reproduce.render import Artifacts, Value, Values

AVERAGES = {"weighted": "f1_weighted", "positive class": "f1"}
"""The keys of the metrics, by the paper's names for averages of F1."""
CHANCE = {"random": "Random", "all positive": "All positive"}
"""The paper's row for each chance baseline."""


class Backbone(NamedTuple):
    """A backbone of the paper.

    Parameters
    ----------
    title
        The title for readers.
    names
        The names and families that stores record. The first is the name in obygaze.
    config
        The settings of the paper's checkpoint. A store with other settings has another checkpoint;
        other weights with the same settings are not noticed.
    mode
        The preprocessing of the authors' code; "" if all modes are the same.
    """

    title: str
    names: tuple[str, ...]
    config: Mapping[str, int]
    mode: str = "author"


BACKBONES = {
    "xclip": Backbone(
        "X-CLIP on Kinetics", ("xclip-kinetics", "xclip"), {"num_frames": 32, "patch_size": 16}
    ),
    "vivit": Backbone("ViViT-B/16", ("vivit",), {"num_frames": 32}),
    "lsmdc": Backbone("X-CLIP retrained on LSMDC", ("xclip-lsmdc", "lsmdc"), {}, ""),
}
"""The paper's three backbones, by key."""
SLOTS = {name: slot for slot, backbone in BACKBONES.items() for name in backbone.names}
"""The backbone's key for each name or family, whatever the checkpoint."""

PROTOCOL_NAMES = ("released", "leak-free", "paper")
"""The protocols that can be chosen: the authors' code, ours, and the paper's text."""
RELEASED_LABELS = "released"
SAME_LABELS = "leak-free-released-labels"
"""The key of the leak-free setting that has the labels of the released setting."""

Runs = Mapping[str, Run]
"""The runs of a table, by their folders."""


class Setting(NamedTuple):
    """A protocol for drawing training and test clips, with a label set (None: the default one).

    `title` starts the headings of the setting's blocks. `key` is the folder of the setting's runs.
    """

    key: str
    protocol: str
    labels: str | None
    title: str


SETTINGS = (
    Setting(
        "released",
        "released",
        RELEASED_LABELS,
        "Released: the authors' splits, as their code uses them",
    ),
    Setting(
        SAME_LABELS,
        "leak-free",
        RELEASED_LABELS,
        "Leak-free, on the label set that was released",
    ),
    Setting(
        "paper",
        "paper",
        None,
        "Paper: as in version 1, appendix 8, on all clips",
    ),
    Setting("leak-free", "leak-free", None, "Leak-free, on all clips"),
)


class PlannedRun(NamedTuple):
    """A part of a table, and the experiment that makes it.

    Parameters
    ----------
    title
        The part's name, for messages.
    setting
        The protocol and the label set.
    slot, array
        The backbone, and the array to read, such as ``native``.
    suffix
        The end of the run folder's name.
    options
        The other fields of `Experiment`. The leak-free and paper protocols draw new folds of clips
        instead of `split`.
    """

    title: str
    setting: Setting
    slot: str
    array: str
    suffix: str
    options: Mapping[str, Any]


@dataclass(frozen=True)
class Needs:
    """The requirements of a table.

    Parameters
    ----------
    experiments
        The experiments, by the folders of their runs. Tables that need the same run share it.
    missing
        The parts of the table that cannot be made, by what they need.
    """

    experiments: dict[str, Experiment] = field(default_factory=dict)
    missing: dict[str, list[str]] = field(default_factory=dict)


class Target(NamedTuple):
    """A table or figure of `reproduce`.

    Parameters
    ----------
    title
        A description of the content.
    make
        A function that makes the tables and figures from the runs. If parts are missing and no
        experiment could be run, it is not called.
    plan
        A function that returns the target's parts. By default, nothing is trained.
    by_protocol
        True if the target has a part for each protocol.
    """

    title: str
    make: Callable[[ReproductionContext, Runs], Artifacts]
    plan: Callable[[ReproductionContext], Iterable[PlannedRun]] = lambda _: ()
    by_protocol: bool = True


class ReproductionContext:
    """The shared input of all tables and figures.

    Parameters
    ----------
    manifest
        The folder of the manifest with clips and labels.
    stores
        The folders of the features, by the backbone's name in ``obygaze features extract`` or in
        the store.
    protocols
        The protocols to use, from `PROTOCOL_NAMES`.

    Attributes
    ----------
    stores
        The open stores, by slot (see `BACKBONES`).
    has_papers_clips
        True if the clips are the paper's, so that its numbers can be compared with ours.
    has_released_splits
        True if the manifest has the authors' runs.
    has_released_labels
        True if the manifest has the label set of the released splits.
    settings
        The settings of the chosen protocols, if the manifest has the labels and splits: the
        released splits, our splits of the same clips, the splits described in the paper's text, and
        our splits of all clips.
    """

    def __init__(
        self,
        manifest: str | Path,
        stores: Mapping[str, str | Path],
        *,
        protocols: Sequence[str] = PROTOCOL_NAMES,
    ) -> None:
        self.folder = manifest
        self.manifest = Manifest.load(manifest)
        self.protocols = protocols
        self.has_papers_clips = self.manifest.has_papers_clips
        self.has_released_splits = bool(self.manifest.run_names)
        self.has_released_labels = RELEASED_LABELS in self.manifest.label_names
        self.stores: dict[str, Store] = {}
        for name, path in stores.items():
            store = open_store(path)
            backbone = store.attributes["backbone"]
            # Older stores do not record the family; in these, the name is the family.
            family = backbone.get("family") or backbone["name"]
            slot = SLOTS.get(family, "")
            is_its_name = name == backbone["name"] or SLOTS.get(name) == slot
            if not slot or slot in self.stores or not is_its_name:
                accepted = ", ".join(each.names[0] for each in BACKBONES.values())
                raise ExperimentError(
                    f"{name}: {path} is a store of {backbone['name']}. Pass at most one "
                    f"store of each of {accepted}, under its own name"
                )
            self.stores[slot] = store
        has = {"released": self.has_released_splits, SAME_LABELS: self.has_released_labels}
        chosen = [setting for setting in SETTINGS if setting.protocol in protocols]
        self.settings = [setting for setting in chosen if has.get(setting.key, True)]

    def needs(self, target: Target) -> Needs:
        """Return the experiments of a table, and what is missing for its other parts."""
        needs = Needs()
        if target.by_protocol and "released" in self.protocols and not self.has_released_splits:
            need = (
                f"the clips of ObyGaze12 and the authors' splits. Add them with: obygaze "
                f"manifests import obygaze12 SOURCE --splits FOLDER -o {self.folder} --overwrite"
            )
            needs.missing[need] = ["the released protocol"]

        for part in target.plan(self):
            setting = part.setting
            store = self.stores.get(part.slot)
            if store is None or part.array not in store.arrays:
                backbone = BACKBONES[part.slot]
                lack = f"{backbone.title} with the array {part.array}. Pass its store: "
                titles = needs.missing.setdefault(lack + backbone.names[0], [])
                if part.title not in titles:
                    titles.append(part.title)
                continue
            options = {"protocol": setting.protocol, **part.options}
            if setting.protocol in ("leak-free", "paper"):
                options["split"] = "clips"
            folder = f"{setting.key}/{part.slot}-{part.array}-{part.suffix}"
            needs.experiments[folder] = Experiment(
                manifest=str(self.folder),
                store=store.where,
                array=part.array,
                labels=setting.labels if self.has_released_labels else None,
                **options,
            )
        return needs

    @property
    def title_suffix(self) -> str:
        """A suffix for titles that says if clips or features are synthetic; otherwise ""."""
        for attributes in ({}, *(store.attributes for store in self.stores.values())):
            for warning in origin_warnings(self.manifest.items, attributes):
                if warning.code == "synthetic":
                    return " (NOT A REAL RESULT: synthetic)"
        return ""

    def differences(self, slot: str) -> list[str]:
        """Return what is not as in the paper's features: the ``checkpoint`` or the ``mode``."""
        backbone = BACKBONES[slot]
        attributes = self.stores[slot].attributes
        config = attributes["backbone"].get("config", {})
        actual = {**backbone.config, **config, **config.get("vision_config", {})}
        differing = []
        if not backbone.config.items() <= actual.items():
            differing.append("checkpoint")
        if backbone.mode not in ("", attributes["preprocessing"].get("mode")):
            differing.append("mode")
        return differing

    def is_published(self, slot: str) -> bool:
        """Return True if the paper has numbers for these clips and the store's features."""
        return self.has_papers_clips and not self.differences(slot)


def made_easy(manifest: Manifest) -> dict[str, int]:
    """Return how many clips of each other level count as Easy Negative."""
    easy, *others = manifest.scheme.codes
    counts = dict.fromkeys(others, 0)
    if "raw" in manifest.label_names:
        level_of = manifest.labels().level_of
        for clip, level in manifest.labels("raw").level_of.items():
            if level != easy and level_of.get(clip) == easy:
                counts[level] += 1
    return counts


def published_row(row: str, metric: str) -> Values:
    """Return a row's numbers from Table 2 or 5; {} if they are another average of F1."""
    tables = reference_json("published.json")
    entry = (tables["table2"]["rows"] | tables["table5"]["rows"])[row]
    if AVERAGES[entry["average"]] != metric:
        return {}
    return {column: Value(**number) for column, number in entry["values"].items() if number}
