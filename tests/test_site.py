"""What the documentation site adds to Sphinx; ``make docs`` builds the site itself, in the gate."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

import obygaze_features as of
import obygaze_models as om
from docs.commands import anchor, contexts, write_pages
from docs.docstrings import complete_docstring
from docs.extension import describe_scheme, foreign_addresses, redirect_links

ROOT = Path(__file__).parents[1]


def test_every_command_and_option_is_on_a_page(tmp_path: Path) -> None:
    (tmp_path / "gone.md").touch()
    write_pages(tmp_path)
    pages = {path.stem: path.read_text() for path in tmp_path.glob("*.md")}
    assert "gone" not in pages
    for context in contexts():
        _, *words = context.command_path.split()
        if not words:
            continue
        target = f"({anchor(context.command_path)})="
        assert pages[words[0]].count(target) == 1
        text = pages[words[0]].partition(target)[2].partition("\n(obygaze-")[0]
        for option in context.command.params:
            if isinstance(option, click.Option) and not option.hidden:
                assert all(name in text for name in option.opts), context.command_path


def test_links_to_files_of_the_repository_lead_to_pages() -> None:
    link = "[Store](../../stores/README.md#arrays)"
    page = "[Store](../reference/store.md#arrays)"
    assert redirect_links(link, "docs/how-to/a.md", "how-to/a") == page
    assert redirect_links("[b](docs/how-to/b.md)", "README.md", "index") == "[b](how-to/b.md)"
    assert redirect_links("[c](tests/golden/README.md)", "CONTRIBUTING.md", "contributing") == "c"
    assert redirect_links("[d](https://d.example/e)", "README.md", "index").endswith("d.example/e)")


def test_the_reference_has_the_public_names_and_no_others() -> None:
    documented: dict[str, set[str]] = {}
    for path in (ROOT / "docs/reference/api").glob("*.md"):
        names: set[str] = set()
        for kind, name in re.findall(
            r"[.][.] (currentmodule|auto[a-z]+):: (\S+)", path.read_text()
        ):
            if kind == "currentmodule":
                names = documented.setdefault(name, set())
            else:
                names.add(name)
    for package in (of, om):
        assert documented[package.__name__] == set(package.__all__)


@pytest.mark.parametrize(
    "page",
    [
        '<link rel="stylesheet" href="https://h.example/a">',
        "<script src=https://h.example/a></script>",
        "<IMG SRC = 'HTTPS://h.example/a'>",
        "<video src='https://h.example/a'></video>",
        "<img srcset='b.png 1x, https://h.example/a 2x'>",
        "<style>@import url(https://h.example/a);</style>",
        "<p style=\"background: url('http://h.example/a')\">",
    ],
)
def test_each_way_to_load_from_another_host_is_found(page) -> None:
    (address,) = foreign_addresses(page)
    assert re.fullmatch("(https?:)?//h.example/a", address, re.IGNORECASE)
    assert foreign_addresses(re.sub("(https?:)?//h.example/", "", page, flags=re.IGNORECASE)) == []


def test_what_a_page_only_names_is_not_loaded() -> None:
    page = """<a href="https://h.example/a">a</a><code>url(https://h.example/a)</code>
    <pre>&lt;img src="https://h.example/a"&gt;</pre><img src="data:image/svg+xml,http://w3.example">"""
    assert foreign_addresses(page) == []


def test_the_glossary_has_the_thesaurus() -> None:
    text, scheme = describe_scheme(), of.obygaze_scheme()
    names = [*scheme.sub_constructs, *(concept.name for concept in scheme.concepts)]
    assert len(scheme.sub_constructs) == 5
    assert all(f"\n{name}\n: " in text for name in names)
    paper = [concept for concept in scheme.concepts if concept.visual]
    assert [len(concept.instances) for concept in paper] == [3, 2, 4, 6, 4, 1, 1, 1]
    assert all(instance in text for concept in paper for instance in concept.instances)


def test_methods_get_the_parameters_of_what_they_call() -> None:
    lines = (of.Manifest.from_csv.__doc__ or "").splitlines()
    complete_docstring(None, "method", "from_csv", of.Manifest.from_csv, None, lines)
    text = "\n".join(lines)
    assert text.startswith("Read any table into a manifest; columns without a meaning are kept")
    assert "columns\n        Meaning -> column" in text
