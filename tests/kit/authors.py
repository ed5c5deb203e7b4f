"""Small versions of the authors' files, with their layout, spellings and oddities, but random rows.

`released_runs.json` is written by a plain loop, not by the tested code.
"""

import ast
import json
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from click.testing import CliRunner

from obygaze_features.manifests import Manifest
from obygaze_features.store import ArraySpec
from obygaze_models.commands.main import main
from tests.kit.files import write
from tests.kit.run import RECIPE, write_rows

#: The films of ObyGaze12, in the order of the authors' table.
FILMS = (
    *("tt0108160", "tt0110912", "tt0119822", "tt0212338", "tt0467406", "tt0822832"),
    *("tt1045658", "tt1142988", "tt1193138", "tt1454029", "tt1570728", "tt2267998"),
)
NO_SURE = FILMS[3]  # a film without Sure clips, as in the authors' movieset
LABELS = {"Easy Neg": 50, "Hard Neg": 70, "Not Sure": 36, "Sure": 36}
VISUAL = (
    *("Type of plan", "Look", "Body", "Posture", "Clothes", "Appearance", "Exp of  emotion"),
    "Activities",
)
HEARD = ("Speech", "Voice", "Soundtrack", "Narratology")
COLUMNS = ("idx", "util", "clip", "label", "overlap_ratio", "concepts", "id", "movie", "srt_name",
           "video_name", "graph_number")  # fmt: skip
SPLIT_COLUMNS = ("", "clip", "id", "movie", "srt_name", "video_name", "graph_number", "label",
                 "reason", "fold")  # fmt: skip
#: The classes of the table's labels in each split file.
SPLITS = {
    "02_EN_HN_S": {"Easy Neg": "Easy Neg", "Hard Neg": "Hard Neg", "Sure": "Sure"},
    "02_ENHN_S": {"Easy Neg": "EN_HN", "Hard Neg": "EN_HN", "Sure": "S"},
    "02_EN_S": {"Easy Neg": "Easy Neg", "Sure": "Sure"},
    "02_HN_S": {"Hard Neg": "Hard Neg", "Sure": "Sure"},
}
MOVIESET = {"ENHN_S": "02_ENHN_S", "HN_S": "02_HN_S"}
#: The stores of a data set: their arrays, and the backbone that they name.
STORES = {
    "xclip": (("native", "max"), "xclip"),
    "vivit": (("cls", "max"), "vivit"),
    "lsmdc": (("native", "max"), "xclip-lsmdc"),
}
Row = dict[str, str]


def make_authors(folder: Path, *, scale: int = 1) -> Path:
    """Write obygaze12/ (192 clips of 12 films); return `folder`.

    `scale` multiplies the number of clips.
    """
    chance = np.random.default_rng(12)
    rows = annotated_clips(chance, scale)
    home = folder / "obygaze12"
    home.mkdir(parents=True, exist_ok=True)
    table = clip_table(*(";".join(row.values()) for row in rows))
    (home / "ObyGaze12_thresh_02.csv").write_bytes(table)
    splits = {name: split_rows(rows, classes, chance) for name, classes in SPLITS.items()}
    for name, split in splits.items():
        write_split(home / f"balanced_level/{name}.csv", split)
    for name, source in MOVIESET.items():
        write_split(home / f"movieset/{name}.csv", by_film(splits[source]))
    runs = {name: released_runs(splits[name]) for name in ("02_EN_S", "02_HN_S")}
    tests = {name: ids_of(splits[name], {"9"}) for name in ("02_EN_S", "02_ENHN_S")}
    golden = {"note": "made by tests/kit/authors.py", "runs": runs, "tests": tests}
    (home / "released_runs.json").write_text(json.dumps(golden))
    return folder


def annotated_clips(chance: np.random.Generator, scale: int = 1) -> list[Row]:
    """Return 16 * `scale` clips of each film; some Hard Negatives have only audible concepts."""
    labels = [label for label, count in LABELS.items() for _ in range(count * scale)]
    labels = chance.permutation(labels).tolist()
    size = 16 * scale
    first = size * FILMS.index(NO_SURE)
    without = range(first, first + size)
    sure = [at for at in without if labels[at] == "Sure"]
    outside = [*range(first), *range(first + size, len(labels))]
    others = [at for at in outside if labels[at] != "Sure"]
    for row, at in zip(sure, others, strict=False):
        labels[row] = labels[at]
        labels[at] = "Sure"
    rows: list[Row] = []
    for idx, label in enumerate(labels):
        film = FILMS[idx // size]
        scene = idx % size + 1
        video = idx % 24 != 1  # one clip in 24 names no file
        start = 4 * scene
        span = f"scene-{scene:03d}.ss-{start:04d}.es-{start + 3:04d}"
        suffix = ("avi", "mkv", "mp4")[idx // (4 * size)]
        partly = label != "Easy Neg" and idx % 3 == 0
        ratio = f"{0.2 + idx % 8 / 10:.2f}" if partly else "1.00"
        file = f"{film}_scene_{scene}.{suffix}" if video else ""
        annotation = [idx, int(video), film + span, label, ratio, concept_list(label, chance)]
        clip = [f"{film}-{scene:03d}", film, f"{span}.srt", file, scene - 1 if video else -1]
        rows.append(dict(zip(COLUMNS, map(str, annotation + clip), strict=True)))
    return rows


def concept_list(label: str, chance: np.random.Generator) -> str:
    """Return a list as the authors write it: with spaces before all names except the first."""
    if label == "Easy Neg":
        return "['']"
    most = {"Hard Neg": 3, "Not Sure": 4, "Sure": 6}[label]
    names = chance.choice(VISUAL, size=int(chance.integers(most)), replace=False).tolist()
    if not names or chance.random() < 0.4:
        names.append(str(chance.choice(HEARD, p=[0.7, 0.2, 0.05, 0.05])))
    first, *others = names
    return repr([first, *map(" {}".format, others)])


def visual_names(concepts: str) -> list[str]:
    names = [name.strip() for name in ast.literal_eval(concepts)]
    return [name for name in names if name in VISUAL]


def split_rows(rows: list[Row], classes: dict[str, str], chance: np.random.Generator) -> list[Row]:
    """Return the clips with these labels in ten balanced folds, leaving out some of them."""
    split = []
    for label in classes:
        usable = [row for row in rows if row["label"] == label]
        if label != "Easy Neg":
            usable = [row for row in usable if visual_names(row["concepts"])]
        _, *usable = usable
        folds = chance.permutation(np.arange(len(usable)) % 10).tolist()
        for row, fold in zip(usable, folds, strict=True):
            reason = str(visual_names(row["concepts"]))
            added = {"": row["idx"], "label": classes[label], "reason": reason, "fold": str(fold)}
            split.append(row | added)
    return sorted(split, key=lambda row: int(row["idx"]))


def by_film(split: list[Row]) -> list[Row]:
    """Return the clips with a file in a fold for each film, with 1 for Sure and 0 for the rest."""
    rows = []
    for row in with_video(split):
        is_sure = row["label"].startswith("S")
        fold = FILMS.index(row["movie"])
        rows.append(row | {"fold": str(fold), "label": str(int(is_sure))})
    return rows


def with_video(split: list[Row]) -> list[Row]:
    return [row for row in split if row["video_name"]]


def write_split(path: Path, split: list[Row]) -> None:
    lines = [";".join(row[name] for name in SPLIT_COLUMNS) for row in split]
    write(path, ";".join(SPLIT_COLUMNS), *lines)


def ids_of(split: list[Row], folds: set[str], label: str | None = None) -> list[str]:
    rows = [row for row in with_video(split) if row["fold"] in folds]
    return sorted(row["id"] for row in rows if label in (None, row["label"]))


def released_runs(split: list[Row]) -> dict[str, dict[str, list[str]]]:
    """Return the eight runs of the authors' code, on clips with a file; fold 9 is for testing."""
    runs = {}
    for validation in range(8):
        held = {str(validation), "9"}
        counts = Counter(row["label"] for row in with_video(split) if row["fold"] not in held)
        least = min(count // 10 for count in counts.values())
        circle = [fold for fold in range(1, 10) if fold != validation + 1]
        train: list[str] = []
        for label, count in counts.items():
            slots = round(8 * least / (count // 10))
            start = validation * slots
            turns = (circle * 2)[start % 8 :]
            folds = set(map(str, turns[:slots]))
            train += ids_of(split, folds - held, label)
        held_out = ids_of(split, {str(validation)})
        runs[str(validation)] = {"train": sorted(train), "val": held_out}
    return runs


def clip_row(
    number: int, label: str, concepts: str, film: str = "tt0108160", video: str = "avi"
) -> str:
    """Return an annotation row in the authors' format; without `video`, it has no file."""
    scene = f"scene-{number:03d}"
    name = f"{film}_scene_{number}.{video}" if video else ""
    cells = [str(number), "1", f"{film}{scene}.ss-0001.es-0001", label, "1.00", concepts]
    cells += [f"{film}-{number:03d}", film, f"{scene}.srt", name, str(number)]
    return ";".join(cells)


SIX_CLIPS = [
    clip_row(1, "Easy Neg", "['']"),
    clip_row(2, "Hard Neg", "['Speech']"),
    clip_row(3, "Not Sure", "['Activities', ' Exp of  emotion']"),
    clip_row(4, "Sure", "['Type of plan', ' Clothes', ' Speech']", video="mkv"),
    clip_row(5, "Hard Neg", "['Look']", video=""),
    clip_row(1, "Sure", "['Body']", film="tt0110912", video="mp4"),
]


def clip_table(*rows: str) -> bytes:
    """Return the rows with the authors' header, blank second line and line endings."""
    lines = [";".join(COLUMNS), ";" * (len(COLUMNS) - 1), *rows]
    return "".join(f"{line}\r\n" for line in lines).encode()


def save_released(folder: Path, authors: Path) -> Manifest:
    """Import the authors' annotations, splits and runs."""
    source = authors / "obygaze12"
    command = f"manifests import obygaze12 {source}/ObyGaze12_thresh_02.csv --splits {source}"
    CliRunner().invoke(main, [*command.split(), "-o", str(folder)], catch_exceptions=False)
    return Manifest.load(folder)


@dataclass(frozen=True)
class Dataset:
    """A manifest made from the authors' files, with splits, and a store for each backbone.

    `authors` is the folder of the files.
    """

    authors: Path
    manifest: Path
    stores: dict[str, Path]


def make_dataset(
    folder: Path,
    authors: Path,
    *,
    widths: tuple[int, int, int],
    signal: float = 0.08,
    mode: str = "author",
) -> Dataset:
    """Write random features with a direction for each visual concept and one for Sure.

    `widths` are the widths of the features of X-CLIP, ViViT, and X-CLIP retrained on LSMDC.
    """
    manifest = save_released(folder / "manifest", authors)
    labels = manifest.labels("paper")
    shows = []
    for level, names in zip(labels.levels, labels.concepts, strict=True):
        concepts = [name in names for name in manifest.scheme.visual_concepts]
        shows.append([*concepts, level == "S"])
    visible = np.array(shows)
    chance = np.random.default_rng(3)
    stores = {}
    for (name, (arrays, backbone)), width in zip(STORES.items(), widths, strict=True):
        config = {"synthetic": "made-up features"}
        recipe = replace(
            RECIPE,
            name=name,
            backbone={**RECIPE.backbone, "name": backbone, "config": config},
            preprocessing={"mode": mode},
            arrays=tuple(ArraySpec(array, (width,), "float32", "made up") for array in arrays),
        )
        values = {}
        for array in arrays:
            directions = chance.normal(size=(visible.shape[1], width))
            features = chance.normal(size=(len(visible), width)) + signal * visible @ directions
            features /= np.linalg.norm(features, axis=1, keepdims=True)
            values[array] = features.astype(np.float32)
        stores[name] = write_rows(folder / f"{name}.zarr", manifest, values, recipe, block_rows=512)
    return Dataset(authors, folder / "manifest", stores)
