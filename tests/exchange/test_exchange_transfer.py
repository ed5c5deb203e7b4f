"""Copies of whole stores: resumed, verified, and never over something else."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import obygaze_features as of
from obygaze_features.errors import OutputExists, StoreError

# Their sizes and pauses are changed, and a shard is read in pieces.
from obygaze_features.store import remote
from tests.kit.servers import Served, serve
from tests.kit.store import files_of, flip_bit


@pytest.fixture
def server(final_store: Path) -> Iterator[Served]:
    with serve(final_store.parent) as served:
        yield served


def cut_at(name: str, *sizes: int):
    """Cut the connection while a file is sent, after each of these numbers of bytes."""
    rest = list(sizes)
    return lambda path: rest.pop(0) if path.endswith(name) and rest else None


def test_a_pulled_store_equals_the_original(server, final_store, tmp_path):
    of.pack(final_store, tmp_path / "toy.zip")
    sources = [f"{server.url}/toy.zarr", tmp_path / "toy.zip", final_store, str(final_store)]
    for number, address in enumerate(sources):
        pulled = of.pull(address, tmp_path / f"{number}.zarr")
        assert files_of(pulled.path) == files_of(final_store)
        assert of.verify(pulled) == []
        assert (pulled.path / "zarr.json").stat().st_mode & 0o222 == 0
    server.ranges = False
    server.cut = cut_at("items.csv", 100, 700)
    of.pull(f"{server.url}/toy.zarr", tmp_path / "whole.zarr")
    assert files_of(tmp_path / "whole.zarr") == files_of(final_store)
    with pytest.raises(OutputExists, match=r"whole.zarr already exists"):
        of.pull(f"{server.url}/toy.zarr", tmp_path / "whole.zarr")
    assert len(list(tmp_path.iterdir())) == 6


def test_files_of_an_interrupted_pull_are_checked_again(
    server, final_store, other_store, tmp_path, monkeypatch
):
    monkeypatch.setattr(remote, "PAUSES_S", ())
    url = f"{server.url}/toy.zarr"
    output = tmp_path / "here/x.zarr"

    def interrupt(name: str) -> Path:
        shutil.rmtree(output, ignore_errors=True)
        server.cut = cut_at(name, 10)
        with pytest.raises(StoreError, match="run the same command"):
            of.pull(url, output)
        return output.with_name(".x.zarr.pulling")

    begun = interrupt("zarr.json")
    begun = interrupt("README.md")
    for file in begun.rglob("*"):
        if file.is_file() and file.name != "checksums.json" and file.stat().st_size:
            flip_bit(file, 0)
    (begun / "items.csv").write_bytes(b"not that")
    of.pull(url, output)
    original = files_of(final_store)
    assert files_of(output) == original
    begun = interrupt("rows.csv")  # files that are whole are kept
    output.with_name(".x.zarr.pulling.lock").touch()  # as a killed process leaves it
    whole = {name for name, _ in files_of(begun).items() & original.items()}
    server.forget()
    of.pull(url, output)
    requested = {path.partition("zarr/")[2] for path, _ in server.requests}
    arrays = {f"{name}/zarr.json" for name in of.open_store(final_store).arrays}
    to_check_the_list = {"checksums.json", "zarr.json", "status/c/0", *arrays}
    assert whole & requested <= to_check_the_list
    interrupt("rows.csv")  # and a store that changes meanwhile is fetched from the beginning
    server.folder = tmp_path
    of.pull(f"{server.url}/other.zarr", output)
    assert files_of(output) == files_of(other_store)


def make_folder(path: Path) -> None:
    path.mkdir()
    for name in ("thesis.docx", "checksums.json"):
        (path / name).write_text("{}")


def make_link(path: Path) -> None:
    make_folder(path.parent / "elsewhere")
    path.symlink_to(path.parent / "elsewhere")


def make_file(path: Path) -> None:
    path.write_text("precious")


@pytest.mark.parametrize("make", [make_folder, make_link, make_file])
@pytest.mark.parametrize("name", [".x.zarr.pulling", ".x.zarr.pulling.lock"])
def test_a_pull_names_a_foreign_file_and_leaves_it(name, make, final_store, tmp_path):
    make(tmp_path / name)
    before = files_of(tmp_path)
    with pytest.raises(OutputExists, match=re.escape(str(tmp_path / name))):
        of.pull(final_store, tmp_path / "x.zarr")
    assert files_of(tmp_path) == before
    assert (tmp_path / name).is_symlink() == (make is make_link)
