"""A process that has imported all commands, and runs each in a fork in which system calls fail.

Started with ``failing.c`` preloaded. Reads a line of JSON a command, and answers with one.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path

MAX_SECONDS = 60
WARM = (
    "cli", "h5py", "numpy", "fsspec.implementations.local", "zarr", "torch", "PIL.Image",
    "transformers", "sklearn.tree", "skops.io", "msgspec",
    "obygaze_features.commands.stores", "obygaze_features.commands.stores_transfer",
    "obygaze_features.commands.manifests", "obygaze_features.commands.extract",
    "obygaze_features.store.repair", "obygaze_features.extraction.extract",
    "obygaze_features.extraction.local", "obygaze_models.commands.models",
    "obygaze_models.experiments.run", "obygaze_models.estimators.registry",
)  # fmt: skip


def run(arguments: list[str], folder: str, point: int, mode: int, log: str) -> None:
    """The forked child: ends with the command's exit code, or 99 after a traceback."""
    library = ctypes.CDLL(None)
    with Path(log).open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    code = 99
    library.faults_arm(folder.encode(), ctypes.c_long(point), ctypes.c_long(mode))
    try:
        from cli import main

        main(arguments, prog_name="obygaze")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    Path(f"{log}.count").write_text(str(library.faults_count()))
    os._exit(code)


def main() -> None:
    """Answer until standard input ends."""
    for name in WARM:
        importlib.import_module(name)
    print("ready", flush=True)  # noqa: T201
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if not child:
            os.setpgid(0, 0)
            run(**request)
        end, status = time.monotonic() + MAX_SECONDS, None
        while status is None and time.monotonic() < end:
            done, ended = os.waitpid(child, os.WNOHANG)
            status = os.waitstatus_to_exitcode(ended) if done else None
            time.sleep(0.002)
        if status is None:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
        print(json.dumps(status), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
