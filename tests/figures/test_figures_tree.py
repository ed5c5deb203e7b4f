import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier, export_text

from obygaze_models.drawing.marks import Series
from obygaze_models.estimators.trees import as_tree
from obygaze_models.figures.tree import tree, visits
from tests.figures.drawn import SVG, Drawn

CONCEPTS = ["Type of shot", "Look", "Body", "Expression of emotion"]
CLASSES = [Series("EN, HN", 4), Series("Sure", 3)]


@pytest.fixture(scope="module")
def grown():
    """Our tree, and scikit-learn's own of the same clips."""
    chance = np.random.default_rng(3)
    Z = chance.normal(size=(400, 4))
    y = (Z[:, 0] + Z[:, 1] * Z[:, 2] + 0.5 * chance.normal(size=400) > 0.4).astype(int)
    theirs = DecisionTreeClassifier(max_depth=8, min_samples_leaf=6, random_state=42).fit(Z, y)
    return as_tree(theirs), theirs, Z


def draw(head, concepts=CONCEPTS, **more):
    words = {"title": "A tree", "description": "An outline."}
    return Drawn(tree(head, concepts, CLASSES, key="t", **{**words, **more}))


def conditions(figure):
    """The rows' words, from the top down, without what follows them."""
    drawn = [one for one in figure.all("text") if "≤" in one.text or ">" in one.text]
    return [one.text for one in sorted(drawn, key=lambda one: float(one.get("y")))]


@pytest.mark.parametrize("depth", [2, 4])
def test_the_first_levels_are_scikit_learns(grown, depth):
    head, theirs, _ = grown
    listed = export_text(theirs, feature_names=CONCEPTS, max_depth=depth - 2, decimals=12)
    expected = []
    for line in listed.splitlines():
        bare = line.lstrip("|- ")
        if " <= " in bare or " > " in bare:
            name, sign, at = bare.replace(" <= ", "~≤~").replace(" >  ", "~>~").split("~")
            expected.append(f"{name} {sign} {float(at):.3g}".replace("-", "−"))
    assert conditions(draw(head, depth=depth)) == expected
    assert 3 * depth - 4 <= len(expected) <= 2**depth - 2


def test_every_number_can_be_read_back(grown):
    head, _, Z = grown
    counts = visits(head, Z[:50])
    figure = draw(head, counts=counts)
    level = {0: 0}
    for node in range(len(head.left)):
        for child in (head.left[node], head.right[node]):
            level[int(child)] = level[node] + 1
    parent = {int(c): n for n in range(len(head.left)) for c in (head.left[n], head.right[n])}
    expected = {}
    for node in (node for node, at in level.items() if node != -1 and at < 4):
        expected[f"t/{node}/n"] = counts[node]
        expected[f"t/{node}/EN, HN"], expected[f"t/{node}/Sure"] = head.value[node]
        if node:
            expected[f"t/{node}/threshold"] = head.threshold[parent[node]]
    assert figure.values == expected


def test_visits_are_those_of_scikit_learns_paths(grown):
    head, theirs, Z = grown
    some = Z[::3]
    passed = np.asarray(theirs.decision_path(some).sum(axis=0)).ravel()
    assert visits(head, some).tolist() == passed.tolist()


def test_bars_are_the_classes_shares(grown):
    head = grown[0]
    widths = {
        key: float(one.get("width"))
        for key, one in draw(head).by_key().items()
        if one.tag == f"{SVG}rect"
    }
    whole = widths["t/0/EN, HN"] + widths["t/0/Sure"]
    for key, width in widths.items():
        node, name = int(key.split("/")[1]), key.split("/")[2]
        share = head.value[node][[one.label for one in CLASSES].index(name)]
        assert width / whole == pytest.approx(share, abs=1e-3)


def test_says_where_the_tree_goes_on_and_how_far(grown):
    head = grown[0]
    inner = head.left != -1
    level = np.zeros(len(head.left), dtype=int)
    for node in np.flatnonzero(inner):
        level[head.left[node]] = level[head.right[node]] = level[node] + 1
    more = [word for word in draw(head).words if word.startswith("…")]
    said = [int(word.split()[2]) for word in more]
    assert len(said) == (inner & (level == 3)).sum()
    assert sum(said) == (inner & (level >= 3)).sum()
    assert not [word for word in draw(head, depth=20).words if word.startswith("…")]


def test_a_single_leaf_is_a_row(grown):
    head = as_tree(DecisionTreeClassifier().fit(np.zeros((4, 4)), [0, 0, 0, 1]))
    figure = draw(head)
    assert "all clips" in figure.words
    assert figure.values == {"t/0/EN, HN": 0.75, "t/0/Sure": 0.25}


def test_a_long_name_is_cut_but_not_the_number(grown):
    name = "a concept whose name is longer than any row has room for"
    figure = draw(grown[0], [f"{name} {place}" for place in range(4)])
    ends = [word.split("…")[1] for word in conditions(figure)]
    assert ends == [
        word[word.index(sign) - 1 :]
        for word in conditions(draw(grown[0]))
        for sign in "≤>"
        if sign in word
    ]
    tips = [one.find("{*}title").text for one in figure.all("text") if "≤" in one.text]
    assert all(tip.startswith(name) for tip in tips)
