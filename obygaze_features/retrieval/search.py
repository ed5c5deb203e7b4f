"""Search stores for the clips nearest to a text, a clip or a vector, and save the matches.

Pages are self-contained: they need no internet access and no other file.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from obygaze_features.common.files import new_file, refuse_to_overwrite, to_json
from obygaze_features.common.tables import format_rows
from obygaze_features.common.text import (
    counted,
    did_you_mean,
    for_shell,
    format_time,
    shorten,
    shorten_digest,
)
from obygaze_features.errors import BackboneError, StoreError, UsageError, translate
from obygaze_features.items.films import find_films
from obygaze_features.page.html import NOTE, Html, document, html, read_thumbnails
from obygaze_features.retrieval.clips import Clips, describe_clips, fill, page_part
from obygaze_features.store import Store, open_store
from obygaze_features.store.nearest import Match, find_nearest, has_frames

if TYPE_CHECKING:
    from obygaze_features.backbones import Backbone

SUFFIXES = (".csv", ".html", ".json")
_COLUMNS = ("rank", "id", "film", "cosine", "frame", "time", "store", "title", "from", "to")
_NO_VECTOR = (ValueError, RecursionError, EOFError)


def search(
    stores: Store | Path | str | Sequence[Store | Path | str],
    *,
    text: str | None = None,
    like: str | None = None,
    vector: ArrayLike | Path | None = None,
    array: str | None = None,
    frames: bool = False,
    films: Collection[str] | str | None = None,
    top: int = 10,
    backbone: str | None = None,
) -> list[Match]:
    """Find the clips whose vectors have the largest cosine with a query.

    Parameters
    ----------
    stores
        One store, or several from the same backbone: open stores, or addresses for `open_store`.
    text
        Find clips that match this text, with the text tower of the stores' backbone.
    like
        Find clips similar to the clip with this id, which is left out.
    vector
        Find clips near this vector, or near the vector in an ``.npy``, ``.json`` or ``.csv`` file.
    array
        The array to search (default: ``native``, or ``frames`` if `frames` is true).
    frames
        Compare every frame; a clip is ranked by its nearest frame, which is part of the match.
    films
        Search only clips of these films, given by id or title.
    top
        The number of clips to return.
    backbone
        The checkpoint that made the stores, as for `load_backbone` (default: the backbone that the
        stores name, if it is in `known_checkpoints` or is an entry point).

    Examples
    --------
    ::

        search("stores/xclip-kinetics.zarr", text="a woman seen through a window")
        search(["ours.zarr", "theirs.zarr"], like="tt0108160-001", films=["tt0108160"])
        search(store, text="a mirror", frames=True)[0].time
    """
    if sum(query is not None for query in (text, like, vector)) != 1:
        raise UsageError("search by a text, a clip or a vector; pass exactly one of them")
    if isinstance(stores, Store | Path | str):
        stores = [stores]
    opened = [store if isinstance(store, Store) else open_store(store) for store in stores]
    _check_stores(opened)
    array = array or ("frames" if frames else "native")
    if has_frames(opened[0], array) != frames:
        kind, remedy = ("clip", "without") if frames else ("frame", "with")
        raise UsageError(
            f"{opened[0].where}: {array} has one vector per {kind}; search it {remedy} frames"
        )
    if text is not None:
        query: NDArray[Any] = _embed_text(opened[0], text, backbone)
    elif like is not None:
        query = _read_example(opened, like, array)
    elif isinstance(vector, str | Path):
        query = _read_vector(Path(vector))
    else:
        query = _as_numbers(vector, "the vector")
    return find_nearest(
        opened,
        query,
        array=array,
        films=films and find_films(films, describe_clips(opened).titles),
        exclude=() if like is None else [like],
        top=top,
    )


def save_matches(
    matches: Sequence[Match],
    output: Path | str,
    clips: Clips,
    *,
    title: str = "",
    thumbnails: Path | str | None = None,
    like: str | None = None,
    overwrite: bool = False,
) -> None:
    """Write matches as CSV, JSON or an HTML page, depending on the suffix.

    Parameters
    ----------
    matches
        The matches from `search`.
    output
        The file to write.
    clips
        The information about clips from `describe_clips`.
    title
        The title of a page (default: "Clips like", and the name of the clip in `like`).
    thumbnails
        A folder of pictures ``ID.jpg`` for a page. A page with pictures must not be shared.
    like
        The id of the clip that was searched for, which a page also shows.
    overwrite
        Replace an existing file.
    """
    output = check_output(output, overwrite=overwrite)
    rows = match_rows(matches, clips)
    if output.suffix == ".csv":
        numbered = [
            {"rank": rank, **row, "cosine": f"{row['cosine']:.6f}"}
            for rank, row in enumerate(rows, start=1)
        ]
        columns = [*_COLUMNS, *(["words"] if "words" in rows[0] else [])] if rows else _COLUMNS
        content = format_rows(numbered, columns, number=str)
    elif output.suffix == ".json":
        content = to_json(rows)
    else:
        folder = None if thumbnails is None else Path(thumbnails)
        content = matches_page(matches, clips, title=title, thumbnails=folder, like=like)
    with new_file(output, overwrite=overwrite) as new:
        new.write_text(content, encoding="utf-8")


def match_rows(matches: Sequence[Match], clips: Clips) -> list[dict[str, Any]]:
    """Return matches as JSON, with the film's title, the clip's start and end, and any words.

    The key ``words`` exists only if at least one match has a text.
    """
    rows = []
    texts = [clips.item(match.id).text for match in matches]
    for match, text in zip(matches, texts, strict=True):
        start, end = clips.span(match.id)
        row = asdict(match) | {"title": clips.film(match.id), "from": start, "to": end}
        rows.append(row | ({"words": text} if any(texts) else {}))
    return rows


def check_output(output: Path | str, *, overwrite: bool = False) -> Path:
    """Return the path to save matches to; raise if its suffix is unknown or the file exists."""
    output = Path(output)
    if output.suffix not in SUFFIXES:
        raise UsageError(f"{output}: matches can only be saved as {', '.join(SUFFIXES)}")
    refuse_to_overwrite(output, overwrite=overwrite)
    return output


def _check_stores(stores: Sequence[Store]) -> None:
    first, *others = stores
    for store in others:
        ours, backbone = first.attributes["backbone"], store.attributes["backbone"]
        if ours["weights_sha256"] != backbone["weights_sha256"]:
            raise UsageError(
                f"{store.where} has a different backbone ({backbone['name']}, weights "
                f"{shorten_digest(backbone['weights_sha256'])}) from {first.where} "
                f"({ours['name']}, {shorten_digest(ours['weights_sha256'])}); search one store only"
            )


def _read_example(stores: Sequence[Store], item_id: str, array: str) -> NDArray[np.float32]:
    """Return the vector of a clip, or the mean vector of its frames."""
    for store in stores:
        if item_id in store:
            values: NDArray[np.float32] = store.read(array, [item_id])[0].astype(np.float32)
            return values if values.ndim == 1 else np.nanmean(values, axis=0)
    where = " and ".join(store.where for store in stores)
    remedy = did_you_mean([item_id], stores[0].ids) or f"; ids look like {stores[0].ids[0]}"
    raise StoreError(f"{where}: no item {shorten(item_id)}{remedy}")


def _read_vector(path: Path) -> NDArray[np.float64]:
    if path.suffix not in (".npy", ".json", ".csv"):
        raise UsageError(path, ": a vector must be in an .npy, .json or .csv file")
    with (
        translate(UsageError, path, "cannot be read: {}", foreign=OSError),
        translate(UsageError, path, "does not hold a vector: {}", foreign=_NO_VECTOR),
    ):
        if path.suffix == ".npy":
            values: Any = np.load(path, allow_pickle=False)
        elif path.suffix == ".json":
            values = json.loads(path.read_bytes())
        else:
            values = [float(cell) for cell in path.read_text("utf-8-sig").replace(",", " ").split()]
    return _as_numbers(values, str(path))


def _as_numbers(values: Any, where: str) -> NDArray[np.float64]:
    with translate(UsageError, where, "is not a list of numbers", foreign=(TypeError, ValueError)):
        vector: NDArray[np.float64] = np.asarray(values, np.float64)
    return vector[0] if vector.ndim == 2 and len(vector) == 1 else vector


def _embed_text(store: Store, text: str, backbone: str | None) -> NDArray[np.float32]:
    """Embed a text with the backbone that made a store."""
    if not text.strip():
        raise UsageError("the text to search for is empty")
    network = _load_text_tower(store, backbone)
    tokens, limit = network.tokenizer.count([text])[0], network.tokenizer.max_tokens
    if tokens > limit:
        raise UsageError(
            f"the text has {counted(tokens, 'token')}, but {network.name} reads {limit}; shorten it"
        )
    vector: NDArray[np.float32] = network.embed_texts([text])[0].numpy()
    return vector


def _load_text_tower(store: Store, backbone: str | None) -> Backbone:
    """Load the backbone of a store; raise if the store was made with different weights."""
    from obygaze_features.backbones import load_backbone
    from obygaze_features.backbones.registry import families, known_checkpoints, maker_names

    about = store.attributes["backbone"]
    name, family, digest = str(about["name"]), str(about.get("family")), about["weights_sha256"]
    no_texts = UsageError(
        f"{store.where}: its backbone {name} cannot encode text; search by a clip (--like ID) "
        "or by a vector (--vector FILE)"
    )
    if any(candidate.name == family and not candidate.embeds_texts for candidate in families()):
        raise no_texts
    give = "pass the checkpoint that made the store: --backbone NAME=FOLDER"
    # Stores may come from anybody, so they may name installed backbones, but not code or downloads.
    installed = {*known_checkpoints(), *maker_names()}
    spec = backbone or next((spec for spec in (name, family) if spec in installed), None)
    if spec is None:
        if ":" in family:
            typed = for_shell(f"{name}={family}")
            give = f"if you trust {shorten(family)}, run its code with: --backbone {typed}"
        raise BackboneError(f"{store.where}: no backbone {shorten(name)} is installed; {give}")
    network = load_backbone(spec, "cpu")
    if network.text_tower is None:
        raise no_texts
    ours = network.about["weights_sha256"]
    if digest != ours and not (backbone and digest.startswith("unknown")):
        raise BackboneError(
            f"{store.where} was made with other weights (sha256 {shorten_digest(digest)}) than "
            f"{spec} has (sha256 {shorten_digest(ours)}); {give}"
        )
    return network


def matches_page(
    matches: Sequence[Match],
    clips: Clips,
    *,
    title: str = "",
    thumbnails: Path | None = None,
    like: str | None = None,
) -> str:
    """Return a page of the matches in order, each with a strip of its film; `like` comes first."""
    ids, note, pictures = [match.id for match in matches], "", {}
    if thumbnails is not None:
        pictures = read_thumbnails(thumbnails, [*ids, *filter(None, [like])])
        if (thumbnails / NOTE).is_file():
            note = (thumbnails / NOTE).read_text(encoding="utf-8").strip()
    cards = [_card(match.id, match, clips, pictures) for match in matches]
    if like is not None:
        cards.insert(0, _card(like, None, clips, pictures))
        title = title or f"Clips like {clips.name(like)}"
    legend = [
        html('<li><i class="swatch {1}"></i> {0}</li>', *level) for level in clips.levels.values()
    ]
    body = fill(
        "search", title=title, count=counted(len(matches), "clip"), note=note,
        legend=Html("".join(legend)), hits=Html("".join(cards)),
    )  # fmt: skip
    return document(title, body, style=page_part("pages.css"))


def _card(clip: str, match: Match | None, clips: Clips, pictures: Mapping[str, str]) -> Html:
    """Return the card of a match, or of the clip that was searched for if there is no match."""
    image = '<img alt="" src="data:image/jpeg;base64,{}">'
    moment, level = None if match is None else match.time, clips.level(clip)
    likeness = "The clip you searched for" if match is None else f"{match.cosine:.2f}"
    likeness += "" if moment is None else f", nearest at {format_time(moment)}"
    excerpt = clips.excerpt(clip)
    words = html('<p class="said">“{}”</p>', excerpt) if excerpt else ""
    return fill(
        "hit", kind="query" if match is None else "hit", clip=clip, name=clips.name(clip),
        picture=html(image, pictures[clip]) if clip in pictures else "",
        href=html(' href="{}{}"', clips.link, clip) if clips.link else "",
        level=level[0], colour=level[1], concepts=", ".join(clips.concepts_of.get(clip, ())),
        percent=0 if match is None else round(max(0.0, 100 * match.cosine)), likeness=likeness,
        strip=clips.strip(clip, moment), words=words,
    )  # fmt: skip
