"""``obygaze models compare``: which of two models is the better one, and how sure that is."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from obygaze_features.common.cli import echo_json, json_option, overwrite_option
from obygaze_features.common.text import counted, unknown_name
from obygaze_features.errors import UsageError
from obygaze_models.commands._shared import echo_warnings, run_folders
from obygaze_models.warnings import unique_warnings

if TYPE_CHECKING:
    from obygaze_models.experiments.compare import Comparison
    from obygaze_models.intervals import Difference

__all__ = ["compare"]


@click.command()
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--model",
    "models",
    multiple=True,
    metavar="NAME",
    help="Only models of this name, of all runs, each with each; give it several times.",
)
@click.option("--metric", help="The score that is shown.  [default: f1, or f1_macro]")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="A figure: .svg, .pdf or .png."
)
@overwrite_option
@json_option
def compare(
    runs: tuple[Path, ...],
    models: tuple[str, ...],
    metric: str | None,
    output: Path | None,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Compare models of one RUN or several, on the clips that both were tested on.

    Of several runs each model is compared with that of the same name in the others, of one its
    models with one another. Both are scored on the same clips and on the same draws of films: the
    interval is that of their difference, the first less the second. Where an experiment has
    several runs, each clip's mean probability counts.

    \b
    Examples:
      obygaze models compare runs/xclip runs/vivit
      obygaze models compare runs/xclip --model mlp --model pcbm-tree --metric auroc
      obygaze models compare runs/xclip runs/vivit -o differences.svg
    """
    from obygaze_features.common.files import refuse_to_overwrite
    from obygaze_models.experiments.compare import compare_runs
    from obygaze_models.experiments.run_folder import read_results

    if output:
        refuse_to_overwrite(output, overwrite=overwrite)
    results = [read_results(run) for run in run_folders(runs)]
    found = compare_runs(results, models=models)
    known = dict.fromkeys(name for one in found.comparisons for name in one.scores)
    if metric is not None and metric not in known:
        raise UsageError(unknown_name("metric", metric, known))
    shown = [
        (one, metric or next(iter(one.scores)))
        for one in found.comparisons
        if metric is None or metric in one.scores
    ]
    if as_json:
        echo_json(asdict(found))
    else:
        _echo_tables(shown)
    notes = [note for one in found.comparisons for note in one.notes]
    lacking = dict.fromkeys(
        one.test for one in found.comparisons if metric not in (None, *one.scores)
    )
    notes += [f"{test} has no {metric}, which is of other classes: left out" for test in lacking]
    for note in dict.fromkeys([*found.left_out, *notes]):
        click.secho(f"NOTE: {note}", fg="yellow", err=True)
    warnings = [one for of in results for one in of.run.record.warnings]
    echo_warnings(unique_warnings(one for one in warnings if one.code == "synthetic"))
    if output:
        _draw(shown, output, overwrite=overwrite)
        click.echo(f"Wrote {output}", err=as_json)


def _echo_tables(shown: list[tuple[Comparison, str]]) -> None:
    from obygaze_features.common.tables import align

    by_test: dict[tuple[str, int, int, str], list[Comparison]] = {}
    for one, metric in shown:
        by_test.setdefault((one.test, one.clips, one.films, metric), []).append(one)
    for (test, clips, films, metric), of in by_test.items():
        held = f"{test}: {counted(clips, 'clip')}, {counted(films, 'film')}"
        header = [held, "second", f"{metric}: first", "second", "first - second", "95%"]
        header += ["first ahead", "only one right", "p"]
        table = [
            [
                one.first.name,
                one.second.name,
                _number(one.scores[metric].first),
                _number(one.scores[metric].second),
                _number(one.scores[metric].difference, signed=True),
                _few(one) or _span(one.scores[metric]),
                "-" if (share := one.scores[metric].ahead) is None or _few(one) else f"{share:.0%}",
                f"{one.only_first} : {one.only_second}",
                f"{one.p_value:.3f}" if one.p_value >= 0.0005 else "<.001",
            ]
            for one in of
        ]
        click.echo(align(header, table, left=2))
        click.echo()
    click.echo(
        "Difference: first less second; its interval, and how often the first is ahead, over draws "
        "of films.\np: McNemar's exact test, as if clips of one film were independent."
    )


def _few(one: Comparison) -> str:
    from obygaze_models.intervals import too_few

    return too_few([one.smallest], one.films)


def _number(value: float | None, *, signed: bool = False) -> str:
    return "-" if value is None else f"{value:+.3f}" if signed else f"{value:.3f}"


def _span(of: Difference) -> str:
    return "-" if of.interval is None else "{:+.3f} to {:+.3f}".format(*of.interval)


def _draw(shown: list[tuple[Comparison, str]], output: Path, *, overwrite: bool) -> None:
    from obygaze_models.figures import Line, Point, dot_plot, save_figure
    from obygaze_models.metrics import column_titles

    titles = [column_titles(one.scores).get(of, of.replace("_", " ")) for one, of in shown]
    title = " and ".join(dict.fromkeys(titles))
    against = {(one.first.run, one.second.run) for one, _ in shown}
    namesakes = len(against) == 1 and all(o.first.model == o.second.model for o, _ in shown)
    points = []
    tests = [one.test for one, _ in shown]
    for (one, metric), named in sorted(
        zip(shown, titles, strict=True), key=lambda each: tests.index(each[0][0].test)
    ):
        of = one.scores[metric]
        low, high = (None, None) if _few(one) else of.interval or (None, None)
        label = one.first.model if namesakes else f"{one.first.name} − {one.second.name}"
        group = f"{one.test}: {counted(one.clips, 'clip')}"
        if len(set(titles)) > 1:
            group += f", {named}"
        points.append(Point(label, of.difference, low, high, group=group))
    less = "{} less {}".format(*against.pop()) if namesakes else "first less second"
    said = "; ".join(
        f"{point.group}: {point.label} {_number(point.value, signed=True)}" for point in points
    )
    figure = dot_plot(
        points,
        title=f"Differences in {title}",
        axis=f"difference in {title}, {less}",
        description=said,
        lines=[Line(0.0, "no difference")],
        interval="95% interval over films",
        value="difference",
        signed=True,
    )
    save_figure(figure, output, overwrite=overwrite)
