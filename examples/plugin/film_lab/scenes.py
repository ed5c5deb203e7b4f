# film_lab/scenes.py
from pathlib import Path

from obygaze_features.errors import ManifestError
from obygaze_features.manifests import Item, Items, LabelSet, Manifest


def read_scenes(source: Path, skip: int = 0) -> Manifest:
    """Read this lab's format: one line per film, with its name and a level for each scene.

    `skip` leaves out scenes at the start of each film (the titles).
    """
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
    return Manifest("scenes", Items.of(items), source=source.name).with_parts(labels)
