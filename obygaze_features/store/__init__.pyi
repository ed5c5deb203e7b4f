# The names of obygaze_features.store, which are imported on first use.
from .combine import merge as merge
from .combine import subset as subset
from .format import ArraySpec as ArraySpec
from .format import Recipe as Recipe
from .format import Status as Status
from .store import Store as Store
from .store import StoreLike as StoreLike
from .store import open_store as open_store
from .writer import Done as Done
from .writer import Failed as Failed
from .writer import StoreWriter as StoreWriter
