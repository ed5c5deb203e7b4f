"""Tables that people open: no text of anybody's becomes a formula there, and it is read back."""

import csv
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import obygaze_features as of
import obygaze_models as om
from obygaze_features.annotations import Segment
from obygaze_features.annotations.timelines import Film
from obygaze_features.manifests import Concept, Items, LabelScheme, Level, Manifest
from tests.conftest import run_obygaze
from tests.kit.files import write

FORMULA, LOW = "=1+1", "@low"
COMMANDS = {
    "annotations export": "annotations export {data}/timelines --csv --manifest {data}/grid "
    "-o {out}/x",
    "annotations agreement": "annotations agreement {data}/grid -o {out}/x",
    "annotations sweep": "annotations sweep {data}/timelines --grid 30 -o {out}/x.csv",

    "models predict RUN": "models predict {data}/run -o {out}/x.csv --csv {out}/films",
    "models predict MODEL": "models predict {model} {data}/s.zarr -o {out}/x.csv",
    "models moments": "models moments {data}/run {data}/s.zarr -o {out}/x.csv --frames {out}/y.csv",

    "stores search": "stores search {data}/s.zarr --like f-0001 -o {out}/x.csv",

    "bias gender-score": "bias gender-score {data}/scores.csv -o {out}/x.csv",
    "bias ratings": "bias ratings {data}/ratings.csv -o {out}/x.csv",
}  # fmt: skip


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Annotations, features and a run, in whose texts are formulas wherever they may be."""
    folder = tmp_path_factory.mktemp("formulas")
    scheme = LabelScheme("mine", (Level(LOW, LOW), Level(FORMULA, FORMULA)), (Concept(FORMULA),))
    segments = [
        Segment(film, annotator, start, start + 40, *content, FORMULA)
        for film in "fgh"
        for annotator, level in (("ann", LOW), ("ben", FORMULA))
        for start, content in ((0, (FORMULA, (FORMULA,))), (60, (LOW, ())), (120, (level, ())))
    ]
    films = {film: Film(FORMULA) for film in "fgh"}
    timelines = of.Timelines.of("mine", segments, scheme=scheme, films=films)
    timelines.save(folder / "timelines")
    projected = timelines.project(30)
    grid = projected.grid.with_parts(labels=projected.label_sets)
    grid.save(folder / "grid")
    items = [replace(item, film=f"={item.film}") for item in grid.items]
    columns = {"title": [FORMULA] * len(items)}
    named = Manifest("mine", Items.of(items, columns), scheme=scheme)
    named = named.with_parts(labels=projected.label_sets)
    named = named.with_parts(splits=[of.stratified(named, folds=3, labels="ann")])
    named.save(folder / "manifest")
    dice = np.random.default_rng(4)
    frames = dice.normal(size=(len(items), 4, 6)).astype(np.float32)
    starts, ends = grid.items.starts[:, None], grid.items.ends[:, None]
    times = starts + (ends - starts) * (np.arange(4) + 0.5) / 4
    for name, values in {"native": frames.mean(1), "frames": frames, "frame_time": times}.items():
        np.save(folder / f"{name}.npy", values)
    arrays = {name: folder / f"{name}.npy" for name in ("native", "frames", "frame_time")}
    of.import_features(arrays, named, folder / "s.zarr", ids=named.ids)
    experiment = om.Experiment(
        FORMULA, folder / "manifest", folder / "s.zarr", labels="ann", protocol="split",
        positives=(FORMULA,), train_negatives=(LOW,),
        estimators=({"name": "frame-mil", "max_iter": 2},),
    )  # fmt: skip
    om.run_experiment(experiment, folder / "run")
    rows = ("1,NO,0,0", "2,O,1,1", f"3,{FORMULA},1,0")
    write(folder / "ratings.csv", f"image_id,group,{FORMULA},{LOW}", *rows)
    rows = (f"a,a man,{FORMULA},.2,man,.1,.5", f"b,a woman,{FORMULA},.9,woman,.2,.4")
    header = "id,caption,object,confidence,group,probability,similarity"
    write(folder / "scores.csv", header, *rows)
    return folder


@pytest.mark.parametrize("name", COMMANDS)
def test_no_cell_of_a_table_is_a_formula(name, data, tmp_path):
    model = om.load_run(data / "run").models()[0]["folder"]
    result = run_obygaze(*COMMANDS[name].format(data=data, out=tmp_path, model=model).split())
    assert result.exit_code == 0, result.output
    cells = set()
    for table in tmp_path.rglob("*.csv"):
        with table.open(encoding="utf-8-sig", newline="") as file:
            cells |= {cell for row in csv.reader(file) for cell in row}
    assert not [cell for cell in cells if re.match(r"[=+\-@](?![0-9.]+$)", cell)]
    assert any("=" in cell for cell in cells)


def test_tables_are_read_back_without_their_escapes(data, tmp_path):
    moments = om.load_run(data / "run").moments()
    tables = [tmp_path / "moments.csv", tmp_path / "frames.csv"]
    for path, text in zip(tables, (moments.to_csv(), moments.frames.to_csv()), strict=True):
        path.write_text(text)
    again = om.Moments.from_csv(*tables)
    assert {axis.film for axis in again.frames.axes} == {"=f", "=g", "=h"}
    assert [moment.axis for moment in again.moments] == [m.axis for m in moments.moments]
