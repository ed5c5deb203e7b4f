"""LIRIS-ACCEDE and MediaEval 2015: clips of films with violence, valence and arousal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click

from obygaze_features.common.tables import read_table
from obygaze_features.common.text import counted, shorten
from obygaze_features.errors import ManifestError, UsageError
from obygaze_features.manifests.importers.shared import finish, output_options, source_argument
from obygaze_features.manifests.items import Item, Items, id_problem, media_stem
from obygaze_features.manifests.labels import LabelSet
from obygaze_features.manifests.manifest import Manifest
from obygaze_features.manifests.scheme import LabelScheme, Level
from obygaze_features.manifests.splits import Split

__all__ = ["SCALES", "THRESHOLD", "import_accede"]

#: Of a clip that both name, MediaEval's own file is believed.
FAMILIES = ("ACCEDE", "MEDIAEVAL")
SETS = {"1": "learning", "2": "validation", "0": "test"}
THRESHOLD = 0.15
#: How values in ACCEDEranking.txt become scores from -1 to 1.
SCALES = {"1-5": (1.0, 5.0), "scores": (-1.0, 1.0)}


def _scheme(name: str, *levels: tuple[str, str]) -> LabelScheme:
    return LabelScheme(name, tuple(Level(code, code, (alias,)) for code, alias in levels))


#: Words for levels, so that no task is called "0 vs 1"; the files' numbers mean the same.
VIOLENCE = _scheme("MediaEval violence", ("non-violent", "0"), ("violent", "1"))
VALENCE = _scheme("MediaEval valence", ("negative", "-1"), ("neutral", "0"), ("positive", "1"))
AROUSAL = _scheme("MediaEval arousal", ("calm", "-1"), ("neutral", "0"), ("active", "1"))


@dataclass(frozen=True)
class _Read:
    """The rows of one kind of file, by the clips' names, and what was read."""

    rows: Mapping[str, Mapping[str, str]]
    files: Sequence[str]
    differ: int


def import_accede(
    folder: Path, *, threshold: float = THRESHOLD, scale: str = "1-5"
) -> tuple[Manifest, list[str]]:
    """Read the text files of a folder into a manifest; also what is to be said of them.

    Parameters
    ----------
    folder
        It holds ``ACCEDE*.txt``, ``MEDIAEVAL*.txt`` or both; at least sets, affect, violence or
        ranking.
    threshold
        Without a file of affect classes, scores below minus this are negative or calm, scores
        above it positive or active.
    scale
        What the values in ``ACCEDEranking.txt`` are: from 1 to 5 (their score is (v - 3) / 2:
        an inference, the files do not say so), or scores from -1 to 1 already.
    """
    if not 0 <= threshold < 1:
        raise UsageError(f"a threshold is a number from 0 to below 1, not {threshold:g}")
    sets = _read(folder, "sets", {"set": SETS})
    affect = _read(
        folder, "affect", {"valenceClass": _classes(VALENCE), "arousalClass": _classes(AROUSAL)}
    )
    violence = _read(folder, "violence", {"violenceClass": _classes(VIOLENCE)})
    ranking = _read(folder, "ranking", {"valenceValue": None, "arousalValue": None})
    every = [sets, affect, violence, ranking]
    names = list(dict.fromkeys(name for one in every for name in one.rows))
    if not names:
        known = ", ".join(f"{family}*.txt" for family in FAMILIES)
        raise ManifestError(
            f"{folder} has no clips of LIRIS-ACCEDE: files called {known} are meant, such as "
            "MEDIAEVALsets.txt, MEDIAEVALviolence.txt and MEDIAEVALaffect.txt"
        )
    ids = {name: media_stem(name) for name in names}
    items = Items.of([Item(ids[name], media=name) for name in names])
    labels = []
    if violence.rows:
        labels.append(_labels("violence", VIOLENCE, ids, violence, "trec_average_precision"))
    if not affect.rows:
        affect = _from_values(ranking, threshold, scale)
    if affect.rows:
        for what, scheme in (("valence", VALENCE), ("arousal", AROUSAL)):
            made = _labels(what, scheme, ids, affect, "accuracy")
            labels.append(_with_values(made, what, ids, ranking))
    manifest = Manifest(
        name="accede",
        items=items,
        scheme=VIOLENCE if violence.rows else VALENCE,
        source="LIRIS-ACCEDE, as its authors give it out; MediaEval 2015, Affective Impact of "
        "Movies",
        licence="research only, by agreement with the authors of LIRIS-ACCEDE",
        citation="Baveye et al. 2015, LIRIS-ACCEDE: A Video Database for Affective Content "
        "Analysis, IEEE Transactions on Affective Computing 6(1); Sjöberg et al. 2015, The "
        "MediaEval 2015 Affective Impact of Movies Task",
    ).with_parts(labels=labels, splits=_splits(ids, sets))
    return manifest, _notes(every, affect, names, sets)


def _classes(scheme: LabelScheme) -> dict[str, str]:
    return {level.aliases[0]: level.code for level in scheme.levels}


def _read(folder: Path, what: str, columns: Mapping[str, Mapping[str, str] | None]) -> _Read:
    """One kind of file. Cells of the columns become what they mean, or must be numbers (None)."""
    rows: dict[str, Mapping[str, str]] = {}
    files, differ = [], 0
    for family in FAMILIES:
        path = folder / f"{family}{what}.txt"
        if not path.is_file():
            continue
        table = read_table(path, delimiter="\t", required=["name", *columns])
        mine: dict[str, Mapping[str, str]] = {}
        for row, cells in enumerate(table.rows()):
            name = cells["name"]
            if problem := id_problem(media_stem(name)):
                raise table.problem(row, problem)
            if name in mine:
                raise table.problem(row, f"duplicate name {shorten(name)}")
            for column, meanings in columns.items():
                if meanings is not None:
                    if cells[column] not in meanings:
                        known = ", ".join(meanings)
                        raise table.problem(
                            row, f"{column} {shorten(cells[column])} is none of {known}"
                        )
                    cells[column] = meanings[cells[column]]
                elif not _is_number(cells[column]):
                    raise table.problem(row, f"{column} {shorten(cells[column])} is not a number")
            mine[name] = cells
        differ += sum(
            any(rows[name][column] != cells[column] for column in columns)
            for name, cells in mine.items()
            if name in rows
        )
        rows |= mine
        files.append(path.name)
    return _Read(rows, files, differ)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _from_values(ranking: _Read, threshold: float, scale: str) -> _Read:
    """Classes of values, where nobody has put them into classes."""
    low, high = SCALES[scale]
    middle, half = (low + high) / 2, (high - low) / 2
    rows = {}
    for name, cells in ranking.rows.items():
        of = {}
        for what, scheme in (("valence", VALENCE), ("arousal", AROUSAL)):
            value = float(cells[f"{what}Value"])
            if not low <= value <= high:
                raise ManifestError(
                    f"{ranking.files[0]}: {name} has the {what}Value {value:g}, where values are "
                    f"from {low:g} to {high:g}; say what they are with --values"
                )
            score = (value - middle) / half
            of[f"{what}Class"] = scheme.codes[1 + (score > threshold) - (score < -threshold)]
        rows[name] = of
    rule = f"{' and '.join(ranking.files)}, values {scale}, classes cut at -{threshold:g} and "
    return _Read(rows, [f"{rule}{threshold:g} (an inference)"], 0)


def _labels(
    what: str, scheme: LabelScheme, ids: Mapping[str, str], read: _Read, measure: str
) -> LabelSet:
    return LabelSet(
        what,
        [ids[name] for name in read.rows],
        [cells[f"{what}Class"] for cells in read.rows.values()],
        [()] * len(read.rows),
        about={
            "rule": f"{what}Class of {' and '.join(read.files)}",
            "measure": measure,
            "label_scheme": scheme.to_json(),
        },
    )


def _with_values(labels: LabelSet, what: str, ids: Mapping[str, str], ranking: _Read) -> LabelSet:
    """The same with each clip's rank, value and variance as further columns, if there are any."""
    if not ranking.rows:
        return labels
    of = {ids[name]: cells for name, cells in ranking.rows.items()}
    columns = [f"{what}{part}" for part in ("Rank", "Value", "Variance")]
    extra = {c: [of.get(one, {}).get(c, "") for one in labels.ids] for c in columns}
    return replace(labels, extra=extra)


def _splits(ids: Mapping[str, str], sets: _Read) -> list[Split]:
    """The official sets as folds, test last; and one whose training fold is all development."""
    if not sets.rows:
        return []
    set_of = {ids[name]: cells["set"] for name, cells in sets.rows.items()}
    there = [name for name in SETS.values() if name in set_of.values()]
    found = [_split("official", set_of, there, sets)]
    if len(there) == len(SETS):
        joined = {i: "test" if name == "test" else "development" for i, name in set_of.items()}
        found.append(_split("development", joined, ["development", "test"], sets))
    return found


def _split(name: str, set_of: Mapping[str, str], folds: Sequence[str], sets: _Read) -> Split:
    about = {
        "method": f"the official sets, of {' and '.join(sets.files)}",
        "folds": dict(enumerate(folds)),
    }
    return Split(name, list(set_of), [folds.index(one) for one in set_of.values()], about=about)


def _notes(every: Sequence[_Read], affect: _Read, names: Sequence[str], sets: _Read) -> list[str]:
    notes = []
    if affect.rows and affect not in every:
        notes.append(f"valence and arousal: of {affect.files[0]}")
    if differ := sum(one.differ for one in every):
        notes.append(
            f"{counted(differ, 'row differs', 'rows differ')} between ACCEDE*.txt and "
            "MEDIAEVAL*.txt; MediaEval's was taken"
        )
    if not sets.rows:
        files = " or ".join(f"{family}sets.txt" for family in reversed(FAMILIES))
        notes.append(
            f"NOTE: no official split, as there is no {files}: put it beside the others and import "
            "again, or make folds of your own (obygaze manifests split)"
        )
    if sets.rows and (lost := sum(name not in sets.rows for name in names)):
        notes.append(f"no fold: {counted(lost, 'clip, which is', 'clips, which are')} in no set")
    return notes


@click.command("accede")
@source_argument
@output_options("accede")
@click.option(
    "--threshold",
    type=float,
    default=THRESHOLD,
    show_default=True,
    help="Without a file of affect classes: scores beyond this are positive, or active.",
)
@click.option(
    "--values",
    "scale",
    type=click.Choice(list(SCALES)),
    default="1-5",
    show_default=True,
    help="What the values of ACCEDEranking.txt are.",
)
def command(source: Path, output: Path, overwrite: bool, threshold: float, scale: str) -> None:
    """LIRIS-ACCEDE and MediaEval 2015: violence, valence and arousal.

    SOURCE is the folder of their text files: MEDIAEVALsets.txt, MEDIAEVALviolence.txt,
    MEDIAEVALaffect.txt, and the same of ACCEDE. Where there is no file of affect classes they
    are made of the values in ACCEDEranking.txt.

    \b
    Examples:
      obygaze manifests import accede annotations -o manifests/accede
      obygaze manifests import accede annotations --threshold 0.2 --values scores
    """
    manifest, notes = import_accede(source, threshold=threshold, scale=scale)
    finish(manifest, output, overwrite=overwrite, notes=notes)
