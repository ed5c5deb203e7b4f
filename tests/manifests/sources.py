"""Small files of the same make as the authors'."""

from __future__ import annotations

from pathlib import Path

HEADER = "idx;util;clip;label;overlap_ratio;concepts;id;movie;srt_name;video_name;graph_number"


def row(
    number: int, label: str, concepts: str, *, film: str = "tt0108160", video: str = "avi"
) -> str:
    """A row as the authors write it; without `video` one that names no file."""
    name = f"{film}_scene_{number}.{video}" if video else ""
    return (
        f"{number};1;{film}scene-{number:03d}.ss-0001.es-0001;{label};1.00;{concepts};"
        f"{film}-{number:03d};{film};scene-{number:03d}.srt;{name};{number}"
    )


ROWS = [
    row(1, "Easy Neg", "['']"),
    row(2, "Hard Neg", "['Speech']"),
    row(3, "Not Sure", "['Activities', ' Exp of  emotion']"),
    row(4, "Sure", "['Type of plan', ' Clothes', ' Speech']", video="mkv"),
    row(5, "Hard Neg", "['Look']", video=""),
    row(1, "Sure", "['Body']", film="tt0110912", video="mp4"),
]


def write_source(path: Path, rows: list[str] = ROWS, header: str = HEADER) -> Path:
    """A file with CRLF, a blank second line, and so on, as the authors' is."""
    lines = [header, ";" * 10, *rows]
    path.write_bytes("".join(f"{line}\r\n" for line in lines).encode())
    return path
