"""Results that no run made: as large, as timed or as hostile as a test asks for."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
from msgspec import Struct, structs

from obygaze_models.experiments.explanations import Explained
from obygaze_models.experiments.run_folder import Clip, FitPredictions, Results
from obygaze_models.explain.attributions import Step

CONCEPTS = (
    "Type of shot", "Look", "Body", "Posture", "Clothing", "Appearance", "Expression of emotion",
    "Activity",
)  # fmt: skip
FILMS = 12


def grown(
    results: Results, clips: int = 1914, *, timed: bool = False, films: int = FILMS
) -> Results:
    """The same models, had they been asked about so many clips of so many films, each once."""
    chance = np.random.default_rng(3)
    per_film = -(-clips // films)
    every = {}
    for row in range(clips):
        film, scene = divmod(row, per_film)
        level = chance.choice(["EN", "HN", "NS", "S"], p=[0.5, 0.2, 0.15, 0.15])
        one = Clip(
            id=f"tt{film:07}-{scene + 1:03}",
            film=f"tt{film:07}",
            title=f"Film number {film + 1} ({1990 + film})",
            media="",
            start=scene * 31.5 if timed else None,
            end=scene * 31.5 + 30 if timed else None,
            level=str(level),
            concepts=tuple(name for name in CONCEPTS if chance.random() < 0.2),
            fold=0,
            used="not in the task" if level == "NS" else "",
        )
        every[one.id] = one
    ids = [one.id for one in every.values() if not one.used]
    labels = np.array([int(every[one].level == "S") for one in ids])
    said, explained = [], []
    for model in results.run.record.models:
        logit = chance.normal(size=len(ids)) + 2 * labels - 1
        probabilities = 1 / (1 + np.exp(-logit))
        said += [
            FitPredictions(model, 0, test, ids, labels, probabilities)
            for test in results.run.record.tests
        ]
        explained.append(_explained(model, ids, chance))
    return replace(results, clips=every, said=said, explained=explained)


def _explained(model: str, ids: list[str], chance: Any) -> Explained:
    values = chance.normal(size=(len(ids), len(CONCEPTS)))
    if "tree" in model:
        steps = [
            [
                Step(CONCEPTS[depth % 8], float(row[depth % 8]), float(depth % 5), bool(depth % 2))
                for depth in range(8)
            ]
            for row in values
        ]
        return Explained(
            model, "HN vs S", 0, "path", CONCEPTS, ids, ["S"] * len(ids), values, steps=steps
        )
    return Explained(
        model,
        "HN vs S",
        0,
        "sum",
        CONCEPTS,
        ids,
        ["S"] * len(ids),
        values,
        amounts=values * 0.4,
        intercept=np.full(len(ids), -0.2),
    )


def renamed(thing: Any, names: dict[str, str]) -> Any:
    """The same with other texts, wherever they stand."""
    if isinstance(thing, str):
        return names.get(thing, thing)
    if isinstance(thing, dict):
        return {renamed(key, names): renamed(value, names) for key, value in thing.items()}
    if isinstance(thing, list | tuple):
        return type(thing)(renamed(one, names) for one in thing)
    if isinstance(thing, Struct):
        changed = {name: renamed(getattr(thing, name), names) for name in thing.__struct_fields__}
        return structs.replace(thing, **changed)
    if is_dataclass(thing) and not isinstance(thing, type):
        changed = {f.name: renamed(getattr(thing, f.name), names) for f in fields(thing) if f.init}
        return replace(thing, **changed)
    return thing
