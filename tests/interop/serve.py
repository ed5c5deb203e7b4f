"""Serve a folder over HTTP: ``serve.py FOLDER``; prints the address."""

import sys
import threading
from pathlib import Path

from tests.kit.servers import serve

with serve(Path(sys.argv[1])) as served:
    sys.stdout.write(f"{served.url}\n")
    threading.Event().wait()
