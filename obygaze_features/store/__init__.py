"""Feature stores, which labs can share. stores/README.md specifies the format.

Import other names from their own modules, for example `verify` from `store.verify`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
