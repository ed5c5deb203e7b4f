"""scikit-learn's own checks, on every estimator that they fit.

They do not fit `ConceptBank` (its targets are a matrix with -1 for "takes no part", and it cannot
be fitted without), `FilmPrior` (its X are films, not numbers) and `MajorityClassifier` (checks
ask that something be learnt from X, which it never looks at).
"""

from sklearn.utils.estimator_checks import parametrize_with_checks

from obygaze_models.estimators.directions import RandomDirections
from obygaze_models.estimators.pcbm import OracleBottleneck, PCBMClassifier, PCBMHybrid
from obygaze_models.estimators.simple import LogisticClassifier, NearestClips
from obygaze_models.estimators.svm import LinearSVMClassifier


@parametrize_with_checks(
    [
        LinearSVMClassifier(),
        PCBMClassifier(),
        PCBMClassifier(head="logistic", output="decision"),
        PCBMHybrid(),
        OracleBottleneck(),
        RandomDirections(),
        LogisticClassifier(),
        NearestClips(),
    ]
)
def test_follows_scikit_learns_conventions(estimator, check):
    check(estimator)
