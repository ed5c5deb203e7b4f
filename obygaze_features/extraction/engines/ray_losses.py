"""Why a process of a cluster was lost, and what is no loss, but a reason to end the run."""

from __future__ import annotations

import re

from obygaze_features.errors import ClusterError, ObygazeError

__all__ = ["why_lost"]

_LACKS = re.compile(r"(?:ModuleNotFoundError|ImportError): (.+)")
_ODD = re.compile(r"AttributeError: (Can't get attribute .+)")


def why_lost(problem: Exception) -> str:
    """Why a process was lost, in a line; raises what others of its kind would come to as well."""
    cause = getattr(problem, "cause", None)
    if isinstance(cause, ObygazeError):
        raise cause from None
    told = str(problem)
    if not isinstance(cause, Exception):
        cause = None
    if lacks := _LACKS.findall(told) or _ODD.findall(told):
        raise ClusterError(
            f"a machine of the cluster{_where(told)} cannot run obygaze ({lacks[-1].strip()}); "
            "install the same on every machine: pip install 'obygaze[extract,ray]'"
        ) from None
    if cause is not None:
        return f"{type(cause).__name__}: {_first_line(str(cause))}"
    if "node has died" in told or "node was terminated" in told:
        return "its machine is gone"
    if "creation task" in told:  # what was raised stands at the end of its trace
        return _first_line(told.strip().splitlines()[-1])
    return _first_line(told)


def _where(told: str) -> str:
    found = re.search(r"\bip=([0-9a-fA-F.:]+)", told)
    return f" ({found[1]})" if found else ""


def _first_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[0]
