"""What guessing scores: at the share of positives that was scored, and at the paper's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from obygaze_models.estimators.baselines import baselines
from obygaze_models.experiments.plan import RELEASED
from obygaze_models.metrics import f1_titles
from obygaze_models.published import published_row
from obygaze_models.reproduce.bench import LEVELS, Bench
from obygaze_models.reproduce.rows import COLUMNS, TESTED, Row
from obygaze_models.reproduce.tables import Block, Line, Value

__all__ = ["closed_form", "guesses"]

GUESSES = {"random": "Random", "all positive": "All positive"}


def guesses(rows: Sequence[Row], score: str) -> list[Line]:
    """At the share of positives of the clips that were scored.

    The released bottlenecks have a test fold of their own, and so guesses of their own.
    """
    folds: dict[tuple[tuple[int, int], ...], str] = {}
    for row in rows:
        tests = next(iter(row.trained.values())).run.run.record.tests
        of = [
            tests[f"{'+'.join(negatives)} vs S"]
            for negatives in TESTED
            if f"{'+'.join(negatives)} vs S" in tests
        ]
        if len(of) == len(TESTED):
            folds.setdefault(tuple((one.clips, one.positives or 0) for one in of), row.title)
    lines = []
    for counts, title in folds.items():
        whose = "bottlenecks" if title.startswith("PCBM") else "networks"
        where = "" if len(folds) == 1 else f", {whose}' fold"
        of_test = dict(zip(TESTED, counts, strict=True))
        by_column = {column: of_test[tested] for column, (_, tested) in COLUMNS.items()}
        share = {column: sure / clips for column, (clips, sure) in by_column.items()}
        lines += [
            Line(
                f"Clips scored{where}",
                "count",
                {column: Value(clips) for column, (clips, _) in by_column.items()},
            ),
            Line(f"Share of positives{where}", "count", _values(share)),
            *_lines(share, score, f", at that share{where}"),
        ]
    return lines


def closed_form(bench: Bench) -> list[Block]:
    """The paper's own baselines, at the whole dataset's share and at the released folds'."""
    levels = bench.read.labels().levels
    count = {level: levels.count(level) for level in LEVELS}
    share = {
        tested: count["S"] / (count["S"] + sum(count[level] for level in tested))
        for tested in TESTED
    }
    blocks = _blocks(bench, "Guesses at the whole dataset's share of positives", share)
    if bench.has_released_splits:
        share = {}
        for tested in TESTED:
            file = bench.read.split(RELEASED[frozenset({*tested, "S"})])
            classes = [file.class_of[one] for one in file.fold(file.last_fold)]
            share[tested] = classes.count("S") / len(classes)
        blocks += _blocks(bench, "Guesses at the released test folds, all of their clips", share)
    return blocks


def _blocks(bench: Bench, title: str, share_of: Mapping[tuple[str, ...], float]) -> list[Block]:
    share = {column: share_of[tested] for column, (_, tested) in COLUMNS.items()}
    blocks = []
    for score, words in f1_titles(multiclass=False).items():
        version = "v2" if score == "f1_weighted" else "v1"
        lines = [Line("Share of positives", "count", _values(share))]
        for line in _lines(share, score, ""):
            lines.append(line)
            theirs: dict[str, Value | None] = {}
            for column, value in line.values.items():
                said = published_row(f"{line.name} ({version})", column).get(score)
                if said and value:
                    theirs[column] = Value(said.mean, said.std, value.mean - said.mean)
            if theirs and bench.is_papers:
                lines.append(Line(f"published in {version}, and ours less it", "published", theirs))
        blocks.append(Block(f"{title}: {words}", "", score, lines))
    return blocks


def _lines(share: Mapping[str, float], score: str, more: str) -> list[Line]:
    return [
        Line(
            f"{words}{more}",
            "guess",
            _values({column: baselines(of)[guess][score] for column, of in share.items()}),
        )
        for guess, words in GUESSES.items()
    ]


def _values(numbers: Mapping[str, float | None]) -> dict[str, Value | None]:
    return {column: None if number is None else Value(number) for column, number in numbers.items()}
