"""The basis of all commands: lazily imported groups, common options, and one-line errors."""

from __future__ import annotations

import errno
import functools
import json
import os
import pkgutil
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import click

from obygaze_features.common.package import OPTIONAL, missing
from obygaze_features.common.printer import Result, describe
from obygaze_features.common.redaction import printable, redact_url
from obygaze_features.errors import ObygazeError, UsageError

MAX_ERROR = 1500
"""The maximum length of an error message, in characters; longer ones are cut in the middle."""
REMEDIES = {
    errno.ENAMETOOLONG: "use a shorter name",
    errno.ENOSPC: "free some space",
}
"""What to do about errors of the system, by their number."""
PARTLY_DONE = 3
"""The exit code when something was left out or failed."""
Command = TypeVar("Command", bound=Callable[..., Any])


def echo(text: object, *, err: bool = False, **style: Any) -> None:
    """Print a command's output. Commands print only with this function and `echo_json`.

    Control characters are escaped, because names and reasons may come from other people's files and
    servers. Styles are used only in terminals, and not if NO_COLOR is set.
    """
    line = printable(str(text))
    if style and not os.environ.get("NO_COLOR"):
        line = click.style(line, **style)
    click.echo(line, err=err)


def show(result: Result, as_json: bool = False) -> None:
    """Print a command's result: as JSON for scripts, or as facts and tables for people."""
    if as_json:
        echo_json(result)
    else:
        echo(describe(result))


def echo_json(value: Any) -> None:
    """Print a value as JSON on standard output; paths are strings."""
    click.echo(printable(json.dumps(value, indent=2, ensure_ascii=False, default=os.fspath)))


def exit_if(problem: object, code: int = PARTLY_DONE) -> None:
    """Exit the command with this code if `problem` is true."""
    if problem:
        click.get_current_context().exit(code)


def _split_names(
    ctx: click.Context,
    param: click.Parameter,
    values: Sequence[str],
) -> list[str] | None:
    """Split an option's values at commas; return None if no names are left."""
    names = [name.strip() for name in ",".join(values).split(",")]
    return list(filter(None, names)) or None


names_option = functools.partial(click.option, multiple=True, callback=_split_names)
"""An option that takes several names, separated by commas or in several options."""


def film_option(text: str) -> Callable[[Command], Command]:
    """Return the option ``--film``, which selects films."""
    ways = "Comma-separated ids or titles; * matches anything, and ! leaves films out ('!tt01*')."
    return click.option(
        "--film",
        "films",
        multiple=True,
        callback=lambda _context, _option, films: films or None,
        metavar="FILM,...",
        help=f"{text} {ways}",
    )


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
overwrite_option = click.option(
    "--overwrite",
    is_flag=True,
    help="Replace the output if it exists.",
)
#: A path, as a `Path`.
PATH = click.Path(path_type=Path)


def output_option(text: str, **settings: Any) -> Callable[[Command], Command]:
    """Return the option ``--output``, required unless it has a default or ``required=False``."""
    settings.setdefault("required", "default" not in settings)
    return click.option("-o", "--output", type=PATH, help=text, **settings)


def output_options(text: str, **settings: Any) -> Callable[[Command], Command]:
    """Return the options ``--output``, as in `output_option`, and ``--overwrite``."""

    def add(command: Command) -> Command:
        return output_option(text, **settings)(overwrite_option(command))

    return add


def _address(value: str | Path) -> str | Path:
    if "://" in str(value):
        return value
    return Path(value)


#: The path of a folder or a file, or a URL as text.
ADDRESS = click.types.FuncParamType(_address)
ADDRESS.name = "address"


def _local(ctx: click.Context, param: click.Parameter, value: str | Path) -> Path:
    if isinstance(value, str):
        where = redact_url(value)
        raise UsageError(f"{where} is a URL; pass a path (to fetch a store: obygaze stores pull)")
    return value


def folder_argument(name: str) -> Callable[[Command], Command]:
    """Return a positional argument for a folder or file, which is passed as a `Path`."""
    return click.argument(name, type=ADDRESS, callback=_local)


def column_option(meanings: str, example: str) -> Callable[[Command], Command]:
    """Return the option ``--column``, which is passed as a dictionary."""
    return click.option(
        "--column",
        "columns",
        multiple=True,
        metavar="MEANING=COLUMN",
        callback=read_pairs,
        help=f"Columns by meaning: {meanings}. Example: --column {example}",
    )


def read_pairs(ctx: click.Context, param: click.Parameter, pairs: Sequence[str]) -> dict[str, str]:
    """Turn the values NAME=VALUE of a repeatable option into a dictionary."""
    mapping = {}
    for pair in pairs:
        name, _, value = pair.partition("=")
        if not value or name in mapping:
            raise UsageError(f"{param.opts[0]} {pair}: pass {param.metavar}, each name once")
        mapping[name] = value
    return mapping


levels_option = click.option(
    "--levels",
    metavar="LOWEST,...,HIGHEST|FILE",
    help="Your own levels, from lowest to highest; or a TOML or JSON file with your levels and "
    "concepts, or the folder of a manifest or of timelines that has them. By default, those of the "
    "manifest or of the ELAN files, or else ObyGaze12's.",
)
"""The option ``--levels``, for your own levels."""


class RootGroup(click.Group):
    """The top-level group, which imports a command when it is called.

    It turns obygaze's errors into one line and an exit code.

    Parameters
    ----------
    lazy
        For each command, its "module:attribute" and one line of help. The line is repeated here so
        that ``--help`` does not import the commands. A test compares it with the command's help.
    """

    def __init__(self, *args: Any, lazy: Mapping[str, tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands, in the order in which users need them."""
        return list(self.lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return the command, or None if there is no such command."""
        if cmd_name not in self.lazy:
            return super().get_command(ctx, cmd_name)
        address, _ = self.lazy[cmd_name]
        command: click.Command = pkgutil.resolve_name(address)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands with their stored lines of help."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in self.lazy.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; print an expected error as one line, unless ``--debug`` was passed."""
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                # Ctrl-C stays ignored in the background of a shell script.
                if signal.getsignal(number) != signal.SIG_IGN:
                    signal.signal(number, _stop)
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stopped:
            is_terminated = stopped.args == (signal.SIGTERM,)
            echo("Terminated." if is_terminated else "Interrupted.", err=True)
            ctx.exit(143 if is_terminated else 130)
        except Exception as error:
            text = _explain(error, ctx.invoked_subcommand)
            if not text or ctx.params.get("debug"):
                raise
            echo(f"Error: {text}", err=True)
            ctx.exit(getattr(error, "exit_code", 1))


class Stopped(KeyboardInterrupt):
    """Ctrl-C or SIGTERM.

    If a plain KeyboardInterrupt leaves `exec`, Python exits as if it had not been caught.
    """


def _stop(number: int, frame: FrameType | None) -> None:
    raise Stopped(number)


def _explain(error: Exception, command: str | None) -> str:
    """Return an error as one line; "" if only a traceback would help."""
    if isinstance(error, ModuleNotFoundError) and error.name in OPTIONAL:
        extra = {"features": "extract", "report": "report"}.get(command or "", "models")
        error = missing(error.name, error, extra)
    if isinstance(error, ObygazeError):
        text = str(error).replace("\n", r"\n")
        if len(text) > MAX_ERROR:  # it quotes text from other sources
            text = f"{text[: MAX_ERROR // 2]} ... {text[-MAX_ERROR // 2 :]}"
        return text
    if isinstance(error, UnicodeEncodeError):
        return f"{error}; set PYTHONUTF8=1"
    # A pipe that was closed (`obygaze ... | head`) is handled by click.
    if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
        remedy = REMEDIES.get(error.errno or 0, "check the path and the disk")
        return f"{error.filename or command}: {error.strerror or error}; {remedy}"
    if isinstance(error, MemoryError):
        return "out of memory; free some memory, and run the command again"
    return ""
