"""The agreement of a manifest's label sets: every pair in every film, as JSON and as tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from obygaze_features.annotations.agreement import Agreement, Chance, Gamma, agreement, mean
from obygaze_features.annotations.disagreements import Disagreement, disagreements
from obygaze_features.annotations.distances import Distances, distances_of
from obygaze_features.annotations.merge import timelines_of
from obygaze_features.annotations.pairs import Pair, pairs_of
from obygaze_features.annotations.remarks import Remark
from obygaze_features.annotations.segment_gamma import SegmentGamma, segment_gammas
from obygaze_features.annotations.timelines import Timelines, decimal
from obygaze_features.common.files import new_folder, write_text
from obygaze_features.common.package import reference_json
from obygaze_features.common.tables import format_table
from obygaze_features.common.text import join_some
from obygaze_features.manifests.manifest import Manifest

__all__ = ["AgreementReport", "agreement_report", "save_agreement"]

MARKER = "agreement.csv"


@dataclass(frozen=True, eq=False)
class AgreementReport:
    """Every pair of label sets in every film, and where they differ, the longest first."""

    manifest: str
    distances: Distances
    chance: Chance
    pairs: Sequence[Agreement]
    differences: Sequence[Disagreement]
    remarks: Sequence[Remark]
    segments: Sequence[SegmentGamma] = ()
    merged: frozenset[str] = frozenset()

    @property
    def means(self) -> dict[str, float | None]:
        """Means over the pairs for which a measure is defined.

        A merge agrees with what it was made of, and says nothing of how annotators agree: pairs
        with one count only where there are no others.
        """
        people = [one for one in self.pairs if self.merged.isdisjoint((one.a, one.b))]
        pairs = people or self.pairs
        every = [one.gamma for one in pairs]
        sure = [one.sure for one in pairs if one.sure is not None]
        return {
            "gamma": mean([one.gamma for one in every]),
            "closed_gamma": mean([one.closed_gamma for one in every]),
            "gamma_without_not_sure": mean([one.gamma for one in sure]),
            "closed_gamma_without_not_sure": mean([one.closed_gamma for one in sure]),
            "kappa": mean([one.kappa for one in pairs]),
            "alpha_nominal": mean([one.alpha_nominal for one in pairs]),
            "alpha_ordinal": mean([one.alpha_ordinal for one in pairs]),
            "alpha_distances": mean([one.alpha_distances for one in pairs]),
        }

    @property
    def paper(self) -> dict[str, Any] | None:
        """What the paper says of its annotators, where the levels are the paper's."""
        if self.distances.name != "paper":
            return None
        said: dict[str, Any] = reference_json("published.json")["agreement"]
        return said

    def to_json(self) -> dict[str, Any]:
        """The report as JSON."""
        return {
            "manifest": self.manifest,
            "levels": list(self.distances.codes),
            "distances": {
                "name": self.distances.name,
                "matrix": self.distances.matrix.tolist(),
            },
            **asdict(self.chance),
            "pairs": [one.to_json() for one in self.pairs],
            "means": self.means,
            "paper": self.paper,
            "segments": [asdict(one) for one in self.segments],
            "differences": [asdict(one) for one in self.differences],
            "remarks": [asdict(one) for one in self.remarks],
        }


def agreement_report(
    manifest: Manifest,
    names: Sequence[str] = (),
    chance: Chance | None = None,
    *,
    timelines: Timelines | None = None,
) -> AgreementReport:
    """Compare label sets of a manifest; without names, the annotators' (see `pairs_of`).

    With `timelines`, their free segments are compared too, which needs the extra `agreement`.
    """
    chance = chance or Chance()
    pairs, remarks = pairs_of(manifest, names)
    named = {name for pair in pairs for name in (pair.a, pair.b)}
    distances = distances_of(
        manifest.shared_scheme([manifest.labels(one) for one in sorted(named)])
    )
    segments: list[SegmentGamma] = []
    if timelines is not None:
        segments, more = segment_gammas(timelines, samples=chance.samples, seed=chance.seed)
        remarks += [*_others(timelines, manifest, pairs), *more]
    return AgreementReport(
        manifest=manifest.name,
        distances=distances,
        chance=chance,
        pairs=[agreement(pair, distances, chance) for pair in pairs],
        differences=disagreements(pairs, manifest.items, distances),
        remarks=remarks,
        segments=segments,
        merged=frozenset(name for name in named if "of" in manifest.labels(name).about),
    )


def _others(timelines: Timelines, manifest: Manifest, pairs: Sequence[Pair]) -> list[Remark]:
    """A remark on label sets that were not projected from these timelines."""
    names = sorted({name for pair in pairs for name in (pair.a, pair.b)})
    strange = [name for name in names if timelines_of(manifest.labels(name)) != timelines.sha256]
    if not strange:
        return []
    what = f"these segments are not those that {join_some(strange)} were projected from"
    return [Remark(timelines.name, "", "", what, "compared as they are")]


def save_agreement(found: AgreementReport, folder: Path, *, overwrite: bool = False) -> None:
    """Write agreement.csv, confusion.csv, differences.csv, and of segments segments.csv."""
    codes = found.distances.codes
    with new_folder(folder, overwrite=overwrite, marker=MARKER) as new:
        write_text(new / MARKER, _table(_flat(one) for one in found.pairs))
        write_text(
            new / "confusion.csv",
            _table(
                {
                    "film": one.film,
                    "a": one.a,
                    "b": one.b,
                    "level_a": level,
                    "level_b": other,
                    "clips": int(one.counts[row, column]),
                }
                for one in found.pairs
                for row, level in enumerate(codes)
                for column, other in enumerate(codes)
            ),
        )
        write_text(
            new / "differences.csv",
            _table((vars(one) for one in found.differences), tuple(Disagreement.__annotations__)),
        )
        if found.segments:
            write_text(new / "segments.csv", _table(vars(one) for one in found.segments))


def _flat(one: Agreement) -> dict[str, Any]:
    """A row of agreement.csv."""
    facts = {"film": one.film, "a": one.a, "b": one.b, "unpaired": one.unpaired}
    facts |= asdict(one.gamma)
    for name, value in asdict(one.sure or Gamma(0)).items():
        facts[f"{name}_without_not_sure"] = None if one.sure is None else value
    for name in ("kappa", "alpha_nominal", "alpha_ordinal", "alpha_distances"):
        facts[name] = getattr(one, name)
    return facts


def _table(rows: Iterable[Mapping[str, Any]], names: Sequence[str] = ()) -> str:
    """Rows as CSV; `names` are the columns, which rows, if there are any, say themselves."""
    rows = list(rows)
    names = list(rows[0]) if rows else names
    return format_table({name: [_cell(row[name]) for row in rows] for name in names})


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, tuple):
        return "|".join(value)
    return decimal(value) if isinstance(value, float) else str(value)
