"""The agreement of label sets as a terminal shows it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from obygaze_features.annotations.agreement import Agreement, Gamma
from obygaze_features.annotations.agreement_report import AgreementReport
from obygaze_features.annotations.cells import clock
from obygaze_features.annotations.disagreements import Disagreement
from obygaze_features.annotations.segment_gamma import SegmentGamma
from obygaze_features.common.tables import align
from obygaze_features.common.text import counted

__all__ = ["describe_agreement"]

SHOWN = 40
"""Rows that a table has."""
GAMMA = ("clips", "d", "gamma", "closed", "p")


def describe_agreement(found: AgreementReport, *, differences: int) -> str:
    """The report for a terminal, with so many of the longest differences."""
    chance, distances = found.chance, found.distances
    whose = "the paper's matrix" if distances.name == "paper" else "even steps between levels"
    parts = [
        f"{found.manifest}: {counted(len(found.pairs), 'pair')} of label sets, a film each; "
        f"distances: {whose}\n"
        f"gamma against {counted(chance.samples, 'random sequence')}, {chance.generator}, "
        f"seed {chance.seed}; 'closed' is what it comes to with ever more of them"
    ]
    if found.pairs:
        parts += [_gammas(found), _measures(found), _means(found), *_confusions(found)]
    if found.segments:
        parts.append(_segments(found.segments, chance.samples))
    if found.differences and differences:
        parts.append(_differences(found.differences, differences))
    elif found.pairs and not found.differences:
        parts.append("they differ nowhere")
    return "\n\n".join(parts)


def _gammas(found: AgreementReport) -> str:
    """The table of gammas; without Not Sure to the right, where the scheme has it."""
    with_sure = any(one.sure for one in found.pairs)
    header = ["film", "annotators", *GAMMA, *([f"{name}*" for name in GAMMA] if with_sure else [])]
    rows = [
        [one.film or "-", f"{one.a}, {one.b}", *_gamma(one.gamma), *_gamma(one.sure)]
        for one in found.pairs[:SHOWN]
    ]
    star = "\n* without the clips that either calls Not Sure" if with_sure else ""
    return align(header, rows, left=2) + _more(found.pairs) + star


def _gamma(one: Gamma | None) -> list[str]:
    if one is None:
        return []
    return [f"{one.clips:,}", *map(_digits, (one.distance, one.gamma, one.closed_gamma, one.p))]


def _measures(found: AgreementReport) -> str:
    header = ["film", "annotators", "kappa", "alpha nominal", "ordinal", "by distances"]
    rows = [[one.film or "-", f"{one.a}, {one.b}", *_others(one)] for one in found.pairs[:SHOWN]]
    return align(header, rows, left=2) + _more(found.pairs)


def _others(one: Agreement) -> list[str]:
    alphas = (one.alpha_nominal, one.alpha_ordinal, one.alpha_distances)
    return [*map(_digits, (one.kappa, *alphas))]


def _means(found: AgreementReport) -> str:
    means = found.means
    text = (
        f"means: gamma {_digits(means['gamma'])} (closed {_digits(means['closed_gamma'])}), "
        f"kappa {_digits(means['kappa'])}, alpha {_digits(means['alpha_nominal'])} nominal, "
        f"{_digits(means['alpha_ordinal'])} ordinal, {_digits(means['alpha_distances'])} by "
        "distances"
    )
    if found.paper is None:
        return text
    said, sure = found.paper, means["gamma_without_not_sure"]
    return (
        f"{text}\nwithout Not Sure: gamma {_digits(sure)} "
        f"(closed {_digits(means['closed_gamma_without_not_sure'])})\n"
        f"the paper's {said['pairs']} pairs: gamma {said['gamma']:.2f}, without Not Sure "
        f"{said['gamma_without_not_sure']:.2f}\n(like with like on its films, clips and threshold "
        "only; how its random sequences are drawn is not said)"
    )


def _confusions(found: AgreementReport) -> list[str]:
    """A table for each two annotators, over all their films."""
    sums: dict[tuple[str, str], Any] = {}
    for one in found.pairs:
        sums[one.a, one.b] = sums.get((one.a, one.b), 0) + one.counts
    codes = found.distances.codes
    return [
        f"clips by level, of {a} in rows and of {b} in columns\n\n"
        + align(
            ["", *codes],
            [[code, *map("{:,}".format, row)] for code, row in zip(codes, counts, strict=True)],
        )
        for (a, b), counts in list(sums.items())[:SHOWN]
    ]


def _segments(every: Sequence[SegmentGamma], samples: int) -> str:
    rows = [
        [
            one.film,
            f"{one.a}, {one.b}",
            f"{one.segments_a}, {one.segments_b}",
            *map(_digits, (one.disorder, one.expected, one.gamma, one.p)),
        ]
        for one in every[:SHOWN]
    ]
    header = ["film", "annotators", "segments", "disorder", "expected", "gamma", "p"]
    return (
        "gamma on free segments, another measure (alignment by pygamma-agreement; "
        f"{counted(samples, 'random timeline')})\n\n" + align(header, rows, left=2) + _more(every)
    )


def _differences(every: Sequence[Disagreement], most: int) -> str:
    rows = [
        [
            one.film or "-",
            f"{one.a}, {one.b}",
            f"{_some(one.levels_a)} / {_some(one.levels_b)}",
            one.first,
            f"{one.clips:,}",
            _when(one.start),
            _when(one.end),
            f"{one.distance:.2f}",
        ]
        for one in every[:most]
    ]
    header = ["film", "annotators", "levels", "first clip", "clips", "from", "to", "distance"]
    return (
        f"where they differ, the longest first ({counted(len(every), 'stretch', 'stretches')})\n\n"
        + align(header, rows, left=4)
        + _more(every, most)
    )


def _some(levels: Sequence[str]) -> str:
    return "-".join(levels[:3]) + ("..." if len(levels) > 3 else "")


def _more(every: Sequence[object], most: int = SHOWN) -> str:
    more = len(every) - most
    return f"\nand {more:,} more; -o and --json name all" if more > 0 else ""


def _digits(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _when(seconds: float | None) -> str:
    return "-" if seconds is None else clock(seconds)
