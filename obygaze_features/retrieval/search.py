"""`search`: the clips nearest to a text, to another clip, or to a vector."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from obygaze_features.common.files import new_file, refuse_to_overwrite, to_json
from obygaze_features.common.tables import format_spreadsheet
from obygaze_features.common.text import (
    as_list,
    counted,
    find_closest_id,
    first_line,
    for_shell,
    shorten,
    shorten_digest,
)
from obygaze_features.errors import BackboneError, StoreError, UsageError
from obygaze_features.store import Store, open_store
from obygaze_features.store.nearest import Match, find_nearest, has_frames

if TYPE_CHECKING:
    from obygaze_features.backbones import Backbone

SUFFIXES = (".csv", ".html", ".json")


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
        A store, or several of one backbone: opened, or as for `open_store`.
    text
        Find what it describes, by the text tower of the stores' backbone (CLIP, SigLIP, X-CLIP).
    like
        Find clips like the clip of this id, which itself is left out.
    vector
        Find what is near these numbers, or those in an ``.npy``, ``.json`` or ``.csv`` file.
    array
        The array to search; ``native`` by default, ``frames`` in a search by frame.
    frames
        Compare every frame: a clip counts by its nearest frame, and the match says which.
    films
        Only clips of these films.
    top
        How many clips.
    backbone
        The checkpoint that the stores were made with, as for `load_backbone`; by default the one
        of the name that they record, if it is in `known_checkpoints` or that of an entry point.

    Examples
    --------
    ::

        search("stores/xclip-kinetics.zarr", text="a woman seen through a window")
        search(["ours.zarr", "theirs.zarr"], like="tt0108160-001", films=["tt0108160"])
        search(store, text="a mirror", frames=True)[0].time
    """
    if sum(query is not None for query in (text, like, vector)) != 1:
        raise UsageError("search by a text, by a clip or by a vector: give one of the three")
    if backbone is not None and text is None:
        raise UsageError("a backbone is needed only to search by text")
    if isinstance(stores, Store | Path | str):
        stores = [stores]
    opened = [store if isinstance(store, Store) else open_store(store) for store in stores]
    _check_stores(opened)
    array = array or ("frames" if frames else "native")
    if has_frames(opened[0], array) != frames:
        raise UsageError(
            f"{opened[0].where}: {array} has a vector a {'clip' if frames else 'frame'}; search it "
            f"with{'out' if frames else ''} frames"
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
        films=None if films is None else as_list(films),
        exclude=() if like is None else [like],
        top=top,
    )


def save_matches(
    matches: Sequence[Match],
    output: Path | str,
    *,
    title: str = "Search",
    thumbnails: Path | str | None = None,
    like: str | None = None,
    overwrite: bool = False,
) -> None:
    """Write matches as CSV, JSON or an HTML page, by the suffix.

    Parameters
    ----------
    matches
        As `search` gives them.
    output
        The file.
    title
        What was searched for, the title of a page.
    thumbnails
        A folder of pictures ``ID.jpg`` for a page, which must then not be shared.
    like
        The clip that was searched for, whose picture a page shows, too.
    overwrite
        Replace an existing file.
    """
    output = check_output(output, thumbnails, overwrite=overwrite)
    if output.suffix == ".csv":
        rows = [_cells(rank, match) for rank, match in enumerate(matches, start=1)]
        content = format_spreadsheet({name: [row[name] for row in rows] for name in _COLUMNS})
    elif output.suffix == ".json":
        content = to_json([asdict(match) for match in matches])
    else:
        from obygaze_features.retrieval.page import matches_page

        folder = None if thumbnails is None else Path(thumbnails)
        content = matches_page(title, matches, folder, like=like)
    with new_file(output, overwrite=overwrite) as new:
        new.write_text(content, encoding="utf-8")


def check_output(
    output: Path | str, thumbnails: Path | str | None = None, *, overwrite: bool = False
) -> Path:
    """The path of matches to save; refuses another suffix, and a file that exists."""
    output = Path(output)
    if output.suffix not in SUFFIXES:
        raise UsageError(f"{output}: matches are saved as {', '.join(SUFFIXES)}")
    if thumbnails is not None and output.suffix != ".html":
        raise UsageError(f"{output}: thumbnails are shown on a page; give a name in .html")
    refuse_to_overwrite(output, overwrite=overwrite)
    return output


_COLUMNS = ("rank", "id", "film", "cosine", "frame", "time", "store")


def _cells(rank: int, match: Match) -> dict[str, str]:
    values = {"rank": rank, **asdict(match), "cosine": f"{match.cosine:.6f}"}
    return {name: "" if values[name] is None else str(values[name]) for name in _COLUMNS}


def _check_stores(stores: Sequence[Store]) -> None:
    if not stores:
        raise UsageError("give a store to search")
    first, *others = stores
    seen = {first.where}
    for store in others:
        ours, theirs = first.attributes["backbone"], store.attributes["backbone"]
        if ours["weights_sha256"] != theirs["weights_sha256"]:
            raise UsageError(
                f"{store.where} is of another backbone ({theirs['name']}, weights "
                f"{shorten_digest(theirs['weights_sha256'])}) than {first.where} ({ours['name']}, "
                f"{shorten_digest(ours['weights_sha256'])}); search them one by one"
            )
        if store.where in seen:
            raise UsageError(f"{store.where} is given twice; give it once")
        seen.add(store.where)


def _read_example(stores: Sequence[Store], item_id: str, array: str) -> NDArray[np.float32]:
    """The vector of a clip; of its frames, their mean."""
    for store in stores:
        if item_id in store:
            values: NDArray[np.float32] = store.read(array, [item_id])[0].astype(np.float32)
            return values if values.ndim == 1 else np.nanmean(values, axis=0)
    where = " and ".join(store.where for store in stores)
    near = find_closest_id(item_id, stores[0].ids)
    remedy = f"did you mean {near}?" if near else f"ids are such as {stores[0].ids[0]}"
    raise StoreError(f"{where}: no item {shorten(item_id)}; {remedy}")


def _read_vector(path: Path) -> NDArray[np.float64]:
    try:
        if path.suffix == ".npy":
            values: Any = np.load(path, allow_pickle=False)
        elif path.suffix == ".json":
            values = json.loads(path.read_bytes())
        elif path.suffix == ".csv":
            values = [float(cell) for cell in path.read_text("utf-8-sig").replace(",", " ").split()]
        else:
            raise UsageError(f"{path}: a vector is a file in .npy, .json or .csv")
    except OSError as problem:
        raise UsageError(f"{path} cannot be read: {problem.strerror or problem}") from None
    except (ValueError, RecursionError, EOFError) as problem:
        if isinstance(problem, UsageError):
            raise
        raise UsageError(f"{path} does not hold a vector: {first_line(problem)}") from None
    return _as_numbers(values, str(path))


def _as_numbers(values: Any, where: str) -> NDArray[np.float64]:
    try:
        vector: NDArray[np.float64] = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        raise UsageError(f"{where} is not a list of numbers") from None
    return vector[0] if vector.ndim == 2 and len(vector) == 1 else vector


def _embed_text(store: Store, text: str, backbone: str | None) -> NDArray[np.float32]:
    """The embedding of a text by the backbone that a store was made with."""
    if not text.strip():
        raise UsageError("the text to search for is empty")
    network = _load_text_tower(store, backbone)
    tokens, limit = network.tokenizer.count([text])[0], network.tokenizer.max_tokens
    if tokens > limit:
        raise UsageError(
            f"the text has {counted(tokens, 'token')}, and {network.name} reads {limit}; shorten it"
        )
    vector: NDArray[np.float32] = network.embed_texts([text])[0].numpy()
    return vector


def _load_text_tower(store: Store, backbone: str | None) -> Backbone:
    """Load the backbone of a store, as extraction finds it; refuse other weights."""
    about = store.attributes["backbone"]
    name, family, digest = str(about["name"]), str(about.get("family")), about["weights_sha256"]
    from obygaze_features.backbones import load_backbone
    from obygaze_features.backbones.registry import families, known_checkpoints, maker_names

    no_texts = UsageError(
        f"{store.where}: its backbone {name} reads no texts; search by a clip (--like ID) or by a "
        "vector (--vector FILE)"
    )
    if any(known.name == family and not known.embeds_texts for known in families()):
        raise no_texts
    give = "give the checkpoint that it was made with: --backbone NAME=FOLDER"
    # A store may be anybody's: it chooses among what is known here, not code, downloads or paths.
    makers = maker_names()
    is_known = name in known_checkpoints() or name in makers
    spec = backbone or (name if is_known else family)
    if not backbone and not is_known and family not in makers:
        if ":" in family:
            typed = for_shell(f"{name}={family}")
            give = f"if you trust {shorten(family)}, run its code with: --backbone {typed}"
        raise BackboneError(f"{store.where}: no backbone {shorten(name)} is known here; {give}")
    try:
        network = load_backbone(spec, "cpu")
    except BackboneError as problem:
        if backbone:
            raise
        raise BackboneError(f"{store.where}: {problem}; or {give}") from None
    if network.text_tower is None:
        raise no_texts
    ours = network.about["weights_sha256"]
    if digest != ours and not (backbone and digest.startswith("unknown")):
        raise BackboneError(
            f"{store.where} was made with other weights (sha256 {shorten_digest(digest)}) than "
            f"{spec} has (sha256 {shorten_digest(ours)}); {give}"
        )
    return network
