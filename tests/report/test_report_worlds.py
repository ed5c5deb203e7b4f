"""Pages of every kind of source: what stands on them, and what is refused."""

import re
import shutil
from dataclasses import replace
from itertools import combinations
from random import Random
from statistics import fmean

import pytest
from scipy.special import expit
from sklearn.metrics import cohen_kappa_score

import obygaze_models as om
from obygaze_features.annotations.merge import merge_labels
from obygaze_features.errors import ObygazeError
from obygaze_features.manifests import LabelSet, Manifest
from tests.kit.files import refused, write
from tests.kit.run import LEVELS as PAPER
from tests.kit.run import labelled
from tests.kit.timelines import worked
from tests.kit.world2 import ANNOTATORS, CONCEPTS, FILMS, LEVELS, make_world2
from tests.report.conftest import SURE, Page, nominal_alpha, shown


@pytest.mark.parametrize("name", ["levels", "concepts", "classes"])
def test_a_page_has_the_names_of_its_own_world(pages2, name):
    page = Page(pages2[name])
    assert not re.search(r"objectif|Hard Negative|Not Sure|Tores|\bminute", page.text)
    assert {row[0] for row in page.rows} >= {*FILMS}
    assert page.data["concepts"] == sorted(concept.name for concept in CONCEPTS)
    assert [level["name"] for level in page.data["levels"]] == [*LEVELS.values()]
    assert [own["name"] for own in page.data["annotators"]] == [*ANNOTATORS]
    views = page.data["views"]
    if name != "concepts":
        assert sum(row[0] == "frames" for row in page.rows) == len(views)
    for view in views:
        verdicts = zip(view["off"], view["called"], view["label"], strict=True)
        assert all(off >= 0.5 or called == label for off, called, label in verdicts)
        if view["model"] != "pcbm-logistic":
            continue
        for texts, p in zip(view["why"]["reasons"], view["p"], strict=True):
            parts = [text.split()[-1].replace("−", "-") for text in texts]
            logit = sum(map(float, parts))
            assert p == pytest.approx(expit(logit), abs=0.01)


def with_labels(sets):
    """Return a manifest of clips of some films with these labels, one level a character."""
    ids = [f"tt{row % 6}-{row:03}" for row in range(40)]
    manifest = labelled(ids, [*PAPER] * 10)
    concepts = [()] * 40
    own = []
    for name, levels in sets.items():
        own.append(LabelSet(name, ids, [*levels], concepts, about={"annotator": name}))
    return manifest.with_parts(*own)


def random_levels(seed):
    """Return levels that annotators of different seeds share more often than by chance."""
    chance = Random(seed)
    codes = list(PAPER)
    return [chance.choice([*codes, likely, likely]) for likely in codes * 10]


def test_clips_without_a_film_have_a_page(tmp_path):
    world = make_world2(tmp_path / "world", films=())
    page = Page(om.report(Manifest.load(world.manifest), tmp_path / "page.html"))
    assert 'id="films"' not in page.html
    assert len(page.data["ids"]) == len(world.ids)


def test_the_command_writes_a_page_of_timelines(tmp_path, obygaze):
    worked().save(tmp_path / "marks")
    output = tmp_path / "page.html"
    obygaze("report", tmp_path / "marks", "-o", output, code=0)
    page = Page(output)
    one, two = page.data["segments"]["film"]
    assert [one["name"], two["name"]] == ["one", "two"]
    assert len(one["of"]) == 4
    assert len(two["of"]) == 5
    assert page.data["unit"] == "minute"
    refused(obygaze("report", tmp_path / "marks", "-o", output), str(output), code=1)
    refused(obygaze("report", output, output), "Add -o report.html", code=2)


def test_runs_on_other_labels_are_refused(run2, run_world2, tmp_path):
    other = run_world2(tmp_path / "run", labels="anna", **SURE)
    with pytest.raises(ObygazeError, match="different labels"):
        om.report([run2, other], tmp_path / "page.html")
    with pytest.raises(ObygazeError, match="pass one manifest"):
        om.report([run2, with_labels({})], tmp_path / "page.html")
    page = om.report(with_labels({}), tmp_path / "page.html")
    assert Page(page).title == "Labels of 6 films"


def test_one_annotators_labels_have_a_page_without_agreement(run_world2, tmp_path):
    run = run_world2(tmp_path / "run", labels="anna", **SURE)
    page = Page(om.report(run, tmp_path / "page.html"))
    assert page.row("Film")[0].startswith("labels, the model")
    assert "agree" not in page.text


def test_a_question_without_scores_has_no_column(run2, run_world2, tmp_path):
    """In the second run, each model is tested on a single film."""
    protocol = {"name": "leave-film-out", "min_clips": 1}
    run = run_world2(tmp_path / "run", protocol=protocol, split="", **SURE)
    assert "across films" not in Page(om.report(run, tmp_path / "page.html")).text
    page = Page(om.report([run2, run], tmp_path / "both.html"))
    assert "across films" in page.text


def test_annotators_who_share_no_clip_have_no_kappa(tmp_path):
    films = {"a": "01", "b": "23", "c": "45"}
    sets = with_labels(dict.fromkeys(films, [*PAPER] * 10))
    for name, own in films.items():
        sets = sets.with_parts(sets.labels(name).where(lambda clip, own=own: clip[2] in own))
    page = Page(om.report(sets, tmp_path / "page.html"))
    assert "Mean kappa" not in page.text
    assert [annotator["name"] for annotator in page.data["annotators"]] == [*films]


@pytest.mark.parametrize("count", [10, 40])
def test_a_page_compares_any_number_of_annotators(tmp_path, count):
    sets = {f"a{number:02}": random_levels(number + 1) for number in range(count)}
    page = Page(om.report(with_labels(sets), tmp_path / "page.html"))
    by = [levels.count("S") for levels in zip(*sets.values(), strict=True)]
    ones = by.count(1)
    everyone = by.count(count)
    several = len(by) - by.count(0) - ones - everyone
    row = page.row("Sure", cells=6)
    assert [int(cell) for cell in row[1:4]] == [ones, several, everyone]
    marks = [[level == "S" for level in levels] for levels in sets.values()]
    assert row[-1].startswith(shown(nominal_alpha(*marks)))
    rows = [int(clip[-3:]) for clip in page.data["ids"]]
    assert page.data["votes"]["of"] == [by[row] for row in rows]
    assert [own["name"] for own in page.data["annotators"]] == [*sets]
    kappas = [cohen_kappa_score(*pair) for pair in combinations(sets.values(), 2)]
    lowest = shown(min(kappas))
    highest = shown(max(kappas))
    mean = shown(fmean(kappas))
    assert f"annotators: {mean} (lowest {lowest}, highest {highest})." in page.text
    assert sum(row[0] == "a09" for row in page.rows) == (count == 10)


def test_a_page_names_the_rule_of_a_merge_and_keeps_undecided_clips(tmp_path):
    manifest = with_labels({name: random_levels(seed) for seed, name in enumerate("abc", 2)})
    merged = merge_labels([*map(manifest.labels, "abc")], manifest, rule="majority")
    manifest = replace(manifest.with_parts(merged), default_labels=merged.name)
    page = Page(om.report(manifest, tmp_path / "page.html"))
    assert f"Merged by rule majority ({merged.about['undecided']} undecided)" in page.text
    assert f"How certain {len(manifest)} clips" in page.text  # as many as in the agreement
    assert len(page.data["ids"]) == len(manifest)


def test_a_manifest_on_another_machine_is_not_opened(run2, world2, tmp_path, monkeypatch):
    moved = tmp_path / "run"
    shutil.copytree(run2, moved)
    text = (run2 / "run.json").read_text(encoding="utf-8")
    write(moved / "run.json", text.replace(str(world2.manifest), "//host/share"))
    monkeypatch.setattr(Manifest, "load", lambda path: pytest.fail(f"{path} was opened"))
    page = Page(om.report(moved, tmp_path / "page.html"))
    assert ", ".join(ANNOTATORS) in page.text


def test_thumbnails_are_small_plain_files(run2, tmp_path):
    picture = tmp_path / "s0-01.jpg"
    picture.write_bytes(b"\xff\xd8\xff" + bytes(10**6))
    with pytest.raises(ObygazeError, match="s0-01"):
        om.report(run2, tmp_path / "page.html", thumbnails=tmp_path)
    picture.unlink()
    with pytest.raises(ObygazeError, match=r"has no picture \(ID.jpg\)"):
        om.report(run2, tmp_path / "page.html", thumbnails=tmp_path)
    picture.symlink_to("/dev/zero")
    with pytest.raises(ObygazeError, match="s0-01"):
        om.report(run2, tmp_path / "page.html", thumbnails=tmp_path)
