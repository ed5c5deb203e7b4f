"""How concept bottlenecks are fitted in an experiment: the concepts first, then the head.

Concepts are learnt from all clips of the training folds, and C is chosen on all of the
validation folds: an experiment on Hard Negatives against Sure trains on no Easy Negative, and
the concepts' negatives are just those. With ``refit``, they are learnt once more from both, with
the C that was chosen, as the authors' code does. No clip of another fold has any part. The head
is fitted on the training and the validation clips, as the paper does; but for the hybrid, whose
validation clips say how it does without its concepts.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from obygaze_features.errors import ExperimentError
from obygaze_models.dataset import ClipDataset as Known
from obygaze_models.estimators.directions import Output
from obygaze_models.estimators.learners import rows_of_same_folds
from obygaze_models.estimators.registry import Fitted

if TYPE_CHECKING:
    from obygaze_models.estimators.concepts import ConceptBank

__all__ = [
    "Learning",
    "fit_bank",
    "oracle_logistic",
    "oracle_tree",
    "pcbm_elastic_net",
    "pcbm_hybrid",
    "pcbm_logistic",
    "pcbm_tree",
    "random_directions",
]

Array = NDArray[Any]
Kind = Literal["svm", "mean-difference"]
Negatives = Literal["a", "b", "c"]
Balance = Literal["weights", "subsample"]
Penalty = Literal["l1", "l2"]
ConceptC = float | tuple[float, ...] | dict[str, float] | None


#: The heads of one experiment share their concepts.
_BANKS: WeakKeyDictionary[Known, dict[Any, tuple[Any, dict[str, Any]]]] = WeakKeyDictionary()


class Learning(NamedTuple):
    """How concepts are learnt: against what, as what, balanced how, by which C, once or again."""

    negatives: str
    kind: Kind
    balance: Balance
    C: ConceptC
    refit: bool


def pcbm_tree(
    known: Known,
    train: Array,
    validation: Array,
    labels: Array,
    seed: int,
    *,
    negatives: Negatives = "a",
    kind: Kind = "svm",
    balance: Balance = "weights",
    concept_C: ConceptC = None,
    refit: bool = False,
    output: Output = "distance",
    max_depth: int | None = 10,
    min_samples_leaf: int = 1,
    random_state: int | None = None,
) -> Fitted:
    """A decision tree on distances from the concepts' hyperplanes."""
    how = Learning(negatives, kind, balance, concept_C, refit)
    fit = _with_bank(known, train, validation, labels, seed, how)
    return fit(
        head="tree", output=output, max_depth=max_depth, min_samples_leaf=min_samples_leaf,
        random_state=seed if random_state is None else random_state,
    )  # fmt: skip


def pcbm_logistic(
    known: Known,
    train: Array,
    validation: Array,
    labels: Array,
    seed: int,
    *,
    negatives: Negatives = "a",
    kind: Kind = "svm",
    balance: Balance = "weights",
    concept_C: ConceptC = None,
    refit: bool = False,
    output: Output = "distance",
    penalty: Penalty = "l2",
    C: float = 0.1,
) -> Fitted:
    """Logistic regression on distances from the concepts' hyperplanes."""
    how = Learning(negatives, kind, balance, concept_C, refit)
    fit = _with_bank(known, train, validation, labels, seed, how)
    return fit(head="logistic", output=output, C=C, l1_ratio=float(penalty == "l1"))


def pcbm_elastic_net(
    known: Known,
    train: Array,
    validation: Array,
    labels: Array,
    seed: int,
    *,
    negatives: Negatives = "a",
    kind: Kind = "svm",
    balance: Balance = "weights",
    concept_C: ConceptC = None,
    refit: bool = False,
    output: Output = "distance",
    C: float = 1.0,
    l1_ratio: float = 0.5,
) -> Fitted:
    """A sparse linear rule on distances from the concepts' hyperplanes."""
    how = Learning(negatives, kind, balance, concept_C, refit)
    fit = _with_bank(known, train, validation, labels, seed, how)
    return fit(head="elastic-net", output=output, C=C, l1_ratio=l1_ratio)


def pcbm_hybrid(
    known: Known,
    train: Array,
    validation: Array,
    labels: Array,
    seed: int,
    *,
    negatives: Negatives = "a",
    kind: Kind = "svm",
    balance: Balance = "weights",
    concept_C: ConceptC = None,
    refit: bool = False,
    output: Output = "distance",
    C: float = 0.1,
    residual_C: float = 1.0,
) -> Fitted:
    """A linear bottleneck and a residual; validation says how it does without the concepts."""
    from obygaze_models.estimators.pcbm import PCBMHybrid

    how = Learning(negatives, kind, balance, concept_C, refit)
    bank, seen, facts = fit_bank(known, train, validation, seed, how)
    model = PCBMHybrid(bank, output, C, residual_C=residual_C, random_state=seed)
    X = known.features
    model.fit(X[train], labels[train], X[validation], labels[validation])
    return Fitted(model, _classes(labels), seen, facts=facts | {"accuracy": model.accuracy_})


def oracle_tree(
    known: Known,
    train: Array,
    validation: Array,
    labels: Array,
    seed: int,
    *,
    max_depth: int | None = 10,
    min_samples_leaf: int = 1,
) -> Fitted:
    """A decision tree on the annotated concepts."""
    options = {"max_depth": max_depth, "min_samples_leaf": min_samples_leaf}
    return _oracle(known, train, validation, labels, seed, head="tree", **options)


def oracle_logistic(
    known: Known,
    train: Array,
    validation: Array,
    labels: Array,
    seed: int,
    *,
    penalty: Penalty = "l2",
    C: float = 0.1,
) -> Fitted:
    """Logistic regression on the annotated concepts."""
    options = {"C": C, "l1_ratio": float(penalty == "l1")}
    return _oracle(known, train, validation, labels, seed, head="logistic", **options)


def random_directions(
    known: Known,
    train: Array,
    validation: Array,
    labels: Array,
    seed: int,
    *,
    head: Literal["tree", "logistic"] = "tree",
    n_directions: int | None = None,
) -> Fitted:
    """A bottleneck of directions that mean nothing; by default one for each concept."""
    from obygaze_models.estimators.directions import RandomDirections
    from obygaze_models.estimators.pcbm import PCBMClassifier

    count = n_directions or len(known.concept_names)
    if not count:
        raise ExperimentError("the labels mark no concepts to be matched; give n_directions")
    rows = np.concatenate([train, validation])
    X = known.features[rows]
    bank = RandomDirections(count, seed).fit(X)
    model = PCBMClassifier(bank, head, random_state=seed).fit(X, labels[rows])
    return Fitted(model, _classes(labels), np.unique(rows))


def fit_bank(
    known: Known,
    train: Array,
    validation: Array,
    seed: int,
    how: Learning,
) -> tuple[ConceptBank, Array, dict[str, Any]]:
    """The concepts' directions, the rows that had a part in them, and what is worth keeping."""
    if not known.concept_names:
        raise ExperimentError("the labels mark no concepts, which a bottleneck learns")
    learn, choose = rows_of_same_folds(known, train, validation)
    kept = _BANKS.setdefault(known, {})
    key = repr(how), seed, learn.tobytes(), choose.tobytes()
    if key not in kept:
        kept[key] = _learnt(known, learn, choose, seed, how)
    bank, facts = kept[key]
    return bank, np.union1d(np.concatenate([learn, choose]), np.union1d(train, validation)), facts


def _learnt(
    known: Known, learn: Array, choose: Array, seed: int, how: Learning
) -> tuple[ConceptBank, dict[str, Any]]:
    from obygaze_models.estimators.concepts import DEFAULT_CS, ConceptBank, DegenerateConcept
    from obygaze_models.tasks import concept_targets

    targets = concept_targets(known.levels, known.concepts, how.negatives)
    Cs = DEFAULT_CS if how.C is None else how.C
    if isinstance(Cs, float | int):
        Cs = (Cs,)
    bank = ConceptBank(how.kind, Cs, balance=how.balance, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DegenerateConcept)  # they are among the facts
        bank.fit(
            known.features[learn],
            targets[learn],
            known.features[choose],
            targets[choose],
            names=known.concept_names,
        )
    facts = {
        "negatives": how.negatives,
        "concepts": dict(zip(bank.names_, bank.quality_, strict=True)),
        "skipped": bank.skipped_,
        "warnings": bank.warnings_,
    }
    if how.refit:
        bank = _refitted(bank, known, np.union1d(learn, choose), targets)
    return bank, facts


def _refitted(bank: ConceptBank, known: Known, rows: Array, targets: Array) -> ConceptBank:
    """The same concepts with the C that they have, learnt from more clips."""
    from obygaze_models.estimators.concepts import ConceptBank, DegenerateConcept

    chosen = {name: C for name, C in zip(bank.names_, bank.C_, strict=True) if C is not None}
    Cs = chosen or bank.Cs
    columns = [known.concept_names.index(name) for name in bank.names_]
    again = ConceptBank(bank.kind, Cs, balance=bank.balance, random_state=bank.random_state)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DegenerateConcept)  # the first bank has told
        return again.fit(known.features[rows], targets[rows][:, columns], names=bank.names_)


def _with_bank(
    known: Known,
    train: Array,
    validation: Array,
    labels: Array,
    seed: int,
    how: Learning,
) -> Callable[..., Fitted]:
    """What fits a `PCBMClassifier` with given options on a bank, once that is learnt."""
    from obygaze_models.estimators.pcbm import PCBMClassifier

    bank, seen, facts = fit_bank(known, train, validation, seed, how)
    rows = np.concatenate([train, validation])

    def fit(**options: Any) -> Fitted:
        model = PCBMClassifier(bank, **{"random_state": seed, **options})
        model.fit(known.features[rows], labels[rows])
        return Fitted(model, _classes(labels), seen, facts=facts)

    return fit


def _oracle(
    known: Known, train: Array, validation: Array, labels: Array, seed: int, **options: Any
) -> Fitted:
    from obygaze_models.estimators.pcbm import OracleBottleneck

    if not known.concept_names:
        raise ExperimentError("the labels mark no concepts, which an oracle bottleneck reads")
    rows = np.concatenate([train, validation])
    concepts = known.concepts.astype(np.float64)
    model = OracleBottleneck(**options, random_state=seed).fit(concepts[rows], labels[rows])
    return Fitted(model, _classes(labels), np.unique(rows), inputs=concepts)


def _classes(labels: Array) -> int:
    return int(labels.max()) + 1
