"""Import the authors' files of ObyGaze12: annotations of 1,914 clips, splits and runs.

The paper's released code draws its training folds in an unusual way. This module reproduces that
code, so that results can be compared with the exact runs that were published.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Set
from dataclasses import replace
from pathlib import Path

from obygaze_features.common.names import unknown_name
from obygaze_features.common.tables import read_table
from obygaze_features.errors import ManifestError
from obygaze_features.items.items import Items
from obygaze_features.manifests.importers.reading import parse_list, published
from obygaze_features.manifests.labels import LabelScheme, LabelSet, map_column, obygaze_scheme
from obygaze_features.manifests.manifest import Manifest
from obygaze_features.manifests.splits import Run, RunSet, Split

#: The rules that turn raw annotations into labels; each makes a label set over the same items.
RULES = {
    "paper": "visual concepts only; a clip without any becomes Easy Negative",
    "released": "visual concepts only; a clip without any is dropped unless it is Easy Negative",
    "raw": "as annotated, including concepts that are not visual",
}
OF_LABELS = ("label", "overlap_ratio", "concepts")
RENAMED = {"movie": "film", "video_name": "media"}
REQUIRED = ("clip", *OF_LABELS, "id", *RENAMED)
#: The split files that the released code trains on; it uses the others only for testing.
TRAINED = ("02_EN_S", "02_HN_S")
CLASSES = {"Easy Neg": "EN", "Hard Neg": "HN", "Sure": "S", "S": "S", "EN_HN": "EN_HN"}


def import_manifest(source: Path | str) -> Manifest:
    """Read the annotations of the ObyGaze12 paper."""
    table = read_table(Path(source), delimiter=";", required=REQUIRED)
    columns = {}
    for name, cells in table.columns.items():
        if name not in OF_LABELS:
            columns[RENAMED.get(name, name)] = cells

    scheme = obygaze_scheme()
    levels = map_column(table, "label", scheme.level)
    concepts = map_column(table, "concepts", lambda cell: scheme.in_order(parse_list(cell)))
    ratio = table["overlap_ratio"]
    extra = {"raw_label": table["label"], "raw_concepts": table["concepts"]}
    about = {"origin": "rule", "rule": RULES["raw"]}
    raw = LabelSet("raw", table["id"], levels, concepts, ratio, extra, about)
    return Manifest(
        **published("obygaze12"),
        items=Items.from_table(replace(table, columns=columns)),
        scheme=scheme,
        default_labels="paper",
    ).with_parts(*[_apply_rule(name, raw, scheme) for name in RULES])


def _apply_rule(rule: str, raw: LabelSet, scheme: LabelScheme) -> LabelSet:
    if rule == "raw":
        return raw
    visual = set(scheme.visual_concepts)
    lowest = scheme.codes[0]
    levels = []
    concepts = []
    for level, names in zip(raw.levels, raw.concepts, strict=True):
        seen = tuple(name for name in names if name in visual)
        concepts.append(seen)
        levels.append(level if seen else lowest)
    about = {**raw.about, "rule": RULES[rule]}
    labels = replace(raw, name=rule, levels=levels, concepts=concepts, about=about)
    if rule == "paper":
        return labels
    return labels.where(lambda i: bool(labels.concepts_of[i]) or raw.level_of[i] == lowest)


def read_released_splits(source: Path, manifest: Manifest) -> tuple[list[Split], list[RunSet]]:
    """Read the folders ``balanced_level`` and ``movieset``, and reproduce the released runs.

    `source` contains one or both folders. Every id must be in `manifest`, the manifest of
    ``obygaze12``.
    """
    files = [*source.glob("balanced_level/*.csv"), *source.glob("movieset/*.csv")]
    if not files:
        raise ManifestError(
            f"{source} has no split files; pass the folder with balanced_level/ or movieset/"
        )
    splits = [_read_split(path, manifest) for path in sorted(files)]
    with_media = {item.id for item in manifest if item.media}
    runs = [released_runs(split, with_media) for split in splits if split.name in TRAINED]
    return splits, runs


def _read_split(path: Path, manifest: Manifest) -> Split:
    table = read_table(path, delimiter=";", required=["id", "label", "fold"])
    map_column(table, "id", manifest.items.row)  # raises if an id is unknown
    name = path.stem
    class_of = CLASSES
    if path.parent.name == "movieset":
        # 0 and 1 mean the two classes in the file's name, for instance HN_S.
        negative, _, positive = name.replace("ENHN", "EN+HN").partition("_")
        class_of = {"0": negative.replace("+", "_"), "1": positive}
        name = f"movieset_{name}"

    def read_class(label: str) -> str:
        if label not in class_of:
            raise ManifestError(unknown_name("label", label, class_of))
        return class_of[label]

    columns = {
        "id": table["id"],
        "fold": table["fold"],
        "class": map_column(table, "label", read_class),
    }
    about = {"method": "released by the authors", "file": f"{path.parent.name}/{path.name}"}
    return Split.from_table(name, replace(table, columns=columns), about)


def released_runs(split: Split, with_media: Set[str]) -> RunSet:
    """Return the eight runs that the released code makes from one of its split files.

    The last fold is the test fold, and run `v` validates on fold `v`. Each class gets a number of
    slots in inverse proportion to its size, and takes that many folds from a wheel of folds 1 to 9
    without `v + 1`, so fold 0 is never used for training. Each run continues around the wheel where
    the previous run stopped. A slot that lands on the validation or test fold is lost, so classes
    are only roughly balanced. Clips without a media file are left out.
    """
    test = split.last_fold
    rows = zip(split.ids, split.folds, split.classes, strict=True)
    usable = [row for row in rows if row[0] in with_media]
    runs = []
    for validation in range(test - 1):
        pool = [row for row in usable if row[1] not in (validation, test)]
        sizes = Counter(name for _, _, name in pool)
        tenths = {name: count // 10 for name, count in sizes.items()}
        if 0 in tenths.values():
            raise ManifestError(
                f"the split {split.name!r} has fewer than 10 training clips of a class, but the "
                "released code counts each class in tens; use a larger split"
            )
        wheel = [fold for fold in range(1, test + 1) if fold != validation + 1]
        chosen = {}
        for name, tenth in tenths.items():
            slots = round(8 * min(tenths.values()) / tenth)
            first = validation * slots
            chosen[name] = {wheel[(first + slot) % len(wheel)] for slot in range(slots)}
        runs.append(
            Run(
                str(validation),
                train=sorted(i for i, fold, name in pool if fold in chosen[name]),
                validation=sorted(i for i, fold, _ in usable if fold == validation),
            )
        )
    about = {"method": "the training folds of the released code", "split": split.name}
    return RunSet(split.name, runs, about)
