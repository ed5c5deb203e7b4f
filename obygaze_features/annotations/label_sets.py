"""Label sets compared; the zoo, which knows no timelines, imports the module of `manifests`."""

from obygaze_features.manifests.label_agreement import (
    ConceptAgreement,
    LabelSetAgreement,
    compare_label_sets,
)

__all__ = ["ConceptAgreement", "LabelSetAgreement", "compare_label_sets"]
