"""Stores read over HTTP: the same as on a disk, in few requests."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import shutil
import zipfile
from dataclasses import replace

import numpy as np
import pytest

from obygaze_features.errors import StoreError
from obygaze_features.store import diff, finalise, open_store, subset, verify
from obygaze_features.store.views import StoreDataset
from obygaze_models.experiments.experiment import load_experiment
from obygaze_models.experiments.run import run_experiment
from tests.store import toys
from tests.store.making import final_state, flip_bit, open_state
from tests.store.served_stores import CHUNK, ROWS, VALUES, N


@pytest.fixture(params=["open", "final", "compressed"])
def state(request: pytest.FixtureRequest) -> str:
    return request.param


def test_everything_reads_as_from_the_folder(server, made, state):
    here, there = open_store(made / f"{state}.zarr"), open_store(f"{server.url}/{state}.zarr/")
    assert there.info() == here.info()
    assert there.sources == here.sources
    assert there.ids == here.ids
    for name in here.arrays:
        np.testing.assert_array_equal(
            there.read(name, missing="nan"), here.read(name, missing="nan")
        )
    wanted = ["tt005", "tt200", "tt005", "tt033"]
    for name in here.arrays:
        np.testing.assert_array_equal(there.read(name, wanted), here.read(name, wanted))
    with pytest.raises(StoreError, match="tt007 failed: row 7 is broken"):
        there["tt007"]
    with pytest.raises(StoreError, match="tt288 is not done yet"):
        there["tt288"]
    items = [one.items for one in (here, there)]
    assert items[0].digest == items[1].digest
    again = pickle.loads(pickle.dumps(there))
    np.testing.assert_array_equal(again["tt001"]["frames"], ROWS[1])
    dataset = StoreDataset(f"{server.url}/{state}.zarr", "native", ["tt001", "tt040"])
    assert pickle.loads(pickle.dumps(dataset))[1][1].tolist() == VALUES["native"][40].tolist()
    assert repr(there).startswith(f"Store('{server.url}/{state}.zarr', ")


@pytest.mark.parametrize("name", ["final", "compressed"])
def test_opening_takes_four_requests_and_a_clips_frames_three(server, made, name):
    store = open_store(f"{server.url}/{name}.zarr")
    assert len(store.ids) == len(store.status) == N
    assert len(server.requests) == 4
    assert server.bytes < 40_000
    server.forget()
    np.testing.assert_array_equal(store.read("frames", ["tt123"])[0], ROWS[123])
    assert len(server.requests) == 3
    index, header = 512 * 16 + 4, 2000
    assert server.bytes < header + index + CHUNK
    server.forget()
    np.testing.assert_array_equal(store.read("frames", ["tt222"])[0], ROWS[222])
    assert len(server.requests) == 1
    assert 0 < server.bytes <= CHUNK
    assert server.connections == 1


def test_a_subset_takes_only_its_chunks_and_neighbours_together(server, tmp_path):
    store = open_store(f"{server.url}/final.zarr")
    store.read("frames", ["tt000"])
    server.forget()
    rows = [*range(40, 50), 100, *range(60, 70)]
    values = store.read("frames", [f"tt{row:03}" for row in rows])
    np.testing.assert_array_equal(values, ROWS[rows])
    sizes = sorted(size for _, size in server.requests)
    assert sizes == [CHUNK, 10 * CHUNK, 10 * CHUNK]
    server.forget()
    made = subset(store, tmp_path / "some.zarr", ids=[f"tt{row:03}" for row in (3, 4, 41)])
    np.testing.assert_array_equal(made.read("frames", missing="nan"), ROWS[[3, 4, 41]])
    assert sum(size for path, size in server.requests if path.endswith("frames/c/0/0/0")) == (
        3 * CHUNK
    )


def test_an_open_store_takes_the_blocks_records(server):
    store = open_store(f"{server.url}/open.zarr")
    store.read("frames", ["tt040"])
    paths = [path.partition("zarr/")[2] for path, _ in server.requests]
    assert sorted(paths)[:1] == ["blocks/000001.json"]
    assert sum(path.startswith("blocks/") for path in paths) == 1
    assert len(paths) <= 8
    server.forget()
    assert (store.status == open_store(server.folder / "open.zarr").status).all()
    assert len(server.requests) == 9 + 1  # the other records, and whether it is still the same


def test_what_a_writer_added_is_seen_when_it_is_opened_again(server, tmp_path):
    server.folder = tmp_path
    path = toys.a_store(tmp_path / "toy.zarr", blocks=[0])
    url = f"{server.url}/toy.zarr"
    assert (open_store(url).status != 0).sum() == 4
    toys.fill(toys.resume(path))
    assert open_store(url).status.all()
    assert verify(url) == []
    assert diff(open_store(url), open_store(path)).identical


def test_verify_names_what_is_damaged_as_on_the_disk(server, own):
    url = f"{server.url}/final.zarr"
    assert verify(url) == []
    flip_bit(own / "frames/c/0/0/0", 3 * CHUNK + 5)
    flip_bit(own / "rows.csv", 100)
    (own / "README.md").unlink()
    assert verify(url) == verify(own)
    assert {one.file for one in verify(url)} == {"frames/c/0/0/0", "rows.csv", "README.md"}


@pytest.mark.parametrize("name", ["rows.csv", "frames/c/0/0/0", "evil"])
def test_verify_holds_the_list_to_what_such_a_store_has_wherever_it_lies(server, own, name):
    sums = json.loads((own / "checksums.json").read_text())
    if name == "evil":
        (own / name).write_bytes(b"x")
        sums[name] = hashlib.sha256(b"x").hexdigest()
    else:
        del sums[name]
    (own / "checksums.json").chmod(0o644)
    (own / "checksums.json").write_text(json.dumps(sums))
    with zipfile.ZipFile(own.parent / "final.zip", "w") as archive:
        for file in own.rglob("*"):
            if file.is_file():
                archive.write(file, file.relative_to(own).as_posix())
    here = [one for one in verify(own) if not one.harmless]
    assert [one.file for one in here] == [name]
    assert "list" in here[0].why
    for address in (
        f"{server.url}/final.zarr", own.parent / "final.zip", f"file://{own}",
    ):  # fmt: skip
        assert verify(address) == here


def test_a_flipped_bit_is_named(server, own):
    flip_bit(own / "frames/c/0/0/0", 5 * CHUNK + 5)
    store = open_store(f"{server.url}/final.zarr")
    with pytest.raises(StoreError) as problem:
        store.read("frames", ["tt004", "tt005", "tt006"])
    assert "frames/c/0/0/0: its checksum is wrong; the row of tt005 cannot be" in str(problem.value)
    assert str(problem.value).startswith(server.url)
    assert "repair" not in str(problem.value)
    flip_bit(own / "frames/c/0/0/0", 5 * CHUNK + 5)
    np.testing.assert_array_equal(store.read("frames", ["tt005"])[0], ROWS[5])


@pytest.mark.parametrize("name", ["ids/c/0/0", "frames/zarr.json", "rows.csv", "items.csv"])
def test_small_files_are_held_to_the_list(server, own, name):
    flip_bit(own / name, 30)
    store = open_store(f"{server.url}/final.zarr")
    with pytest.raises(StoreError, match=f"{name} is not as it was written"):
        _ = store.ids, store["tt001"], store.sources, store.items


def test_a_store_that_is_replaced_meanwhile_is_not_mixed_with_the_old(server, own, tmp_path):
    url = f"{server.url}/final.zarr"
    store = open_store(url)
    np.testing.assert_array_equal(store.read("frames", ["tt005"])[0], ROWS[5])
    shutil.rmtree(own)
    other = {name: np.ascontiguousarray(value[::-1]) for name, value in VALUES.items()}
    finalise(open_state(own, other, block_rows=32))
    np.testing.assert_array_equal(open_store(url)["tt005"]["frames"], ROWS[N - 6])
    with pytest.raises(StoreError, match=r"final.zarr was changed since it was opened; open it ag"):
        _ = store.sources
    shutil.rmtree(own)
    with pytest.raises(StoreError, match="no longer exists at this address"):
        store.read("frames", ["tt100"])


def test_a_store_without_a_list_of_checksums_is_read(server, tmp_path):
    server.folder = tmp_path
    small = {name: value[:9] for name, value in VALUES.items()}
    source = open_state(tmp_path / "open.zarr", small)
    final_state(source, tmp_path / "plain.zarr", 6, 2)
    store = open_store(f"{server.url}/plain.zarr")
    np.testing.assert_array_equal(store.read("frames", missing="nan"), ROWS[:9])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_fork_makes_connections_of_its_own(server):
    store = open_store(f"{server.url}/final.zarr")
    _ = store.status
    before = server.connections
    child = os.fork()
    if not child:
        good = np.array_equal(store.read("frames", ["tt010"])[0], ROWS[10])
        os._exit(0 if good else 1)
    assert os.waitpid(child, 0)[1] == 0
    np.testing.assert_array_equal(store.read("frames", ["tt011"])[0], ROWS[11])
    assert server.connections == before + 1


def test_the_commands_take_urls(server, made, tmp_path, obygaze):
    url = f"{server.url}/final.zarr"
    shown = obygaze("stores", "info", url)
    assert shown.output.startswith(f"{url}: toy, features of made-up")
    assert f"next: obygaze stores verify {url}" in shown.output
    assert obygaze("stores", "verify", url).output == f"{url} is undamaged\n"
    done = obygaze("stores", "subset", url, "--ids", "tt003,tt004", "-o", tmp_path / "two.zarr")
    assert done.output.startswith("2 rows: 2 done")
    assert obygaze("stores", "diff", url, made / "final.zarr").exit_code == 0
    assert obygaze("stores", "diff", url, tmp_path / "two.zarr").exit_code == 1
    unfinished = obygaze("stores", "info", f"{server.url}/open.zarr").output
    assert unfinished.splitlines()[-1].startswith("next: ask its owner to finalise it, or")
    lost = obygaze("stores", "info", f"{server.url}/none.zarr")
    assert (lost.exit_code, lost.output.count("\n")) == (1, 1)
    gone = obygaze("stores", "pull", url, "-o", tmp_path / "here.zarr")
    assert gone.output.endswith(f"all verified -> {tmp_path}/here.zarr\n")
    sent = obygaze("stores", "push", tmp_path / "here.zarr", tmp_path / "there.zarr", "--json")
    assert json.loads(sent.output)["where"] == str(tmp_path / "there.zarr")


def test_an_experiment_reads_a_store_elsewhere(
    server, world, experiment, finished_run, tmp_path, obygaze
):
    server.folder = world.folder
    url = f"{server.url}/toy.zarr"
    (tmp_path / "far.toml").write_text(
        f'name = "far"\nmanifest = "{world.manifest}"\nstore = "{url}?token=hush"\nsplit = "ten"\n'
        'positives = ["S"]\ntrain_negatives = ["HN"]\n'
    )
    assert load_experiment(tmp_path / "far.toml").store == f"{url}?token=hush"
    run = run_experiment(replace(experiment, store=f"{url}?token=hush"), tmp_path / "run")
    assert run.record.experiment["store"] == url
    assert run.record.store == finished_run.record.store
    assert (tmp_path / "run/predictions.csv").read_bytes() == (
        finished_run.folder / "predictions.csv"
    ).read_bytes()
