"""Extraction on Ray clusters of this machine: what is shared out, and what is lost on the way."""

from __future__ import annotations

import json
import platform
import re
import sys
from functools import partial
from pathlib import Path

import pytest
from tests.extraction.test_extraction_pipeline import contents

from obygaze_features.backbones import load_backbone
from obygaze_features.errors import BackboneError, BrokenBackbone, ClusterError, VideoError
from obygaze_features.extraction.extract import fill
from obygaze_features.extraction.run import Options
from obygaze_features.store import open_store
from obygaze_features.store.claims import Claims
from tests.extraction.ray_clusters import STORE, Watching, extract_on, finish_locally, head, once
from tests.extraction.ray_loads import broken, failing, mortal, slow
from tests.kit.models import write_checkpoint

pytest.importorskip("ray")
from obygaze_features.extraction.ray_engine import run_ray

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="looks for processes as Linux has them"
)


@pytest.mark.gate
def test_processes_killed_in_mid_block_change_nothing(
    cluster, manifest, films, weights, tiny, whole_store, tmp_path
):
    """Two that compute share a CPU and a GPU, and one reads for both; one of each kind is lost."""
    (tmp_path / "deaths").mkdir()
    load = partial(mortal, f"tiny={weights}", tmp_path / "deaths", 8, 1)
    share = {"ray_forwards": 2, "ray_cpus": 0.5, "ray_gpus": 0.5}
    with Watching(cluster, kill=b"ray::Reader.read") as watching:
        summary = extract_on(cluster, manifest, films, tiny, tmp_path, load, workers=1, **share)
    assert (len(watching.killed), len(list((tmp_path / "deaths").iterdir()))) == (1, 1)
    assert sum(summary.lost.values()) == 2
    assert (summary.clips, summary.done, summary.ended) == (70, 70, "done")
    assert summary.batches == {"tiny": 8}
    assert contents(tmp_path / "tiny.zarr") == contents(whole_store)
    assert Claims(tmp_path / "tiny.zarr/claims").active_blocks() == []
    # Each computed once, but for those of the block that one died over.
    assert 70 < (tmp_path / "computed").stat().st_size <= 70 + 32
    # The two and one that took the place of the lost, unless all was done before.
    assert len(watching.seen["Reader"]) == 2
    assert len(watching.seen["Computer"]) in (2, 3)
    resources = [json.loads(path.read_text()) for path in tmp_path.glob("given-*.json")]
    assert resources == [{"CPU": 0.5, "GPU": 0.5}] * len(resources)
    assert len(resources) in (2, 3)


@pytest.mark.gate
def test_a_broken_backbone_leaves_the_other_complete(
    cluster, manifest, films, weights, tiny, whole_store, tmp_path
):
    loads = [partial(load_backbone, f"tiny={weights}"), partial(failing, f"late={weights}")]
    late = load_backbone(f"late={weights}", "cpu")
    options = Options(engine="ray", ray_address=cluster.address, device="cpu")
    engine = partial(run_ray, loads=loads)
    summary = fill(manifest, films, [tiny, late], tmp_path, options, engine)
    [(name, reason)] = summary.broken.items()
    assert name == "late"
    assert re.search(r"ray_loads:failing of tests 1.0: KeyError: 'key' \(tests/extr.*:\d+", reason)
    assert (summary.done, summary.left, summary.ended) == (70, 0, "done")
    assert contents(tmp_path / "tiny.zarr") == contents(whole_store)
    assert not open_store(tmp_path / "late.zarr").status.any()
    with pytest.raises(BrokenBackbone, match="KeyError"):
        fill(manifest, films, [late], tmp_path, options, partial(run_ray, loads=loads[1:]))


@pytest.mark.faults
def test_a_machine_that_does_not_see_the_films_is_named(
    cluster, manifest, films, weights, tiny, tmp_path, monkeypatch
):
    """Here the folder has all films, for the cluster's processes it is another one."""
    monkeypatch.chdir(films)
    load = partial(load_backbone, f"tiny={weights}")
    with pytest.raises(VideoError, match=r"clip0\.mp4 is here, but not on every machine"):
        extract_on(cluster, manifest, "/proc/self/cwd", tiny, tmp_path, load)
    assert not open_store(tmp_path / "tiny.zarr").status.any()


@pytest.mark.faults
def test_a_machine_without_the_package_is_one_line(manifest, films, weights, tiny, tmp_path):
    """Its processes find another package of that name, in which nothing is."""
    (tmp_path / "shadow/obygaze_features").mkdir(parents=True)
    (tmp_path / "shadow/obygaze_features/__init__.py").touch()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        patch.setenv("PYTHONPATH", str(tmp_path / "shadow"))
        with head() as cluster:
            load = partial(load_backbone, f"tiny={weights}")
            with pytest.raises(ClusterError) as caught:
                extract_on(cluster, manifest, films, tiny, tmp_path / "stores", load)
    assert re.fullmatch(
        r"a machine of the cluster \([0-9.]+\) cannot run obygaze \(No module named "
        r"'obygaze_features\.\w+'\); install the same on every machine: pip install .*",
        str(caught.value),
    )


@pytest.mark.faults
def test_a_machine_without_the_folder_is_named(
    cluster, manifest, films, weights, tiny, tmp_path, monkeypatch
):
    monkeypatch.chdir(films.parent)
    here = Path("/proc/self/cwd") / films.name
    load = partial(load_backbone, f"tiny={weights}")
    words = rf"machine {platform.node()} has no folder {here}; every machine of the cluster has"
    with pytest.raises(VideoError, match=words):
        extract_on(cluster, manifest, here, tiny, tmp_path, load)


@pytest.mark.faults
def test_a_machine_that_is_lost_changes_nothing(
    cluster, manifest, films, weights, tiny, whole_store, tmp_path
):
    """Of two: that which has no room but for two that read, and frames in its memory."""
    node = cluster.add_node(num_cpus=2, object_store_memory=STORE)
    load = partial(slow, f"tiny={weights}")
    lose = partial(cluster.remove_node, node, allow_graceful=False)
    thread = once(tmp_path / "tiny.zarr/blocks/000000.json", lose)
    summary = extract_on(cluster, manifest, films, tiny, tmp_path, load, workers=3)
    thread.join()
    assert (summary.clips, summary.done) == (70, 70)
    assert contents(tmp_path / "tiny.zarr") == contents(whole_store)


@pytest.mark.faults
def test_a_block_that_kills_its_processes_is_left_to_do(
    cluster, manifest, films, weights, tiny, whole_store, tmp_path
):
    (tmp_path / "deaths").mkdir()
    load = partial(mortal, f"tiny={weights}", tmp_path / "deaths", 6, 100)  # the last block's batch
    with pytest.raises(
        ClusterError, match="3 processes were lost over the clips clip-64 to clip-69"
    ):
        extract_on(cluster, manifest, films, tiny, tmp_path, load)
    assert len(list((tmp_path / "deaths").iterdir())) == 3
    store = open_store(tmp_path / "tiny.zarr")
    assert (store.status == 1).sum() == 64
    assert not store.failures
    finish_locally(manifest, films, tiny, tmp_path, whole_store)


@pytest.mark.faults
def test_those_that_read_make_room_for_one_that_computes(
    cluster, manifest, films, weights, tiny, whole_store, tmp_path, monkeypatch, caplog
):
    """Three are to read where there is room for two in all: one waits for the place of the dead."""
    from obygaze_features.extraction import ray_engine

    caplog.set_level("INFO", "obygaze_features")
    monkeypatch.setattr(ray_engine, "STUCK_AFTER_S", 3.0)
    (tmp_path / "deaths").mkdir()
    load = partial(mortal, f"tiny={weights}", tmp_path / "deaths", 8, 1)
    extract_on(cluster, manifest, films, tiny, tmp_path, load, workers=3)
    assert contents(tmp_path / "tiny.zarr") == contents(whole_store)
    assert caplog.messages[-1] == (
        "Waiting for the Ray cluster (2 CPU, 1 GPU) to give 1 x (1 CPU, 0 GPU) to compute and "
        "3 x 1 CPU to read"
    )


@pytest.mark.faults
def test_processes_that_cannot_start_are_one_line(cluster, manifest, films, tiny, tmp_path):
    with pytest.raises(ClusterError, match=r"\(RuntimeError: this machine has no floor\); what"):
        extract_on(cluster, manifest, films, tiny, tmp_path, partial(broken, "x"))


@pytest.mark.faults
def test_other_weights_on_another_machine_are_refused(cluster, manifest, films, tiny, tmp_path):
    write_checkpoint("tiny-xclip", tmp_path / "weights", seed=1)
    load = partial(load_backbone, f"tiny={tmp_path / 'weights'}")
    with pytest.raises(BackboneError, match="has another tiny: with other backbone weights"):
        extract_on(cluster, manifest, films, tiny, tmp_path, load)
