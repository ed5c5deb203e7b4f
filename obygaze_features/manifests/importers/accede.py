"""Import LIRIS-ACCEDE and MediaEval 2015: film clips with violence, valence and arousal."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from obygaze_features.common.tables import read_table
from obygaze_features.common.text import shorten
from obygaze_features.errors import ManifestError, UsageError
from obygaze_features.items.items import Item, Items, media_stem
from obygaze_features.manifests.labels import LabelScheme, LabelSet, Level
from obygaze_features.manifests.manifest import Manifest
from obygaze_features.manifests.splits import Split

#: The families of files; for a clip in files of both, MediaEval's file takes precedence.
FAMILIES = ("ACCEDE", "MEDIAEVAL")
SETS = {"1": "learning", "2": "validation", "0": "test"}
#: The lowest and highest value in ACCEDEranking.txt for each scale.
SCALES = {"1-5": (1.0, 5.0), "scores": (-1.0, 1.0)}
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]{1,3})?", re.ASCII)


def _scheme(name: str, *levels: tuple[str, str]) -> LabelScheme:
    return LabelScheme(name, tuple(Level(code, code, (alias,)) for code, alias in levels))


#: Levels have words as names, because "0 vs 1" would not describe a task; numbers are aliases.
VIOLENCE = _scheme("MediaEval violence", ("non-violent", "0"), ("violent", "1"))
VALENCE = _scheme("MediaEval valence", ("negative", "-1"), ("neutral", "0"), ("positive", "1"))
AROUSAL = _scheme("MediaEval arousal", ("calm", "-1"), ("neutral", "0"), ("active", "1"))


class _Rows(NamedTuple):
    """The rows of all files of one kind, by clip name, and the names of the files."""

    rows: Mapping[str, Mapping[str, str]]
    files: str


def import_manifest(source: Path | str, *, threshold: float = 0.15, scale: str = "1-5") -> Manifest:
    """Read LIRIS-ACCEDE's violence, valence and arousal."""
    folder = Path(source)
    if not 0 <= threshold < 1:
        raise UsageError(f"the threshold must be at least 0 and below 1 (got {threshold:g})")
    sets = _read(folder, "sets", {"set": SETS})
    affect = _read(
        folder, "affect", {"valenceClass": _classes(VALENCE), "arousalClass": _classes(AROUSAL)}
    )
    violence = _read(folder, "violence", {"violenceClass": _classes(VIOLENCE)})
    ranking = _read(folder, "ranking", {"valenceValue": {}, "arousalValue": {}})
    names = dict.fromkeys([*sets.rows, *affect.rows, *violence.rows, *ranking.rows])
    if not names:
        patterns = ", ".join(f"{family}*.txt" for family in FAMILIES)
        raise ManifestError(
            f"{folder} has no clips of LIRIS-ACCEDE; pass a folder with files {patterns}, such as "
            "MEDIAEVALsets.txt, MEDIAEVALviolence.txt and MEDIAEVALaffect.txt"
        )
    labels, notes = [], []
    if violence.rows:
        labels.append(_labels("violence", VIOLENCE, violence, "trec_average_precision"))
    if ranking.rows and not affect.rows:
        affect = _classes_from_values(ranking, threshold, scale)
        notes.append(f"valence and arousal: from {affect.files}")
    if affect.rows:
        labels.append(_labels("valence", VALENCE, affect, "accuracy", ranking))
        labels.append(_labels("arousal", AROUSAL, affect, "accuracy", ranking))
    if not sets.rows:
        files = " or ".join(f"{family}sets.txt" for family in reversed(FAMILIES))
        notes.append(
            f"NOTE: there is no official split without {files}; put one next to the others and "
            "import again, or make folds (obygaze manifests split)"
        )
    return Manifest(
        name="accede",
        items=Items.of([Item(media_stem(name), media=name) for name in names]),
        scheme=VIOLENCE if violence.rows else VALENCE,
        source="LIRIS-ACCEDE, as its authors give it out; MediaEval 2015, Affective Impact of "
        "Movies",
        licence="research only, by agreement with the authors of LIRIS-ACCEDE",
        citation="Baveye et al. 2015, LIRIS-ACCEDE: A Video Database for Affective Content "
        "Analysis, IEEE Transactions on Affective Computing 6(1); Sjöberg et al. 2015, The "
        "MediaEval 2015 Affective Impact of Movies Task",
        notes=notes,
    ).with_parts(labels=labels, splits=_splits(sets))


def _classes(scheme: LabelScheme) -> dict[str, str]:
    return {level.aliases[0]: level.code for level in scheme.levels}


def _read(folder: Path, kind: str, columns: Mapping[str, Mapping[str, str]]) -> _Rows:
    """Read the files of one kind, replacing cells by the mappings in `columns`."""
    rows: dict[str, Mapping[str, str]] = {}
    files = []
    for path in (folder / f"{family}{kind}.txt" for family in FAMILIES):
        if not path.is_file():
            continue
        table = read_table(path, delimiter="\t", required=["name", *columns])
        file_rows: dict[str, Mapping[str, str]] = {}
        for row, cells in enumerate(table.rows()):
            name = cells["name"]
            if name in file_rows:
                raise table.problem(row, f"duplicate name {shorten(name)}")
            for column, meanings in columns.items():
                if meanings and cells[column] not in meanings:
                    cell, choices = shorten(cells[column]), ", ".join(meanings)
                    raise table.problem(row, f"{column} {cell} is not one of {choices}")
                cells[column] = meanings.get(cells[column], cells[column])
            file_rows[name] = cells
        rows |= file_rows
        files.append(path.name)
    return _Rows(rows, " and ".join(files))


def _classes_from_values(ranking: _Rows, threshold: float, scale: str) -> _Rows:
    """Compute affect classes from values, for data without a file of classes."""
    low, high = SCALES[scale]
    middle, half = (low + high) / 2, (high - low) / 2
    rows: dict[str, dict[str, str]] = {name: {} for name in ranking.rows}
    for name, cells in ranking.rows.items():
        for quantity, scheme in (("valence", VALENCE), ("arousal", AROUSAL)):
            cell = cells[f"{quantity}Value"]
            value = float(cell) if _NUMBER.fullmatch(cell) else math.nan
            if not low <= value <= high:
                raise ManifestError(
                    f"{ranking.files}: {name} has the {quantity}Value {shorten(cell)}, but values "
                    f"must be numbers from {low:g} to {high:g}; set the scale with --values"
                )
            score = (value - middle) / half
            number = 1 + (score > threshold) - (score < -threshold)
            rows[name][f"{quantity}Class"] = scheme.codes[number]
    rule = f"{ranking.files}, values {scale}, classes cut at -{threshold:g} and {threshold:g}"
    return _Rows(rows, f"{rule} (an inference)")


def _labels(
    name: str, scheme: LabelScheme, source: _Rows, measure: str, ranking: _Rows | None = None
) -> LabelSet:
    """Return a label set, with each clip's rank, value and variance if `ranking` has them."""
    columns = [f"{name}{part}" for part in ("Rank", "Value", "Variance")]
    values = ranking.rows if ranking else {}
    return LabelSet(
        name,
        [media_stem(clip) for clip in source.rows],
        [cells[f"{name}Class"] for cells in source.rows.values()],
        [()] * len(source.rows),
        extra={c: [values.get(clip, {}).get(c, "") for clip in source.rows] for c in columns}
        if values
        else {},
        about={
            "origin": "rule",
            "rule": f"{name}Class of {source.files}",
            "measure": measure,
            "label_scheme": scheme.to_json(),
        },
    )


def _splits(sets: _Rows) -> list[Split]:
    """Return a split with one fold per official set, and a split for development and test.

    The second split, which needs all three sets, merges learning and validation into one fold.
    """
    set_of = {media_stem(name): cells["set"] for name, cells in sets.rows.items()}
    present = [name for name in SETS.values() if name in set_of.values()]
    folds_of = {"official": present} if present else {}
    if len(present) == len(SETS):
        folds_of["development"] = ["development", "test"]
    return [
        Split(
            name,
            list(set_of),
            [folds.index(s) if s in folds else 0 for s in set_of.values()],
            about={
                "method": f"the official sets, of {sets.files}",
                "folds": dict(enumerate(folds)),
            },
        )
        for name, folds in folds_of.items()
    ]
