import numpy as np
import pytest

from obygaze_models.experiments.explanations import Explained
from obygaze_models.experiments.run_folder import Clip
from obygaze_models.explain.parts import concept_quality

#: Clip: its level and concepts. Clip e is marked all the same: neither with nor without.
MARKED = {
    "a": ("S", "Look", "Body"),
    "b": ("HN", "Look"),
    "c": ("S", "Body"),
    "d": ("EN",),
    "e": ("EN", "Look"),
    "f": ("NS", "Look"),
    "g": ("HN",),
}
CLIPS = {
    name: Clip(name, "tt1", "A film", "", None, None, level, concepts, 9, "")
    for name, (level, *concepts) in MARKED.items()
}


def explained(ids, looks, run=0, **more):
    values = np.column_stack([looks, np.zeros(len(ids))])
    given = {"model": "pcbm-tree", "task": "t", "kind": "path", "concepts": ("Look", "Body")}
    labels = ["S"] * len(ids)
    return Explained(**given | more, fit=run, ids=list(ids), labels=labels, values=values)


def test_clips_with_a_concept_against_clips_without():
    look, body = concept_quality([explained("abcdefg", [3, 1, 2, 0, 9, -9, -1])], CLIPS)
    # Look: a, b against c, d, g; b alone lies below one of them.
    assert (look.concept, look.clips, look.positives, look.runs) == ("Look", 5, 2, 1)
    assert look.auroc == pytest.approx(5 / 6)
    assert look.average_precision == pytest.approx((1 + 2 / 3) / 2)
    assert look.share == pytest.approx(2 / 5)
    # Body: a, c against b, d, e, g, none of which is measured otherwise than another.
    assert (body.clips, body.positives, body.auroc) == (6, 2, 0.5)
    assert body.average_precision == pytest.approx(body.share) == pytest.approx(1 / 3)


def test_without_both_kinds_of_clips_there_is_no_score():
    look, body = concept_quality([explained("dg", [1, 2]), explained("ab", [1, 2], run=1)], CLIPS)
    assert (look.auroc, look.average_precision, look.auroc_std, look.share) == (None,) * 4
    assert (look.clips, look.positives, look.runs) == (4, 2, 0)
    assert (body.runs, body.auroc) == (1, 0.5)
    assert concept_quality([explained("", [])], CLIPS)[0].clips == 0
