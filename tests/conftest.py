"""Fixtures that several rooms share."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result

from cli import main
from tests.world import World, make_world

if TYPE_CHECKING:  # a small installation has no scikit-learn
    from obygaze_models.experiments.experiment import Experiment
    from obygaze_models.experiments.run import Run


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """With OBYGAZE_NO_SKIPS set, as in the gate, a test that would be skipped has failed."""
    report = yield
    if report.skipped and os.environ.get("OBYGAZE_NO_SKIPS"):
        report.outcome = "failed"
        report.longrepr = f"skipped, but OBYGAZE_NO_SKIPS is set: {report.longrepr}"
    return report


@pytest.fixture
def obygaze() -> Callable[..., Result]:
    """The command line, as a function: ``obygaze("manifests", "stats", folder)``."""
    return lambda *arguments: CliRunner().invoke(main, list(map(str, arguments)))


@pytest.fixture(scope="session")
def authors() -> Path:
    """The authors' own files: folders obygaze12/, mobygaze/ and golden/."""
    folder = os.environ.get("OBYGAZE_TEST_DATA")
    if not folder:
        pytest.skip("set OBYGAZE_TEST_DATA to the folder of the authors' files")
    return Path(folder)


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return make_world(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="session")
def experiment(world: World) -> Experiment:
    """Trained on one pairing of levels, tested on two others."""
    from obygaze_models.experiments.experiment import Experiment

    return Experiment(
        name="Sure against Hard Negatives",
        manifest=world.manifest,
        store=world.store,
        split="ten",
        positives=("S",),
        train_negatives=("HN",),
        test_negatives=(("EN",), ("EN", "HN")),
    )


@pytest.fixture(scope="session")
def finished_run(experiment: Experiment, tmp_path_factory: pytest.TempPathFactory) -> Run:
    from obygaze_models.experiments.run import run_experiment

    return run_experiment(experiment, tmp_path_factory.mktemp("runs") / "first")
