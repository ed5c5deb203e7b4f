"""`import obygaze_features, obygaze_models`: the public names, and the time to import them."""

import copy
import pickle
import subprocess
import sys
from collections.abc import Iterator
from inspect import Parameter, isfunction, signature
from pathlib import Path
from typing import get_type_hints

import pytest

import obygaze_features as of
import obygaze_models as om
from obygaze_features.extraction.job import Options, OptionTypes


@pytest.mark.parametrize("package", [of, om])
def test_public_names_are_documented(package):
    for name in 2 * package.__all__:  # functions stay when rooms of their name are loaded
        value = getattr(package, name)
        assert value.__doc__, name
        assert value.__name__ == name
    with pytest.raises(AttributeError, match="open_stor"):
        _ = package.open_stor


def error_classes(kind: type = of.ObygazeError) -> Iterator[type]:
    """Return `ObygazeError` and its subclasses in the modules that are loaded."""
    yield kind
    for child in kind.__subclasses__():
        yield from error_classes(child)


#: Arguments for the constructors of errors, by parameter name.
PARTS = {"rows": range(3), "reason": "is empty", "consequence": "the rest is readable"}


def test_every_error_survives_pickling():
    """Pools send errors by pickle, and an unreadable one breaks the whole pool."""
    kinds = list(error_classes())
    assert len(kinds) > 14
    place = Path("film.mp4")
    for kind in kinds:
        parts = {"where": place} | PARTS
        own = [parts[name] for name in signature(kind).parameters if name != "parts"]
        for arguments in [own] if own else [["no such film"], [place, "is empty"]]:
            error = kind(*arguments)
            error.add_note("seen at night")
            for copied in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
                assert type(copied) is kind
                assert (str(copied), copied.args) == (str(error), error.args)
                assert vars(copied) == vars(error)


@pytest.mark.night
@pytest.mark.parametrize("package", ["obygaze_features", "obygaze_models"])
def test_import_takes_under_100_ms(package):
    code = "import time; t = time.perf_counter(); import {}; print(time.perf_counter() - t)"
    seconds = []
    for names in (package, "json, typing"):
        command = [sys.executable, "-c", code.format(names)]
        seconds.append(float(subprocess.check_output(command)))
    assert seconds[0] < max(0.1, 2 * seconds[1])


def test_functions_take_options_by_name():
    functions = [getattr(of, name) for name in of.__all__ if isfunction(getattr(of, name))]
    functions.remove(of.extract)
    assert get_type_hints(OptionTypes) == get_type_hints(Options)
    for function in functions:
        kinds = [parameter.kind for parameter in signature(function).parameters.values()]
        assert Parameter.VAR_KEYWORD not in kinds, function
