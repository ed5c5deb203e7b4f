"""The blocks of a page, in reading order: files to write, Python to run, commands to type."""

from __future__ import annotations

import re
from collections.abc import Iterator

BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)
FILES = ("csv", "toml", "text", "bash")


def blocks(page: str) -> Iterator[tuple[str, str, str]]:
    """Yield the kind, name and content of each block of a page, in order.

    A block of `FILES` is a ``file`` named by the last file name before it. A Python block is a
    ``file`` if its first line names one. Other blocks have no name.
    """
    for match in BLOCK.finditer(page):
        kind, content = match.groups()
        if kind in FILES:
            before = re.findall(r"`((?:\w[\w-]*/)*[\w-]+[.]\w+)`", page[: match.start()])
            yield "file", before[-1], content
        elif kind == "python" and (name := re.match(r"# (\S+[.]py)\n", content)):
            yield "file", name[1], content
        else:
            yield kind, "", content
