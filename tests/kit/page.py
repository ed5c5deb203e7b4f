"""A real browser for opening pages: Debian's Chromium, controlled through its DevTools pipe.

Only tests of `make night` use it. The pipe needs no driver, no port and no package. JSON messages,
each ended by a zero byte, are sent through file descriptor 3 and received through 4.
"""

import json
import os
import select
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

FLAGS = (
    "--headless --no-sandbox --disable-gpu --no-first-run --disable-extensions --hide-scrollbars "
    "--disable-background-networking --disable-component-update --disable-dev-shm-usage "
    "--remote-debugging-pipe"
)
KEYS = {"Enter": 13, "Escape": 27, "ArrowLeft": 37, "ArrowRight": 39}
TIMEOUT_S = 900.0


class Tab:
    """A browser tab: what it requested and logged, and actions in it."""

    def __init__(self, write: int, read: int) -> None:
        self._write = write
        self._read = read
        self._buffer = b""
        self._last = 0
        self.logged: list[str] = []
        self.requested: list[str] = []
        self._loaded = False
        self._session: dict[str, str] = {}
        target = self._call("Target.createTarget", {"url": "about:blank"})["targetId"]
        attached = self._call("Target.attachToTarget", {"targetId": target, "flatten": True})
        self._session = {"sessionId": attached["sessionId"]}
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")

    def open(
        self, page: Path | str, *, width: int = 1200, height: int = 900, fragment: str = ""
    ) -> None:
        """Load a file or a URL, and wait until it is loaded."""
        self._call(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
        )
        self.logged.clear()
        self.requested.clear()
        address = page if isinstance(page, str) else page.as_uri()
        # With only a new fragment, the browser would not load the file again.
        for url in ("about:blank", address + fragment):
            self._loaded = False
            self._call("Page.navigate", {"url": url})
            while not self._loaded:
                self._receive()

    def prefer(self, media: str = "", **features: str) -> None:
        """Set preferences: ``prefer("print")`` or ``prefer(prefers_color_scheme="dark")``."""
        named = []
        for name, value in features.items():
            named.append({"name": name.replace("_", "-"), "value": value})
        self._call("Emulation.setEmulatedMedia", {"media": media, "features": named})

    def run(self, script: str) -> Any:
        """Return the value of an expression, and wait for promises."""
        result = self._call(
            "Runtime.evaluate", {"expression": script, "returnByValue": True, "awaitPromise": True}
        )
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def press(self, *keys: str) -> None:
        """Press keys on the focused element, as a user would."""
        for key in keys:
            code = KEYS.get(key) or ord(key.upper())
            about = {"key": key, "code": key, "windowsVirtualKeyCode": code}
            if key == "Enter":
                about["text"] = "\r"
            for kind in ("keyDown", "keyUp"):
                self._call("Input.dispatchKeyEvent", {"type": kind, **about})

    def click(self, selector: str) -> None:
        """Click in the middle of an element with a real pointer."""
        x, y = self.run(
            f"(async () => {{ const e = document.querySelector({json.dumps(selector)});"
            "e.scrollIntoView({block: 'center', behavior: 'instant'});"
            "for (let frame = 0; frame < 2; frame++) await new Promise(requestAnimationFrame);"
            "const b = e.getBoundingClientRect();"
            "return [b.x + b.width / 2, b.y + b.height / 2] })()"
        )
        about = {"x": x, "y": y, "button": "left", "clickCount": 1}
        for kind in ("mousePressed", "mouseReleased"):
            self._call("Input.dispatchMouseEvent", {"type": kind, **about})

    def choose(self, select_id: str, value: str) -> None:
        self.run(
            f"{{ const s = document.getElementById({json.dumps(select_id)});"
            f"s.value = {json.dumps(value)};"
            "s.dispatchEvent(new Event('change', {bubbles: true})) }"
        )

    def text(self, selector: str) -> str:
        return str(self.run(f"document.querySelector({json.dumps(selector)}).textContent"))

    def texts(self, selector: str, attribute: str = "textContent") -> list[Any]:
        """Return the text, or another property, of each matching element."""
        elements = f"[...document.querySelectorAll({json.dumps(selector)})]"
        return list(self.run(f"{elements}.map(e => e.{attribute})"))

    def _call(self, method: str, parameters: Any = None) -> Any:
        self._last += 1
        command = {"id": self._last, "method": method, "params": parameters or {}, **self._session}
        os.write(self._write, json.dumps(command).encode() + b"\0")
        while (message := self._receive()).get("id") != self._last:
            pass
        assert "error" not in message, message
        return message["result"]

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            assert select.select([self._read], [], [], TIMEOUT_S)[0], "the browser does not answer"
            part = os.read(self._read, 1 << 20)
            assert part, "the browser has ended"
            self._buffer += part
        line, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        event = message.get("method", "")
        about = message.get("params", {})
        if event == "Page.loadEventFired":
            self._loaded = True
        elif event == "Network.requestWillBeSent":
            self.requested.append(about["request"]["url"])
        elif event in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"):
            self.logged.append(f"{event}: {about}")
        return message


@contextmanager
def open_tab() -> Iterator[Tab]:
    """Open a tab, or skip the test if there is no browser."""
    names = ("chromium", "chromium-browser", "google-chrome")
    chromium = next((path for name in names if (path := shutil.which(name))), None)
    if chromium is None:
        pytest.skip("Chromium is missing; install the package chromium")
    commands = os.pipe()
    answers = os.pipe()
    # A shell gives the pipes the numbers that the browser expects; 8 and 9 keep them apart.
    pipes = f"exec 8<&{commands[0]} 9>&{answers[1]}"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = f"exec {chromium} {FLAGS} --user-data-dir={profile} 3<&8 4>&9"
        browser = subprocess.Popen(
            ["bash", "-c", f"{pipes}; {command}"],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(commands[0], answers[1]),
        )
        os.close(commands[0])
        os.close(answers[1])
        try:
            yield Tab(commands[1], answers[0])
        finally:
            os.close(commands[1])  # ends it
            browser.wait(60)
            os.close(answers[0])
