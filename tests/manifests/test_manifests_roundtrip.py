"""What is saved comes back; the digest says which rows are the same rows."""

import hashlib
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from obygaze_features.errors import ManifestError
from obygaze_features.manifests import Item, Items, LabelSet, Manifest, Split, obygaze_scheme
from tests.kit.files import contents, write

IDS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_+-]{0,20}(\.[a-z0-9]{1,3})?", fullmatch=True)
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="/\\\r\n\0"), max_size=20).filter(
    lambda name: name not in (".", "..")
)
SPANS = st.none() | st.tuples(st.integers(0, 10**10), st.integers(3, 10**9)).map(
    lambda span: (span[0] / 1e6, (span[0] + span[1]) / 1e6)
)


@st.composite
def items(draw):
    ids = draw(st.lists(IDS, unique_by=str.lower, min_size=1, max_size=12))
    result = []
    for identifier in ids:
        kind = draw(st.sampled_from(["clip", "image", "text"]))
        start, end = draw(SPANS) or (None, None)
        text = draw(st.text(st.characters(codec="utf-8"), max_size=30)) if kind == "text" else ""
        text = text.replace("\x00", "")
        result.append(Item(identifier, kind, draw(NAMES), draw(NAMES), text, start, end))
    return result


@given(items(), st.data())
def test_round_trip(found, data):
    scheme = obygaze_scheme()
    ids = [item.id for item in found]
    labelled = data.draw(st.lists(st.sampled_from(ids), unique=True))
    levels = [data.draw(st.sampled_from(scheme.codes)) for _ in labelled]
    concepts = [
        scheme.in_order(data.draw(st.lists(st.sampled_from(scheme.concept_names))))
        for _ in labelled
    ]
    folds = [data.draw(st.integers(0, 9)) for _ in labelled]
    extra = {"note": [data.draw(NAMES) for _ in ids]}
    manifest = Manifest("any", Items.of(found, extra), scheme).with_parts(
        labels=[LabelSet("some", labelled, levels, concepts)],
        splits=[Split("folds", labelled, folds)],
    )
    with tempfile.TemporaryDirectory() as folder:
        manifest.save(Path(folder, "m"))
        back = Manifest.load(Path(folder, "m"))
        assert list(back) == found
        assert back.items.extra == extra
        assert back.digest == manifest.digest
        labels = back.labels()
        assert (labels.ids, labels.levels, labels.concepts) == (labelled, levels, concepts)
        assert back.split("folds").fold_of == dict(zip(labelled, folds, strict=True))
        assert Path(folder, "m", "items.csv").read_bytes() == back.items.to_csv().encode()


CLIPS = [Item("a-001", film="a", media="one.mp4"), Item("a-002", film="a", start=1.5, end=2.25)]


def sha256(text):
    return hashlib.sha256(text.encode()).hexdigest()


def test_the_digest_as_the_specification_has_it(manifest):
    """Computed by hand from manifests/README.md."""
    text = "obygaze-items-1\na-001\na-002\0clip\nclip\0one\n\0\n1500000\0\n2250000\0"
    assert Items.of(CLIPS).digest == sha256(text)
    word = sha256("a person")
    expected = sha256(f"obygaze-items-1\nt\0text\0{word}\0\0\0")
    assert Items.of([Item("t", kind="text", text="a person")]).digest == expected
    for change, same in [
        ({"media": "one.mkv"}, True),
        ({"film": "b"}, True),
        ({"media": "two.mp4"}, False),
        ({"id": "a-003"}, False),
        ({"kind": "image"}, False),
        ({"start": 0.0, "end": 1.0}, False),
    ]:
        changed = [replace(CLIPS[0], **change), CLIPS[1]]
        assert (Items.of(changed).digest == Items.of(CLIPS).digest) is same
    # The order of items matters; labels do not.
    loaded = Manifest.load(manifest)
    assert loaded.items.take(range(len(loaded) - 1, -1, -1)).digest != loaded.digest
    write(manifest / "labels/paper.csv", "id,level", "tt0108160-001,S")
    assert Manifest.load(manifest).digest == loaded.digest


@pytest.mark.parametrize("ids", ["abb", "bab", "bAa"])
def test_sorted_and_unsorted_ids_are_checked_alike(ids):
    with pytest.raises(ManifestError, match=r"duplicate id|by case only"):
        Items.of([Item(identifier) for identifier in ids])


def test_a_crash_leaves_the_old_manifest(manifest):
    """Saving over a manifest that fails half way changes nothing and leaves nothing behind."""
    before = contents(manifest.parent)
    labels = LabelSet("bad", ["tt0108160-001"], [], [])
    broken = Manifest.load(manifest).with_parts(labels=[labels])
    with pytest.raises(ValueError, match="argument 2 is shorter"):
        broken.save(manifest, overwrite=True)
    assert contents(manifest.parent) == before
    assert sorted(p.name for p in manifest.parent.iterdir()) == ["annotations.csv", "manifest"]
