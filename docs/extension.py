"""Sphinx extension of this site: pages generated from code, and links to names in the text."""

from __future__ import annotations

import json
import os
import re
import shutil
from functools import cache
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path

from docutils import nodes
from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective

import obygaze_features as of
from docs.commands import anchor, contexts, write_pages
from docs.docstrings import PACKAGES
from docs.pictures import MADE, write_pictures

ROOT = Path(__file__).parents[1]
#: Files elsewhere in the repository that are pages of the site.
INCLUDED = {
    "CONTRIBUTING.md": "contributing",
    "README.md": "index",
    "manifests/README.md": "reference/manifest",
    "stores/README.md": "reference/store",
}
#: Attributes and tags that load their target; `src` and `poster` always do.
LOADING = {("href", "link"), ("href", "use"), ("href", "image"), ("data", "object")}
FOREIGN = re.compile(r"(?:https?:)?//", re.IGNORECASE)
#: The README has a picture of a page; the site has the page itself.
LIVE = """<iframe class="live" src="scholars-films.html" title="\\1"></iframe>
<a href="scholars-films.html">Open this page</a>\n"""
LINK = re.compile(r"\[([^\]]*)\]\((?![a-z]+:|#)([^)#\s]+)(#[^)\s]*)?\)")


def write_sources(app: Sphinx) -> None:
    """Write the commands' pages and the live pages; copy the notebooks into the site's folder."""
    docs = Path(app.srcdir)
    write_pages(docs / "reference/commands")
    write_pictures(MADE)
    app.outdir.mkdir(parents=True, exist_ok=True)
    for page in MADE.glob("*.html"):
        shutil.copy(page, app.outdir)
    notebooks = docs / "notebooks"
    notebooks.mkdir(exist_ok=True)
    for path in sorted((ROOT / "examples").glob("*.ipynb")):
        shutil.copy2(path, notebooks / path.name)


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


def link_code(app: Sphinx, tree: nodes.document, docname: str) -> None:
    """Turn `obygaze ...` and `of.Name` in the text into links."""
    standard, python = app.env.get_domain("std"), app.env.get_domain("py")
    for literal in list(tree.findall(nodes.literal)):
        if isinstance(literal.parent, nodes.reference) or in_title(literal):
            continue
        text = literal.astext()
        if command := find_command(text):
            target = standard.anonlabels.get(anchor(command))
            if target and target[0] != docname:
                uri = app.builder.get_relative_uri(docname, target[0])
                wrap(literal, f"{uri}#{target[1]}")
        elif match := re.match(r"(of|om)\.(\w+)(?:\.(\w+))?", text):
            package = "obygaze_features" if match[1] == "of" else "obygaze_models"
            for name in (match[3] and f"{match[2]}.{match[3]}", match[2]):
                if name and (entry := python.objects.get(f"{package}.{name}")):
                    uri = app.builder.get_relative_uri(docname, entry.docname)
                    wrap(literal, f"{uri}#{entry.node_id}")
                    break


def in_title(node: nodes.Node) -> bool:
    """Return True if a node is in a title."""
    parent = node.parent
    while parent is not None and not isinstance(parent, nodes.title):
        parent = parent.parent
    return parent is not None


def wrap(literal: nodes.literal, uri: str) -> None:
    """Wrap a literal in a link."""
    link = nodes.reference("", "", internal=True, refuri=uri)
    literal.replace_self(link)
    link += literal


def find_command(text: str) -> str | None:
    """Return the longest command that starts a text, other than `obygaze` itself."""
    words = text.split()
    if words[:1] != ["obygaze"]:
        return None
    candidates = (" ".join(words[:count]) for count in range(len(words), 1, -1))
    return next((path for path in candidates if path in command_paths()), None)


@cache
def command_paths() -> frozenset[str]:
    """Return all commands, as they are typed."""
    return frozenset(context.command_path for context in contexts())


def describe_scheme() -> str:
    """Return levels, sub-constructs and concepts of the label scheme, in Markdown."""
    scheme = of.obygaze_scheme()
    lines = ["### Levels", ""]
    for level in scheme.levels:
        lines += [f"{level.name} ({level.code})", f": {level.about}", ""]
    lines += ["### Sub-constructs of objectification", ""]
    for name, about in scheme.sub_constructs.items():
        lines += [name, f": {about}", ""]
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


def write_texts(app: Sphinx, exception: Exception | None) -> None:
    """Write the texts of all pages as a script, for the search of a site that is read from disk."""
    if exception or app.builder.name != "html":
        return
    texts = {}
    for name in sorted(app.env.found_docs):
        page = (app.outdir / f"{name}.html").read_text(encoding="utf-8")
        main = page.partition('<article role="main"')[2].partition("</article>")[0]
        main = re.sub(r'<a class="headerlink".*?</a>|<(?!/)(?!section)[^>]*>', "", f"<{main}")
        main = re.sub(r"</(?:p|d[dt]|t[dh]|li|pre|h\d)>", " ", main)
        texts[f"{name}.html"] = re.sub(r"</(?!section)[^>]*>", "", main)
    (app.outdir / "_static/texts.js").write_text(f"const TEXTS = {json.dumps(texts)}\n")


def check_site(app: Sphinx, exception: Exception | None) -> None:
    """Fail if a page loads something from another host, or if a public name has no entry."""
    if exception or app.builder.name != "html":
        return
    problems = [
        f"{path}: loads {address}"
        for path in Path(app.outdir).rglob("*.html")
        for address in foreign_addresses(path.read_text(encoding="utf-8"))
    ]
    documented = app.env.get_domain("py").objects
    names = {f"{package}.{name}" for package in PACKAGES for name in import_module(package).__all__}
    problems += [f"{name} is public and on no page" for name in names if name not in documented]
    if problems:
        raise ExtensionError("\n".join(sorted(problems)))


def foreign_addresses(page: str) -> list[str]:
    """Return the addresses on other hosts that a page loads, in tags or styles."""
    loads = Loads()
    loads.feed(page)
    loads.close()
    return [address for address in loads.addresses if FOREIGN.match(address)]


class Loads(HTMLParser):
    """The addresses that a page loads."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Run for `HTMLParser`."""
        for name, value in attrs:
            if name in ("srcset", "imagesrcset"):
                self.addresses += [
                    part.split()[0]
                    for part in re.split(r",\s+|,(?=https?:|//)", value or "")
                    if part.strip()
                ]
            elif name in ("src", "poster") or (name, tag) in LOADING:
                self.addresses.append((value or "").strip())
            elif name == "style":
                self.addresses += imported_by(value or "")

    def handle_data(self, data: str) -> None:
        """Run for `HTMLParser`."""
        if self.cdata_elem == "style":
            self.addresses += imported_by(data)


def imported_by(style: str) -> list[str]:
    """Return the addresses in a style sheet."""
    loaded = r"""(?:url\(\s*["']?|@import\s+["'])([^\s"')]+)"""
    return re.findall(loaded, style, re.IGNORECASE)


def setup(app: Sphinx) -> dict[str, bool]:
    """Run for Sphinx."""
    for language in ("csv", "sbatch"):
        app.add_lexer(language, TextLexer)
    app.add_directive("thesaurus", Thesaurus)
    app.connect("builder-inited", write_sources)
    app.connect("build-finished", write_texts)
    app.connect("build-finished", check_site)
    app.connect("source-read", include_files)
    app.connect("doctree-resolved", link_code)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
