"""A second world of labels, different from the paper: how dark pictures are, in three films.

The order of levels is not alphabetical, and their names differ from their codes. Names of concepts
contain characters that separate names elsewhere. One film name is a number, and another has spaces
and a sign.
"""

from obygaze_features.annotations import Film, Segment, Timelines
from obygaze_features.manifests import Concept, LabelScheme, Level

SCHEME = LabelScheme(
    "darkness",
    (
        Level("very-high", "High key: bright", ("daylight",), about="no shadow to speak of"),
        Level("not sure", "Cannot tell", about="the print is too worn"),
        Level("A", "Dusk", about="faces are still seen"),
        Level("A+", "Night, or almost", ("pitch dark",)),
    ),
    (
        Concept("rain, snow", sense="seen", about="water: any", instances=("drizzle", "hail")),
        Concept("door: open", source="ours", examples=("a door ajar; light behind",)),
        Concept("him vs her", visual=False, sense="told", about="who is in the light"),
        Concept("hum/none", visual=False, aliases=("drone",), sense="heard"),
    ),
)
#: Films by id. The first name is a number, and the second is not a valid id.
FILMS = {
    "1984": Film("1984", 95.5),
    "Kite_Wind": Film("Kite & Wind", 61.25, "Kite & Wind"),
    "M": Film("M: eine Stadt, 1931", 120.000021, media="M 100%.AVI"),
}
ANNOTATORS = {"Ann_B": "Ann B."}
MARKS = [
    ("1984", "Ann_B", 0, 20.5, "very-high"),
    ("1984", "Ann_B", 20.5, 60, "A+", "rain, snow", "him vs her"),
    ("1984", "zoe", 0, 40.041708, "not sure", "door: open"),
    ("1984", "zoe", 50, 95.5, "A", "rain, snow"),
    ("Kite_Wind", "Ann_B", 3, 41, "A", "hum/none"),
    ("Kite_Wind", "zoe", 0, 61.25, "A+"),
    ("M", "zoe", 10, 11, "not sure", "rain, snow", "door: open", "him vs her", "hum/none"),
]


def darkness() -> Timelines:
    """Return the labels of two annotators, one of whose names is not a valid id."""
    segments = []
    for film, annotator, start, end, level, *concepts in MARKS:
        names = tuple(concepts)
        segments.append(Segment(film, annotator, float(start), float(end), level, names))
    return Timelines(
        "Darkness, 2nd edition",
        segments,
        scheme=SCHEME,
        films=FILMS,
        names=ANNOTATORS,
        source="an archive: reels 1 to 9",
        licence="CC-BY-4.0",
        citation="B., A. & Zoë (2024). Darkness < light.\nFilm & Co., 3(1), 1-9.",
    )
