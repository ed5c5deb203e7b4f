"""The agreement of a manifest's label sets: every pair in every film, as JSON, CSV and text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from math import isnan
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
from obygaze_features.annotations.agreement_text import MEASURES, describe_agreement, digits
from obygaze_features.annotations.issues import Issue, timelines_sha256
from obygaze_features.annotations.measures import Chance, Distances, Gamma, distances_of
from obygaze_features.annotations.segment_gamma import SegmentGamma, segment_gammas
from obygaze_features.annotations.timelines import Timelines
from obygaze_features.common.files import new_folder, write_text
from obygaze_features.common.package import reference_json
from obygaze_features.common.tables import format_rows
from obygaze_features.common.text import counted, join_some
from obygaze_features.manifests.items import format_seconds
from obygaze_features.manifests.label_agreement import (
    ConceptAgreement,
    LabelSetAgreement,
    compare_label_sets,
    sure_task,
)
from obygaze_features.manifests.labels import LabelScheme
from obygaze_features.manifests.manifest import Manifest
from obygaze_features.manifests.statistics import film_titles

MARKER = "agreement.csv"
CONCEPT_COLUMNS = tuple(ConceptAgreement.__annotations__)


@dataclass(frozen=True, eq=False)
class AgreementReport:
    """Every pair of label sets in every film, and where they differ, the longest first.

    `overall` compares each two label sets over all films, concept by concept too; `titles` are
    the films'.
    """

    manifest: str
    scheme: LabelScheme
    distances: Distances
    chance: Chance
    pairs: Sequence[PairAgreement]
    differences: Sequence[Disagreement]
    issues: Sequence[Issue]
    overall: Sequence[LabelSetAgreement] = ()
    titles: Mapping[str, str] = field(default_factory=dict)
    segments: Sequence[SegmentGamma] = ()
    merged: frozenset[str] = frozenset()

    def __repr__(self) -> str:
        gamma = digits(self.means["gamma"])
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
            "overall": [self._overall_json(agreement) for agreement in self.overall],
            "paper": self.paper,
            "segments": [asdict(segment) for segment in self.segments],
            "differences": [asdict(difference) for difference in self.differences],
            "remarks": [issue.to_json() for issue in self.issues],
        }

    def _overall_json(self, agreement: LabelSetAgreement) -> dict[str, Any]:
        """Two label sets over all films, with the score on the paper's task and its levels."""
        f1 = agreement.f1(*sure_task(self.scheme))
        return {**agreement.to_json(), "f1": None if isnan(f1) else f1}

    def save(self, folder: Path | str, *, overwrite: bool = False) -> None:
        """Write agreement.csv, concepts.csv, confusion.csv, differences.csv; also segments.csv."""
        codes = self.distances.codes
        header = ("film", "a", "b", "level_a", "level_b", "clips")
        confusions = (
            dict(zip(header, (pair.film, pair.a, pair.b, level_a, level_b, clips), strict=True))
            for pair in self.pairs
            for level_a, counts in zip(codes, pair.counts.tolist(), strict=True)
            for level_b, clips in zip(codes, counts, strict=True)
        )
        concepts = [
            {"a": agreement.first, "b": agreement.second, **vars(concept)}
            for agreement in self.overall
            for concept in agreement.concepts
        ]
        as_csv = partial(format_rows, number=format_seconds)
        differences = as_csv(map(vars, self.differences), list(Disagreement.__annotations__))
        with new_folder(Path(folder), overwrite=overwrite, marker=MARKER) as new:
            write_text(new / MARKER, as_csv(map(_flat_row, self.pairs)))
            write_text(new / "concepts.csv", as_csv(concepts, ("a", "b", *CONCEPT_COLUMNS)))
            write_text(new / "confusion.csv", as_csv(confusions))
            write_text(new / "differences.csv", differences)
            if self.segments:
                write_text(new / "segments.csv", as_csv(map(vars, self.segments)))

    def describe(self, *, differences: int = 10) -> str:
        """The report for a terminal: means first, then tables, with the longest differences."""
        return describe_agreement(self, differences)


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
    scheme = manifest.shared_scheme(label_sets)
    distances = distances_of(scheme)
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
        scheme=scheme,
        distances=distances,
        chance=chance,
        pairs=[pair_agreement(pair, distances, chance) for pair in pairs],
        differences=find_disagreements(pairs, manifest.items, distances),
        issues=issues,
        overall=[
            compare_label_sets(manifest, a, b)
            for a, b in dict.fromkeys((pair.a, pair.b) for pair in pairs)
        ],
        titles=film_titles(manifest),
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
