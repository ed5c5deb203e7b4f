"""A figure read back as a person reads it: marks against the numbers of the axis."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import numpy as np

SVG = "{http://www.w3.org/2000/svg}"
NUMBER = re.compile(r"-?[\d.]+")


class Drawn:
    """The elements of a figure. Figures hold no DOCTYPE, so that none can hold an entity."""

    def __init__(self, svg: str) -> None:
        assert "<!" not in svg
        self.root = ElementTree.fromstring(svg)

    def all(self, tag: str):
        return list(self.root.iter(SVG + tag))

    def marked(self, kind: str = "data-value"):
        return [one for one in self.root.iter() if one.get(kind) is not None]

    def by_key(self, kind: str = "data-value"):
        found = {}
        for one in self.marked(kind):
            assert one.get("data-key") not in found
            found[one.get("data-key")] = one
        return found

    @property
    def values(self):
        return {key: float(one.get("data-value")) for key, one in self.by_key().items()}

    @property
    def words(self):
        return [one.text for one in self.all("text")]

    def axis(self, *, percent: bool = False):
        """From a place to a value, by the ticks' numbers alone: they stand centred, in one row."""
        ticks = {}
        for one in self.all("text"):
            said = (one.text or "").replace("−", "-")
            if one.get("text-anchor") == "middle" and one.get("font-size") == "11.5":
                match = re.fullmatch(r"(-?[\d.]+)(%?)", said)
                if match and bool(match[2]) == percent:
                    ticks.setdefault(one.get("y"), []).append(
                        (float(one.get("x")), float(match[1]))
                    )
        row = ticks[max(ticks, key=float)]
        places, values = np.array(row).T
        slope, offset = np.polyfit(places, values / (100 if percent else 1), 1)
        fitted = slope * places + offset
        assert np.allclose(fitted, values / (100 if percent else 1), atol=1e-3)
        return lambda place: slope * place + offset


def place_of(one) -> float:
    """The middle of a point, a diamond or a line."""
    if one.tag == SVG + "circle":
        return float(one.get("cx"))
    if one.tag == SVG + "line":
        assert one.get("x1") == one.get("x2")
        return float(one.get("x1"))
    x, _, half, *_ = map(float, NUMBER.findall(one.get("d")))
    return x + half


def ends_of(whisker) -> tuple[float, float]:
    x, _, to, *_ = map(float, NUMBER.findall(whisker.get("d")))
    return x, to
