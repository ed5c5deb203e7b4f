# film_lab/scenes.py
from pathlib import Path

import click

from obygaze_features.errors import ManifestError
from obygaze_features.manifests import Item, Items, LabelSet, Manifest


@click.command()
@click.argument("source", type=click.Path(exists=True, path_type=Path))
@click.option(
    "--skip", default=0, help="Skip this many scenes at the start of each film (the titles)."
)
def import_manifest(source: Path, skip: int) -> Manifest:
    """Films in this lab's format: one line per film, with its name and a level for each scene."""
    items, levels = [], []
    for number, line in enumerate(source.read_text().splitlines(), 1):
        film, *codes = line.split()
        if not codes:
            raise ManifestError(f"{source}, line {number}: {film} has no levels; add one per scene")
        for scene, code in list(enumerate(codes, 1))[skip:]:
            media = f"{film}_scene_{scene}.mp4"
            items.append(Item(f"{film}-{scene:03d}", film=film, media=media))
            levels.append(code)
    ids = [item.id for item in items]
    labels = LabelSet("ours", ids, levels, concepts=[()] * len(ids))
    return Manifest("scenes", Items.of(items), source=source.name).with_parts(labels=[labels])
