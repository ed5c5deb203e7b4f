"""Run `obygaze` from a checkout: `python cli.py ...`. The command is in the package."""

from __future__ import annotations

from obygaze_models.commands.start import start

__all__ = ["start"]

if __name__ == "__main__":
    start()
