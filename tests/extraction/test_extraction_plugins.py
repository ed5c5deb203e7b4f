"""Backbones of another package: listed, extracted with, and left out where their code fails."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

import obygaze_features as of
from obygaze_features.errors import BrokenBackbone

GROUP = "obygaze.backbones"
NETS = '''
import torch
from obygaze_features.backbones.backbone import Backbone
from obygaze_features.backbones.preprocess import CLIP_TORCHVISION
from obygaze_features.backbones.sampling import Sampling
from obygaze_features.common.package import need
from obygaze_features.errors import UsageError
from obygaze_features.store import ArraySpec

CALLS = []

class Colours(Backbone):
    """The mean colour of each frame."""
    def __init__(self, mode):
        arrays = (ArraySpec("native", (3,), "float32", "mean colour"),
                  ArraySpec("max", (3,), "float32", "brightest"))
        super().__init__(torch.nn.Identity(), Sampling(2), CLIP_TORCHVISION.at(8), arrays,
                         self.encode, (), {"mode": mode})

    @staticmethod
    def encode(pixels, present, wanted):
        return {"native": pixels.mean((1, 3, 4)), "max": pixels.amax((1, 3, 4))}
'''
FIRST = "return Colours.encode(pixels, present, wanted)"

#: What a class does that `Colours` does not, and the line that names it.
BROKEN = {
    "def __init__(self, mode): raise LookupError('gone')": r"LookupError: gone \(mylab/nets.py:",
    "def __new__(self, mode): return 3": "makes a int, not a Backbone",
    "def __init__(self, mode): pass": "AttributeError: .*has no attribute 'config'",
    "def __init__(self, m): super().__init__(m); vars(self)['arrays'] = ('native',)":
        "arrays has a str, not a ArraySpec",
    "def __init__(self, mode): super().__init__({1, 2})":
        "TypeError: Object of type set is not JSON serializable",
    "encode = lambda s, *a: {'native': torch.ones(1, 3)}": "gives no array max",
    "encode = lambda s, p, *a: {k: torch.ones(len(p), 4) for k in ('native', 'max')}":
        r"native has the shape \(1, 4\), not \(1, 3\)",
    "encode = lambda s, p, *a: {k: torch.full((len(p), 3), torch.nan) for k in ('native', 'max')}":
        "native of a synthetic clip has NaN",
    "encode = lambda s, *a: {'native': [1], 'max': [2]}": "AttributeError: 'list' object",
    "encode = lambda s, *a: need('mylab_timm', extra='x')": "MissingExtra: this needs mylab_timm",
}  # fmt: skip


@pytest.fixture
def mylab(install):
    classes = [f"class C{n}(Colours):\n    {body}\n" for n, body in enumerate(BROKEN)]
    points = {"colours": "mylab.nets:Colours", "bad": "mylab.bad:Net", "vivit": "mylab.nets:C0"}
    points |= {f"broken{number}": f"mylab.nets:C{number}" for number in range(len(BROKEN))}
    files = {"nets.py": NETS + "\n".join(classes), "bad.py": "raise OSError('no\\ngo')"}
    return install(files, points, group=GROUP)


def test_a_class_is_extracted_with_and_broken_ones_left_out(mylab, manifest, films, tmp_path):
    """By either name, beside one that cannot be imported and one that fails in the probe."""
    number = [*BROKEN].index("encode = lambda s, *a: {'native': [1], 'max': [2]}")
    specs = ["colours", "mine=mylab.nets:Colours", "bad", f"probe=broken{number}"]
    options = {"limit": 6, "arrays": ["native"], "preprocessing": "author"}
    summary = of.extract(manifest, films, specs, tmp_path, **options)
    assert (summary.done, summary.left, summary.failed, summary.ended) == (6, 0, {}, "done")
    assert [path.name for path in summary.stores] == ["colours.zarr", "mine.zarr"]
    assert [*summary.broken] == ["bad", "probe"]
    assert "AttributeError: 'list' object" in summary.broken["probe"]
    stores = [of.open_store(path) for path in summary.stores]
    ids = manifest.ids[:6]
    np.testing.assert_array_equal(*(store.read("native", ids=ids) for store in stores))
    for store in stores:
        assert "max" not in store.arrays
        about = store.attributes["backbone"]
        assert (about["package"], about["config"]) == ("mylab 0.1.0", {"mode": "author"})


def test_backbones_are_listed_with_their_package(mylab, obygaze):
    lines = obygaze("features", "backbones").stdout
    assert "  colours: mylab.nets:Colours of mylab 0.1.0\n" in lines
    assert "bad cannot be used: mylab.bad:Net of mylab 0.1.0: OSError: no go" in lines
    assert re.search(r"vivit cannot be used: mylab.nets:C0 .* is ignored: .* another vivit", lines)
    cards = json.loads(obygaze("features", "backbones", "--json").stdout)
    assert cards["colours"]["package"] == "mylab 0.1.0"
    assert cards["vivit"]["package"] == "obygaze"
    assert "bad" not in cards


def test_a_broken_class_is_refused_with_the_reason(mylab, manifest, films, tmp_path):
    for number, reason in enumerate(BROKEN.values()):
        with pytest.raises(BrokenBackbone, match=reason) as caught:
            of.extract(manifest, films, f"broken{number}", tmp_path, limit=3)
        assert f"mylab.nets:C{number} of mylab 0.1.0" in str(caught.value)
        assert "\n" not in str(caught.value)
    assert not list(tmp_path.glob("*.zarr"))


def test_what_cannot_be_imported_is_left_out_of_a_plan(mylab, manifest, films, tmp_path, obygaze):
    manifest.save(tmp_path / "m")
    plan = ["features", "extract", tmp_path / "m", "--videos", films, "-o", tmp_path / "s"]
    plan += ["--dry-run", "--backbone", "colours"]
    for spec in ("bad", "mylab.nets:Colors"):
        with pytest.raises(BrokenBackbone) as caught:
            of.load_backbone(spec, "cpu")
        assert "\n" not in str(caught.value)
        result = obygaze(*plan, "--backbone", spec)
        assert result.exit_code == 0, result.output
        assert "colours: 70 clips" in result.stdout
        assert f"left out: {caught.value}" in result.stdout


LATE = '''

class Late(Colours):
    """Fails in its second block, as a network may that has a state."""
    @staticmethod
    def encode(pixels, present, wanted):
        CALLS.append(len(pixels))
        if sum(CALLS) > 40:
            raise RuntimeError("no more")
        return Colours.encode(pixels, present, wanted)
'''


@pytest.mark.gate
def test_one_that_fails_midway_leaves_the_other_complete(
    install, manifest, films, weights, tmp_path, obygaze
):
    install({"nets.py": NETS + LATE}, {"late": "mylab.nets:Late"}, group=GROUP)
    manifest.save(tmp_path / "m")
    command = ("features", "extract", tmp_path / "m", "--videos", films, "-o", tmp_path / "s",
               "--backbone", "late", "--backbone", f"tiny={weights}")  # fmt: skip
    result = obygaze(*command)
    assert result.exit_code == 3, result.output
    line = r"mylab.nets:Late of mylab 0.1.0: RuntimeError: no more \(mylab/nets.py:\d+\)"
    assert re.search(f"^{line}. The other backbones go on$", result.stderr, re.MULTILINE)
    assert re.search(f"^late was left out: {line}$", result.stderr, re.MULTILINE)
    assert result.stdout.splitlines()[-1].startswith("70 of 70 clips done in")
    assert "late.zarr" not in result.stdout
    tiny, late = (of.open_store(tmp_path / f"s/{name}.zarr") for name in ("tiny", "late"))
    assert (tiny.status == 1).all()
    assert 32 <= (late.status == 1).sum() < 70
    assert set(late.status.tolist()) == {0, 1}
    # The next run tries it again: its process has forgotten the calls.
    install({"nets.py": NETS + LATE}, {"late": "mylab.nets:Late"}, group=GROUP)
    result = obygaze(*command)
    assert result.exit_code == 0, result.output
    assert (of.open_store(tmp_path / "s/late.zarr").status == 1).all()
