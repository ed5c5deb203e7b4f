"""The `obygaze` script, which exits without a traceback if Ctrl-C is pressed while it starts."""

from __future__ import annotations

import signal


def start() -> None:
    """Run the `obygaze` command.

    Until the command handles signals itself, Ctrl-C ends the process. Nothing has been written by
    then.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from obygaze_models.commands.main import main

    main()


if __name__ == "__main__":
    start()
