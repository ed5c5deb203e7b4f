"""Run `obygaze` from a checkout: `python cli.py ...`. The command is in the package."""

from __future__ import annotations

from obygaze_models.commands.main import main

__all__ = ["main"]

if __name__ == "__main__":
    main()
