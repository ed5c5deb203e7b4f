"""Search stores for the clips nearest to a text, a clip, a picture or a vector."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from obygaze_features.common.formatting import counted, shorten
from obygaze_features.errors import BackboneError, UsageError
from obygaze_features.items.films import distinct_titles, film_titles, find_films
from obygaze_features.store import Store, StoreLike, open_store
from obygaze_features.store.nearest import Match, find_nearest, has_frames

if TYPE_CHECKING:
    from obygaze_features.backbones import Backbone


def film_titles_of(stores: Sequence[Store]) -> dict[str, str]:
    """Return a distinct title for each film of some stores."""
    titles: dict[str, str] = {}
    for store in reversed(stores):
        titles |= film_titles(store.items)
    return distinct_titles(titles)


def search(
    stores: StoreLike | Sequence[StoreLike],
    *,
    text: str | None = None,
    like: str | None = None,
    image: Path | str | None = None,
    vector: ArrayLike | None = None,
    array: str | None = None,
    frames: bool = False,
    films: Iterable[str] | None = None,
    top: int = 10,
    backbone: str | None = None,
) -> list[Match]:
    """Find the clips whose vectors have the largest cosine with a query.

    Parameters
    ----------
    stores
        One store, or several from the same backbone: `Store` objects or addresses for `open_store`.
    text
        Find clips that match this text, with the text tower of the stores' backbone.
    like
        Find clips similar to the clip with this id, which is left out.
    image
        Find clips that look like the picture in this file.
    vector
        Find clips near this vector, such as the direction of a concept.
    array
        The array to search (default: ``native``, or ``frames`` if `frames` is true).
    frames
        Compare every frame; a clip is ranked by its nearest frame, which is part of the match.
    films
        Search only clips of these films, given by id, title or pattern.
    top
        The maximum number of clips to return.
    backbone
        The checkpoint that made the stores, as for `load_backbone` (default: the name of the first
        store's backbone, or else of its family, if in `known_checkpoints`).

    Examples
    --------
    ::

        search("stores/xclip-kinetics.zarr", text="a woman seen through a window")
        search(["ours.zarr", "theirs.zarr"], like="tt0108160-001", films=["tt0108160"])
        search(store, text="a mirror", frames=True)[0].time
    """
    if sum(query is not None for query in (text, like, image, vector)) != 1:
        raise UsageError(
            "search by exactly one of a text (--text), a clip (--like), a picture (--image) "
            "or a vector"
        )
    if isinstance(stores, StoreLike):
        stores = [stores]
    opened = [open_store(store) for store in stores]
    if not opened:
        raise UsageError("no stores to search; pass at least one")
    first = opened[0]
    weights = first.attributes["backbone"]["weights_sha256"]
    for store in opened:
        if store.attributes["backbone"]["weights_sha256"] != weights:
            raise UsageError(
                f"{store.where} has a different backbone from {first.where}; search one store only"
            )
    array = array or ("frames" if frames else "native")
    if has_frames(first, array) != frames:
        reason = "no frames; leave out --frames" if frames else "frames; search it with --frames"
        raise UsageError(f"{first.where}: the array {array} has {reason}")
    if films is not None:
        films = find_films(films, film_titles_of(opened))
    if like is not None:
        query = _read_example(opened, like, array)
    elif vector is not None:
        query = vector
    else:
        query = _embed(first, text, image, backbone)
    return find_nearest(
        opened,
        query,
        array=array,
        films=films,
        exclude=like or "",
        top=top,
    )


def match_rows(matches: Sequence[Match], stores: Sequence[Store]) -> list[dict[str, Any]]:
    """Return matches as rows, with the title of each film and the clip's span in seconds."""
    titles = film_titles_of(stores)
    items_of = {store.where: store.items for store in stores}
    rows = []
    for match in matches:
        items = items_of[match.store]
        item = items[items.row(match.id)]
        row = {
            "id": match.id,
            "title": titles[item.film],
            "cosine": match.cosine,
            "start": item.start,
            "end": item.end,
        }
        if match.time is not None:
            row |= {"frame": match.frame, "time": match.time}
        rows.append({**row, "film": match.film, "store": match.store})
    return rows


def _read_example(stores: Sequence[Store], id_: str, array: str) -> Any:
    """Return the vector of a clip, or the mean vector of its frames."""
    store = next((store for store in stores if id_ in store), stores[0])
    [row] = store.read(array, [id_])
    values = row.astype(np.float32)
    if values.ndim > 1:
        values = np.nanmean(values, axis=0)
    return values


def _embed(store: Store, text: str | None, image: Path | str | None, backbone: str | None) -> Any:
    """Embed a text, or the picture in a file, with the backbone that made a store."""
    if text is not None and not text.strip():
        raise UsageError("the text to search for is empty; pass some words")
    kind = "text" if image is None else "image"
    network = _load_backbone(store, kind, backbone)
    reader = network.reader(kind)
    query: Any = text
    if image is not None:
        from obygaze_features.backbones.preprocess import resize_frame
        from obygaze_features.extraction.reader import read_picture

        query = resize_frame(read_picture(Path(image)), reader.preprocessing)
    else:
        limit = reader.tokenizer.max_tokens
        if reader.tokenizer.count([query])[0] > limit:
            raise UsageError(
                f"{network.name} reads only {counted(limit, 'token')} of a text; shorten it"
            )
    return network.embed(kind, [query])["native"][0].numpy()


def _load_backbone(store: Store, kind: str, backbone: str | None) -> Backbone:
    """Load the backbone of a store to embed a text or an image; raise if its weights differ."""
    from obygaze_features.backbones import load_backbone
    from obygaze_features.backbones.registry import known_checkpoints

    about = store.attributes["backbone"]
    name = str(about["name"])
    family = str(about.get("family"))
    digest = about["weights_sha256"]
    give = "pass the backbone that made the store: --backbone NAME=FOLDER or NAME=module:make"
    # Stores may come from anybody, so they may name only known checkpoints, never code.
    known = known_checkpoints()
    spec = backbone or next((key for key in (name, family) if key in known), None)
    if spec is None:
        raise BackboneError(f"{store.where}: unknown backbone {shorten(name)}; {give}")
    network = load_backbone(spec, "cpu")
    if digest != network.about["weights_sha256"] and not (
        backbone and digest.startswith("unknown")
    ):
        raise BackboneError(
            f"the weights of {store.where} are unknown, or not those of {spec}; {give}"
        )
    return network
