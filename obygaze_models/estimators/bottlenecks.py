"""How concept bottlenecks are fitted in an experiment: the concepts first, then the head.

Concepts are learnt from all clips of the training folds, and C is chosen on all of the
validation folds: an experiment on Hard Negatives against Sure trains on no Easy Negative, and
the concepts' negatives are just those. No clip of another fold has any part. The head is fitted
on the training and the validation clips, as the paper does; but for the hybrid, whose validation
clips say how it does without its concepts.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from obygaze_features.errors import ExperimentError
from obygaze_models.estimators.directions import Output
from obygaze_models.estimators.learners import rows_of_same_folds
from obygaze_models.estimators.registry import Fitted
from obygaze_models.experiments.known import Known

if TYPE_CHECKING:
    from obygaze_models.estimators.concepts import ConceptBank

__all__ = [
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
    concept_C: float | tuple[float, ...] | None = None,  # noqa: N803
    output: Output = "distance",
    max_depth: int | None = 10,
    min_samples_leaf: int = 1,
    random_state: int | None = None,
) -> Fitted:
    """A decision tree on distances from the concepts' hyperplanes."""
    fit = _with_bank(known, train, validation, labels, seed, negatives, kind, balance, concept_C)
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
    concept_C: float | tuple[float, ...] | None = None,  # noqa: N803
    output: Output = "distance",
    penalty: Penalty = "l2",
    C: float = 0.1,  # noqa: N803
) -> Fitted:
    """Logistic regression on distances from the concepts' hyperplanes."""
    fit = _with_bank(known, train, validation, labels, seed, negatives, kind, balance, concept_C)
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
    concept_C: float | tuple[float, ...] | None = None,  # noqa: N803
    output: Output = "distance",
    C: float = 1.0,  # noqa: N803
    l1_ratio: float = 0.5,
) -> Fitted:
    """A sparse linear rule on distances from the concepts' hyperplanes."""
    fit = _with_bank(known, train, validation, labels, seed, negatives, kind, balance, concept_C)
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
    concept_C: float | tuple[float, ...] | None = None,  # noqa: N803
    output: Output = "distance",
    C: float = 0.1,  # noqa: N803
    residual_C: float = 1.0,  # noqa: N803
) -> Fitted:
    """A linear bottleneck and a residual; validation says how it does without the concepts."""
    from obygaze_models.estimators.pcbm import PCBMHybrid

    bank, seen, facts = fit_bank(
        known, train, validation, seed, negatives, kind, balance, concept_C
    )
    model = PCBMHybrid(bank, output, C, residual_C=residual_C, random_state=seed)
    X = known.features  # noqa: N806
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
    C: float = 0.1,  # noqa: N803
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
    X = known.features[rows]  # noqa: N806
    bank = RandomDirections(count, seed).fit(X)
    model = PCBMClassifier(bank, head, random_state=seed).fit(X, labels[rows])
    return Fitted(model, _classes(labels), np.unique(rows))


def fit_bank(
    known: Known,
    train: Array,
    validation: Array,
    seed: int,
    negatives: str,
    kind: Kind,
    balance: Balance,
    concept_C: float | tuple[float, ...] | None,  # noqa: N803
) -> tuple[ConceptBank, Array, dict[str, Any]]:
    """The concepts' directions, the rows that had a part in them, and what is worth keeping."""
    from obygaze_models.estimators.concepts import DEFAULT_CS, ConceptBank, DegenerateConcept
    from obygaze_models.estimators.targets import concept_targets

    if not known.concept_names:
        raise ExperimentError("the labels mark no concepts, which a bottleneck learns")
    learn, choose = rows_of_same_folds(known, train, validation)
    targets = concept_targets(known.levels, known.concepts, negatives)
    if concept_C is None:
        concept_C = DEFAULT_CS  # noqa: N806
    Cs = concept_C if isinstance(concept_C, tuple) else (concept_C,)  # noqa: N806
    bank = ConceptBank(kind, Cs, balance=balance, random_state=seed)
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
        "negatives": negatives,
        "concepts": dict(zip(bank.names_, bank.quality_, strict=True)),
        "skipped": bank.skipped_,
        "warnings": bank.warnings_,
    }
    return bank, np.union1d(np.concatenate([learn, choose]), np.union1d(train, validation)), facts


def _with_bank(
    known: Known,
    train: Array,
    validation: Array,
    labels: Array,
    seed: int,
    negatives: Negatives,
    kind: Kind,
    balance: Balance,
    concept_C: float | tuple[float, ...] | None,  # noqa: N803
) -> Callable[..., Fitted]:
    """What fits a `PCBMClassifier` with given options on a bank, once that is learnt."""
    from obygaze_models.estimators.pcbm import PCBMClassifier

    bank, seen, facts = fit_bank(
        known, train, validation, seed, negatives, kind, balance, concept_C
    )
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
