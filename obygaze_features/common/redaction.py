"""Make text safe to print: no control characters, no secrets in URLs."""

from __future__ import annotations

import re

_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_URL = re.compile(r"\w+://[^\s\"'<>]+")


def printable(text: str) -> str:
    """Escape characters that could control a terminal or reverse the direction of text.

    U+202A to U+202E, U+2066 to U+2069, lone surrogates, and control characters other than tab and
    newline become escapes, which JSON reads back.

    Examples
    --------
    >>> print(printable("a\\x1b]0;title\\x07 b\\u202ec"))
    a\\u001b]0;title\\u0007 b\\u202ec
    """
    return _CONTROLS.sub(lambda character: f"\\u{ord(character[0]):04x}", text)


def redact_url(address: object) -> str:
    """Return a path or file URL as is, and other URLs without user, password, query and fragment.

    If the password cannot be separated from the rest, for example because it contains a slash, only
    the scheme is kept.

    Examples
    --------
    >>> redact_url("https://ann:p@ss@lab.example/x.zarr?token=1"), redact_url("file:///mnt/a@b/x.zarr")
    ('https://lab.example/x.zarr', 'file:///mnt/a@b/x.zarr')
    >>> redact_url("https://ann:p/ss@lab.example/x.zarr"), redact_url("hf://datasets/lab/x@main#1")
    ('https://...', 'hf://datasets/lab/x@main')
    """
    text = str(address)
    scheme, mark, rest = text.partition("://")
    if not mark or scheme == "file":
        return text
    rest = re.sub(r"^[^/]*@", "", rest)
    path, _, _ = rest.partition("?")
    host = re.split("[/?#]", rest, maxsplit=1)[0]
    _, colon, port = host.partition(":")
    is_port = host.startswith("[") or port.isdecimal()
    if colon and "@" in (path if is_port else rest):
        return f"{scheme}://..."
    return f"{scheme}://{path.partition('#')[0]}"


def redact(message: str) -> str:
    """Remove secrets from a library's message, both in whole URLs and in parts of URLs.

    Examples
    --------
    >>> redact("cannot open '/x.zarr?token=a b'"), redact('Invalid bucket name "KEY:SECRET@lab"')
    ("cannot open '/x.zarr'", 'Invalid bucket name "lab"')
    """
    message = re.sub(r"\?[^\s=\"'<>]*=[^\"'<>]*", "", message)
    message = _URL.sub(lambda url: redact_url(url[0]), message)
    return re.sub(r"[^\s/:\"']+:[^\s\"']*@", "", message)
