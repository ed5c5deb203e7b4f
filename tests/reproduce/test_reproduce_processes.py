"""Runs that a second process makes are those that the first would have made."""

import re
import time

import pytest

from obygaze_models.reproduce import context
from obygaze_models.reproduce import reproduce as module
from obygaze_models.reproduce.reproduce import reproduce

TIMES = re.compile(r'"(started|seconds)": [^,\n]+')


@pytest.mark.gate
def test_a_second_process_writes_the_same_runs(dataset, tmp_path, monkeypatch):
    def counted(experiment, folder, **options):
        folders.append(folder)
        if cores == 2 and len(folders) == 1:  # until the second process has begun a run
            claim, runs = folder.with_name(f".{folder.name}.claim"), folder.parents[1]
            while {claim} == {*runs.rglob(".*.claim"), *runs.rglob("run.json")}:
                assert time.monotonic() < deadline
                time.sleep(0.05)
        return original(experiment, folder, **options)

    deadline = time.monotonic() + 120
    original, numbers, files = context.run_experiment, [], []
    monkeypatch.setattr(context, "run_experiment", counted)
    for cores in (1, 2):
        monkeypatch.setattr(module, "usable_cores", lambda cores=cores: cores)
        folders: list[object] = []
        output = tmp_path / str(cores)
        reproduce(
            ["fig3", "fig5"],
            dataset.manifest,
            {"xclip": dataset.stores["xclip"]},
            output,
            protocols=["leak-free"],
        )
        numbers.append(len(folders))
        runs = {
            path.relative_to(output): path.read_bytes()
            for path in sorted((output / "runs").rglob("*"))
            if path.is_file()
        }
        files.append(
            {
                path: TIMES.sub("", content.decode()) if path.name == "run.json" else content
                for path, content in runs.items()
            }
        )
    assert 0 < numbers[1] < numbers[0]
    assert files[0] == files[1]
