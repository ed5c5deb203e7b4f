"""Format text for people: plurals, sizes, suggestions, and text that is safe to print."""

from __future__ import annotations

import difflib
import hashlib
import re
import unicodedata
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

_ZEROS = re.compile(r"(?<!\d)0+(?=\d)")
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_NOT_IN_FILES = re.compile(r'[<>:"/\\|?*]+')
_KEPT_BY_WINDOWS = re.compile(r"(con|prn|aux|nul|(com|lpt)[1-9¹²³]) *(\.|$)", re.IGNORECASE)
_MAX_STEM_BYTES = 180
MAX_NAMES_COMPARED = 1000
"""The number of names above which a suggestion may differ only in case or leading zeros."""
MAX_QUOTED = 60
"""The number of letters of a quoted text that a message shows."""
MAX_TIME_S = 1e9
"""The longest time that can be read, in seconds."""
_URL = re.compile(r"\w+://[^\s\"'<>]+")


def counted(number: int, noun: str, nouns: str | None = None) -> str:
    """Format a number with its noun.

    Examples
    --------
    >>> counted(1, "clip"), counted(1914, "clip")
    ('1 clip', '1,914 clips')
    """
    if number != 1:
        noun = nouns or f"{noun}s"
    return f"{number:,} {noun}"


def format_number(value: float, form: str = ".2f") -> str:
    """Format a number for figures and pages; a number that rounds to zero has no sign.

    Examples
    --------
    >>> format_number(0.789), format_number(0.524, "+.0%"), format_number(-0.031)
    ('0.79', '+52%', '−0.03')
    >>> format_number(-0.004, "+.2f")
    '0.00'
    """
    text = format(value, form)
    if not text.strip("+-0.%"):
        text = text.lstrip("+-")
    return text.replace("-", "−")


def format_signed(value: float) -> str:
    """Format a difference for the terminal and files.

    Examples
    --------
    >>> format_signed(0.254), format_signed(-0.254), format_signed(-0.004)
    ('+0.25', '-0.25', '0.00')
    """
    return format_number(value, "+.2f").replace("−", "-")


def format_time(seconds: float) -> str:
    """Format seconds as h:mm:ss with up to three decimals.

    Examples
    --------
    >>> format_time(75.5), format_time(3600), format_time(0.0004)
    ('0:01:15.5', '1:00:00', '0:00:00')
    """
    total, milliseconds = divmod(round(seconds * 1000), 1000)
    text = f"{total // 3600}:{total // 60 % 60:02d}:{total % 60:02d}.{milliseconds:03d}"
    return text.rstrip("0").rstrip(".") if milliseconds else text[:-4]


def format_size(count: int) -> str:
    """Format a number of bytes in a suitable unit.

    Examples
    --------
    >>> format_size(512), format_size(75_000), format_size(3_200_000_000)
    ('512 B', '75 kB', '3.2 GB')
    """
    if count < 1000:
        return f"{count} B"
    size = count / 1000
    units = ["kB", "MB", "GB", "TB"]
    while size >= 1000 and len(units) > 1:
        size /= 1000
        del units[0]
    return f"{size:,.{int(size < 10)}f} {units[0]}"


def join_some(names: Sequence[str], limit: int = 5) -> str:
    """Join the first few names and count the rest.

    Examples
    --------
    >>> join_some(["a", "b", "c"], limit=2)
    'a, b and 1 more'
    """
    text = ", ".join(names[:limit])
    if len(names) > limit:
        text += f" and {len(names) - limit:,} more"
    return text


def sha256_of_text(text: str) -> str:
    """Return the SHA-256 of a text in UTF-8 as 64 hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()


def composed(name: str) -> str:
    """Return a name with each accent in one character with its letter; a Mac separates them.

    Examples
    --------
    >>> len("e\\u0301t\\u00e9"), len(composed("e\\u0301t\\u00e9"))
    (4, 3)
    """
    return unicodedata.normalize("NFC", name)


def caseless(name: str) -> str:
    """Return a name for comparisons that ignore case and how accents are encoded."""
    return composed(name).casefold()


def find_closest(typed: str, names: Iterable[str]) -> str | None:
    """Return the name that the user probably meant to type, or None if none is close enough.

    Examples
    --------
    >>> find_closest("natve", ["native", "frames"]), find_closest("accuracy", ["balanced_accuracy"])
    ('native', None)
    >>> find_closest("clip-0017", ["clip-017", "clip-018"])
    'clip-017'
    """
    by_key = {_ZEROS.sub("", name.casefold()): name for name in names}
    key = _ZEROS.sub("", typed.casefold())
    near = [key]
    if key not in by_key and len(by_key) <= MAX_NAMES_COMPARED:
        near = difflib.get_close_matches(key, by_key, n=1, cutoff=0.66)
    return by_key.get("".join(near))


def file_names(names: Iterable[str], suffix: str) -> list[str]:
    """Return a file name for each name, safe on any file system and unique ignoring case.

    Examples
    --------
    >>> file_names(["Juno (2007)", "WALL·E / Up", "juno (2007)"], ".svg")
    ['Juno (2007).svg', 'WALL·E - Up.svg', 'juno (2007)-2.svg']
    """
    used: set[str] = set()
    files = []
    for name in names:
        text = _NOT_IN_FILES.sub("-", composed(name))
        stem = "".join(letter if letter.isprintable() else "-" for letter in text)
        stem = stem.encode()[:_MAX_STEM_BYTES].decode(errors="ignore").strip(" .") or "-"
        if _KEPT_BY_WINDOWS.match(stem):
            stem = f"_{stem}"

        file = f"{stem}{suffix}"
        number = 1
        while file.casefold() in used:
            number += 1
            file = f"{stem}-{number}{suffix}"
        used.add(file.casefold())
        files.append(file)
    return files


def did_you_mean(unknown: Iterable[str], names: Iterable[str]) -> str:
    """Return a suggestion of existing names for unknown ones, or "".

    Examples
    --------
    >>> did_you_mean(["juno", "Leon"], ["Juno", "Brazil"])
    '; did you mean Juno?'
    """
    names = list(names)
    matches = []
    for name in unknown:
        near = find_closest(name, names)
        if near:
            matches.append(near)
    if not matches:
        return ""
    return f"; did you mean {join_some(matches)}?"


def unknown_name(kind: str, name: str, names: Iterable[str]) -> str:
    """Return the message that `name` does not exist, with the closest name or up to 30 names.

    Examples
    --------
    >>> unknown_name("array", "natve", ["native", "frames"])
    "unknown array 'natve'; did you mean native?"
    >>> unknown_name("array", "x", ["native", "frames"])
    "unknown array 'x'; choose from native, frames"
    """
    names = list(names)
    remedy = did_you_mean([name], names)
    if not remedy:
        remedy = f"; choose from {join_some(names, 30)}"
    return f"unknown {kind} {shorten(name)}{remedy}"


def as_list(names: Iterable[str]) -> list[str]:
    """Return names, such as a column of a table, as a list; a single string is one name.

    Examples
    --------
    >>> as_list("native"), as_list(("native", "frames"))
    (['native'], ['native', 'frames'])
    """
    return [names] if isinstance(names, str) else list(map(str, names))


K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def group_by(values: Iterable[V], key: Callable[[V], K]) -> dict[K, list[V]]:
    """Group values by key, keeping their order.

    Examples
    --------
    >>> group_by(["clip", "film", "fit"], len)
    {4: ['clip', 'film'], 3: ['fit']}
    """
    groups: dict[K, list[V]] = {}
    for value in values:
        groups.setdefault(key(value), []).append(value)
    return groups


def first_line(problem: object) -> str:
    """Return the first line of an error's message, or its type if it has no message.

    >>> first_line(OSError("disk full\\nsee the log")), first_line(KeyboardInterrupt())
    ('disk full', 'KeyboardInterrupt')
    """
    return (str(problem).strip().splitlines() or [type(problem).__name__])[0]


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


def shorten(text: str) -> str:
    """Quote a text for an error message, shortening it if it is long."""
    if len(text) > MAX_QUOTED:
        text = f"{text[:MAX_QUOTED]}..."
    return repr(text)


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
