"""A page reads and draws no more than it can show."""

import os

import pytest

from tests.kit.files import refused, write


@pytest.fixture
def marks(tmp_path, obygaze):
    """Return a function that makes timelines of one film with so many annotators."""

    def make(annotators):
        rows = [
            f"Juno,a{who},{60 * minute},{60 * minute + 30},{'SN'[who % 2]}"
            for who in range(annotators)
            for minute in range(3)
        ]
        table = write(tmp_path / "marks.csv", "film,annotator,start,end,level", *rows)
        out = tmp_path / f"of-{annotators}"
        obygaze("annotations", "import", "csv", table, "--levels", "N,S", "-o", out, code=0)
        return out

    return make


def test_a_page_compares_at_most_twenty_annotators(marks, tmp_path, obygaze):
    pages = {}
    for count in (20, 21):
        obygaze("report", marks(count), "-o", tmp_path / f"{count}.html", code=0)
        pages[count] = (tmp_path / f"{count}.html").read_text(encoding="utf-8")
    assert "21 annotators agree: a page compares at most 20" in pages[21]
    assert "Longest disagreements" in pages[20]
    assert "Longest disagreements" not in pages[21]


def make_pipe(path):
    os.mkfifo(path)


def make_link(path):
    path.symlink_to("/dev/zero")


def make_large(path):
    with path.open("wb") as file:
        file.write(b"\xff\xd8\xff")
        file.truncate(3 << 30)


@pytest.mark.parametrize("make", [make_pipe, make_link, make_large])
def test_thumbnails_are_small_plain_files(finished_run, tmp_path, obygaze, make):
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    picture = pictures / f"{finished_run.clips.id[0]}.jpg"
    make(picture)
    page = ("report", finished_run.folder, "--thumbnails", pictures, "-o", tmp_path / "o.html")
    refused(obygaze(*page), str(picture), code=2)
