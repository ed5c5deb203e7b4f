# The names of obygaze_features.backbones, which are imported on first use.
from .backbone import Backbone as Backbone
from .backbone import Family as Family
from .backbone import KnownCheckpoint as KnownCheckpoint
from .load import load_backbone as load_backbone
from .registry import families as families
from .registry import known_checkpoints as known_checkpoints
