"""``--film`` means the same in every command."""

import json

import pytest

import obygaze_features as of
from obygaze_features.annotations.timelines import Film, Segment
from tests.kit.files import refused

TITLES = {
    "tt0110912": "Pulp Fiction", "tt0467406": "Juno", "f1": "Crazy, Stupid, Love",
    "f2": "What [a] Day?", "g": "Twins (1988)", "h": "Twins",
}  # fmt: skip


@pytest.fixture
def timelines(tmp_path):
    segments = [Segment(film, "ann", 0, 20.0, "S") for film in TITLES]
    films = {film: Film(title) for film, title in TITLES.items()}
    of.Timelines("t", segments, films=films).save(tmp_path / "t")
    return tmp_path / "t"


@pytest.mark.parametrize(("values", "films"), [
    (["juno", "f2"], {"tt0467406", "f2"}),
    (["f1, pulp fiction"], {"f1", "tt0110912"}),
    (["*[a]*,JUN*"], {"f2", "tt0467406"}),
    (["!juno"], {"tt0110912", "f1", "f2", "g", "h"}),
    (["!tt0*", "!crazy*", "!twins*"], {"f2"}),
    (["*,!*"], "no film is left"),
    (["twins"], "matches several films; use an id: g, h"),
    (["!zoe"], "unknown film 'zoe'"),
    (["f?"], "unknown film 'f?'"),
    (["juno,Pulp Fictoin"], "did you mean Pulp Fiction?"),
    ([" ,"], "no film is named"),
])  # fmt: skip
def test_films_are_named_by_id_title_or_pattern(obygaze, timelines, values, films):
    options = [word for value in values for word in ("--film", value)]
    if isinstance(films, str):
        refused(obygaze("annotations", "show", timelines, *options), films, code=2)
    else:
        printed = json.loads(obygaze("annotations", "show", timelines, *options, "--json").stdout)
        assert {row["film"] for row in printed["films"]} == films
