"""Data sets of the Hugging Face Hub, which it serves over HTTP: ``hf://datasets/OWNER/NAME``."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from obygaze_features.common.package import need
from obygaze_features.errors import StoreError, UsageError
from obygaze_features.store.places.http import Http

__all__ = ["HubAddress", "hub_place", "parse_address"]

_ADDRESS = re.compile(r"hf://datasets/([\w.-]+/[\w.-]+)(?:@([\w./-]+?))?(/[^@]*)?")


@dataclass(frozen=True)
class HubAddress:
    """A folder of a data set: OWNER/NAME, the revision, and the path in it."""

    repo: str
    revision: str
    path: str


def parse_address(address: str, *, whole: bool = False) -> HubAddress:
    """Take an address apart; `whole` if it must be that of a data set, not of something in it."""
    found = _ADDRESS.fullmatch(address.rstrip("/"))
    if not found or (whole and (found[2] or found[3])):
        raise UsageError(f"{address}: hf://datasets/OWNER/NAME is meant")
    return HubAddress(found[1], found[2] or "main", found[3] or "")


def hub_place(address: str) -> Http:
    """A store in a data set of the Hub; who is logged in there reads private ones, too."""
    hub = need("huggingface_hub", extra="remote")
    constants = need("huggingface_hub.constants", extra="remote")
    if constants.HF_HUB_OFFLINE:
        raise StoreError(f"{address} is not asked for, as HF_HUB_OFFLINE is set")
    where = parse_address(address)
    endpoint = os.environ.get("HF_ENDPOINT") or constants.ENDPOINT
    url = f"{endpoint.rstrip('/')}/datasets/{where.repo}/resolve/{where.revision}{where.path}"
    return Http(url, address=address, token=hub.get_token())
