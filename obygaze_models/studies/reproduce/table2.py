"""Tables 2 and 5: backbones' networks and the bottlenecks, on four pairs of train and test sets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

from obygaze_features.common.package import reference_json
from obygaze_features.manifests.audit import audit
from obygaze_models.data.run_warning import RunWarning
from obygaze_models.scoring.metrics import METRICS, baselines
from obygaze_models.studies.reproduce.context import (
    CHANCE,
    SAME_LABELS,
    PlannedRun,
    ReproductionContext,
    Runs,
    Setting,
    published_row,
)
from obygaze_models.studies.reproduce.protocols import CONCEPTS_FILE, FILES
from obygaze_models.studies.reproduce.render import (
    Artifacts,
    Block,
    Line,
    Table,
    Value,
    Values,
    minus,
)

NEGATIVES = ("EN", "HN")
"""The negatives of the training sets. Sure clips are the positives of all sets."""
TESTS = {"EN-S": ("EN",), "ENHN-S": NEGATIVES}
"""The negatives of each test set."""
COLUMNS = {
    f"{level}-S/{test}": negatives for test, negatives in TESTS.items() for level in NEGATIVES
}
"""The negatives of each column's test set."""
F1_TITLES = {key: METRICS[key].title for key in ("f1_weighted", "f1")}
READINGS: dict[str, Any] = reference_json("readings.json")
"""The options of the bottlenecks as in the paper's text, and as in its code."""
HEADS = {"tree": ("pcbm-tree", "PCBM-DT"), "logistic": ("pcbm-logistic", "PCBM-LR")}

LEAKED = (
    "in the released files, {leaked} of the {tested} test clips of {test} are also in the training "
    "pool of {train}, and {least_in_a_run} to {most_in_a_run} in the training set of each of its "
    "runs. (These counts include clips without a video, which are not scored.)"
)


class Row(NamedTuple):
    """A row of the table.

    Parameters
    ----------
    title
        The name of the row.
    slot, array
        The slot of the store and the array that the row's runs read.
    paper
        The name of the row in the paper.
    model
        The model's name in the runs. For networks, it is the network in the paper's text.
    family
        The family of models. Networks and bottlenecks can have different test folds.
    required
        False to leave the row out without a note if the store lacks its array.
    """

    title: str
    slot: str
    array: str
    paper: str
    model: str = "mlp"
    family: str = "networks"
    required: bool = True

    def source(self, setting: str) -> str:
        """Return the start of the folders of the row's runs, before the training negatives."""
        bottlenecks = "-pcbm" if self.family == "bottlenecks" else ""
        return f"{setting}/{self.slot}-{self.array}{bottlenecks}"

    def model_of(self, setting: Setting) -> str:
        """Return the row's model in a setting: the released protocol has the authors' network."""
        if self.family == "networks" and setting.protocol == "released":
            return "mlp-author"
        return self.model


_NETWORKS = {
    "table2": [
        Row("ViViT-B/16", "vivit", "max", "ViViT-B/16"),
        Row("X-CLIP, native", "xclip", "native", "X-CLIP"),
        Row("X-CLIP, max", "xclip", "max", "X-CLIP"),
    ],
    "table5": [
        Row("X-CLIP LSMDC, native", "lsmdc", "native", "X-CLIP LSMDC"),
        Row("X-CLIP LSMDC, max", "lsmdc", "max", "X-CLIP LSMDC"),
        Row(
            "X-CLIP LSMDC, max of frames_temporal",
            "lsmdc",
            "frames_temporal",
            "X-CLIP LSMDC",
            required=False,
        ),
    ],
}


def _rows(name: str) -> list[Row]:
    """Return the rows of a table, in order."""
    rows = [*_NETWORKS[name]]
    if name == "table2":
        for _, row in HEADS.values():
            for reading, options in READINGS.items():
                title = f"{row}, {options['title']}"
                model = f"{row}, {reading}"
                rows.append(Row(title, "xclip", "native", row, model, "bottlenecks"))
    return rows


def plan_table(context: ReproductionContext, *, name: str) -> Iterator[PlannedRun]:
    """Yield a part for each setting, source and set of training negatives."""
    for setting in context.settings:
        for row, level in product(_NETWORKS[name], NEGATIVES):
            store = context.stores.get(row.slot)
            if not row.required and (store is None or row.array not in store.arrays):
                continue
            options = {
                "name": f"{row.title}: {level} against S, {setting.key}",
                "estimators": tuple(dict.fromkeys([row.model_of(setting), row.model])),
            }
            yield PlannedRun(
                row.title, setting, row.slot, row.array, level, options | _classes(level)
            )
        if name == "table2":
            yield from plan_bottlenecks("PCBM-DT and PCBM-LR", setting)


def plan_bottlenecks(title: str, setting: Setting) -> Iterator[PlannedRun]:
    """Yield the bottlenecks for each set of training negatives.

    With each head, they are made as in the paper's text and as in its code (see
    manifests/readings.json).
    """
    for level in NEGATIVES:
        estimators = []
        for reading, details in READINGS.items():
            for head, (name, row) in HEADS.items():
                about = {"name": name, "as": f"{row}, {reading}"}
                estimators.append(details["concepts"] | details[head][level] | about)
        options = {
            "name": f"Bottlenecks on X-CLIP: {level} against S, {setting.key}",
            "split": CONCEPTS_FILE,
            "estimators": tuple(estimators),
        }
        yield PlannedRun(
            title, setting, "xclip", "native", f"pcbm-{level}", options | _classes(level)
        )


def _classes(level: str) -> dict[str, Any]:
    return {
        "positives": ("S",),
        "train_negatives": (level,),
        "test_negatives": (*TESTS.values(),),
    }


def make_table(context: ReproductionContext, runs: Runs, *, name: str) -> Artifacts:
    """Make the table, and compare the released and leak-free protocols if both were run."""
    blocks = []
    warnings = []
    for setting in context.settings:
        rows = [row for row in _rows(name) if f"{row.source(setting.key)}-EN" in runs]
        for metric, words in F1_TITLES.items():
            lines = []
            for row in rows:
                ours = _ours(runs, row.source(setting.key), row.model_of(setting), metric)
                lines.append(Line(row.title, "ours", ours))
                lines.append(_paper(context, row, metric))
            lines += _guesses_where_scored(runs, setting, rows, metric)
            blocks.append(Block(f"{setting.title}: {words}", setting.protocol, metric, lines))
        if setting.protocol == "released":
            pools = [FILES[frozenset({level, "S"})] for level in NEGATIVES]
            for pair in audit(context.manifest, train=pools, test=sorted(FILES.values())):
                if pair["leaked"]:
                    warnings.append(RunWarning("leak", pair["test"], LEAKED.format(**pair)))
    blocks += _guesses_of_paper(context)
    tables = [Table(list(COLUMNS), blocks, warnings)]
    leakage = _compare_with_released(context, runs, name)
    if leakage:
        tables.append(Table(list(COLUMNS), leakage, name="-leakage"))
    return Artifacts(tables)


def _ours(runs: Runs, source: str, model: str, metric: str) -> Values:
    """Return our numbers for a model in the runs of a row."""
    values = {}
    for level in NEGATIVES:
        run = runs.get(f"{source}-{level}")
        if run is None:
            continue
        for scores in run.model_scores:
            if scores.model != model:
                continue
            negatives = "".join(run.task(scores.test).classes[0].levels)
            std = None
            if len(scores.by_fit) > 1:
                std = scores.std_of_fits[metric]
            values[f"{level}-S/{negatives}-S"] = Value(scores.mean_of_fits[metric], std)
    return values


def _paper(context: ReproductionContext, row: Row, metric: str) -> Line:
    """Return the paper's numbers for a row; none if our features or clips are not the paper's."""
    values: Values = {}
    if context.is_published(row.slot):
        values = published_row(row.paper, metric)
    return Line("published", "published", values)


def _compare_with_released(context: ReproductionContext, runs: Runs, name: str) -> list[Block]:
    """Return blocks that compare released with leak-free numbers on the same labels and models."""
    blocks = []
    for metric, words in F1_TITLES.items():
        lines = []
        for row in _rows(name):
            released = _ours(runs, row.source("released"), row.model, metric)
            leak_free = _ours(runs, row.source(SAME_LABELS), row.model, metric)
            if not released or not leak_free:
                continue
            lines += [
                Line(f"{row.title}, released", "ours", released),
                Line("leak-free, same labels", "beside", leak_free),
                Line("released minus leak-free", "difference", minus(released, leak_free)),
                _paper(context, row, metric),
            ]
        if lines:
            title = f"The same labels, other folds: {words}"
            blocks.append(Block(title, "released and leak-free", metric, lines))
    return blocks


def _guesses_where_scored(
    runs: Runs,
    setting: Setting,
    rows: Sequence[Row],
    metric: str,
) -> Iterator[Line]:
    """Yield the scores of guesses by the scored clips' share of positives.

    The released bottlenecks and networks have different test folds, so guesses score differently.
    """
    family_of: dict[Any, str] = {}
    for row in rows:
        tests = runs[f"{row.source(setting.key)}-EN"].tests
        sizes = [tests[f"{'+'.join(negatives)} vs S"][:2] for negatives in COLUMNS.values()]
        family_of.setdefault(tuple(sizes), row.family)
    for sizes, family in family_of.items():
        where = ""
        if len(family_of) > 1:
            where = f", {family}' fold"
        clips = {}
        shares = {}
        for column, (count, positives) in zip(COLUMNS, sizes, strict=True):
            clips[column] = count
            shares[column] = positives / count
        yield Line(f"Clips scored{where}", "count", clips)
        yield from _guesses(shares, metric, where, at=", at that share")


def _guesses_of_paper(context: ReproductionContext) -> Iterator[Block]:
    """Yield the paper's baselines at the positives' share in the dataset and in released folds."""
    levels = context.manifest.labels().levels
    whole = {}
    folds = {}
    for column, negatives in COLUMNS.items():
        kept = [*negatives, "S"]
        whole[column] = levels.count("S") / sum(level in kept for level in levels)
        if context.has_released_splits:
            split = context.manifest.split(FILES[frozenset(kept)])
            classes = [split.class_of[clip] for clip in split.fold(split.last_fold)]
            folds[column] = classes.count("S") / len(classes)
    for title, shares in (
        ("Guesses from the whole dataset's share of positives", whole),
        ("Guesses from the share of positives in the released test folds", folds),
    ):
        for metric, words in F1_TITLES.items():
            lines = list(_guesses(shares, metric, is_papers=context.has_papers_clips))
            yield Block(f"{title}: {words}", "", metric, lines)


def _guesses(
    shares: Mapping[str, float],
    metric: str,
    where: str = "",
    at: str = "",
    *,
    is_papers: bool = False,
) -> Iterator[Line]:
    """Yield a line of the shares of positives, and each baseline's lines at these shares."""
    yield Line(f"Share of positives{where}", "count", shares)
    for key, title in CHANCE.items():
        scores = {column: baselines(share)[key][metric] for column, share in shares.items()}
        yield Line(f"{title}{at}{where}", "guess", scores)
        if is_papers:
            for version in ("v1", "v2"):  # for different averages of F1
                paper = published_row(f"{title} ({version})", metric)
                yield Line(f"published in {version}", "published", paper)
