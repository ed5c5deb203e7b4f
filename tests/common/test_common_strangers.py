"""Foreign files and folders under the names of temporary ones are left alone."""

import os
from functools import partial
from pathlib import Path

import pytest

from obygaze_features.common.files import new_file, new_folder
from obygaze_features.errors import ObygazeError
from obygaze_features.store.transfer import pull
from obygaze_features.store.verify import repair
from obygaze_models.experiments.run import run_experiment
from tests.kit.files import write
from tests.kit.store import a_store, flip_bit


def pull_folder(final_store, folder):
    pull(final_store, folder / "x.zarr")


def repair_open(final_store, folder):
    path = a_store(folder / "x.zarr")
    flip_bit(path / "native/c/2/0", 3)
    repair(path)


def write_new(make, folder):
    with make(folder / "x"):
        pass


#: The name, and the function that writes next to it.
NAMES = {
    ".x.zarr.mine.partial": repair_open,
    ".x.zarr.mine.replaced": lambda final_store, folder: repair(folder / "x.zarr"),
    ".x.zarr.pulling": pull_folder,
    ".x.zarr.pulling.lock": pull_folder,
    ".x.mine.partial": lambda final_store, folder: write_new(new_folder, folder),
    ".x.0a1b2c3d_1_mine.partial": lambda final_store, folder: write_new(new_file, folder),
}


def make_folder(path):
    write(path / "thesis.docx", "precious")


def make_link(path):
    make_folder(path.parents[1] / "elsewhere")
    path.symlink_to(path.parents[1] / "elsewhere")


def make_file(path):
    write(path, "precious")


STRANGERS = (make_folder, make_link, make_file)


def try_beside(stranger, path, act):
    """Act next to a foreign file or folder, check that it is kept, and return any error."""
    path.parent.mkdir(exist_ok=True)
    stranger(path)
    for file in (path, *path.rglob("*")):
        os.utime(file, (0, 0))
    try:
        act()
        message = ""
    except ObygazeError as problem:
        message = str(problem)
    kinds = path.is_symlink(), (path / "thesis.docx" if path.is_dir() else path).read_text()
    assert kinds == (stranger is make_link, "precious\n")
    assert "\n" not in message
    return message


@pytest.mark.parametrize("stranger", STRANGERS)
@pytest.mark.parametrize("name", NAMES)
def test_foreign_files_under_temporary_names_stay(name, stranger, final_store, tmp_path):
    path: Path = tmp_path / "here" / name
    message = try_beside(stranger, path, partial(NAMES[name], final_store, path.parent))
    assert "pulling" not in name or str(path) in message


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("stranger", STRANGERS)
def test_a_run_names_a_foreign_folder(stranger, overwrite, experiment, tmp_path):
    path = tmp_path / "here" / "run.partial"
    run = partial(run_experiment, experiment, path.with_suffix(""), overwrite=overwrite)
    message = try_beside(stranger, path, run)
    assert message.startswith(f"{path} ")
