"""What happens to a store while somebody else is at it: finalised, retried, made, read."""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import os
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
import zarr

from obygaze_features.errors import BlockTaken, OutputExists, StoreError, StoreUnreadable
from obygaze_features.manifests import Item, Items, Manifest
from obygaze_features.store import ArraySpec, Done, Failed, Recipe, Status, StoreWriter, open_store
from obygaze_features.store import commit as committing
from obygaze_features.store.finalise import finalise
from obygaze_features.store.verify import verify

#: The module; the package has a function of that name.
finalising = importlib.import_module("obygaze_features.store.finalise")
MANIFEST = Manifest("made-up", Items.of([Item(f"tt{row}") for row in range(4)]))
RECIPE = Recipe(
    name="toy",
    backbone={"name": "toy", "revision": None, "weights_sha256": "ab" * 32, "config": {}},
    preprocessing={},
    precision="float32",
    arrays=(
        ArraySpec("native", (3,), "float32", "three numbers"),
        ArraySpec("frame_index", (2,), "int32", "two numbers"),
    ),
)
MISSING = Failed(Status.MISSING, "not there")


def row(number: float) -> Done:
    return Done({"native": np.full(3, number), "frame_index": np.array([1, 2])}, "ab" * 32)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    StoreWriter.create(tmp_path / "toy.zarr", MANIFEST, RECIPE, block_rows=2)
    return tmp_path / "toy.zarr"


def resume(path: Path) -> StoreWriter:
    return StoreWriter.resume(path, MANIFEST, RECIPE)


def native(path: Path) -> list[float]:
    return open_store(path).read("native", missing="nan")[:, 0].tolist()


def test_a_writer_who_comes_late_leaves_a_final_store_alone(path: Path) -> None:
    resume(path).write_block(0, [row(1), row(2)])
    late = resume(path)
    finalise(path, allow_incomplete=True)
    with pytest.raises(StoreError, match="was finalised while it was being filled"):
        late.write_block(1, [row(3), row(4)])
    assert verify(path) == []
    assert native(path)[:2] == [1, 2]


def test_a_store_finalised_under_a_writer_stays_as_it_is(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last look comes after the shards were written, and before the record."""
    resume(path).write_block(0, [row(1), row(2)])
    late, sync = resume(path), committing.sync_folder

    def overtaken(folder: Path) -> None:
        monkeypatch.undo()
        sync(folder)
        finalise(path, allow_incomplete=True)

    monkeypatch.setattr(committing, "sync_folder", overtaken)
    with pytest.raises(StoreError, match="was finalised while it was being filled"):
        late.write_block(1, [row(3), row(4)])
    assert open_store(path).status.tolist() == [1, 1, 0, 0]
    assert verify(path) == []


def test_a_block_whose_shard_vanishes_is_not_written(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when somebody repairs a store that is being filled."""
    writer, move = resume(path), committing.move_shards

    def moved_and_lost(*args) -> None:
        move(*args)
        (path / "native/c/0/0").unlink()

    monkeypatch.setattr(committing, "move_shards", moved_and_lost)
    with pytest.raises(StoreError, match="the shard of native of block 0 vanished"):
        writer.write_block(0, [row(1), row(2)])
    monkeypatch.undo()
    assert open_store(path).status.tolist() == [0, 0, 0, 0]
    assert resume(path).missing_blocks() == [0, 1]
    resume(path).write_block(0, [row(3), row(4)])
    assert native(path)[:2] == [3, 4]


def test_finalise_gives_way_to_a_writer(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A block is committed between finalise's look and the exchange: nothing is lost."""
    writer = resume(path)
    writer.write_block(0, [row(1), row(2)])
    fill = finalising._write_final

    def overtaken(*args, **options):
        fill(*args, **options)
        writer.write_block(1, [row(3), row(4)])

    monkeypatch.setattr(finalising, "_write_final", overtaken)
    with pytest.raises(StoreError, match="was written to in the meantime"):
        finalise(path, allow_incomplete=True)
    monkeypatch.undo()
    assert native(path) == [1, 2, 3, 4]
    assert verify(path) == []
    finalise(path)
    assert native(path) == [1, 2, 3, 4]


def test_failed_rows_are_tried_again_and_done_ones_kept(path: Path) -> None:
    resume(path).write_block(0, [row(1), MISSING])
    before = open_store(path).record_of(0)
    resume(path).rewrite(0, {0: row(9), 1: row(2)})
    store = open_store(path)
    assert native(path)[:2] == [1, 2]  # what was done already is not done again
    assert store.failures == {}
    assert store.record_of(0) != before
    assert verify(path) == []
    assert zarr.open_array(path / "native", mode="r")[:2, 0].tolist() == [1, 2]


@pytest.mark.parametrize("phase", ["staging", "publishing", "moving"])
def test_a_retry_that_is_killed_loses_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch, phase: str
) -> None:
    resume(path).write_block(0, [row(1), MISSING])
    writer = resume(path)

    class KilledError(BaseException):
        pass

    def killed(*args, **options):
        raise KilledError

    name = {"staging": "write_shard", "publishing": "publish_exclusively", "moving": "move_shards"}[
        phase
    ]
    monkeypatch.setattr(committing, name, killed)
    with pytest.raises(KilledError):
        writer.rewrite(0, {1: row(2)})
    monkeypatch.undo()
    resume(path)
    store = open_store(path)
    assert store.status.tolist() == [1, 1 if phase == "moving" else 2, 0, 0]
    assert native(path)[0] == 1
    resume(path).rewrite(0, {1: row(2)})
    assert native(path)[:2] == [1, 2]
    assert [one for one in verify(path) if not one.harmless] == []


def test_a_block_between_two_records_is_not_done_anew(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A retry was killed; an extraction that runs already must not write over its done rows."""
    resume(path).write_block(0, [row(1), MISSING])
    running, writer = resume(path), resume(path)

    class KilledError(BaseException):
        pass

    def killed(*args, **options):
        raise KilledError

    monkeypatch.setattr(committing, "publish_exclusively", killed)
    with pytest.raises(KilledError):
        writer.rewrite(0, {1: row(2)})
    monkeypatch.undo()
    assert running.missing_blocks() == [1]
    with pytest.raises(BlockTaken):
        running.write_block(0, [MISSING, MISSING])
    resume(path)
    assert native(path)[0] == 1
    assert [one.name for one in (path / "staging").iterdir() if "retired" in one.name] == []


def test_a_retry_on_a_full_disk_loses_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    resume(path).write_block(0, [row(1), MISSING])

    def full(temporary: Path, *args):
        temporary.write_bytes(b"half a shard")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(committing, "write_shard", full)
    with pytest.raises(StoreError, match="No space left"):
        resume(path).rewrite(0, {1: row(2)})
    assert open_store(path).status.tolist() == [1, 2, 0, 0]
    assert list((path / "staging").iterdir()) == []


def test_of_two_retries_one_is_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    resume(path).write_block(0, [row(1), MISSING])
    first, second = resume(path), resume(path)
    write = committing.write_shard

    def overtaken(*args):
        monkeypatch.undo()
        first.rewrite(0, {1: row(2)})
        (path / "blocks/000000.json").unlink()  # as if the first were between its two records
        return write(*args)

    monkeypatch.setattr(committing, "write_shard", overtaken)
    with pytest.raises(BlockTaken, match="is rewriting block 0"):
        second.rewrite(0, {1: row(3)})
    assert list((path / "staging").iterdir()) == []


def test_a_retry_of_an_older_record_leaves_the_newer_one(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resume(path).write_block(0, [MISSING, MISSING])
    first, second = resume(path), resume(path)
    write = committing.write_shard

    def overtaken(*args):
        monkeypatch.undo()
        first.rewrite(0, {0: row(2)})
        return write(*args)

    monkeypatch.setattr(committing, "write_shard", overtaken)
    with pytest.raises(BlockTaken, match="is rewriting block 0"):
        second.rewrite(0, {1: row(3)})
    assert open_store(path).status.tolist()[:2] == [1, 2]
    assert verify(path) == []
    assert list((path / "staging").iterdir()) == []


def make_and_fill(path: Path, barrier: object, part: str) -> None:
    barrier.wait()  # type: ignore[attr-defined]
    with contextlib.suppress(OutputExists):
        StoreWriter.create(path, MANIFEST, RECIPE, block_rows=2)
    writer = StoreWriter.resume(path, MANIFEST, RECIPE)
    for block in writer.missing_blocks(part):
        writer.write_block(block, [row(block), row(block)])


@pytest.mark.gate
def test_several_may_make_a_store_at_the_same_moment(tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    for number in range(3):
        path, barrier = tmp_path / f"{number}.zarr", spawn.Barrier(2)
        parts = [
            spawn.Process(target=make_and_fill, args=(path, barrier, f"{part}/2"))
            for part in (1, 2)
        ]
        for process in parts:
            process.start()
        for process in parts:
            process.join()
        assert [process.exitcode for process in parts] == [0, 0]
        assert native(path) == [0, 0, 1, 1]
        assert [one.name for one in tmp_path.glob(".*")] == []


def test_a_reader_is_told_that_its_store_was_finalised(path: Path) -> None:
    writer = resume(path)
    writer.write_block(0, [row(1), row(2)])
    writer.write_block(1, [row(3), row(4)])
    asked, unasked = open_store(path), open_store(path)
    assert asked.status.all()
    finalise(path)
    for store in (asked, unasked):
        with pytest.raises(StoreUnreadable, match=r"was replaced .*; open it again"):
            store.read("native", missing="nan")


@pytest.mark.parametrize("state", ["open", "final", "compressed"])
def test_no_row_of_a_store_that_took_the_place(tmp_path: Path, state: str) -> None:
    """The same ids in another order, so that a row number means another clip."""
    path = tmp_path / "toy.zarr"
    item_ids = [f"tt{number}" for number in range(6)]

    def make(at: Path, ids: list[str]) -> Path:
        manifest = Manifest("made-up", Items.of([Item(item_id) for item_id in ids]))
        writer = StoreWriter.create(at, manifest, RECIPE, block_rows=2)
        for block in writer.missing_blocks():
            writer.write_block(block, [row(int(ids[n][2:])) for n in writer.rows_of(block)])
        if state != "open":
            finalise(at, compress=state == "compressed")
        return at

    make(path, item_ids)
    unread, asked, partly, mapped = (open_store(path) for _ in range(4))
    assert asked.ids == partly.ids == item_ids
    assert partly.read("native")[:, 0].tolist() == [0, 1, 2, 3, 4, 5]
    first = mapped.read("native", ["tt0"])
    dataset = open_store(path).dataset("native")
    pickled = pickle.dumps(dataset)
    os.rename(path, tmp_path / "old.zarr")
    make(tmp_path / "new.zarr", item_ids[::-1])
    os.rename(tmp_path / "new.zarr", path)
    for read in (
        lambda: unread.read("native", item_ids),
        lambda: unread.ids,
        lambda: unread.items,
        lambda: unread.status,
        lambda: asked.read("native", item_ids),
        lambda: asked["tt1"],
        lambda: list(asked.iter_blocks()),
        lambda: partly.read("frame_index"),
        lambda: asked.sources,
        lambda: dataset[1],
        lambda: pickle.loads(pickled)[0],
    ):
        with pytest.raises(StoreUnreadable, match="was replaced"):
            read()
    if state != "compressed":  # what is mapped stays the first store's
        assert partly.read("native", item_ids)[:, 0].tolist() == [0, 1, 2, 3, 4, 5]
        assert np.array_equal(mapped.read("native", ["tt0"]), first)
    assert asked.refresh().read("native", item_ids)[:, 0].tolist() == [0, 1, 2, 3, 4, 5]
    assert open_store(path).ids == item_ids[::-1]


def make_filled(path: Path, state: str, number: float) -> Path:
    """A store of the same ids whatever the numbers, as of other videos."""
    writer = StoreWriter.create(path, MANIFEST, RECIPE, block_rows=2)
    for block in writer.missing_blocks():
        writer.write_block(block, [row(number), row(number)])
    if state != "open":
        finalise(path, compress=state == "compressed")
    return path


@pytest.mark.parametrize("state", ["open", "final", "compressed"])
@pytest.mark.parametrize("way", ["asked later", "sent to a worker", "same inode and time"])
def test_a_dataset_gives_no_row_of_another_store(tmp_path: Path, state: str, way: str) -> None:
    path = make_filled(tmp_path / "toy.zarr", state, 1)
    store = open_store(path)
    dataset = store.dataset("native")
    assert store.status.all()
    assert dataset[0][1].tolist() == [1, 1, 1]
    pickled = pickle.dumps(dataset)
    header, before = path / "zarr.json", (path / "zarr.json").stat()
    other = make_filled(tmp_path / "other.zarr", state, 2)
    if way == "same inode and time":  # as `rm -r` and `tar x` may give: only ctime tells
        header.chmod(0o644)
        header.write_bytes((other / "zarr.json").read_bytes())
        os.utime(header, ns=(before.st_atime_ns, before.st_mtime_ns))
        os.rename(header, other / "zarr.json")
        assert (other / "zarr.json").stat().st_ino == before.st_ino
    shutil.rmtree(path)
    os.rename(other, path)
    for read in {
        "asked later": [lambda: store.dataset("native"), lambda: store.dataset("native", ["tt1"])],
        "sent to a worker": [lambda: pickle.loads(pickled)[0]],
        "same inode and time": [lambda: store.read("frame_index"), lambda: store.dataset("native")],
    }[way]:
        with pytest.raises(StoreUnreadable, match="was replaced since"):
            read()
    assert open_store(path).dataset("native")[0][1].tolist() == [2, 2, 2]


@pytest.mark.parametrize("values", [[2**32 + 5.0, 7], [np.nan, 1], [1.5, 2], [-1, 2]])
def test_whole_numbers_are_held_exactly_or_not_at_all(path: Path, values: list[float]) -> None:
    outcome = Done({"native": np.zeros(3), "frame_index": np.array(values)}, None)
    record = resume(path).write_block(0, [outcome, row(1)])
    assert record.status == (Status.NOT_FINITE, Status.DONE)


@pytest.mark.parametrize(
    ("outcome", "message"),
    [
        (Failed(Status.DONE, "?"), "is not the status of a failure"),
        (Failed(Status.TODO, "?"), "is not the status of a failure"),
        (Done({"native": np.zeros(3)}, None), "lacks 'frame_index'"),
        (Done({"native": 0, "frame_index": 0, "more": 0}, None), "unknown array 'more'"),
    ],
)
def test_odd_outcomes(path: Path, outcome: Done | Failed, message: str) -> None:
    with pytest.raises(StoreError, match=message):
        resume(path).write_block(0, [outcome, row(1)])
    assert open_store(path).status.tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize(
    "spec",
    [
        ArraySpec("ids", (3,), "float32", ""),
        ArraySpec("status", (3,), "float32", ""),
        ArraySpec("x", (0,), "float32", ""),
        ArraySpec("x", (3,), "int64", ""),
    ],
)
def test_arrays_that_cannot_be_are_refused_before_anything_is_made(
    tmp_path: Path, spec: ArraySpec
) -> None:
    from dataclasses import replace

    with pytest.raises(StoreError):
        StoreWriter.create(tmp_path / "x.zarr", MANIFEST, replace(RECIPE, arrays=(spec,)))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("change", [("tt1,2", "tt1,x"), ("tt1,2", "tt1,300"), None])
def test_a_table_of_rows_that_says_nonsense_is_one_line(path: Path, change) -> None:
    from obygaze_features.store.repair import repair

    writer = resume(path)
    writer.write_block(0, [row(1), MISSING])
    writer.write_block(1, [row(3), row(4)])
    finalise(path)
    rows = (path / "rows.csv").read_text()
    (path / "rows.csv").chmod(0o644)
    (path / "rows.csv").write_text(rows.replace(*change) if change else rows[:40])
    assert [one.file for one in verify(path)] == ["rows.csv"]
    with pytest.raises(StoreError, match=r"rows.csv"):
        _ = open_store(path).failures
    with pytest.raises(StoreError, match=r"rows.csv cannot be repaired .*copy"):
        repair(path)


def test_an_error_stays_an_error(path: Path) -> None:
    """A record that cannot be read: the second look at it says the same as the first."""
    writer = resume(path)
    writer.write_block(0, [row(1), row(2)])
    writer.write_block(1, [row(3), row(4)])
    record = path / "blocks/000001.json"
    record.write_text(record.read_text().replace("made", "male").replace("1,", "2,", 1))
    store = open_store(path)
    for _ in range(3):
        with pytest.raises(StoreError, match="000001"):
            list(store.iter_blocks(["native"]))
        with pytest.raises(StoreError, match="000001"):
            store.read("native", missing="drop")


def test_a_table_of_items_that_was_changed_is_not_handed_on(path: Path, tmp_path: Path) -> None:
    """Films are not in the digest, so the file's own checksum must tell."""
    from obygaze_features.store.combine import merge, subset

    writer = resume(path)
    writer.write_block(0, [row(1), row(2)])
    writer.write_block(1, [row(3), row(4)])
    items = path / "items.csv"
    items.write_text(items.read_text().replace("tt1,clip,,", "tt1,clip,another,"))
    store = open_store(path)
    for change in (
        lambda: finalise(path),
        lambda: subset(store, tmp_path / "a.zarr", films=["another"]),
        lambda: merge([store, store], tmp_path / "b.zarr"),
    ):
        with pytest.raises(StoreError, match="is not the table that the store was made for"):
            change()
    assert sorted(one.name for one in tmp_path.iterdir()) == ["toy.zarr"]


def test_output_by_way_of_a_folder_that_is_not_there(path: Path, tmp_path: Path) -> None:
    from obygaze_features.errors import UsageError
    from obygaze_features.store.combine import subset

    resume(path).write_block(0, [row(1), row(2)])
    for output in (tmp_path / "no" / ".." / "toy.zarr", path / "inner.zarr"):
        with pytest.raises(UsageError, match="choose another output"):
            subset(open_store(path), output, ids=["tt0"], overwrite=True)
    assert len(open_store(path)) == 4
    assert "tt0" in open_store(path)
    assert list(open_store(path)) == MANIFEST.ids
    assert repr(open_store(path)).endswith("toy.zarr', open, 4 rows, native, frame_index)")


def test_the_seal_that_the_specification_works_out() -> None:
    import json
    import re

    from obygaze_features.store.format import BlockRecord

    text = (Path(__file__).parents[2] / "stores/README.md").read_text()
    found = re.search(r"A worked seal: `(.*)` has\nSHA-256 `([0-9a-f]{64})`", text)
    assert found is not None
    record = BlockRecord.from_json({**json.loads(found[1]), "sha256": found[2]})
    assert json.loads(record.to_bytes())["sha256"] == found[2]


@pytest.mark.filterwarnings("ignore:Object at")  # zarr names the files that are no arrays
def test_xarray_opens_a_store_by_itself(path: Path) -> None:
    xarray = pytest.importorskip("xarray")
    writer = resume(path)
    writer.write_block(0, [row(1), row(2)])
    writer.write_block(1, [row(3), row(4)])
    finalise(path)
    with xarray.open_zarr(path, consolidated=False) as opened:
        assert opened["native"].dims == ("item", "native_1")
        assert opened["status"].dims == ("item",)
        assert opened["native"].values[:, 0].tolist() == [1, 2, 3, 4]
