"""Move decoded frames to the backbones' devices, and resize them there."""

from __future__ import annotations

import contextlib
import queue
from collections.abc import Iterable, Iterator, Mapping, Sequence

import torch
from torch import Tensor

from obygaze_features.backbones.devices import explain_out_of_memory, run_if_it_fits
from obygaze_features.backbones.preprocess import Preprocessing, resize_and_crop

MAX_UPLOADS = 2
"""The number of full-size clips that may be on a GPU at a time."""
STAGING_BYTES = 64 * 2**20
"""The size of the pinned buffer of each upload stream; larger clips are uploaded in parts."""

View = tuple[Preprocessing, Sequence[int]]
"""A backbone's view of a clip: its preprocessing, and the numbers of its frames."""


class UploadStream:
    """A GPU stream for uploads, separate from the forward passes, with a pinned buffer.

    Without pinned memory, uploads take several times as long.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self.stream = torch.cuda.Stream(device, priority=-1)
        self._staging = torch.empty(STAGING_BYTES, dtype=torch.uint8, pin_memory=True)
        self._is_read = torch.cuda.Event(blocking=True)

    def upload(self, frames: Tensor) -> Tensor:
        """Upload frames to the GPU on the current stream. They may be overwritten afterwards."""
        uploaded = torch.empty(frames.shape, dtype=frames.dtype, device=self._device)
        source, target = (part.reshape(-1).view(torch.uint8) for part in (frames, uploaded))
        for start in range(0, len(source), len(self._staging)):
            part = source[start : start + len(self._staging)]
            self._is_read.synchronize()  # wait until the previous part or clip was uploaded
            staged = self._staging[: len(part)].copy_(part)
            target[start : start + len(part)].copy_(staged, non_blocking=True)
            self._is_read.record()
        return uploaded


class FrameResizer:
    """A resizer of clips and images for one device's backbones, which several threads may use.

    Each clip is uploaded to a GPU once, on a stream separate from the forward passes, which only
    wait for their own clips. For other devices, the CPU resizes the clips.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self._streams: queue.SimpleQueue[UploadStream] = queue.SimpleQueue()
        for _ in range(MAX_UPLOADS if device.startswith("cuda") else 0):
            self._streams.put(UploadStream(device))

    def __call__(
        self, frames: Tensor, views: Mapping[str, View]
    ) -> tuple[dict[str, Tensor], torch.cuda.Event | None, bool]:
        """Return the views by name, an event to wait for, and True if the CPU had to resize them.

        `frames` may be overwritten afterwards.
        """
        with self.aside() as uploader:
            inputs = None
            if uploader:
                inputs = run_if_it_fits(lambda: _resize_views(uploader.upload(frames), views))
            by_cpu = inputs is None
            if inputs is None:
                with explain_out_of_memory("a clip's frames", "cpu"):
                    resized = _resize_views(frames, views)
                inputs = self._move(resized, uploader)
            return inputs, uploader and uploader.stream.record_event(), by_cpu and bool(uploader)

    def upload(
        self, inputs: dict[str, Tensor]
    ) -> tuple[dict[str, Tensor], torch.cuda.Event | None]:
        """Return each input on the device by name, and the event to wait for."""
        with self.aside() as uploader:
            return self._move(inputs, uploader), uploader and uploader.stream.record_event()

    def _move(self, inputs: dict[str, Tensor], uploader: UploadStream | None) -> dict[str, Tensor]:
        """Move inputs to the device; a tensor shared by several inputs is moved once."""
        move = uploader.upload if uploader else lambda values: values.to(self._device)

        def move_all() -> dict[str, Tensor]:
            moved = {values: move(values) for values in set(inputs.values())}  # by identity
            return {name: moved[values] for name, values in inputs.items()}

        # An input that does not fit now is moved later, with its batch.
        return run_if_it_fits(move_all) or inputs

    @contextlib.contextmanager
    def held(self) -> Iterator[Sequence[UploadStream]]:
        """Hold back uploads while the ``with`` block runs."""
        count = MAX_UPLOADS if self._device.startswith("cuda") else 0
        uploaders = [self._streams.get() for _ in range(count)]
        try:
            yield uploaders
        finally:
            for uploader in uploaders:
                self._streams.put(uploader)

    @contextlib.contextmanager
    def aside(self) -> Iterator[UploadStream | None]:
        """Yield a stream for uploading in parallel with forward passes; None if there is no GPU."""
        if not self._device.startswith("cuda"):
            yield None
            return
        uploader = self._streams.get()
        try:
            # Without the device, leaving the stream would open a context on GPU 0.
            with torch.cuda.device(self._device), torch.cuda.stream(uploader.stream):
                yield uploader
        finally:
            self._streams.put(uploader)


@contextlib.contextmanager
def no_uploads(resizers: Iterable[FrameResizer]) -> Iterator[None]:
    """Wait until clips being uploaded are resized, and hold back uploads in the ``with`` block."""
    with contextlib.ExitStack() as stack:
        for resizer in resizers:
            stack.enter_context(resizer.held())
        yield


def _resize_views(frames: Tensor, views: Mapping[str, View]) -> dict[str, Tensor]:
    """Return the resized views by name; views that differ only in scaling share one tensor."""
    keys = {name: (view[0].geometry, tuple(view[1])) for name, view in views.items()}
    distinct = {key: views[name] for name, key in keys.items()}
    resized = {key: resize_and_crop(frames, *view) for key, view in distinct.items()}
    return {name: resized[key] for name, key in keys.items()}
