"""What an extraction tells at its end, and how it exits."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from obygaze_features.common.cli import echo_json
from obygaze_features.common.text import counted, duration, join_some, size
from obygaze_features.errors import ObygazeError, VideoError

if TYPE_CHECKING:
    from obygaze_features.extraction import Summary

__all__ = ["MOST_NAMED", "PARTLY_DONE", "kept_on_interruption", "report"]

MOST_NAMED = 20
"""Failed clips that are named in the terminal; the store names all."""
PARTLY_DONE = 3
"""The exit code where some rows failed, or the time was up."""


@contextlib.contextmanager
def kept_on_interruption() -> Iterator[None]:
    """Say to who interrupts that nothing is lost."""
    try:
        yield
    except ObygazeError:
        raise
    except BaseException:  # Ctrl-C and the like
        click.echo("What was computed is kept; the same command goes on from there.", err=True)
        raise


def report(ctx: click.Context, summary: Summary, noun: str, *, as_json: bool) -> None:
    """Tell what came of a run over so many clips or items, and exit accordingly."""
    if as_json:
        echo_json(summary.to_json())
    else:
        _describe(summary, noun)
    if summary.clips and not summary.done and not summary.left:
        raise VideoError(f"not one of the {summary.wanted} {noun}s could be extracted")
    if summary.failed or summary.ended == "time":
        ctx.exit(PARTLY_DONE)


def _describe(summary: Summary, noun: str) -> None:
    for kind, reasons in summary.failed.items():
        click.echo(f"{len(reasons)} failed, {kind.replace('_', ' ')}:", err=True)
        for one, reason in list(reasons.items())[:MOST_NAMED]:
            click.echo(f"  {one}: {reason}", err=True)
        if len(reasons) > MOST_NAMED:
            more = len(reasons) - MOST_NAMED
            click.echo(f"  and {more} more: obygaze stores info {summary.stores[0]}", err=True)
    if summary.clips:
        frames = f"{summary.frames_a_second:.0f} frames a second; " if noun == "clip" else ""
        shares = ", ".join(f"{stage} {share:.0%}" for stage, share in summary.shares.items())
        click.echo(
            f"{counted(summary.clips, noun)} in {duration(summary.seconds)} "
            f"({summary.clips_a_second:.1f} a second, {frames}"
            f"time: {shares}; bound by {summary.bound_by})"
        )
    elif not summary.left:
        hint = " (failed ones are tried again with --retry-failed)" if summary.failed else ""
        click.echo(f"Nothing was left to do{hint}.")
    for why, count in summary.slow.items():
        click.echo(f"{counted(count, 'clip')} decoded in order from the start of the file: {why}")
    if summary.cut:
        longest = max(summary.cut, key=lambda one: summary.cut[one])
        click.echo(
            f"{counted(len(summary.cut), 'text')} longer than what is read of it; the rest was "
            f"cut off: {join_some(list(summary.cut))} (the longest, {longest}, has "
            f"{summary.cut[longest]} tokens)",
            err=True,
        )
    for why, count in summary.lost.items():
        click.echo(f"{counted(count, 'process', 'processes')} lost and replaced: {why}", err=True)
    left = counted(summary.left, noun)
    if summary.ended == "time":
        click.echo(f"The time is up, with {left} left; the same command goes on.")
    elif summary.left:
        click.echo(f"Others are at work on {left}; the same command does what they leave.")
    where = ", ".join(
        f"{path} ({size(taken)})"
        for path, taken in zip(summary.stores, summary.bytes.values(), strict=True)
    )
    click.echo(f"{summary.done} of {counted(summary.wanted, noun)} done in {where}")
