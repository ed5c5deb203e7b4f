"""Tables 2 and 5: each backbone's network and the bottlenecks, four ways to train and test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from obygaze_features.common.reference import reference_json
from obygaze_features.errors import ManifestError
from obygaze_models.estimators.baselines import baselines
from obygaze_models.experiments.plan import RELEASED, RELEASED_CONCEPTS
from obygaze_models.experiments.results import Results
from obygaze_models.published import AVERAGES, published_row
from obygaze_models.reproduce.bench import Bench, Feature, Setting
from obygaze_models.reproduce.caveats import about_runs, leakage, pools
from obygaze_models.reproduce.tables import Block, Line, Made, Table, Value

__all__ = ["COLUMNS", "bottlenecks", "networks", "table2", "table5"]

#: Column -> the negatives of training, and of the test; Sure clips are positive in both.
COLUMNS = {
    "EN-S/EN-S": (("EN",), ("EN",)),
    "HN-S/EN-S": (("HN",), ("EN",)),
    "EN-S/ENHN-S": (("EN",), ("EN", "HN")),
    "HN-S/ENHN-S": (("HN",), ("EN", "HN")),
}
TRAINED = (("EN",), ("HN",))
TESTED = (("EN",), ("EN", "HN"))
SCORES = {"f1_weighted": "F1 weighted by support", "f1": "F1 of the positive class"}
READINGS = ("text", "code")
HEADS = {"tree": ("pcbm-tree", "PCBM-DT"), "logistic": ("pcbm-logistic", "PCBM-LR")}
GUESSES = {"random": "Random", "all positive": "All positive"}
#: The rows of Table 2, and of Table 5: title, store, feature, the paper's row.
ROWS = {
    "table2": (
        ("ViViT-B/16", "vivit", "max", "ViViT-B/16"),
        ("X-CLIP, native", "xclip", "native", "X-CLIP"),
        ("X-CLIP, max", "xclip", "max", "X-CLIP"),
    ),
    "table5": (("X-CLIP LSMDC", "lsmdc", "native", "X-CLIP LSMDC"),),
}

Row = tuple[str, str, Mapping[tuple[str, ...], tuple[Results, str]]]
"""A row's title, the paper's row, and by training negatives its run and its model there."""


def table2(bench: Bench) -> Made:
    """Networks on ViViT and X-CLIP, bottlenecks in both readings, and guesses."""
    return _make(bench, "table2", "Table 2: from a backbone's features to objectification")


def table5(bench: Bench) -> Made:
    """The network on X-CLIP as it was retrained on LSMDC."""
    return _make(bench, "table5", "Table 5: X-CLIP retrained on LSMDC")


def networks(
    bench: Bench, setting: Setting, feature: Feature, title: str
) -> dict[tuple[str, ...], tuple[Results, str]]:
    """The network's runs on one feature: by training negatives the run, and its model there.

    That is the released code's network by its protocol, else the text's, which is trained too.
    """
    models = ("mlp-author", "mlp") if setting.protocol == "released" else ("mlp",)
    return {
        negatives: (
            bench.run(
                f"{setting.key}/{feature.key}-{negatives[0]}",
                name=f"{title}: {negatives[0]} against S, {setting.key}",
                store=bench.stores[feature.store],
                array=feature.array,
                pooling=feature.pooling,
                positives=("S",),
                train_negatives=negatives,
                test_negatives=TESTED,
                labels=setting.labels,
                protocol=setting.protocol,
                estimators=models,
            ),
            models[0],
        )
        for negatives in TRAINED
    }


def bottlenecks(
    bench: Bench, setting: Setting, feature: Feature
) -> dict[tuple[str, ...], tuple[Results, str]]:
    """The bottlenecks' runs: by training negatives the run, with all heads and readings."""
    return {
        negatives: (
            bench.run(
                f"{setting.key}/{feature.key}-pcbm-{negatives[0]}",
                name=f"Bottlenecks on X-CLIP: {negatives[0]} against S, {setting.key}",
                store=bench.stores[feature.store],
                array=feature.array,
                pooling=feature.pooling,
                positives=("S",),
                train_negatives=negatives,
                test_negatives=TESTED,
                labels=setting.labels,
                protocol=setting.protocol,
                split=RELEASED_CONCEPTS if setting.protocol == "released" else None,
                estimators=tuple(
                    {**_options(bench, reading, head, negatives[0]), "as": f"{short}, {reading}"}
                    for reading in READINGS
                    for head, (_, short) in HEADS.items()
                ),
            ),
            "",
        )
        for negatives in TRAINED
    }


def _options(bench: Bench, reading: str, head: str, negatives: str) -> dict[str, Any]:
    """An estimator as one reading of the paper has it; see manifests/readings.json."""
    said = reference_json("readings.json")[reading]
    options = {"name": HEADS[head][0], **said["concepts"], **said[head][negatives]}
    if "concept_C" in said:
        options["concept_C"] = {
            bench.read.scheme.concept(name): C for name, C in said["concept_C"].items()
        }
    return options


def _make(bench: Bench, name: str, title: str) -> Made:
    blocks: list[Block] = []
    notes: list[str] = []
    missing = bench.lacking()
    means: dict[str, dict[str, list[Line]]] = {}
    for setting in bench.settings():
        rows: list[Row] = []
        for row, store, kind, published in ROWS[name]:
            feature = bench.feature(store, kind)
            if isinstance(feature, str):
                missing.append(f"{row}: {feature}")
                continue
            rows.append((row, published, networks(bench, setting, feature, row)))
            notes += about_runs(setting, row, rows[-1][2])
        if name == "table2":
            rows += _bottleneck_rows(bench, setting, missing)
        if not rows:
            continue
        for score, words in SCORES.items():
            lines = [line for row in rows for line in _lines(row, score)]
            same = [_lines(_as_text(row), score)[0] for row in rows]
            means.setdefault(score, {})[setting.key] = same
            lines += _guesses(rows, score)
            blocks.append(Block(f"{setting.title}: {words}", setting.protocol, score, lines))
    blocks += _closed_form(bench)
    if any(setting.protocol == "released" for setting in bench.settings()):
        notes += pools(bench.read)
    tables = [
        Table(name, title, list(COLUMNS), blocks, _once(_averages(name) + notes), _once(missing))
    ]
    if beside := leakage(name, means, list(COLUMNS)):
        tables.append(beside)
    return Made(tables)


def _bottleneck_rows(bench: Bench, setting: Setting, missing: list[str]) -> list[Row]:
    feature = bench.feature("xclip", "native")
    if isinstance(feature, str):
        missing.append(f"PCBM-DT and PCBM-LR: {feature}")
        return []
    try:
        runs = bottlenecks(bench, setting, feature)
    except ManifestError as problem:
        missing.append(f"PCBM-DT and PCBM-LR: the released code's C are of its concepts; {problem}")
        return []
    said = reference_json("readings.json")
    return [
        (
            f"{short}, {said[reading]['title']}",
            short,
            {key: (run, f"{short}, {reading}") for key, (run, _) in runs.items()},
        )
        for _, short in HEADS.values()
        for reading in READINGS
    ]


def _lines(row: Row, score: str) -> list[Line]:
    """A row of ours, and the paper's beneath it where that was scored by this average."""
    title, published, runs = row
    ours: dict[str, Value | None] = {}
    theirs: dict[str, Value | None] = {}
    for column, (trained, tested) in COLUMNS.items():
        found = _score(*runs[trained], tested)
        if found is None:
            ours[column] = None
            continue
        mean, std, count = found["mean"][score], found["std"][score], len(found["of_runs"])
        ours[column] = None if mean is None else Value(mean, std if count > 1 else None)
        if said := published_row(published, column).get(score):
            apart = None if mean is None else mean - said.mean
            theirs[column] = Value(said.mean, said.std, apart)
    lines = [Line(title, "ours", ours)]
    if theirs:
        lines.append(Line("published, and ours less it", "published", theirs))
    return lines


def _as_text(row: Row) -> Row:
    """The same row by the text's network, which every protocol trains."""
    title, published, runs = row
    changed = {"mlp-author": "mlp"}
    return title, published, {key: (run, changed.get(m, m)) for key, (run, m) in runs.items()}


def _score(run: Results, model: str, tested: Sequence[str]) -> Mapping[str, Any] | None:
    """A model's scores on the test of some negatives; None where it could not be trained."""
    name = f"{'+'.join(tested)} vs S"
    return next(
        (of for of in run.run.record["scores"] if (of["model"], of["test"]) == (model, name)), None
    )


def _guesses(rows: Sequence[Row], score: str) -> list[Line]:
    """What guessing scores at the share of positives of the clips that were scored.

    The released bottlenecks have a test fold of their own, and so guesses of their own.
    """
    folds: dict[tuple[tuple[int, int], ...], str] = {}
    for title, _, runs in rows:
        tests = next(iter(runs.values()))[0].run.record["tests"]
        of = [tests[f"{'+'.join(negatives)} vs S"] for negatives in TESTED]
        folds.setdefault(tuple((one["clips"], one["positives"]) for one in of), title)
    lines = []
    for counts, title in folds.items():
        of_test = dict(zip(TESTED, counts, strict=True))
        by_column = {column: of_test[tested] for column, (_, tested) in COLUMNS.items()}
        whose = "bottlenecks" if title.startswith("PCBM") else "networks"
        where = "" if len(folds) == 1 else f", {whose}' fold"
        lines += [
            Line(
                f"{words}, at that share{where}",
                "guess",
                {
                    column: _value(baselines(positives / clips)[guess][score])
                    for column, (clips, positives) in by_column.items()
                },
            )
            for guess, words in GUESSES.items()
        ]
        scored = {column: Value(clips) for column, (clips, _) in by_column.items()}
        share = {column: Value(sure / clips) for column, (clips, sure) in by_column.items()}
        lines.insert(-2, Line(f"Clips scored{where}", "count", scored))
        lines.insert(-2, Line(f"Share of positives{where}", "count", share))
    return lines


def _closed_form(bench: Bench) -> list[Block]:
    """The paper's own baselines, at the whole dataset's share and at the released folds'."""
    levels = bench.read.labels().levels
    count = {level: levels.count(level) for level in ("EN", "HN", "S")}
    blocks = []
    if all(count.values()):
        share: dict[tuple[str, ...], float] = {
            tested: count["S"] / (count["S"] + sum(count[level] for level in tested))
            for tested in TESTED
        }
        blocks += _guess_blocks("Guesses at the whole dataset's share of positives", share)
    if bench.has_released_splits:
        files = {tested: bench.read.split(RELEASED[frozenset({*tested, "S"})]) for tested in TESTED}
        share = {}
        for tested, file in files.items():
            classes = [file.class_of[one] for one in file.fold(file.last_fold)]
            share[tested] = classes.count("S") / len(classes)
        blocks += _guess_blocks("Guesses at the released test folds, all of their clips", share)
    return blocks


def _guess_blocks(title: str, share: Mapping[tuple[str, ...], float]) -> list[Block]:
    blocks = []
    for score, words in SCORES.items():
        lines = []
        for guess, name in GUESSES.items():
            ours = {
                column: _value(baselines(share[tested])[guess][score])
                for column, (_, tested) in COLUMNS.items()
            }
            lines.append(Line(name, "guess", ours))
            version = "v2" if score == "f1_weighted" else "v1"
            theirs: dict[str, Value | None] = {}
            for column, value in ours.items():
                if said := published_row(f"{name} ({version})", column).get(score):
                    apart = None if value is None else value.mean - said.mean
                    theirs[column] = Value(said.mean, said.std, apart)
            lines.append(Line(f"published in {version}, and ours less it", "published", theirs))
        positives = {column: Value(share[tested]) for column, (_, tested) in COLUMNS.items()}
        lines.insert(0, Line("share of positives", "count", positives))
        blocks.append(Block(f"{title}: {words}", "", score, lines))
    return blocks


def _value(number: float | None) -> Value | None:
    return None if number is None else Value(number)


def _averages(name: str) -> list[str]:
    """Which average each published row was scored by."""
    tables = reference_json("published.json")
    of: dict[str, list[str]] = {average: [] for average in AVERAGES}
    for row, said in tables[name]["rows"].items():
        of[said["average"]].append(row)
    listed = "; ".join(f"{average}: {', '.join(rows)}" for average, rows in of.items() if rows)
    return [
        f"The published rows were scored by different averages of F1 ({listed}): compare each with "
        "ours of the same average."
    ]


def _once(lines: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(lines))
