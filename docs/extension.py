"""Sphinx extension of this site: pages generated from code, or from files elsewhere."""

from __future__ import annotations

import os
import re
import shutil
from importlib import import_module
from pathlib import Path

import click
from docutils import nodes
from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective

import obygaze_features as of
from docs.docstrings import PACKAGES
from docs.pictures import MADE
from obygaze_features.common.package import reference_json

ROOT = Path(__file__).parents[1]
#: Files elsewhere in the repository that are pages of the site.
INCLUDED = {
    "README.md": "index",
    "manifests/README.md": "reference/manifest",
    "stores/README.md": "reference/store",
}
#: The README has a picture of a page; the site has the page itself.
LIVE = """<iframe class="live" src="scholars-films.html" title="\\1"></iframe>
<a href="scholars-films.html">Open this page</a>\n"""
LINK = re.compile(r"\[([^\]]*)\]\((?![a-z]+:|#)([^)#\s]+)(#[^)\s]*)?\)")


def copy_pages(app: Sphinx) -> None:
    """Copy live pages, which `make docs` makes first, into the site's folder."""
    app.outdir.mkdir(parents=True, exist_ok=True)
    for page in MADE.glob("*.html"):
        shutil.copy(page, app.outdir)


def include_files(app: Sphinx, docname: str, content: list[str]) -> None:
    """Insert the files that a page includes, and point all links to pages of the site."""

    def include(match: re.Match[str]) -> str:
        file = os.path.normpath(Path("docs", docname).parent / match[1])
        app.env.note_dependency(str(ROOT / file), docname=docname)
        return redirect_links((ROOT / file).read_text(encoding="utf-8"), file, docname)

    own = redirect_links(content[0], f"docs/{docname}.md", docname)
    page = re.sub(r"```\{include\} (\S+)\n```\n", include, own)
    content[0] = re.sub(r"^!\[(.+)\]\(report\.png\)$", LIVE, page, flags=re.MULTILINE)


def redirect_links(text: str, base: str, docname: str) -> str:
    """Point links from repository files to their pages. Links without a page become text."""

    def redirect(match: re.Match[str]) -> str:
        label, link, fragment = match.groups()
        target = os.path.normpath(Path(base).parent / link)
        page = f"docs/{INCLUDED[target]}.md" if target in INCLUDED else target
        if (page.endswith(".md") and not page.startswith("docs/")) or (ROOT / page).is_dir():
            return label
        return f"[{label}]({os.path.relpath(page, f'docs/{docname}/..')}{fragment or ''})"

    return LINK.sub(redirect, text)


def describe_scheme() -> str:
    """Return levels, sub-constructs and concepts of the label scheme, in Markdown."""
    scheme = of.obygaze_scheme()
    shipped = reference_json("scheme-obygaze.json")
    notes = {entry["name"]: f". Note: {entry['line']}" for entry in shipped["notes"]}
    lines = ["### Levels", ""]
    for level in scheme.levels:
        about = level.about + notes.get(level.name, "")
        lines += [f"{level.name} ({level.code})", f": {about}", ""]
    lines += ["### Sub-constructs of objectification", ""]
    for entry in shipped["sub_constructs"]["entries"]:
        lines += [entry["name"], f": {entry['line']}", ""]
    titles = {True: "Concepts of the paper, which can be seen", False: "Further concepts"}
    for concept in sorted(scheme.concepts, key=lambda concept: not concept.visual):
        lines += [f"### {titles.pop(concept.visual)}", ""] if concept.visual in titles else []
        sentences = [
            ": ".join(filter(None, [concept.about, "; ".join(concept.instances)])),
            concept.examples and f"For example: {'; '.join(concept.examples)}",
            concept.further and f"MObyGaze adds: {'; '.join(concept.further)}",
        ]
        lines += [concept.name, f": {'. '.join(filter(None, sentences))}.", ""]
    return "\n".join(lines)


class Thesaurus(SphinxDirective):
    """The label scheme, in a page."""

    def run(self) -> list[nodes.Node]:
        """Run for Sphinx."""
        return self.parse_text_to_nodes(describe_scheme(), allow_section_headings=True)


def quote_blocks(app: Sphinx, context: click.Context, lines: list[str]) -> None:
    """Show the blocks of a command's help, such as examples, unchanged."""
    quoted: list[str] = []
    for line in lines:
        is_block = line.startswith("| ")
        if is_block and not (quoted and quoted[-1].startswith("    ")):
            quoted += ["::", ""]
        quoted.append(f"    {line[2:]}" if is_block else line)
    lines[:] = quoted


def check_site(app: Sphinx, exception: Exception | None) -> None:
    """Fail if a public name has no entry."""
    if exception or app.builder.name != "html":
        return
    documented = app.env.get_domain("py").objects
    names = {f"{package}.{name}" for package in PACKAGES for name in import_module(package).__all__}
    if missing := sorted(names.difference(documented)):
        raise ExtensionError(f"public names on no page: {', '.join(missing)}")


def setup(app: Sphinx) -> dict[str, bool]:
    """Run for Sphinx."""
    for language in ("csv", "sbatch"):
        app.add_lexer(language, TextLexer)
    app.add_directive("thesaurus", Thesaurus)
    app.connect("builder-inited", copy_pages)
    app.connect("build-finished", check_site)
    app.connect("source-read", include_files)
    app.connect("sphinx-click-process-description", quote_blocks)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
