"""Foreign files and folders under the names of unfinished ones are left alone."""

import os
from functools import partial

import pytest

import obygaze_features as of
import obygaze_models as om
from tests.kit.files import write


def make_folder(path):
    write(path / "thesis.docx", "precious")


def make_begun(path):
    make_folder(path)
    write(path / "checksums.json", "{}")


def make_link(path):
    make_folder(path.parents[1] / "elsewhere")
    path.symlink_to(path.parents[1] / "elsewhere")


def make_file(path):
    write(path, "precious")


STRANGERS = (make_folder, make_begun, make_link, make_file)


def try_beside(stranger, path, act):
    """Act next to a foreign file or folder, check that it is kept, and return any error."""
    path.parent.mkdir(exist_ok=True)
    stranger(path)
    for file in (path, *path.rglob("*")):
        os.utime(file, (0, 0))
    try:
        act()
        message = ""
    except of.ObygazeError as problem:
        message = str(problem)
    kinds = path.is_symlink(), (path / "thesis.docx" if path.is_dir() else path).read_text()
    assert kinds == (stranger is make_link, "precious\n")
    assert "\n" not in message
    return message


@pytest.mark.parametrize("stranger", STRANGERS)
@pytest.mark.parametrize("name", [".x.zarr.pulling", ".x.zarr.pulling.lock"])
def test_a_pull_names_a_foreign_file(name, stranger, final_store, tmp_path):
    path = tmp_path / "here" / name
    message = try_beside(stranger, path, partial(of.pull, final_store, path.with_name("x.zarr")))
    assert str(path) in message


@pytest.mark.night
@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("stranger", STRANGERS)
def test_a_run_names_a_foreign_folder(stranger, overwrite, experiment, tmp_path):
    path = tmp_path / "here" / "run.partial"
    run = partial(om.run_experiment, experiment, path.with_suffix(""), overwrite=overwrite)
    message = try_beside(stranger, path, run)
    assert message.startswith(f"{path} ")
