"""Tables 2 and 5: each backbone's network and the bottlenecks, four ways to train and test."""

from __future__ import annotations

from collections.abc import Sequence

from obygaze_features.common.package import reference_json
from obygaze_models.experiments.record import ModelScores
from obygaze_models.metrics import f1_titles
from obygaze_models.published import AVERAGES, published_row
from obygaze_models.reproduce.bench import Bench, Setting
from obygaze_models.reproduce.caveats import about_runs, leakage, once, pools
from obygaze_models.reproduce.guesses import closed_form, guesses
from obygaze_models.reproduce.rows import COLUMNS, Row, Trained, bottleneck_rows, network_row
from obygaze_models.reproduce.tables import Block, Line, Made, Table, Value

__all__ = ["table2", "table5"]

#: The rows of Table 2, and of Table 5: title, store, feature, the paper's row.
ROWS = {
    "table2": (
        ("ViViT-B/16", "vivit", "max", "ViViT-B/16"),
        ("X-CLIP, native", "xclip", "native", "X-CLIP"),
        ("X-CLIP, max", "xclip", "max", "X-CLIP"),
    ),
    "table5": (("X-CLIP LSMDC", "lsmdc", "native", "X-CLIP LSMDC"),),
}
READ = [
    "Columns are train/test: EN-S is Easy Negative against Sure, HN-S Hard Negative against Sure, "
    "ENHN-S both against Sure. In brackets the standard deviation over the runs; where there is "
    "none the model was trained once. native: the model's own clip vector; max: over its tokens. "
    "PCBM-DT, PCBM-LR: concept bottlenecks with a decision tree, with logistic regression.",
    "For a figure of your own cite a leak-free block; the released ones are there to be held "
    "against the paper's.",
]


def table2(bench: Bench) -> Made:
    """Networks on ViViT and X-CLIP, bottlenecks in both readings, and guesses."""
    return _make(bench, "table2", "Table 2: from a backbone's features to objectification")


def table5(bench: Bench) -> Made:
    """The network on X-CLIP as it was retrained on LSMDC."""
    return _make(bench, "table5", "Table 5: X-CLIP retrained on LSMDC")


def _make(bench: Bench, name: str, title: str) -> Made:
    blocks: list[Block] = []
    notes: list[str] = []
    missing = bench.lacking()
    lines_of: dict[str, dict[str, list[Line]]] = {}
    for setting in bench.settings():
        rows = _rows(bench, name, setting, missing)
        if not rows:
            continue
        for row in rows:
            for negatives, trained in row.trained.items():
                what = row.title if row.title[:4] != "PCBM" else "PCBM"
                notes += about_runs(setting, f"{what}, {negatives[0]}-S", trained.run)
        for score, words in f1_titles(multiclass=False).items():
            lines = [line for row in rows for line in _lines(row, score)]
            same = [_lines(_as_text(row), score)[0] for row in rows]
            lines_of.setdefault(score, {})[setting.key] = same
            lines += guesses(rows, score)
            blocks.append(Block(f"{setting.title}: {words}", setting.protocol, score, lines))
    blocks += closed_form(bench)
    if any(setting.protocol == "released" for setting in bench.settings()):
        notes += pools(bench.read)
    said = [*READ, *_averages(bench, name), *once(notes)]
    tables = [Table(name, title, list(COLUMNS), blocks, said, once(missing))]
    if beside := leakage(name, lines_of, list(COLUMNS)):
        tables.append(beside)
    return Made(tables)


def _rows(bench: Bench, name: str, setting: Setting, missing: list[str]) -> list[Row]:
    rows = []
    for title, store, kind, published in ROWS[name]:
        feature = bench.feature(store, kind)
        if isinstance(feature, str):
            missing.append(f"{title}: {feature}")
        else:
            rows.append(network_row(bench, setting, feature, title, published))
    if name == "table2":
        feature = bench.feature("xclip", "native")
        more = feature if isinstance(feature, str) else bottleneck_rows(bench, setting, feature)
        if isinstance(more, str):
            missing.append(f"PCBM-DT and PCBM-LR: {more}")
        else:
            rows += more
    return rows


def _lines(row: Row, score: str) -> list[Line]:
    """A row of ours, and the paper's beneath it where that was scored by this average."""
    ours: dict[str, Value | None] = {}
    theirs: dict[str, Value | None] = {}
    for column, (trained, tested) in COLUMNS.items():
        found = _score(row.trained[trained], tested)
        if found is None:
            ours[column] = None
            continue
        mean, std, count = found.mean[score], found.std[score], len(found.fits)
        ours[column] = None if mean is None else Value(mean, std if count > 1 else None)
        said = published_row(row.published, column).get(score) if row.published else None
        if said:
            apart = None if mean is None else mean - said.mean
            theirs[column] = Value(said.mean, said.std, apart)
    lines = [Line(row.title, "ours", ours)]
    if theirs:
        lines.append(Line("published, and ours less it", "published", theirs))
    return lines


def _as_text(row: Row) -> Row:
    """The same row by the text's network, which every protocol trains."""
    changed = {"mlp-author": "mlp"}
    return row._replace(
        trained={
            key: Trained(of.run, changed.get(of.model, of.model)) for key, of in row.trained.items()
        }
    )


def _score(of: Trained, tested: Sequence[str]) -> ModelScores | None:
    """A model's scores on the test of some negatives; None where it could not be trained."""
    name = f"{'+'.join(tested)} vs S"
    scores = of.run.run.record.scores
    return next((one for one in scores if (one.model, one.test) == (of.model, name)), None)


def _averages(bench: Bench, name: str) -> list[str]:
    """Which average each published row was scored by."""
    if not bench.is_papers:
        return [f"The clips are those of {bench.read.name}, not the paper's: nothing is published."]
    of: dict[str, list[str]] = {average: [] for average in AVERAGES}
    for row, said in reference_json("published.json")[name]["rows"].items():
        of[said["average"]].append(row)
    listed = "; ".join(f"{average}: {', '.join(rows)}" for average, rows in of.items() if rows)
    return [
        f"The published rows were scored by different averages of F1 ({listed}): compare each with "
        "ours of the same average."
    ]
