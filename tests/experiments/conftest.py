"""Runs, models and data that the tests of this room read; each is made once."""

import os
from collections.abc import Callable, Iterator
from functools import cache
from importlib.metadata import packages_distributions

import pytest
from msgspec import structs

import obygaze_models as om

# The list of installed packages, which each model of another package would read again.
from obygaze_models.estimators import registry
from tests.kit.run import World, make_world

MakeRun = Callable[..., om.Run]


@pytest.fixture(autouse=True, scope="session")
def no_waiting() -> Iterator[None]:
    """Skip disk flushes, and list the installed packages once; those of entry points are new."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "packages_distributions", cache(packages_distributions))
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(scope="session")
def marked(tmp_path_factory: pytest.TempPathFactory) -> World:
    """The world in which clips have concepts."""
    return make_world(tmp_path_factory.mktemp("marked"), marked=True)


@pytest.fixture(scope="session")
def make_run(experiment: om.Experiment, tmp_path_factory: pytest.TempPathFactory) -> MakeRun:
    """``make_run("films", protocol="leave-film-out")``: the shared experiment with changes. A
    logistic regression alone, if no estimators are named."""
    folder = tmp_path_factory.mktemp("made")
    runs = dict[str, om.Run]()

    def make(name: str, **changes: object) -> om.Run:
        changes = {"estimators": ("logistic",)} | changes
        key = f"{name} {sorted(changes.items())}"
        if key not in runs:
            changed = structs.replace(experiment, **changes)
            output = folder / str(len(runs)) / name
            runs[key] = om.run_experiment(changed, output)
        return runs[key]

    return make
