"""LIRIS-ACCEDE and MediaEval 2015: clips of films with violence, valence and arousal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from obygaze_features.common.tables import read_table
from obygaze_features.common.text import counted, shorten
from obygaze_features.errors import ManifestError, UsageError
from obygaze_features.manifests.items import Item, Items, id_problem, media_stem
from obygaze_features.manifests.labels import LabelScheme, LabelSet, Level
from obygaze_features.manifests.manifest import Manifest
from obygaze_features.manifests.splits import Split

#: MediaEval's own file wins for a clip that both name.
FAMILIES = ("ACCEDE", "MEDIAEVAL")
SETS = {"1": "learning", "2": "validation", "0": "test"}
THRESHOLD = 0.15
#: How values in ACCEDEranking.txt become scores from -1 to 1.
SCALES = {"1-5": (1.0, 5.0), "scores": (-1.0, 1.0)}


def _scheme(name: str, *levels: tuple[str, str]) -> LabelScheme:
    return LabelScheme(name, tuple(Level(code, code, (alias,)) for code, alias in levels))


#: Words for levels, so that no task is called "0 vs 1"; the files' numbers are aliases.
VIOLENCE = _scheme("MediaEval violence", ("non-violent", "0"), ("violent", "1"))
VALENCE = _scheme("MediaEval valence", ("negative", "-1"), ("neutral", "0"), ("positive", "1"))
AROUSAL = _scheme("MediaEval arousal", ("calm", "-1"), ("neutral", "0"), ("active", "1"))


@dataclass(frozen=True)
class _Rows:
    """The rows of one kind of file, by the clips' names; of how many clips two files differ."""

    rows: Mapping[str, Mapping[str, str]]
    files: Sequence[str]
    differing: int


def import_manifest(
    source: Path | str, *, threshold: float = THRESHOLD, scale: str = "1-5"
) -> Manifest:
    """Read the text files of LIRIS-ACCEDE into a manifest.

    Parameters
    ----------
    source
        A folder with ``ACCEDE*.txt``, ``MEDIAEVAL*.txt`` or both; at least sets, affect, violence
        or ranking.
    threshold
        Without a file of affect classes, scores below minus this are negative or calm, scores
        above it positive or active.
    scale
        What the values in ``ACCEDEranking.txt`` are: from 1 to 5 (their score is (v - 3) / 2:
        an inference, the files do not say so), or scores from -1 to 1 already.
    """
    folder = Path(source)
    if not 0 <= threshold < 1:
        raise UsageError(f"a threshold is a number from 0 to below 1, not {threshold:g}")
    sets = _read(folder, "sets", {"set": SETS})
    affect = _read(
        folder, "affect", {"valenceClass": _classes(VALENCE), "arousalClass": _classes(AROUSAL)}
    )
    violence = _read(folder, "violence", {"violenceClass": _classes(VIOLENCE)})
    ranking = _read(folder, "ranking", {"valenceValue": None, "arousalValue": None})
    sources = [sets, affect, violence, ranking]
    names = list(dict.fromkeys(name for source in sources for name in source.rows))
    if not names:
        patterns = ", ".join(f"{family}*.txt" for family in FAMILIES)
        raise ManifestError(
            f"{folder} has no clips of LIRIS-ACCEDE: it needs files called {patterns}, such as "
            "MEDIAEVALsets.txt, MEDIAEVALviolence.txt and MEDIAEVALaffect.txt"
        )
    ids = {name: media_stem(name) for name in names}
    labels = []
    if violence.rows:
        labels.append(_labels("violence", VIOLENCE, ids, violence, "trec_average_precision"))
    if not affect.rows:
        affect = _classes_from_values(ranking, threshold, scale)
    if affect.rows:
        for name, scheme in (("valence", VALENCE), ("arousal", AROUSAL)):
            label_set = _labels(name, scheme, ids, affect, "accuracy")
            labels.append(_with_values(label_set, ids, ranking))
    return Manifest(
        name="accede",
        items=Items.of([Item(ids[name], media=name) for name in names]),
        scheme=VIOLENCE if violence.rows else VALENCE,
        source="LIRIS-ACCEDE, as its authors give it out; MediaEval 2015, Affective Impact of "
        "Movies",
        licence="research only, by agreement with the authors of LIRIS-ACCEDE",
        citation="Baveye et al. 2015, LIRIS-ACCEDE: A Video Database for Affective Content "
        "Analysis, IEEE Transactions on Affective Computing 6(1); Sjöberg et al. 2015, The "
        "MediaEval 2015 Affective Impact of Movies Task",
        notes=_notes(sources, affect, names, sets),
    ).with_parts(labels=labels, splits=_splits(ids, sets))


def _classes(scheme: LabelScheme) -> dict[str, str]:
    return {level.aliases[0]: level.code for level in scheme.levels}


def _read(folder: Path, kind: str, columns: Mapping[str, Mapping[str, str] | None]) -> _Rows:
    """One kind of file. Cells of the columns are translated, or must be numbers (None)."""
    rows: dict[str, Mapping[str, str]] = {}
    files, differing = [], 0
    for family in FAMILIES:
        path = folder / f"{family}{kind}.txt"
        if not path.is_file():
            continue
        table = read_table(path, delimiter="\t", required=["name", *columns])
        file_rows: dict[str, Mapping[str, str]] = {}
        for row, cells in enumerate(table.rows()):
            name = cells["name"]
            if problem := id_problem(media_stem(name)):
                raise table.problem(row, problem)
            if name in file_rows:
                raise table.problem(row, f"duplicate name {shorten(name)}")
            for column, meanings in columns.items():
                cell = cells[column]
                if meanings is None:
                    if not _is_number(cell):
                        raise table.problem(row, f"{column} {shorten(cell)} is not a number")
                elif cell not in meanings:
                    known = ", ".join(meanings)
                    raise table.problem(row, f"{column} {shorten(cell)} is not one of {known}")
                else:
                    cells[column] = meanings[cell]
            file_rows[name] = cells
        differing += sum(
            any(rows[name][column] != cells[column] for column in columns)
            for name, cells in file_rows.items()
            if name in rows
        )
        rows |= file_rows
        files.append(path.name)
    return _Rows(rows, files, differing)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _classes_from_values(ranking: _Rows, threshold: float, scale: str) -> _Rows:
    """Classes of the values, where no file has classes."""
    low, high = SCALES[scale]
    middle, half = (low + high) / 2, (high - low) / 2
    rows = {}
    for name, cells in ranking.rows.items():
        classes = {}
        for quantity, scheme in (("valence", VALENCE), ("arousal", AROUSAL)):
            value = float(cells[f"{quantity}Value"])
            if not low <= value <= high:
                raise ManifestError(
                    f"{ranking.files[0]}: {name} has the {quantity}Value {value:g}, where values "
                    f"are from {low:g} to {high:g}; name the scale with --values"
                )
            score = (value - middle) / half
            number = 1 + (score > threshold) - (score < -threshold)
            classes[f"{quantity}Class"] = scheme.codes[number]
        rows[name] = classes
    rule = f"{' and '.join(ranking.files)}, values {scale}, classes cut at -{threshold:g} and "
    return _Rows(rows, [f"{rule}{threshold:g} (an inference)"], 0)


def _labels(
    name: str, scheme: LabelScheme, ids: Mapping[str, str], source: _Rows, measure: str
) -> LabelSet:
    return LabelSet(
        name,
        [ids[clip] for clip in source.rows],
        [cells[f"{name}Class"] for cells in source.rows.values()],
        [()] * len(source.rows),
        about={
            "rule": f"{name}Class of {' and '.join(source.files)}",
            "measure": measure,
            "label_scheme": scheme.to_json(),
        },
    )


def _with_values(labels: LabelSet, ids: Mapping[str, str], ranking: _Rows) -> LabelSet:
    """The same with each clip's rank, value and variance as further columns, if there are any."""
    if not ranking.rows:
        return labels
    cells_of = {ids[name]: cells for name, cells in ranking.rows.items()}
    columns = [f"{labels.name}{part}" for part in ("Rank", "Value", "Variance")]
    extra = {c: [cells_of.get(clip, {}).get(c, "") for clip in labels.ids] for c in columns}
    return replace(labels, extra=extra)


def _splits(ids: Mapping[str, str], sets: _Rows) -> list[Split]:
    """The official sets as folds, test last; and one whose training fold is all development."""
    if not sets.rows:
        return []
    set_of = {ids[name]: cells["set"] for name, cells in sets.rows.items()}
    present = [name for name in SETS.values() if name in set_of.values()]
    splits = [_split("official", set_of, present, sets)]
    if len(present) == len(SETS):
        joined = {i: "test" if name == "test" else "development" for i, name in set_of.items()}
        splits.append(_split("development", joined, ["development", "test"], sets))
    return splits


def _split(name: str, set_of: Mapping[str, str], folds: Sequence[str], sets: _Rows) -> Split:
    about = {
        "method": f"the official sets, of {' and '.join(sets.files)}",
        "folds": dict(enumerate(folds)),
    }
    return Split(name, list(set_of), [folds.index(fold) for fold in set_of.values()], about=about)


def _notes(sources: Sequence[_Rows], affect: _Rows, names: Sequence[str], sets: _Rows) -> list[str]:
    notes = []
    if affect.rows and affect not in sources:
        notes.append(f"valence and arousal: of {affect.files[0]}")
    if differing := sum(source.differing for source in sources):
        notes.append(
            f"{counted(differing, 'row differs', 'rows differ')} between ACCEDE*.txt and "
            "MEDIAEVAL*.txt; MediaEval's was taken"
        )
    if not sets.rows:
        files = " or ".join(f"{family}sets.txt" for family in reversed(FAMILIES))
        notes.append(
            f"NOTE: no official split, as there is no {files}: put it beside the others and import "
            "again, or make your own folds (obygaze manifests split)"
        )
    if sets.rows and (lost := sum(name not in sets.rows for name in names)):
        notes.append(f"no fold: {counted(lost, 'clip, which is', 'clips, which are')} in no set")
    return notes
