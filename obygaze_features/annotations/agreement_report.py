"""The agreement of a manifest's label sets: every pair in every film, as JSON, CSV and text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from obygaze_features.annotations.agreement import (
    Disagreement,
    PairAgreement,
    find_disagreements,
    find_pairs,
    pair_agreement,
)
from obygaze_features.annotations.issues import Issue, timelines_sha256
from obygaze_features.annotations.measures import Chance, Distances, Gamma, distances_of
from obygaze_features.annotations.segment_gamma import SegmentGamma, segment_gammas
from obygaze_features.annotations.timelines import Timelines
from obygaze_features.common.files import new_folder, write_text
from obygaze_features.common.package import reference_json
from obygaze_features.common.tables import align, format_table
from obygaze_features.common.text import counted, format_time, join_some
from obygaze_features.manifests.items import format_seconds
from obygaze_features.manifests.manifest import Manifest

MARKER = "agreement.csv"
MAX_ROWS_SHOWN = 40
MEASURES = ("kappa", "alpha_nominal", "alpha_ordinal", "alpha_distances")


@dataclass(frozen=True, eq=False)
class AgreementReport:
    """Every pair of label sets in every film, and where they differ, the longest first."""

    manifest: str
    distances: Distances
    chance: Chance
    pairs: Sequence[PairAgreement]
    differences: Sequence[Disagreement]
    issues: Sequence[Issue]
    segments: Sequence[SegmentGamma] = ()
    merged: frozenset[str] = frozenset()

    def __repr__(self) -> str:
        gamma = _digits(self.means["gamma"])
        return (
            f"AgreementReport({self.manifest!r}, {counted(len(self.pairs), 'pair')}: gamma {gamma})"
        )

    @property
    def means(self) -> dict[str, float | None]:
        """Means over the pairs for which a measure is defined.

        A merge agrees with its sources, and says nothing of how annotators agree: pairs with a
        merge count only where there are no others.
        """
        without_merges = [pair for pair in self.pairs if self.merged.isdisjoint((pair.a, pair.b))]
        pairs = without_merges or self.pairs
        sure = [pair.sure for pair in pairs if pair.sure is not None]
        return {
            "gamma": _mean([pair.gamma.gamma for pair in pairs]),
            "closed_gamma": _mean([pair.gamma.closed_gamma for pair in pairs]),
            "gamma_without_not_sure": _mean([gamma.gamma for gamma in sure]),
            "closed_gamma_without_not_sure": _mean([gamma.closed_gamma for gamma in sure]),
            **{name: _mean([getattr(pair, name) for pair in pairs]) for name in MEASURES},
        }

    @property
    def paper(self) -> dict[str, Any] | None:
        """The paper's numbers of its annotators, where the levels are the paper's."""
        if self.distances.name != "paper":
            return None
        published: dict[str, Any] = reference_json("published.json")["agreement"]
        return published

    def to_json(self) -> dict[str, Any]:
        """The report as JSON."""
        return {
            "manifest": self.manifest,
            "levels": list(self.distances.codes),
            "distances": {"name": self.distances.name, "matrix": self.distances.matrix.tolist()},
            **asdict(self.chance),
            "pairs": [pair.to_json() for pair in self.pairs],
            "means": self.means,
            "paper": self.paper,
            "segments": [asdict(segment) for segment in self.segments],
            "differences": [asdict(difference) for difference in self.differences],
            "remarks": [issue.to_json() for issue in self.issues],
        }

    def save(self, folder: Path | str, *, overwrite: bool = False) -> None:
        """Write agreement.csv, confusion.csv, differences.csv, and of segments segments.csv."""
        codes = self.distances.codes
        header = ("film", "a", "b", "level_a", "level_b", "clips")
        confusions = (
            dict(zip(header, (pair.film, pair.a, pair.b, level_a, level_b, clips), strict=True))
            for pair in self.pairs
            for level_a, counts in zip(codes, pair.counts.tolist(), strict=True)
            for level_b, clips in zip(codes, counts, strict=True)
        )
        differences = _format_rows(map(vars, self.differences), list(Disagreement.__annotations__))
        with new_folder(Path(folder), overwrite=overwrite, marker=MARKER) as new:
            write_text(new / MARKER, _format_rows(map(_flat_row, self.pairs)))
            write_text(new / "confusion.csv", _format_rows(confusions))
            write_text(new / "differences.csv", differences)
            if self.segments:
                write_text(new / "segments.csv", _format_rows(map(vars, self.segments)))

    def describe(self, *, differences: int = 10) -> str:
        """The report for a terminal, with the longest differences."""
        chance = self.chance
        paper = self.distances.name == "paper"
        matrix = "the paper's matrix" if paper else "even steps between levels"
        parts = [
            f"{self.manifest}: {counted(len(self.pairs), 'pair')} of label sets, a film each; "
            f"distances: {matrix}\n"
            f"gamma against {counted(chance.samples, 'random sequence')}, {chance.generator}, "
            f"seed {chance.seed}; 'closed' is its limit with ever more of them"
        ]
        if self.pairs:
            parts += [*_measure_tables(self.pairs), self._describe_means(), *self._confusions()]
        if self.segments:
            parts.append(_segments_table(self.segments, chance.samples))
        if self.differences and differences:
            parts.append(_differences_table(self.differences, differences))
        elif self.pairs and not self.differences:
            parts.append("no differences")
        return "\n\n".join(parts)

    def _describe_means(self) -> str:
        means = {name: _digits(mean) for name, mean in self.means.items()}
        text = (
            f"means: gamma {means['gamma']} (closed {means['closed_gamma']}), "
            f"kappa {means['kappa']}, alpha {means['alpha_nominal']} nominal, "
            f"{means['alpha_ordinal']} ordinal, {means['alpha_distances']} by distances"
        )
        if self.paper is None:
            return text
        return (
            f"{text}\nwithout Not Sure: gamma {means['gamma_without_not_sure']} "
            f"(closed {means['closed_gamma_without_not_sure']})\n"
            f"the paper's {self.paper['pairs']} pairs: gamma {self.paper['gamma']:.2f}, without "
            f"Not Sure {self.paper['gamma_without_not_sure']:.2f}\n(comparable on its films, clips "
            "and threshold only; the paper does not say how it draws random sequences)"
        )

    def _confusions(self) -> list[str]:
        """A table for each two annotators, over all their films."""
        sums: dict[tuple[str, str], Any] = {}
        for pair in self.pairs:
            sums[pair.a, pair.b] = sums.get((pair.a, pair.b), 0) + pair.counts
        codes = self.distances.codes
        tables = []
        for (a, b), counts in list(sums.items())[:MAX_ROWS_SHOWN]:
            rows = zip(codes, counts, strict=True)
            table = align(["", *codes], [[code, *map("{:,}".format, row)] for code, row in rows])
            tables.append(f"clips by level, of {a} in rows and of {b} in columns\n\n{table}")
        return tables


def agreement_report(
    manifest: Manifest,
    names: Sequence[str] = (),
    chance: Chance | None = None,
    *,
    timelines: Timelines | None = None,
) -> AgreementReport:
    """Compare label sets of a manifest; without names, the annotators' (see `find_pairs`).

    With `timelines`, their free segments are compared too, which needs the extra `agreement`.
    """
    chance = chance or Chance()
    pairs, issues = find_pairs(manifest, names)
    compared = sorted({name for pair in pairs for name in (pair.a, pair.b)})
    label_sets = [manifest.labels(name) for name in compared]
    distances = distances_of(manifest.shared_scheme(label_sets))
    segments: list[SegmentGamma] = []
    if timelines is not None:
        unlike = [s.name for s in label_sets if timelines_sha256(s) != timelines.sha256]
        if unlike:
            problem = f"these segments are not those that {join_some(unlike)} were projected from"
            issues.append(Issue(timelines.name, "", "", problem, "compared as they are"))
        segments, segment_issues = segment_gammas(
            timelines, samples=chance.samples, seed=chance.seed
        )
        issues += segment_issues
    return AgreementReport(
        manifest=manifest.name,
        distances=distances,
        chance=chance,
        pairs=[pair_agreement(pair, distances, chance) for pair in pairs],
        differences=find_disagreements(pairs, manifest.items, distances),
        issues=issues,
        segments=segments,
        merged=frozenset(labels.name for labels in label_sets if "of" in labels.about),
    )


def _mean(values: Sequence[float | None]) -> float | None:
    """The mean of the values that are defined, if any is."""
    defined = [value for value in values if value is not None]
    return fmean(defined) if defined else None


def _flat_row(pair: PairAgreement) -> dict[str, Any]:
    """A row of agreement.csv."""
    row = {"film": pair.film, "a": pair.a, "b": pair.b, "unpaired": pair.unpaired}
    row |= asdict(pair.gamma)
    for name, value in asdict(pair.sure or Gamma(0)).items():
        row[f"{name}_without_not_sure"] = None if pair.sure is None else value
    return row | {name: getattr(pair, name) for name in MEASURES}


def _format_rows(rows: Iterable[Mapping[str, Any]], columns: Sequence[str] = ()) -> str:
    """Rows as CSV; `columns` are those of a table without rows."""
    rows = list(rows)
    columns = list(rows[0]) if rows else columns
    return format_table({name: [_cell(row[name]) for row in rows] for name in columns})


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, tuple):
        return "|".join(value)
    return format_seconds(value) if isinstance(value, float) else str(value)


def _measure_tables(pairs: Sequence[PairAgreement]) -> list[str]:
    """The table of gammas, without Not Sure to the right where the scheme has it; the others."""
    has_sure = any(pair.sure for pair in pairs)
    columns = ("clips", "d", "gamma", "closed", "p")
    header = ["film", "annotators", *columns, *([f"{c}*" for c in columns] if has_sure else [])]
    gammas, measures = [], []
    for pair in pairs[:MAX_ROWS_SHOWN]:
        names = [pair.film or "-", f"{pair.a}, {pair.b}"]
        gammas.append([*names, *_gamma_cells(pair.gamma), *_gamma_cells(pair.sure)])
        measures.append([*names, *(_digits(getattr(pair, name)) for name in MEASURES)])
    star = "\n* without the clips that either calls Not Sure" if has_sure else ""
    more = _more(pairs)
    other_header = ["film", "annotators", "kappa", "alpha nominal", "ordinal", "by distances"]
    return [
        align(header, gammas, left=2) + more + star,
        align(other_header, measures, left=2) + more,
    ]


def _gamma_cells(gamma: Gamma | None) -> list[str]:
    if gamma is None:
        return []
    numbers = (gamma.distance, gamma.gamma, gamma.closed_gamma, gamma.p)
    return [f"{gamma.clips:,}", *map(_digits, numbers)]


def _segments_table(segments: Sequence[SegmentGamma], samples: int) -> str:
    rows = [
        [
            segment.film,
            f"{segment.a}, {segment.b}",
            f"{segment.segments_a}, {segment.segments_b}",
            *map(_digits, (segment.disorder, segment.expected, segment.gamma, segment.p)),
        ]
        for segment in segments[:MAX_ROWS_SHOWN]
    ]
    header = ["film", "annotators", "segments", "disorder", "expected", "gamma", "p"]
    return (
        "gamma on free segments, another measure (alignment by pygamma-agreement; "
        f"{counted(samples, 'random timeline')})\n\n"
        + align(header, rows, left=2)
        + _more(segments)
    )


def _differences_table(differences: Sequence[Disagreement], limit: int) -> str:
    rows = [
        [
            run.film or "-",
            f"{run.a}, {run.b}",
            f"{_first_levels(run.levels_a)} / {_first_levels(run.levels_b)}",
            run.first,
            f"{run.clips:,}",
            "-" if run.start is None else format_time(run.start),
            "-" if run.end is None else format_time(run.end),
            f"{run.distance:.2f}",
        ]
        for run in differences[:limit]
    ]
    header = ["film", "annotators", "levels", "first clip", "clips", "from", "to", "distance"]
    stretches = counted(len(differences), "stretch", "stretches")
    return (
        f"where they differ, the longest first ({stretches})\n\n"
        + align(header, rows, left=4)
        + _more(differences, limit)
    )


def _first_levels(levels: Sequence[str]) -> str:
    return "-".join(levels[:3]) + ("..." if len(levels) > 3 else "")


def _more(rows: Sequence[object], limit: int = MAX_ROWS_SHOWN) -> str:
    more = len(rows) - limit
    return f"\nand {more:,} more; -o and --json name all" if more > 0 else ""


def _digits(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
