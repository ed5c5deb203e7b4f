"""Pages of every kind of source: what stands on them, and what is refused."""

import json
import os
import re
from itertools import combinations
from math import exp

import pytest
from sklearn.metrics import cohen_kappa_score

import obygaze_models as om
from obygaze_features.errors import ObygazeError
from obygaze_features.manifests import LabelSet, Manifest
from tests.kit.files import refused, write
from tests.kit.run import LEVELS as PAPER
from tests.kit.run import labelled
from tests.kit.world2 import ANNOTATORS, CONCEPTS, FILMS, LEVELS, make_world2
from tests.report.conftest import SURE, Page

QUESTIONS = {
    "levels": "Is a clip Loud vs quiet rather than Quiet?",
    "concepts": "Does a clip have this concept?",
    "classes": "Which is a clip: Wide open, Quiet, Loud vs quiet?",
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_page_asks_in_the_words_of_its_own_levels(pages2, name):
    page = Page(pages2[name])
    assert QUESTIONS[name] in page.text
    assert not re.search(r"objectif|Hard Negative|Not Sure|Tores|\bminute", page.text)
    assert {row[0] for row in page.rows if row} >= {*FILMS}
    assert page.data["concepts"] == sorted(concept.name for concept in CONCEPTS)
    assert [level["name"] for level in page.data["levels"]] == [*LEVELS.values()]
    assert [own["name"] for own in page.data["annotators"]] == [*ANNOTATORS]
    for view in page.data["views"]:
        for own, p in zip(view.get("why", {}).get("parts", ()), view["p"][0], strict=False):
            assert p == pytest.approx(1000 / (1 + exp(-sum(part for _, part in own))), abs=2)


def with_labels(sets, size=40, films=6):
    """Return a manifest of clips of some films with these labels, one level a character."""
    ids = [f"tt{row % films}-{row:03}" for row in range(size)]
    manifest = labelled(ids, [list(PAPER)[row % 4] for row in range(size)])
    own = [
        LabelSet(name, ids, [*levels], [()] * size, about={"annotator": name})
        for name, levels in sets.items()
    ]
    return manifest.with_parts(*own)


def random_levels(seed, size=40):
    return [list(PAPER)[(row * seed + row // 3) % 4] for row in range(size)]


def test_three_annotators_are_counted_by_how_many_marked(tmp_path):
    sets = {name: random_levels(seed, 24) for seed, name in enumerate(("anna", "bo", "carl"), 2)}
    page = Page(om.report(with_labels(sets, size=24, films=3), tmp_path / "page.html"))
    marks = [[level == "S" for level in levels] for levels in sets.values()]
    by = [sum(votes) for votes in zip(*marks, strict=True)]
    row = next(row for row in page.rows if row and row[0] == "Sure" and len(row) == 7)
    assert row[2:5] == [str(by.count(number)) for number in (1, 2, 3)]
    kappas = [cohen_kappa_score(*pair) for pair in combinations(marks, 2)]
    assert float(row[-1].replace("−", "-")) == pytest.approx(sum(kappas) / 3, abs=0.006)


def test_clips_without_a_film_have_a_page(tmp_path):
    world = make_world2(tmp_path / "world", films=())
    page = Page(om.report(Manifest.load(world.manifest), tmp_path / "page.html"))
    assert 'id="films"' not in page.html
    assert len(page.data["ids"]) == len(world.ids)


def test_the_command_writes_a_page_of_timelines(tmp_path, obygaze):
    rows = [
        f"Juno,{who},{60 * minute},{60 * minute + 30},{'SN'[(minute + offset) % 2]}"
        for offset, who in enumerate(("anna", "bo"))
        for minute in range(9)
    ]
    table = write(tmp_path / "marks.csv", "film,annotator,start,end,level", *rows)
    marks = tmp_path / "marks"
    obygaze("annotations", "import", "csv", table, "--levels", "N,S", "-o", marks, code=0)
    output = tmp_path / "page.html"
    obygaze("report", marks, "-o", output, code=0)
    page = Page(output)
    segments = page.data["lanes"]["Juno"]["segments"]
    assert {lane["name"]: len(lane["of"]) for lane in segments} == {"anna": 9, "bo": 9}
    assert page.data["unit"] == "minute"
    refused(obygaze("report", marks, "-o", output), str(output), code=1)
    refused(obygaze("report", marks, "-o", tmp_path / "page.pdf"), "must end in .html", code=2)


def test_runs_on_other_labels_are_refused(run2, run_world2, tmp_path):
    other = run_world2(tmp_path / "run", labels="anna", **SURE)
    with pytest.raises(ObygazeError, match="different labels"):
        om.report([run2, other], tmp_path / "page.html")
    with pytest.raises(ObygazeError, match="a page needs"):
        om.report([run2, with_labels({})], tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


def test_a_page_compares_at_most_twenty_annotators(tmp_path):
    sets = {f"a{number:02}": random_levels(number + 1) for number in range(21)}
    with pytest.raises(ObygazeError, match="at most 20"):
        om.report(with_labels(sets), tmp_path / "page.html")
    del sets["a20"]
    om.report(with_labels(sets), tmp_path / "page.html")


@pytest.mark.night
@pytest.mark.parametrize("address", [r"\\host\share", "//host/share", "https://host/m"])
def test_a_manifest_on_another_machine_is_not_opened(run2, tmp_path, monkeypatch, address):
    run = om.load_run(run2)
    source = json.dumps(str(run.header.settings["manifest"]))
    moved = tmp_path / "run"
    moved.mkdir()
    for path in run.folder.glob("*.csv"):
        os.link(path, moved / path.name)
    text = (run.folder / "run.json").read_text(encoding="utf-8")
    (moved / "run.json").write_text(text.replace(source, json.dumps(address)))
    monkeypatch.setattr(Manifest, "load", lambda path: pytest.fail(f"{path} was opened"))
    page = Page(om.report(moved, tmp_path / "page.html"))
    assert ", ".join(ANNOTATORS) in page.text


def make_large(path):
    with path.open("wb") as file:
        file.write(b"\xff\xd8\xff")
        file.truncate(3 << 30)


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero"), make_large])
def test_thumbnails_are_small_plain_files(run2, tmp_path, make):
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    make(pictures / "s0-01.jpg")
    with pytest.raises(ObygazeError, match="s0-01"):
        om.report(run2, tmp_path / "page.html", thumbnails=pictures)


def test_frames_and_moments_are_placed_in_their_film(run2, tmp_path):
    frames = write(
        tmp_path / "frames.csv", "film,id,start,end,probability,time_in,seen_in_training",
        "2001,s0-06,60,64,0.25,film,no",
        "2001,s0-07,0,4,0.75,clip,no",
    )  # fmt: skip
    moments = write(
        tmp_path / "moments.csv", "film,start,end,score,clips,time_in",
        "2001,60,64,0.25,s0-06,film",
    )  # fmt: skip
    page = Page(om.report(run2, tmp_path / "page.html", frames=frames, moments=moments))
    assert page.data["lanes"] == {
        "2001": {"frames": [[60, 64, 0.25], [70, 74, 0.75]], "moments": [[60, 64]]}
    }
    with pytest.raises(ObygazeError, match="add the CSV file of frames"):
        om.report(run2, tmp_path / "no.html", moments=moments)
    write(frames, "film,id,start,end,probability,time_in", "other,x,0,1,0.5,film")
    with pytest.raises(ObygazeError, match="2001"):
        om.report(run2, tmp_path / "no.html", frames=frames)
