"""The basis of all commands: lazily imported groups, common options, and one-line errors."""

from __future__ import annotations

import functools
import importlib
import json
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import click
from click.exceptions import NoSuchCommand

from obygaze_features.common.package import missing_extra
from obygaze_features.common.printer import Result, describe
from obygaze_features.common.text import MAX_TIME_S, printable, redact_url, unknown_name
from obygaze_features.errors import ObygazeError, UsageError, translate

MAX_ERROR = 1500
"""The maximum length of an error message in characters."""
PARTLY_DONE = 3
"""The exit code when something was left out or failed, or when time ran out."""
Command = TypeVar("Command", bound=Callable[..., Any])


def echo(
    text: object = "", *, err: bool = False, nl: bool = True, strong: str = "", **style: Any
) -> None:
    """Print a command's output. Commands must always print with this function.

    Control characters are escaped, because names and reasons may come from other people's files and
    servers. The first occurrence of `strong` is bold. Styles are only used in terminals, unless
    NO_COLOR is set.
    """
    line = printable(str(text))
    if not os.environ.get("NO_COLOR"):
        line = line.replace(strong, click.style(strong, bold=True), 1) if strong else line
        line = click.style(line, **style) if style else line
    click.echo(line, err=err, nl=nl)


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


def join_options(*options: Callable[[Any], Any]) -> Callable[[Command], Command]:
    """Combine several options into one decorator, in the order in which the help lists them."""
    return lambda command: functools.reduce(lambda done, add: add(done), options[::-1], command)


def split_names(
    ctx: click.Context, param: click.Parameter, value: str | Sequence[str] | None
) -> list[str] | None:
    """Split an option's value at commas, or read one name per line from a file (``@FILE``)."""
    names: list[str] = []
    for part in [value] if isinstance(value, str) else value or ():
        if part.startswith("@"):
            names += _read_names(part[1:]).split()
        else:
            names += filter(None, map(str.strip, part.split(",")))
    return names if value else None


def _read_names(path: str) -> str:
    """Read a file of names as text."""
    foreign = OSError, UnicodeDecodeError
    with translate(UsageError, path, "cannot be read: {}", foreign=foreign):
        return Path(path).read_text(encoding="utf-8")


names_option = functools.partial(click.option, callback=split_names)
"""An option that takes several names, which `split_names` reads."""


def _film_names(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> list[str]:
    """Collect the values of ``--film`` without splitting them: titles may contain commas."""
    names: list[str] = []
    for value in values:
        names += _read_names(value[1:]).splitlines() if value.startswith("@") else [value]
    names = [name for name in names if name.strip(" ,")]
    if values and not names:
        raise UsageError("--film is empty; pass the id or title of a film")
    return names


def film_option(text: str) -> Callable[[Command], Command]:
    """Return the option ``--film``, which selects films."""
    ways = "By id or title, separated by commas; * matches anything, ! takes away ('!tt01*')."
    return click.option(
        "--film",
        "films",
        multiple=True,
        metavar="FILM,...",
        callback=_film_names,
        help=f"{text} {ways}",
    )


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
overwrite_option = click.option(
    "--overwrite", is_flag=True, help="Replace the output if it exists."
)
#: A path, as a `Path`.
PATH = click.Path(path_type=Path)


class Seconds(click.ParamType[float]):
    """A time in seconds of at least `least`; with `above`, it must be greater than `least`."""

    name = "seconds"

    def __init__(self, least: float = -MAX_TIME_S, *, above: bool = False) -> None:
        self.least, self.above = least, above

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number; fail if it is not finite or is out of bounds."""
        number = click.FLOAT.convert(value, param, ctx)
        is_in_range = self.least <= number <= MAX_TIME_S
        if not is_in_range or (self.above and number == self.least):
            bound = f"above {self.least:g} and up" if self.above else f"from {self.least:g}"
            self.fail(f"{value} is not a number {bound} to {MAX_TIME_S:g}.", param, ctx)
        return float(number)


def output_option(
    text: str, *, required: bool = True, default: Path | None = None
) -> Callable[[Command], Command]:
    """Return the option ``--output``, for commands that write a file or folder."""
    is_required = required and default is None
    return click.option(
        "-o", "--output", type=PATH, required=is_required, default=default, help=text
    )


def output_options(text: str, **settings: Any) -> Callable[[Command], Command]:
    """Return the options ``--output``, as in `output_option`, and ``--overwrite``."""
    return join_options(output_option(text, **settings), overwrite_option)


class _Local(click.Path):
    """A parameter that takes a local path and rejects URLs."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if "://" in str(value):
            where = redact_url(value)
            raise UsageError(
                f"{where} is a URL, but a local path is needed. Download it first. If it is a "
                f"store, use: obygaze stores pull {where} -o NAME.zarr"
            )
        return super().convert(value, param, ctx)


def folder_argument(name: str) -> Callable[[Command], Command]:
    """Return a positional argument for a folder or file, which is passed as a `Path`."""
    return click.argument(name, type=_Local(path_type=Path))


def _address(value: str | Path) -> str | Path:
    return value if "://" in str(value) else Path(value)


#: An existing store: the path of a folder or archive, or its URL as text.
ADDRESS = click.types.FuncParamType(_address)
ADDRESS.name = "address"


def store_argument(name: str) -> Callable[[Command], Command]:
    """Return an argument that names an existing store; its value is a `Path` or a URL string."""
    return click.argument(name, type=ADDRESS)


def column_option(meanings: str, example: str) -> Callable[[Command], Command]:
    """Return the option ``--column``, which is passed as a dictionary."""
    return click.option(
        "--column",
        "columns",
        multiple=True,
        metavar="MEANING=COLUMN",
        callback=lambda ctx, param, pairs: _mapping(pairs, example),
        help=f"Columns by meaning: {meanings}.",
    )


def _mapping(pairs: Sequence[str], example: str) -> dict[str, str]:
    mapping = {meaning: column for meaning, _, column in (pair.partition("=") for pair in pairs)}
    if "" in mapping.values() or len(mapping) < len(pairs):
        takes = "--column takes MEANING=COLUMN, once per meaning"
        raise UsageError(f"{takes}, for example --column {example}")
    return mapping


levels_option = click.option(
    "--levels",
    metavar="LOWEST,...,HIGHEST|FILE",
    help="Your own levels, from lowest to highest; or a TOML or JSON file with your levels and "
    "concepts, or the folder of a manifest or of timelines that has them. By default, the levels "
    "of the manifest to be labelled, or else ObyGaze12's.",
)
"""The option for your own levels, which all commands that read labels have."""


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called.

    Parameters
    ----------
    lazy
        For each name, its "module:attribute" and one line of help. The line is repeated here so
        that the group's ``--help`` does not import the commands. A test compares it with the
        command's own line.
    """

    def __init__(self, *args: Any, lazy: Mapping[str, tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands, in the order in which users need them."""
        return [*self.lazy, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return the command, or None if there is no such command."""
        if cmd_name not in self.lazy:
            return super().get_command(ctx, cmd_name)
        module, _, attribute = self.lazy[cmd_name][0].partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands with their stored lines of help."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self.lazy.items()])


class RootGroup(LazyGroup):
    """The top-level group, which turns obygaze's errors into one line and an exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; print an `ObygazeError` as one line, unless ``--debug`` was passed."""
        is_main = threading.current_thread() is threading.main_thread()
        previous = _take_signals() if is_main else {}
        try:
            return super().invoke(ctx)
        except (Exception, KeyboardInterrupt, _Terminated) as error:
            text, code = _explain(error, ctx.invoked_subcommand)
            if not text or (ctx.params.get("debug") and isinstance(error, Exception)):
                raise
            echo(text, err=True)
            ctx.exit(code)
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)


def _explain(error: BaseException, command: str | None) -> tuple[str, int]:
    """Return an error as one line, and its exit code; "" if only a traceback would help."""
    error = _interrupt_behind(error) or error
    if isinstance(error, KeyboardInterrupt):
        return "Interrupted.", 130
    if isinstance(error, _Terminated):
        return "Terminated.", 143
    if isinstance(error, ModuleNotFoundError) and not isinstance(error, ObygazeError):
        extra = {"features": "extract", "report": "report"}.get(command or "", "models")
        if missing := missing_extra(error, extra=extra):
            error = missing
    if isinstance(error, ObygazeError):
        text = str(error)
        if len(text) > MAX_ERROR:  # it quotes text from other sources
            text = f"{text[: MAX_ERROR // 2]} ... {text[-MAX_ERROR // 2 :]}"
        return f"Error: {text}", error.exit_code
    if isinstance(error, NoSuchCommand):
        return f"Error: {_unknown_command(error)}", 2
    text = _describe_limit(error)
    return (f"Error: {text}", 1) if text else ("", 0)


def _describe_limit(error: BaseException) -> str:
    """Describe the system limit that caused an error; return "" for other errors."""
    if isinstance(error, UnicodeEncodeError):
        letter, remedy = error.object[error.start], "set PYTHONUTF8=1, or LC_ALL=C.UTF-8"
        return f"this locale ({error.encoding}) does not allow {letter} in file names; {remedy}"
    # A pipe that was closed (`obygaze ... | head`) is handled by click.
    if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
        return _in_words(error)
    if isinstance(error, MemoryError):
        return "out of memory; free memory, raise the limit (ulimit), or use a larger machine"
    return ""


def _interrupt_behind(error: BaseException | None) -> BaseException | None:
    """Return the interrupt or termination that caused an error; None if neither did."""
    while error is not None and not isinstance(error, KeyboardInterrupt | _Terminated):
        error = error.__cause__
    return error


def _unknown_command(error: NoSuchCommand) -> str:
    """Describe an unknown command with a better suggestion than click, which skips lazy groups."""
    name, context = error.command_name, error.ctx
    assert context is not None
    group, path, root = context.command, context.command_path, context.find_root()
    assert isinstance(group, click.Group)
    paths = _command_paths(root.command, root, root.command_path)
    elsewhere = [other for other in paths if other.endswith(f" {name}")]
    if elsewhere:
        return f"{path}: unknown command {name!r}; did you mean {' or '.join(elsewhere)}?"
    return f"{path}: {unknown_name('command', name, group.list_commands(context))}"


def _command_paths(
    command: click.Command | None, context: click.Context, path: str
) -> Iterator[str]:
    """Yield the names of a group's commands, and of those in its groups, as users type them."""
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            yield f"{path} {name}"
            yield from _command_paths(command.get_command(context, name), context, f"{path} {name}")


def _in_words(error: OSError) -> str:
    """Describe an error of the operating system in one line."""
    reason = error.strerror or str(error)
    if not error.filename:
        return reason
    path = Path(os.fsdecode(error.filename))
    # Users do not know the names under which files are written.
    return f"{path.parent if path.suffix == '.partial' else path}: {reason}"


class _Interrupted(KeyboardInterrupt):
    """SIGINT as an exception. In `exec`, KeyboardInterrupt itself ends Python even if caught."""


class _Terminated(BaseException):
    """SIGTERM as an exception, so that files are closed and temporary files are removed."""


def _raise(number: int, frame: FrameType | None) -> None:
    raise _Terminated if number == signal.SIGTERM else _Interrupted


def _take_signals() -> dict[int, Any]:
    """Make signals raise exceptions that `RootGroup` handles; return the previous handlers.

    If Ctrl-C is ignored, as in the background of a shell script, it stays ignored.
    """
    previous: dict[int, Any] = {signal.SIGTERM: signal.signal(signal.SIGTERM, _raise)}
    if signal.getsignal(signal.SIGINT) in (signal.default_int_handler, signal.SIG_DFL):
        previous[signal.SIGINT] = signal.signal(signal.SIGINT, _raise)
    return previous
