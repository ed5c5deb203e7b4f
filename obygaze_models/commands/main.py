"""The `obygaze` command, which groups the commands of both components."""

from __future__ import annotations

import click

from obygaze_features.common.cli import RootGroup

__all__ = ["main"]


@click.group(
    cls=RootGroup,
    lazy={
        "manifests": (
            "obygaze_features.commands.manifests:manifests",
            "Manage lists of clips with their labels and splits.",
        ),
        "annotations": (
            "obygaze_features.commands.annotations:annotation_commands",
            "Turn annotators' timelines into clip labels.",
        ),
        "features": (
            "obygaze_features.commands.features:features",
            "Turn clips, images and texts into feature stores.",
        ),
        "stores": (
            "obygaze_features.commands.stores:stores",
            "Inspect, verify, finalise, share and search feature stores.",
        ),
        "models": (
            "obygaze_models.commands.models:models",
            "Train and evaluate models on stores, on a CPU.",
        ),
        "report": (
            "obygaze_models.commands.report:report",
            "Write annotations, or the results of runs, as an HTML page.",
        ),
        "doctor": (
            "obygaze_features.commands.doctor:doctor",
            "Show versions and devices, and which packages each job still needs.",
        ),
        "reproduce": (
            "obygaze_models.studies.reproduce.commands:reproduce",
            "Reproduce the paper's tables and figures.",
        ),
        "bias": (
            "obygaze_models.studies.bias.commands:bias",
            "Measure bias in embeddings, captions and labels.",
        ),
        "mediaeval": (
            "obygaze_models.studies.mediaeval.commands:mediaeval",
            "Write and score runs on the test set of a benchmark.",
        ),
    },
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": 100,
        "show_default": True,
    },
)
@click.option("--debug", is_flag=True, help="Show a traceback on errors.")
@click.version_option(package_name="obygaze")
def main(debug: bool) -> None:
    """Train models to detect objectification in films, or to predict any other clip labels.

    \b
    In four steps:
      obygaze manifests import ...   list the clips and their labels
      obygaze features extract ...   films -> store (GPU or CPU, needs the films)
      obygaze models run ...         store -> models and their scores (CPU, seconds)
      obygaze report ...             scores -> a page to read

    To try it, run obygaze features demo, which makes clips, or obygaze models example, which makes
    a store with labels.
    """


if __name__ == "__main__":
    main()
