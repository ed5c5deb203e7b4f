"""Importers of timelines: one file and one line here each.

To add one, write a module with a click command called `command` that makes rows and hands them
to `annotations.gathering.gather` (see `mobygaze` for a short one), and name it below;
``obygaze annotations import`` finds it.
"""

__all__ = ["IMPORTERS"]

_HERE = __name__

#: Kind -> (where its command is, its one line of help).
IMPORTERS = {
    "mobygaze": (f"{_HERE}.mobygaze:command", "MObyGaze's segments of 20 films."),
    "elan": (f"{_HERE}.elan:command", "ELAN's files, or its tab-delimited exports."),
    "csv": (f"{_HERE}.csv_table:command", "Any CSV table of segments, with a column mapping."),
}
