"""``obygaze models train | evaluate | predict | list``: models for use, one at a time."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from obygaze_features.common.commands import (
    echo_json,
    folder_argument,
    json_option,
    overwrite_option,
)
from obygaze_features.common.words import counted
from obygaze_features.errors import ExperimentError

if TYPE_CHECKING:
    from obygaze_features.store import FeatureStore
    from obygaze_models.scoring import Predictions

__all__ = ["evaluate", "export", "list_models", "predict", "train"]


@click.command()
@folder_argument("experiment")
@click.option("--estimator", help="Which of the experiment's estimators.  [default: the first]")
@click.option("--concept", help="Which of its concepts, if it has several.  [default: the first]")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="The model's folder; by default models/ and the experiment file's name.",
)
@overwrite_option
@json_option
def train(
    experiment: Path,
    estimator: str | None,
    concept: str | None,
    output: Path | None,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Train one model for use, on all labelled clips of an EXPERIMENT.

    Only the last fold is held out, to stop the training. Nothing is left to test the model on: run
    the experiment to see how well such a model does.

    \b
    Examples:
      obygaze models train experiments/sure-against-easy.toml -o models/sure
      obygaze models train sure-against-easy.toml --estimator pcbm-tree -o models/tree
    """
    from obygaze_models.experiments.reading import load_experiment
    from obygaze_models.experiments.train import train_model

    done = train_model(
        load_experiment(experiment),
        output or Path("models", experiment.stem),
        estimator=estimator,
        concept=concept,
        overwrite=overwrite,
    )
    if as_json:
        echo_json({**asdict(done), "path": str(done.path)})
        return
    for line in done.join.lines():
        click.echo(f"  {line}")
    click.echo(
        f"{done.task}: trained on {counted(done.trained, 'clip')}, "
        f"{done.validated:,} held out to choose and to stop -> {done.path}"
    )
    click.echo(f"card -> {done.path / 'README.md'}")
    click.echo(f"next: obygaze models predict {done.path} STORE")


@click.command()
@folder_argument("model")
@folder_argument("store")
@click.option("--ids", metavar="ID,ID", help="Only these clips.")
@click.option(
    "--band",
    type=(float, float),
    metavar="LOW HIGH",
    help="Say 'unsure' where the probability of the second class is from LOW to HIGH.",
)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="A CSV file that gets a row a clip."
)
@click.option(
    "--csv",
    "tables",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="A folder that gets a table a film, for spreadsheets.",
)
@click.option(
    "--elan",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="A folder that gets an .eaf a film, for ELAN; best the one that the films lie in.",
)
@overwrite_option
@json_option
def predict(
    model: Path,
    store: Path,
    ids: str | None,
    band: tuple[float, float] | None,
    output: Path | None,
    tables: Path | None,
    elan: Path | None,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Ask a MODEL about the clips of a STORE, annotated or not.

    The store must hold the features that the model was trained on, or ones made alike.

    \b
    Examples:
      obygaze models predict models/sure stores/xclip-kinetics.zarr -o predictions.csv
      obygaze models predict models/sure stores/xclip-kinetics.zarr --band 0.4 0.6
      obygaze models predict models/sure stores/xclip-kinetics.zarr --elan films --csv tables
      obygaze models predict runs/first/models/mlp/EN-vs-S-0 stores/xclip-kinetics.zarr --json
    """
    from obygaze_features.common.files import refuse_to_overwrite, write_text
    from obygaze_features.common.tables import align
    from obygaze_features.store import open_store
    from obygaze_models.scoring import predict as ask

    if output:
        refuse_to_overwrite(output, overwrite=overwrite)
    wanted = [one.strip() for one in ids.split(",")] if ids else None
    opened = open_store(store)
    found = ask(model, opened, ids=wanted, band=band)
    written = _export(found, opened, tables, elan, overwrite=overwrite)
    classes = found.about["classes"]
    if as_json:
        echo_json(
            [
                {"id": one, "said": said, "probabilities": dict(zip(classes, row, strict=True))}
                for one, said, row in zip(
                    found.ids, found.said, found.probabilities.tolist(), strict=True
                )
            ]
        )
    elif output is None and not written:
        table = [
            [one, said, *(f"{value:.3f}" for value in row)]
            for one, said, row in zip(
                found.ids, found.said, found.probabilities.tolist(), strict=True
            )
        ]
        click.echo(align(["clip", "said", *classes], table, left=2))
    counts = ", ".join(f"{found.said.count(one):,} {one}" for one in dict.fromkeys(found.said))
    click.echo(f"{counted(len(found.ids), 'clip')}: {counts}", err=as_json)
    if seen := int(found.seen.sum()):
        click.echo(f"{seen:,} of them are among the clips that it was trained on", err=as_json)
    if output:
        write_text(output, found.to_csv())
        click.echo(f"a row a clip -> {output}", err=as_json)
    for line in written:
        click.echo(line, err=as_json)


def _export(
    found: Predictions,
    store: FeatureStore,
    tables: Path | None,
    elan: Path | None,
    *,
    overwrite: bool,
) -> list[str]:
    """Write the files a film that were asked for; a line about each folder."""
    if tables is None and elan is None:
        return []
    from obygaze_features.store.items import read_items
    from obygaze_models.elan import elan_files
    from obygaze_models.exports import film_tables, write_files

    items = read_items(store.place, store.attributes)
    files: dict[Path, str] = {}
    lines = []
    if tables:
        made = film_tables(found, items)
        files |= {tables / name: text for name, text in made.items()}
        lines.append(f"{counted(len(made), 'table')}, one a film -> {tables}")
    if elan:
        made = elan_files(found, items)
        files |= {elan / name: text for name, text in made.items()}
        lines.append(f"{counted(len(made), 'file')} for ELAN -> {elan}")
        if lost := sum(items[items.row(one)].start is None for one in found.ids):
            lines.append(
                f"{counted(lost, 'clip')} not in them: the manifest gives no start and end in "
                "the film"
            )
    write_files(files, overwrite=overwrite)
    return lines


@click.command()
@folder_argument("model")
@folder_argument("store")
@folder_argument("manifest")
@click.option("--labels", help="Which label set of the manifest.  [default: its default one]")
@json_option
def evaluate(model: Path, store: Path, manifest: Path, labels: str | None, as_json: bool) -> None:
    """Score a MODEL on the annotated clips of a MANIFEST, by the features of a STORE.

    Clips that the model has seen in training are counted, and the others scored apart.

    \b
    Examples:
      obygaze models evaluate models/sure stores/xclip-kinetics.zarr manifests/obygaze12
      obygaze models evaluate models/sure theirs.zarr manifests/theirs --labels experts --json
    """
    from obygaze_features.common.tables import align
    from obygaze_features.manifests import Manifest
    from obygaze_features.store import open_store
    from obygaze_models.experiments.summary import titles_of
    from obygaze_models.scoring import score_model

    found = score_model(model, open_store(store), Manifest.load(manifest), labels=labels)
    if as_json:
        echo_json(asdict(found))
        return
    titles = titles_of(found.scores)
    rows = {"all clips": found.scores}
    if found.unseen is not None and found.seen:
        rows["not seen in training"] = found.unseen
    rows |= found.baselines
    held = f"{found.positives} of {found.clips} positive"
    if not found.baselines:
        held = counted(found.clips, "clip")
    header = [f"{found.task}: {held}", *titles.values()]
    table = [
        [name, *("undefined" if of[key] is None else f"{of[key]:.2f}" for key in titles)]
        for name, of in rows.items()
    ]
    click.echo(align(header, table))
    if found.missing:
        some = ", ".join(found.missing[:5])
        click.echo(f"{counted(len(found.missing), 'clip')} have no features here, such as {some}")
    if found.seen:
        click.secho(
            f"CAUTION: {len(found.seen):,} of these {counted(found.clips, 'clip')} were used to "
            "train the model: on all of them this is no test",
            fg="yellow",
            bold=True,
            err=True,
        )


@click.command()
@folder_argument("model")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), required=True, help="The ONNX file."
)
@overwrite_option
def export(model: Path, output: Path, overwrite: bool) -> None:
    """Write a MODEL as ONNX, for programs that do not speak Python.

    Networks, logistic regression and bottlenecks with a linear head can be written.

    \b
    Example:
      obygaze models export models/sure -o sure.onnx
    """
    from obygaze_models.onnx_export import export_onnx

    export_onnx(model, output, overwrite=overwrite)
    click.echo(f"features in, probabilities out -> {output}")


@click.command("list")
@click.argument("folder", required=False, type=click.Path(path_type=Path))
@json_option
def list_models(folder: Path | None, as_json: bool) -> None:
    """List the estimators that there are, or the models in a FOLDER.

    \b
    Examples:
      obygaze models list
      obygaze models list runs/first
    """
    from obygaze_features.common.tables import align
    from obygaze_models.estimators.registry import describe_estimators
    from obygaze_models.persistence import read_about

    if folder is None:
        known = describe_estimators()
        if as_json:
            echo_json(known)
            return
        for name, one in known.items():
            options = ", ".join(f"{key} = {value!r}" for key, value in one["options"].items())
            click.echo(f"{name:<18} {one['title']}")
            if options:
                click.echo(f"{'':<18} options: {options}")
        return
    if not folder.is_dir():
        raise ExperimentError(f"there is no folder {folder}")
    models = {
        str(path.parent.relative_to(folder)): read_about(path.parent)
        for path in sorted(folder.rglob("model.json"))
    }
    if not models:
        raise ExperimentError(f"{folder} holds no models; obygaze models run and train make some")
    if as_json:
        echo_json(models)
        return
    table = [
        [name, about["estimator"], about["task"], len(about["seen"])]
        for name, about in models.items()
    ]
    click.echo(align(["model", "estimator", "task", "clips seen"], table, left=3))
