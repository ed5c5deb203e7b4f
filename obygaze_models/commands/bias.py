"""`obygaze bias`: measures of bias from the field's other works, a file and a line each."""

from __future__ import annotations

import click

from obygaze_features.common.cli import LazyGroup

__all__ = ["bias"]

_HERE = "obygaze_models.commands"

#: Command -> (where it is, its one line of help).
COMMANDS: dict[str, tuple[str, str]] = {
    "eat": (
        f"{_HERE}.bias_eat:eat",
        "Test whether items are nearer to some words than others are: WEAT and its kin.",
    ),
    "captions": (
        f"{_HERE}.bias_captions:captions",
        "Count emotion words per 1000 CAPTIONS of each group of images.",
    ),
    "ratings": (
        f"{_HERE}.bias_ratings:ratings",
        "Tell which share of each group's images a TABLE labels as sexualised, and how reliably.",
    ),
    "gender-score": (
        f"{_HERE}.bias_gender_score:gender_score",
        "Measure the gender score of captions and objects, beside how often these go together.",
    ),
}


@click.group(cls=LazyGroup, lazy=COMMANDS)
def bias() -> None:
    """Measures of bias in embeddings, captions and labels, from the field's other works.

    \b
    Example:
      obygaze bias eat emotion --store stores/sobem.zarr --texts stores/prompts.zarr
    """
