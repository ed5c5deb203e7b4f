"""Importers: one file and one line here each.

To add one, write a module with a click command called `command` (see `csv_table` for a short
one) and name it below; ``obygaze manifests import`` finds it.
"""

__all__ = ["IMPORTERS"]

_HERE = __name__

#: Kind -> (where its command is, its one line of help).
IMPORTERS = {
    "obygaze12": (f"{_HERE}.obygaze12:command", "The annotations of the ObyGaze12 paper."),
    "obygaze12-splits": (f"{_HERE}.obygaze12_splits:command", "The authors' splits and runs."),
    "mobygaze": (f"{_HERE}.mobygaze:command", "MObyGaze's segments of 20 films."),
    "accede": (
        f"{_HERE}.accede:command",
        "LIRIS-ACCEDE and MediaEval 2015: violence, valence and arousal.",
    ),
    "folder": (f"{_HERE}.folder:command", "Any folder of videos or images."),
    "prompts": (f"{_HERE}.prompts:command", "Texts: each stimulus in each template."),
    "csv": (f"{_HERE}.csv_table:command", "Any CSV table, with a column mapping."),
}
