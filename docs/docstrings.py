"""Adjust signatures and names of the Python API beyond autodoc and napoleon."""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx

PACKAGES = ("obygaze_features", "obygaze_models")


def shorten_signature(
    app: Sphinx, kind: str, name: str, value: Any, options: Any, text: str, returned: str
) -> tuple[str, str] | None:
    """Shorten a signature for readers.

    Defaults without a literal, such as functions, become three dots. Validators and private fields
    are removed.
    """
    if text is None:
        return None
    text = re.sub(r", msgspec[.]Meta[(](?:[^()'\"]|'(?:[^'\\]|\\.)*'|\"[^\"]*\")*[)]", "", text)
    nested = r"[^][]|\[(?:[^][]|\[[^][]*\])*\]"
    while text != (plain := re.sub(rf"[~\w.]*Annotated\[((?:{nested})*)\]", r"\1", text)):
        text = plain
    text = re.sub(r"<(?:[^<>]|<[^<>]*>)*>", "...", text)
    return re.sub(r", _[^=]*= [.]{3}(?=[)]$)", "", text), returned


def skip_member(app: Sphinx, kind: str, name: str, value: Any, skip: bool, options: Any) -> bool:
    """Skip the ``set_..._request`` methods, which scikit-learn adds."""
    return skip or re.fullmatch(r"set_\w+_request", name) is not None


def resolve_name(app: Sphinx, env: Any, node: Any, contnode: Any) -> Any:
    """Find a class or function by its name, with or without a module."""
    python, (owner, _, name) = env.get_domain("py"), node["reftarget"].rpartition(".")
    if node.get("refdomain") != "py" or (owner and not owner.startswith(PACKAGES)):
        return None
    full = [
        entry
        for entry, value in python.objects.items()
        if entry.endswith(f".{name}") and value.objtype in ("class", "exception", "function")
    ]
    if len(full) != 1:
        return None
    return python.resolve_xref(env, node["refdoc"], app.builder, "obj", full[0], node, contnode)


def setup(app: Sphinx) -> dict[str, bool]:
    """Run for Sphinx."""
    app.connect("autodoc-process-signature", shorten_signature)
    app.connect("autodoc-skip-member", skip_member)
    app.connect("missing-reference", resolve_name)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
