"""The agreement of annotators as text for a terminal: the answer first, then the tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from typing import TYPE_CHECKING

from obygaze_features.common.tables import align
from obygaze_features.common.text import counted, format_time
from obygaze_features.manifests.label_agreement import (
    ConceptAgreement,
    LabelSetAgreement,
    sure_task,
)
from obygaze_features.manifests.labels import LabelScheme

if TYPE_CHECKING:
    from obygaze_features.annotations.agreement import Disagreement, PairAgreement
    from obygaze_features.annotations.agreement_report import AgreementReport
    from obygaze_features.annotations.segment_gamma import SegmentGamma

MAX_ROWS_SHOWN = 40
MAX_PAIRS_SHOWN = 6
MAX_TITLE = 30
MEASURES = ("kappa", "alpha_nominal", "alpha_ordinal", "alpha_distances")


@dataclass(frozen=True)
class _Names:
    """The first cells of a row: the film's title and, where there are several, its annotators."""

    titles: Mapping[str, str]
    several: bool

    @classmethod
    def of(cls, report: AgreementReport) -> _Names:
        """Names for all tables of a report."""
        pairs = {(pair.a, pair.b) for pair in report.pairs}
        pairs |= {(segment.a, segment.b) for segment in report.segments}
        return cls(report.titles, len(pairs) > 1)

    @property
    def header(self) -> list[str]:
        """The heads of these columns."""
        return ["film", "annotators"] if self.several else ["film"]

    def cells(self, part: PairAgreement | SegmentGamma | Disagreement) -> list[str]:
        """The cells of a row."""
        title = self.titles.get(part.film, part.film) or "-"
        title = title if len(title) <= MAX_TITLE else f"{title[: MAX_TITLE - 3].rstrip()}..."
        return [title, f"{part.a}, {part.b}"] if self.several else [title]


def describe_agreement(report: AgreementReport, differences: int) -> str:
    """The means in sentences, then concepts, films, levels, and the longest differences."""
    parts = [_summary(report)]
    names = _Names.of(report)
    if report.pairs:
        for agreement in report.overall[:MAX_PAIRS_SHOWN]:
            parts += [_concepts_table(agreement)] if agreement.concepts else []
        parts.append(_films_table(report, names))
        codes = report.distances.codes
        parts += [_confusion_table(a, codes) for a in report.overall[:MAX_PAIRS_SHOWN]]
    if report.segments:
        parts.append(_segments_table(report.segments, report.chance.samples, names))
    if report.differences and differences:
        parts.append(_differences_table(report.differences, differences, names))
    elif report.pairs and not report.differences:
        parts.append("no differences")
    return "\n\n".join(parts)


def describe_pair(agreement: LabelSetAgreement, scheme: LabelScheme) -> list[str]:
    """Two label sets in two sentences: how far they agree, and who marks more."""
    first, second = agreement.first, agreement.second
    positives, negatives = sure_task(scheme)
    top = scheme.name_of[positives[0]]
    clips = counted(agreement.clips, "clip")
    lines = [f"{first} and {second}: the same level on {agreement.equal_levels:.0%} of {clips}"]
    f1 = agreement.f1(positives, negatives)
    if not isnan(f1):
        task = f"{'+'.join(negatives)} against {positives[0]}"
        clips = counted(agreement.in_both((*negatives, *positives)), "clip")
        lines.append(f"one scored against the other: F1 {f1:.2f} ({task}, {clips})")
    a, b, shared = agreement.counts(positives[0])
    if a == b:
        lines.append(f"{top}: {counted(a, 'clip')} each, both {shared:,}")
    else:
        more, less = (first, second) if a > b else (second, first)
        often = f"{max(a, b) / min(a, b):.1f} times as often as {less}" if min(a, b) else "more"
        lines.append(
            f"{more} marks {top} {often}: {counted(max(a, b), 'clip')} against {min(a, b):,} "
            f"(both {shared:,}, either {a + b - shared:,})"
        )
    return lines


def digits(value: float | None) -> str:
    """A measure to three digits; a dash where it is not defined."""
    return "-" if value is None else f"{value:.3f}"


def _summary(report: AgreementReport) -> str:
    """The means, who marks more, the paper's numbers, and what gamma is measured against."""
    pairs, chance = report.pairs, report.chance
    films = counted(len({pair.film for pair in pairs}), "film")
    lines = [f"{report.manifest}: {counted(len(pairs), 'pair')} of label sets in {films}"]
    if pairs:
        means = {name: digits(mean) for name, mean in report.means.items()}
        lines[0] += (
            f"; means: gamma {means['gamma']} (closed {means['closed_gamma']}), kappa "
            f"{means['kappa']}"
        )
        for agreement in report.overall[:MAX_PAIRS_SHOWN]:
            lines += describe_pair(agreement, report.scheme)
        if (more := len(report.overall) - MAX_PAIRS_SHOWN) > 0:
            lines.append(f"and {more:,} more pairs of label sets; --json has all")
        alphas = ", ".join(
            f"{means[name]} {word}"
            for name, word in zip(MEASURES[1:], ("nominal", "ordinal", "by distances"), strict=True)
        )
        lines.append(f"alpha {alphas}")
        if report.paper is not None:
            lines += [
                f"without Not Sure: gamma {means['gamma_without_not_sure']} "
                f"(closed {means['closed_gamma_without_not_sure']})",
                f"the paper's {report.paper['pairs']} pairs: gamma {report.paper['gamma']:.2f}, "
                f"without Not Sure {report.paper['gamma_without_not_sure']:.2f} (comparable on its "
                "films, clips and",
                "threshold only; the paper does not say how it draws random sequences)",
            ]
    is_paper = report.distances.name == "paper"
    matrix = "the paper's matrix" if is_paper else "even steps between levels"
    lines += [
        f"gamma against {counted(chance.samples, 'random sequence')}, {chance.generator}, seed "
        f"{chance.seed}; 'closed': the limit for many of them",
        f"distances: {matrix}",
    ]
    return "\n".join(lines)


def _concepts_table(agreement: LabelSetAgreement) -> str:
    """Kappa of each concept and how often each annotator marks it, the best agreed on first."""
    rows = [
        [
            concept.concept,
            _kappa_cell(concept, agreement),
            *(
                f"{round(share * agreement.clips):,} ({share:.1%})"
                for share in (concept.share_first, concept.share_second)
            ),
        ]
        for concept in agreement.concepts_by_kappa()
    ]
    table = align(["concept", "kappa", agreement.first, agreement.second], rows)
    return f"agreement by concept, and the clips that each annotator gives it\n\n{table}"


def _kappa_cell(concept: ConceptAgreement, agreement: LabelSetAgreement) -> str:
    """Kappa; or who alone marks the concept, where kappa is 0 whatever the clips."""
    if alone := agreement.only_by(concept):
        return f"only {alone}"
    return "-" if concept.kappa is None else f"{round(concept.kappa, 2) + 0.0:.2f}"


def _films_table(report: AgreementReport, names: _Names) -> str:
    """A row a film and pair: every measure; p where the random sequences can tell."""
    pairs, samples = report.pairs, report.chance.samples
    least = 1 / (samples + 1)
    p_values = [pair.gamma.p for pair in pairs]
    resolved = any(p is not None and p > least for p in p_values)
    has_sure = any(pair.sure for pair in pairs)
    header = [*names.header, "clips", "gamma", *(["without NS"] if has_sure else [])]
    header += ["kappa", "alpha nominal", "ordinal", "by distances", *(["p"] if resolved else [])]
    rows = []
    for pair in pairs[:MAX_ROWS_SHOWN]:
        row = [*names.cells(pair), f"{pair.gamma.clips:,}", digits(pair.gamma.gamma)]
        row += [digits(pair.sure.gamma if pair.sure else None)] if has_sure else []
        row += [digits(getattr(pair, name)) for name in MEASURES]
        if resolved:
            row.append(_p_cell(pair.gamma.p, samples))
        rows.append(row)
    text = align(header, rows, left=len(names.header)) + _more(pairs)
    if floor := sum(p is not None and p <= least for p in p_values):
        text += (
            f"\nno random sequence agrees as well in {floor:,} of {counted(len(pairs), 'row')}: "
            f"p is at most 1/{samples + 1:,},\nthe least that {samples:,} can show "
            "(more: --samples)"
        )
    return text


def _confusion_table(agreement: LabelSetAgreement, codes: Sequence[str]) -> str:
    """How many clips got which two levels."""
    rows = [
        [row, *(f"{agreement.confusion.get((row, column), 0):,}" for column in codes)]
        for row in codes
    ]
    names = f"clips by level, of {agreement.first} in rows and of {agreement.second} in columns"
    return f"{names}\n\n{align(['', *codes], rows)}"


def _segments_table(segments: Sequence[SegmentGamma], samples: int, names: _Names) -> str:
    rows = [
        [
            *names.cells(segment),
            f"{segment.segments_a}, {segment.segments_b}",
            *map(digits, (segment.disorder, segment.expected, segment.gamma)),
            _p_cell(segment.p, samples),
        ]
        for segment in segments[:MAX_ROWS_SHOWN]
    ]
    header = [*names.header, "segments", "disorder", "expected", "gamma", "p"]
    return (
        "gamma on free segments, another measure (alignment by pygamma-agreement; "
        f"{counted(samples, 'random timeline')})\n\n"
        + align(header, rows, left=len(names.header))
        + _more(segments)
    )


def _differences_table(differences: Sequence[Disagreement], limit: int, names: _Names) -> str:
    timed = any(run.start is not None for run in differences[:limit])
    rows = [
        [
            *names.cells(run),
            f"{_first_levels(run.levels_a)} / {_first_levels(run.levels_b)}",
            *(map(_time, (run.start, run.end)) if timed else [run.first]),
            f"{run.clips:,}",
            f"{run.distance:.2f}",
        ]
        for run in differences[:limit]
    ]
    header = [*names.header, "levels", *(["from", "to"] if timed else ["first clip"])]
    header += ["clips", "distance"]
    stretches = counted(len(differences), "stretch", "stretches")
    return (
        f"where they differ, the longest first ({stretches})\n\n"
        + align(header, rows, left=len(names.header) + 1)
        + _more(differences, limit)
    )


def _p_cell(p: float | None, samples: int) -> str:
    """p, never less than that number of random sequences can show."""
    return f"≤1/{samples + 1:,}" if p is not None and p <= 1 / (samples + 1) else digits(p)


def _time(seconds: float | None) -> str:
    return "-" if seconds is None else format_time(seconds)


def _first_levels(levels: Sequence[str]) -> str:
    return "-".join(levels[:3]) + ("..." if len(levels) > 3 else "")


def _more(rows: Sequence[object], limit: int = MAX_ROWS_SHOWN) -> str:
    more = len(rows) - limit
    return f"\nand {more:,} more; -o and --json name all" if more > 0 else ""
