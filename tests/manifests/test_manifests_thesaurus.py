"""The thesaurus: the counts of the paper's table 1, its texts, and ELAN's template read back."""

import json
import tomllib
from dataclasses import asdict

import pytest
from pympi.Elan import Eaf

import obygaze_features as of
from obygaze_features.manifests import LabelScheme
from tests.kit.files import refused, write

#: How many instances the paper's table has of each concept, in its order.
INSTANCES = [3, 2, 4, 6, 4, 1, 1, 1]


def test_the_thesaurus_has_the_papers_counts():
    scheme = of.obygaze_scheme()
    assert "instances" not in json.dumps(scheme.to_json())  # a manifest contains only the names
    paper = [concept for concept in scheme.concepts if concept.source == "paper"]
    assert [len(concept.instances) for concept in paper] == INSTANCES
    assert all(concept.about and concept.examples for concept in paper)
    assert tuple(concept.name for concept in paper) == scheme.visual_concepts
    # No instance twice, and what MObyGaze adds is not the paper's.
    texts = []
    for concept in scheme.concepts:
        texts += [*concept.instances, *concept.further, *concept.examples]
    assert len(texts) == len({*texts})


OWN = """
levels = ["static", {code = "b", name = "busy: very", about = "much goes on"}]
concepts = ["crowd", {name = "cars", about = "on wheels", instances = ["a bus"]}]
"""


OWN_SCHEME = LabelScheme.from_json({"name": "own", **tomllib.loads(OWN)})
SCHEMES = {"obygaze": of.obygaze_scheme(), "own": OWN_SCHEME}


@pytest.mark.parametrize("name", SCHEMES)
def test_a_film_annotated_from_the_template_has_no_remarks(obygaze, tmp_path, name):
    scheme = SCHEMES[name]
    template = tmp_path / "own.etf"
    options = ("--levels", write(tmp_path / "mood.toml", OWN)) if name == "own" else ()
    command = ("manifests", "thesaurus", *options, "--elan")
    obygaze(*command, template, code=0)
    film = Eaf(str(template))
    texts = {}
    for entry in (*scheme.levels, *scheme.concepts):
        instances = getattr(entry, "instances", ())
        texts[entry.name] = "; ".join(filter(None, [entry.about, *instances]))
    offered = {}
    for pick_list in ("levels", "concepts"):
        for ((text, _, about),), _ in film.get_cv_entries(pick_list).values():
            offered[text] = about
    assert offered == texts

    for number, level in enumerate(scheme.levels):
        film.add_annotation("annotator1", 1000 * number, 1000 * number + 900, level.name)
    for concept in scheme.concepts:
        film.add_ref_annotation("annotator1, concepts", "annotator1", 450, concept.name)
    film.add_ref_annotation("annotator1, comment", "annotator1", 450, "credits")
    film.to_file(str(tmp_path / "myfilm.eaf"))
    timelines = of.Timelines.from_elan(tmp_path / "myfilm.eaf")
    assert asdict(timelines.scheme) == asdict(scheme)
    assert (timelines.remarks, timelines.annotators) == ((), ["annotator1"])
    assert [segment.level for segment in timelines.segments] == list(scheme.codes)
    first = timelines.segments[0]
    assert (first.concepts, first.comment) == (scheme.concept_names, "credits")
    refused(obygaze(*command, tmp_path / "x.eaf"), ".etf", code=2)
    refused(obygaze(*command, template), "already exists")
