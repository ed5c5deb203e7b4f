"""The scores on a page's first screen, and the model that the first screen is about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from obygaze_models.experiments.annotators import compare_with_each
from obygaze_models.report.annotation import Annotation, Source, labelled_by
from obygaze_models.report.annotators import Annotators
from obygaze_models.report.runs import ReportRun, ScoreRow, ScoreTable
from obygaze_models.scoring.annotators import AnnotatorComparison


@dataclass(frozen=True, eq=False)
class Headline:
    """The scores on the first screen: models on the same test set, best first.

    `row` is the headline model, which the first screen is about. The experiment determines this
    model before the test.
    """

    source: Source
    metric: str
    rows: tuple[ScoreRow, ...]
    annotators: Annotators | None

    @property
    def run(self) -> ReportRun:
        """The source as a run. It exists only on a page with models."""
        assert isinstance(self.source, ReportRun)
        return self.source

    @property
    def row(self) -> ScoreRow:
        """The row of the headline model. It exists only on a page with models."""
        name = self.run.record.main_model
        own = [row for row in self.rows if row.run is self.run]
        return next((row for row in own if row.model == name), own[0])

    @property
    def levels_by_annotator(self) -> dict[str, dict[str, str]]:
        """Each annotator's levels by clip; the page's labels if no annotators are known."""
        if self.annotators is None:
            own = {clip.id: clip.level for clip in self.source.clips.values()}
            return {labelled_by(self.source): own}
        return {name: dict(levels) for name, levels in self.annotators.levels.items()}

    @property
    def opens(self) -> ScoreRow:
        """The model that the explorer opens on: the first with reasons, or the headline model."""
        return next((row for row in self.rows if row.results.gives_reasons), self.row)

    @property
    def compared(self) -> AnnotatorComparison | None:
        """The comparison of the run's models with each annotator, on the test set."""
        return compare_with_each(self.row.run.run).get(self.row.entry.test)

    @property
    def interval(self) -> tuple[float, float] | None:
        """The interval of the headline score; None if there are too few clips or films."""
        return self.row.interval(self.metric)


def headline(
    tables: Sequence[ScoreTable], source: Source, annotators: Annotators | None
) -> Headline:
    """Rank the models of the source, and of similar runs, on the source's largest test set.

    If the source is annotations, the headline has no rows.
    """
    if isinstance(source, Annotation):
        return Headline(source, "", (), annotators)
    run = source
    metric = run.record.ranking_metric
    test = max(run.record.tests, key=lambda name: run.record.tests[name].clips)
    rows = [
        row
        for table in tables
        for row in table.rows
        if table.kind == run.kind
        and row.run.protocol == run.protocol
        and row.run.about.label_key == run.about.label_key
        and (run.kind == "concepts" or row.task.classes == run.record.task(test).classes)
        and metric in row.entry.mean
    ]
    rows.sort(key=lambda row: -(row.entry.mean[metric] or 0.0))
    return Headline(run, metric, tuple(rows), annotators)
