"""Import LIRIS-ACCEDE and MediaEval 2015: film clips with violence, valence and arousal."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from obygaze_features.common.tables import read_table
from obygaze_features.errors import ManifestError, UsageError, translate
from obygaze_features.items.items import Item, Items, media_stem
from obygaze_features.manifests.labels import LabelScheme, LabelSet, Level, map_column, read_ids
from obygaze_features.manifests.manifest import Manifest
from obygaze_features.manifests.splits import Split


def _scheme(name: str, *levels: tuple[str, str]) -> LabelScheme:
    return LabelScheme(name, tuple(Level(code, code, (alias,)) for code, alias in levels))


#: Levels have words as names, because "0 vs 1" would not describe a task; numbers are aliases.
VIOLENCE = _scheme("MediaEval violence", ("non-violent", "0"), ("violent", "1"))
VALENCE = _scheme("MediaEval valence", ("negative", "-1"), ("neutral", "0"), ("positive", "1"))
AROUSAL = _scheme("MediaEval arousal", ("calm", "-1"), ("neutral", "0"), ("active", "1"))
SETS = _scheme("MediaEval sets", ("learning", "1"), ("validation", "2"), ("test", "0"))


class _Table(NamedTuple):
    """The rows of all files of one kind, by clip name, and the names of the files."""

    rows: dict[str, dict[str, str]]
    files: str


def import_manifest(source: Path | str, threshold: float) -> Manifest:
    """Read LIRIS-ACCEDE's violence, valence and arousal."""
    if not 0 <= threshold < 1:
        raise UsageError(f"threshold must be from 0 to below 1 (got {threshold})")
    folder = Path(source)
    sets = _read(folder, "sets", set=SETS)
    affect = _read(folder, "affect", valenceClass=VALENCE, arousalClass=AROUSAL)
    violence = _read(folder, "violence", violenceClass=VIOLENCE)
    ranking = _read(folder, "ranking")
    names = sets.rows | affect.rows | violence.rows | ranking.rows
    if not names:
        raise ManifestError(
            f"{folder} has no clips of LIRIS-ACCEDE; pass a folder with MEDIAEVALsets.txt or "
            "another of its text files"
        )

    if not affect.rows:
        affect = _classes_of_ratings(ranking, threshold)
    labels = []
    scheme = VALENCE
    if violence.rows:
        scheme = VIOLENCE
        labels.append(_labels("violence", VIOLENCE, violence, "trec_average_precision", ranking))
    if affect.rows:
        labels.append(_labels("valence", VALENCE, affect, "accuracy", ranking))
        labels.append(_labels("arousal", AROUSAL, affect, "accuracy", ranking))
    return Manifest(
        name="accede",
        items=Items.of([Item(media_stem(name), media=name) for name in names]),
        scheme=scheme,
        source="LIRIS-ACCEDE, as its authors release it; MediaEval 2015, Affective Impact of "
        "Movies",
        licence="research only, by agreement with the authors of LIRIS-ACCEDE",
        citation="Baveye et al. 2015, LIRIS-ACCEDE: A Video Database for Affective Content "
        "Analysis, IEEE Transactions on Affective Computing 6(1); Sjöberg et al. 2015, The "
        "MediaEval 2015 Affective Impact of Movies Task",
    ).with_parts(*labels, *_splits(sets))


def _read(folder: Path, ending: str, **schemes: LabelScheme) -> _Table:
    """Read the files of one kind; `schemes` has the levels of each column by its name."""
    rows: dict[str, dict[str, str]] = {}
    files = []
    for family in ("ACCEDE", "MEDIAEVAL"):  # MediaEval's file takes precedence
        path = folder / f"{family}{ending}.txt"
        if path.is_file():
            table = read_table(path, delimiter="\t", required=["name", *schemes])
            for column, scheme in schemes.items():
                table.columns[column] = map_column(table, column, scheme.level)
            rows |= dict(zip(read_ids(table, "name"), table.rows(), strict=True))
            files.append(path.name)
    return _Table(rows, " and ".join(files))


def _classes_of_ratings(ranking: _Table, threshold: float) -> _Table:
    """Divide mean ratings, from 1 to 5, into classes: their scores from -1 to 1 are cut twice."""
    rows: dict[str, dict[str, str]] = {}
    for clip, cells in ranking.rows.items():
        rows[clip] = {}
        for name, scheme in (("valence", VALENCE), ("arousal", AROUSAL)):
            where = f"{ranking.files}, {clip}: {name}Value"
            with translate(ManifestError, where, "must be a number from 1 to 5"):
                score = (float(cells[name + "Value"]) - 3) / 2
                if not -1 <= score <= 1:
                    raise ValueError
            place = 1 + (score > threshold) - (score < -threshold)
            rows[clip][name + "Class"] = scheme.codes[place]
    rule = f"(value - 3) / 2 in {ranking.files}, cut at -{threshold:g} and {threshold:g}"
    return _Table(rows, rule)


def _labels(
    name: str,
    scheme: LabelScheme,
    source: _Table,
    measure: str,
    ranking: _Table,
) -> LabelSet:
    """Return a label set, with each clip's rank, value and variance if `ranking` has them."""
    extra = {}
    for part in ("Rank", "Value", "Variance"):
        column = name + part
        cells = [ranking.rows.get(clip, {}).get(column, "") for clip in source.rows]
        if any(cells):
            extra[column] = cells

    ids = list(map(media_stem, source.rows))
    levels = [cells[name + "Class"] for cells in source.rows.values()]
    about = {
        "origin": "rule",
        "rule": f"{name}Class of {source.files}",
        "measure": measure,
        "label_scheme": scheme.to_json(),
    }
    return LabelSet(name, ids, levels, [()] * len(ids), extra=extra, about=about)


def _splits(sets: _Table) -> list[Split]:
    """Return a split with one fold per official set, and a split for development and test.

    The second split, which needs all three sets, merges learning and validation into one fold.
    """
    ids = list(map(media_stem, sets.rows))
    set_of = [cells["set"] for cells in sets.rows.values()]
    present = [name for name in SETS.codes if name in set_of]
    if not present:
        return []

    folds = list(map(present.index, set_of))
    about = {"method": f"the official sets, of {sets.files}", "folds": dict(enumerate(present))}
    splits = [Split("official", ids, folds, about=about)]
    if len(present) == len(SETS.codes):
        merged = [max(fold - 1, 0) for fold in folds]
        about = about | {"folds": {0: "development", 1: "test"}}
        splits.append(Split("development", ids, merged, about=about))
    return splits
