"""Report the agreement of every pair of label sets in every film, as JSON, CSV and text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from math import isnan
from pathlib import Path
from statistics import fmean
from typing import Any

from obygaze_features.annotations.agreement import (
    ConceptAgreement,
    Disagreement,
    LabelSetAgreement,
    PairAgreement,
    compare_label_sets,
    find_disagreements,
    find_pairs,
    pair_agreement,
    sure_task,
)
from obygaze_features.annotations.film_shares import MarkedFilms, count_shares
from obygaze_features.annotations.measures import (
    LINES,
    MEASURES,
    Chance,
    Distances,
    Gamma,
    Measure,
    distances_of,
)
from obygaze_features.annotations.remarks import Remark
from obygaze_features.common.files import new_folder, write_text
from obygaze_features.common.package import reference_json
from obygaze_features.common.printer import align, fill
from obygaze_features.common.tables import format_rows
from obygaze_features.common.text import counted, format_time
from obygaze_features.items.films import film_titles
from obygaze_features.items.items import format_seconds
from obygaze_features.manifests import LabelScheme, Manifest

MARKER = "agreement.csv"
CONCEPT_COLUMNS = tuple(ConceptAgreement.__annotations__)
MAX_ROWS_SHOWN = 40
MAX_PAIRS_SHOWN = 6
MAX_DIFFERENCES_SHOWN = 10


@dataclass(frozen=True, eq=False)
class AgreementReport:
    """The agreement of every pair of label sets in every film.

    `differences` are the stretches where label sets differ, longest first. `overall` compares each
    pair over all films, by level and by concept. `titles` maps each film to its title. `merged` has
    the names of the label sets that are merges. `marked` has, for each film, the share of clips
    with the highest level (by annotator), and the share with each concept.
    """

    manifest: str
    scheme: LabelScheme
    distances: Distances
    chance: Chance
    pairs: Sequence[PairAgreement]
    differences: Sequence[Disagreement]
    remarks: Sequence[Remark]
    overall: Sequence[LabelSetAgreement]
    titles: Mapping[str, str]
    merged: frozenset[str]
    marked: MarkedFilms

    def __repr__(self) -> str:
        gamma = digits(self.means["gamma"])
        return (
            f"AgreementReport({self.manifest!r}, {counted(len(self.pairs), 'pair')}: gamma {gamma})"
        )

    @property
    def means(self) -> dict[str, float | None]:
        """The mean of each measure over the pairs for which it is defined.

        Pairs that include a merge are left out, unless all pairs do, because a merge's agreement
        with its sources says nothing about annotators.
        """
        without_merges = [pair for pair in self.pairs if self.merged.isdisjoint((pair.a, pair.b))]
        pairs = without_merges or self.pairs
        return {key: _mean([pair.values[key] for pair in pairs]) for key in MEASURES}

    @property
    def main_number(self) -> str:
        """The headline: the share of equal levels, or the mean gamma if there are several pairs."""
        if len(self.overall) == 1:
            return f"{self.overall[0].equal_levels:.0%}"
        return f"gamma {digits(self.means['gamma'])}"

    @property
    def measures(self) -> list[Measure]:
        """The measures that apply to the report's levels."""
        is_paper = self.distances.name == "paper"
        return [measure for measure in MEASURES.values() if is_paper or not measure.paper_only]

    @property
    def paper(self) -> dict[str, Any] | None:
        """The agreement that the paper reports, if the levels are the paper's."""
        if self.distances.name != "paper":
            return None
        published: dict[str, Any] = reference_json("published.json")["agreement"]
        return published

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON."""
        return {
            "manifest": self.manifest,
            "levels": list(self.distances.codes),
            "distances": {"name": self.distances.name, "matrix": self.distances.matrix.tolist()},
            **asdict(self.chance),
            "pairs": [pair.to_json() for pair in self.pairs],
            "means": self.means,
            "overall": [
                agreement.to_json() | {"f1": None if isnan(f1) else f1}
                for agreement in self.overall
                for f1 in [agreement.f1(*sure_task(self.scheme))]
            ],
            "paper": self.paper,
            "differences": [asdict(difference) for difference in self.differences],
            "remarks": [remark.to_json() for remark in self.remarks],
        }

    def save(self, folder: Path | str, *, overwrite: bool = False) -> None:
        """Save all tables to a folder as CSV files."""
        codes = self.distances.codes
        header = ("level_a", "level_b", "clips")
        confusions = (
            self._named(pair) | dict(zip(header, (level_a, level_b, clips), strict=True))
            for pair in self.pairs
            for level_a, counts in zip(codes, pair.ratings.counts.tolist(), strict=True)
            for level_b, clips in zip(codes, counts, strict=True)
        )
        concepts = [
            {
                "film": film,
                "title": self.titles.get(film, ""),
                "a": agreement.first,
                "b": agreement.second,
                **vars(concept),
            }
            for agreement in self.overall
            for film, of_film in {"": agreement.concepts, **agreement.by_film_and_concept}.items()
            for concept in of_film
        ]
        means = {f"{name}, mean over films": mean for name, mean in self.means.items()}
        for pair in self.overall:
            means[f"kappa, all films together ({pair.first}, {pair.second})"] = pair.kappa
        overall = [row for row in concepts if not row["film"]]
        by_film = [row for row in concepts if row["film"]]
        columns = ("a", "b", *CONCEPT_COLUMNS)
        as_csv = partial(format_rows, number=format_seconds)
        differences = as_csv(
            (self._named(difference) | vars(difference) for difference in self.differences),
            ["film", "title", *list(Disagreement.__annotations__)[1:]],
        )
        with new_folder(Path(folder), overwrite=overwrite, marker=MARKER) as new:
            rows = (self._named(pair) | _flat_row(pair) for pair in self.pairs)
            write_text(new / MARKER, as_csv(rows))
            rows = ({"measure": name, "value": mean} for name, mean in means.items())
            write_text(new / "means.csv", as_csv(rows))
            write_text(new / "concepts.csv", as_csv(overall, columns))
            write_text(new / "concepts_by_film.csv", as_csv(by_film, ("film", "title", *columns)))
            write_text(new / "confusion.csv", as_csv(confusions))
            write_text(new / "differences.csv", differences)
            write_text(new / "level_shares.csv", self.marked.levels_csv())
            write_text(new / "concept_shares.csv", self.marked.concepts_csv())

    def _named(self, part: PairAgreement | Disagreement) -> dict[str, Any]:
        """Return the first cells of a table row: the film, its title, and two annotators."""
        title = self.titles.get(part.film, "")
        return {"film": part.film, "title": title, "a": part.a, "b": part.b}

    def describe(self) -> str:
        """Return the report as text: a summary, then concepts, films, levels and differences."""
        parts = ["\n".join(fill(line, 80, break_on_hyphens=False) for line in _summary(self))]
        overall = self.overall[:MAX_PAIRS_SHOWN]
        if self.pairs:
            parts += [_concepts_table(agreement) for agreement in overall if agreement.concepts]
            parts.append(_films_table(self))
            parts += [_confusion_table(agreement, self.distances.codes) for agreement in overall]
        if self.differences:
            parts.append(_differences_table(self, MAX_DIFFERENCES_SHOWN))
        elif self.pairs:
            parts.append("There are no differences.")
        return "\n\n".join(parts)

    @property
    def name_columns(self) -> list[str]:
        """The headers of the first columns: film and, if there are several pairs, annotators."""
        return ["film", "annotators"] if len(self.overall) > 1 else ["film"]

    def names_of(self, part: PairAgreement | Disagreement) -> list[str]:
        """Return a row's cells for `name_columns`."""
        title = self.titles.get(part.film, part.film) or "-"
        return [title, f"{part.a}, {part.b}"][: len(self.name_columns)]


def agreement_report(
    manifest: Manifest, names: Sequence[str] = (), chance: Chance | None = None
) -> AgreementReport:
    """Compare the named label sets of a manifest (default: all annotators'; see `find_pairs`)."""
    chance = chance or Chance()
    pairs, remarks = find_pairs(manifest, names)
    label_sets = [manifest.labels(n) for n in sorted({n for p in pairs for n in (p.a, p.b)})]
    scheme = manifest.shared_scheme(label_sets)
    distances, titles = distances_of(scheme), film_titles(manifest.items)
    film_of = dict(zip(manifest.ids, manifest.items.span_films, strict=True))
    return AgreementReport(
        manifest=manifest.name,
        scheme=scheme,
        distances=distances,
        chance=chance,
        pairs=[pair_agreement(pair, distances, chance) for pair in pairs],
        differences=find_disagreements(pairs, manifest.items, distances),
        remarks=remarks,
        overall=[
            compare_label_sets(manifest, a, b)
            for a, b in dict.fromkeys((pair.a, pair.b) for pair in pairs)
        ],
        titles=titles,
        merged=frozenset(labels.name for labels in label_sets if labels.origin == "merge"),
        marked=count_shares(label_sets, scheme.levels[-1:], film_of, titles),
    )


def digits(value: float | None) -> str:
    """Format a measure with three decimals, or as a dash if it is undefined."""
    return "-" if value is None else f"{value:.3f}"


def _mean(values: Sequence[float | None]) -> float | None:
    """Return the mean of the values that are defined, or None."""
    defined = [value for value in values if value is not None]
    return fmean(defined) if defined else None


def _flat_row(pair: PairAgreement) -> dict[str, Any]:
    """Return the measures of a pair as a row of ``agreement.csv``."""
    row = {"unpaired": pair.unpaired, **asdict(pair.ratings.gamma)}
    sure = pair.ratings.sure
    for name, value in asdict(sure or Gamma(0)).items():
        row[f"{name}_without_not_sure"] = None if sure is None else value
    return row | pair.values


def _summary(report: AgreementReport) -> Iterator[str]:
    """Yield the summary: agreement of pairs, who marks more, means, and how gamma is measured."""
    pairs = report.pairs
    if not pairs:
        yield f"{report.manifest}: no two label sets have a clip in common."
        return
    if len(report.overall) > 1:
        films = counted(len({pair.film for pair in pairs}), "film")
        several = counted(len(report.overall), "pair")
        yield f"{report.manifest}: {several} of label sets in {films}."
    for agreement in report.overall[:MAX_PAIRS_SHOWN]:
        yield from _describe_pair(agreement, report)
    if (more := len(report.overall) - MAX_PAIRS_SHOWN) > 0:
        rest = counted(more, "more pair", "more pairs")
        yield f"And {rest} of label sets; --json lists all."
    yield from _mean_lines(report)
    yield from _describe_gamma(report)


def _describe_gamma(report: AgreementReport) -> Iterator[str]:
    """Yield the paper's gamma, and an explanation of how gamma is measured."""
    if paper := report.paper:
        yield (
            f"The paper reports gamma {paper['gamma']:.2f} for its {paper['pairs']} pairs, and "
            f"{paper['gamma_without_not_sure']:.2f} without Not Sure. Compare only on the same "
            "films, clips and threshold. The paper does not say how it draws random sequences."
        )
    chance = report.chance
    sequences = counted(chance.samples, "random sequence")
    matrix = "the paper's" if report.distances.name == "paper" else "even steps"
    yield (
        f"Gamma is measured against {sequences} ({chance.generator}, seed {chance.seed}); "
        f'"closed" is the limit for many sequences. Distances between levels are {matrix}.'
    )


def _mean_lines(report: AgreementReport) -> Iterator[str]:
    """Yield the means over films in sentences, one line for each of `LINES`."""
    means = {key: digits(mean) for key, mean in report.means.items()}
    for line in LINES:
        shown = [m for m in report.measures if m.line == line and m.sentence]
        if shown:
            yield line + ", ".join(m.sentence.format(means[m.key], **means) for m in shown) + "."


def _describe_pair(agreement: LabelSetAgreement, report: AgreementReport) -> Iterator[str]:
    """Yield sentences on two label sets: agreement, which of them marks more, and F1."""
    names = f"{agreement.first} and {agreement.second}"
    if len(report.overall) == 1:
        names = f"{report.manifest}: {names}"
    clips = counted(agreement.clips, "clip")
    yield (
        f"{names} give the same level to {agreement.equal_levels:.0%} of {clips}. Kappa over all "
        f"films is {digits(agreement.kappa)}: 0 is chance, 1 is full agreement."
    )
    positives, negatives = sure_task(report.scheme)
    yield _who_marks_more(agreement, positives[0], report.scheme.name_of[positives[0]])
    f1 = agreement.f1(positives, negatives)
    if not isnan(f1):
        task = f"{'+'.join(negatives)} against {positives[0]}"
        clips = counted(agreement.in_both((*negatives, *positives)), "clip")
        yield f"Scored against each other, they reach F1 {f1:.2f} ({task}, {clips})."


def _who_marks_more(agreement: LabelSetAgreement, level: str, title: str) -> str:
    """Describe how often each annotator gives the highest level, and on how many clips both do."""
    first, second = agreement.first, agreement.second
    a, b, shared = agreement.counts(level)
    totals = f"At least one of them marks {a + b - shared:,}, and both mark {shared:,}."
    if a == b:
        return f"Each marks {counted(a, 'clip')} as {title}. {totals}"
    more, less = (first, second) if a > b else (second, first)
    few, many = sorted((a, b))
    times = "on"
    if few:
        ratio = f"{many / few:.1f}"
        times = f"{ratio} times as often as {less}:"
        if ratio == "1.0":
            times = f"slightly more often than {less}:"
    return f"{more} marks {title} {times} {counted(many, 'clip')} against {few:,}. {totals}"


def _concepts_table(agreement: LabelSetAgreement) -> str:
    """Return a table of kappa and each annotator's clips by concept, highest kappa first."""
    rows = []
    for concept in agreement.concepts_by_kappa():
        kappa = "-" if concept.kappa is None else f"{round(concept.kappa, 2) + 0.0:.2f}"
        if alone := agreement.only_by(concept):  # then kappa is always 0
            kappa = f"only {alone}"
        shares = concept.share_first, concept.share_second
        marks = (f"{round(share * agreement.clips):,} ({share:.1%})" for share in shares)
        rows.append([concept.concept, kappa, *marks])
    table = align(["concept", "kappa", agreement.first, agreement.second], rows)
    return f"Concepts: kappa over all films, and the clips that each annotator marks\n\n{table}"


def _films_table(report: AgreementReport) -> str:
    """Return a table with one row per film and pair, and one column per measure."""
    pairs = report.pairs
    columns = {measure.key: measure.column for measure in report.measures if measure.column}
    header = [*report.name_columns, "clips", *columns.values()]
    rows = [
        [
            *report.names_of(pair),
            f"{len(pair.ratings.a):,}",
            *(digits(pair.values[key]) for key in columns),
        ]
        for pair in pairs[:MAX_ROWS_SHOWN]
    ]
    return align(header, rows, left=len(report.name_columns)) + _more(pairs, MAX_ROWS_SHOWN)


def _confusion_table(agreement: LabelSetAgreement, codes: Sequence[str]) -> str:
    """Return a table of the number of clips for each pair of levels."""
    rows = [
        [row, *(f"{agreement.confusion.get((row, column), 0):,}" for column in codes)]
        for row in codes
    ]
    names = f"Clips by level: {agreement.first} in rows, {agreement.second} in columns"
    return f"{names}\n\n{align(['', *codes], rows)}"


def _differences_table(report: AgreementReport, limit: int) -> str:
    top_runs = report.differences[:limit]
    timed = any(run.start is not None for run in top_runs)
    rows = [
        [
            *report.names_of(run),
            f"{_first_levels(run.levels_a)} / {_first_levels(run.levels_b)}",
            *(
                ["-" if time is None else format_time(time) for time in (run.start, run.end)]
                if timed
                else [run.first]
            ),
            f"{run.clips:,}",
            f"{run.distance:.2f}",
        ]
        for run in top_runs
    ]
    header = [*report.name_columns, "levels", *(["from", "to"] if timed else ["first clip"])]
    table = align([*header, "clips", "distance"], rows, left=len(report.name_columns) + 1)
    stretches = counted(len(report.differences), "stretch", "stretches")
    more = _more(report.differences, limit)
    return f"Where they differ, longest first ({stretches})\n\n{table}{more}"


def _first_levels(levels: Sequence[str]) -> str:
    return "-".join(levels[:3]) + ("..." if len(levels) > 3 else "")


def _more(rows: Sequence[object], limit: int) -> str:
    more = len(rows) - limit
    return f"\nand {more:,} more; -o and --json list all" if more > 0 else ""
