"""Write the subtitles of MObyGaze's films as SRT files, named after the films.

    python examples/mobygaze/subtitles.py SOURCE FOLDER

SOURCE has the authors' tractive_subtitles.sql and tractive_movies.sql.
"""

import contextlib
import re
import sys
from pathlib import Path

LINE = re.compile(
    r"\(\d+,(\d+),\d+,\d+,'([0-9:.]+)','([0-9:.]+)',(?:NULL|'((?:[^'\\]|\\.)*)'),-?\d+\)", re.DOTALL
)
FILM = re.compile(r"\((\d+),'(tt\d+)','")
ESCAPES = {"n": " ", "r": " ", "t": " ", "0": "", "Z": ""}


def main(source: Path, folder: Path) -> None:
    """Write a file for each film."""
    folder.mkdir()
    films = dict(FILM.findall((source / "tractive_movies.sql").read_text("utf-8")))
    lines = LINE.findall((source / "tractive_subtitles.sql").read_text("utf-8"))
    for number, start, end, escaped in lines:
        text = re.sub(r"\\(.)", lambda mark: ESCAPES.get(mark[1], mark[1]), escaped)
        with contextlib.suppress(UnicodeError):
            text = text.encode("latin-1").decode()  # accents are encoded twice
        words = " ".join(text.split())
        if number in films and words:
            with (folder / f"{films[number]}.srt").open("a", encoding="utf-8") as file:
                file.write(f"{start} --> {end}\n{words}\n\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
