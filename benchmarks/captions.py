"""Captions: emotion words in 280 files of 1,000, compared with reading and splitting the files."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.result import Result, side_by_side
from obygaze_models.bias.captions import emotion_rates, read_captions
from obygaze_models.bias.inputs import shipped_lexicon

FILES, CAPTIONS = 280, 1000
TEXT = (
    "a woman with long hair is looking at the camera and smiling in front of a white wall. "
    "A portrait of a young woman, she is wearing a black shirt, happy frowning serious"
)


def measure() -> Iterator[Result]:
    """Measure the promised speed of counting."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _make(folder)
        lexicon = shipped_lexicon("emotions")

        def ours() -> object:
            return emotion_rates(read_captions(folder, lexicon), lexicon)

        def peer() -> None:
            for path in folder.iterdir():
                with path.open(encoding="utf-8") as file:
                    for line in file:
                        line.split(" ")

        yield side_by_side(
            f"emotion words in {FILES} files of {CAPTIONS:,} captions (reading and splitting)",
            ours,
            peer,
            target=3,
        )


def _make(folder: Path) -> None:
    chance = random.Random(0)
    words = TEXT.split(" ")
    groups = [f"{e}{i}_{c}" for e in ("AN", "SA", "HA") for i in (1, 2) for c in ("NO", "O")]
    for number in range(FILES):
        lines = (" ".join(chance.choices(words, k=chance.randint(6, 14))) for _ in range(CAPTIONS))
        path = folder / f"subject_{groups[number % len(groups)]}_{number}.txt"
        path.write_text("\n".join(lines) + "\n")
