"""A headless Chromium driven over its DevTools protocol, by a pipe: no driver, no port, no package besides.

`Browser.find` tells which one there is: the environment's ``HETERO_CHROMIUM``, a Chromium, Chrome or headless shell on
the path (Debian: ``apt install chromium-headless-shell``), or one that Playwright fetched.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["Browser", "Page"]

_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_KEYS = {
    "Enter": (13, "\r"),
    "Tab": (9, ""),
    "Escape": (27, ""),
    "Home": (36, ""),
    "End": (35, ""),
    "ArrowLeft": (37, ""),
    "ArrowUp": (38, ""),
    "ArrowRight": (39, ""),
    "ArrowDown": (40, ""),
    "PageDown": (34, ""),
    "PageUp": (33, ""),
}


class Browser:
    """One process with any number of pages. Close it."""

    def __init__(self, path: str) -> None:
        self._profile = tempfile.TemporaryDirectory(prefix="hetero-chromium-", ignore_cleanup_errors=True)
        read_commands, self._commands = os.pipe()
        self._replies, write_replies = os.pipe()
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--no-first-run"]
        flags += ["--disable-background-networking", "--force-color-profile=srgb", "--hide-scrollbars"]
        # Chromium reads commands from descriptor 3 and answers on 4; a shell puts them there.
        script = f'exec "$@" 3<&{read_commands} 4>&{write_replies}'
        self._process = subprocess.Popen(
            [
                "/bin/bash",
                "-c",
                script,
                "browser",
                path,
                *flags,
                f"--user-data-dir={self._profile.name}",
                "about:blank",
            ],
            pass_fds=(read_commands, write_replies),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(read_commands)
        os.close(write_replies)
        self._numbers = itertools.count(1)
        self._received = b""
        self.events: list[dict[str, Any]] = []

    @staticmethod
    def find() -> str | None:
        """The path of a browser, None if there is none."""
        chosen = os.environ.get("HETERO_CHROMIUM")
        if chosen:
            return chosen
        for name in _NAMES:
            path = shutil.which(name)
            if path:
                return path
        fetched = Path(os.environ.get("PLAYWRIGHT_BROWSERS_PATH") or Path.home() / ".cache" / "ms-playwright")
        shells = sorted(fetched.glob("chromium*/chrome-*/*headless*shell")) + sorted(
            fetched.glob("chromium-*/chrome-*/chrome")
        )
        return str(shells[-1]) if shells else None

    def send(
        self, method: str, parameters: Mapping[str, Any] | None = None, session: str | None = None, timeout: float = 60
    ) -> dict[str, Any]:
        """A command's result; RuntimeError if the browser refuses it, TimeoutError if it does not answer."""
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": dict(parameters or {})}
        if session:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._commands, data) :]
        deadline = time.monotonic() + timeout
        while True:
            reply = self._next(deadline)
            if reply.get("id") == number:
                if "error" in reply:
                    raise RuntimeError(f"{method}: {reply['error']}")
                return reply["result"]
            self.events.append(reply)

    def _next(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._received:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._replies], [], [], left)[0]:
                raise TimeoutError("the browser does not answer")
            data = os.read(self._replies, 1 << 20)
            if not data:
                raise RuntimeError(f"the browser ended with {self._process.wait()}")
            self._received += data
        first, _, self._received = self._received.partition(b"\0")
        return json.loads(first)

    def page(self, width: int = 1280, height: int = 800, dark: bool = False) -> Page:
        """A new page of that size."""
        target = self.send("Target.createTarget", {"url": "about:blank"})["targetId"]
        session = self.send("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        return Page(self, session, target, width, height, dark)

    def close(self) -> None:
        with contextlib.suppress(RuntimeError, TimeoutError, OSError):
            self.send("Browser.close", timeout=5)
        os.close(self._commands)
        os.close(self._replies)
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._profile.cleanup()


class Page:
    """One tab: goes to pages, evaluates expressions, clicks, types, and takes pictures."""

    def __init__(self, browser: Browser, session: str, target: str, width: int, height: int, dark: bool) -> None:
        self._browser, self._session, self._target = browser, session, target
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")
        self.resize(width, height)
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.send("Emulation.setEmulatedMedia", {"features": features})

    def send(self, method: str, parameters: Mapping[str, Any] | None = None, timeout: float = 60) -> dict[str, Any]:
        return self._browser.send(method, parameters, self._session, timeout)

    def resize(self, width: int, height: int) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.send("Emulation.setDeviceMetricsOverride", size)

    def go(self, url: str) -> None:
        """To a URL; returns when the page is loaded."""
        self.send("Page.navigate", {"url": url})
        self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression, promises awaited. RuntimeError if it throws."""
        parameters = {"expression": expression, "returnByValue": True, "awaitPromise": True}
        result = self.send("Runtime.evaluate", parameters)
        if "exceptionDetails" in result:
            details = result["exceptionDetails"]
            raise RuntimeError(details.get("exception", {}).get("description") or details["text"])
        return result["result"].get("value")

    def until(self, expression: str, timeout: float = 30) -> None:
        """Wait until an expression is true."""
        deadline = time.monotonic() + timeout
        while True:
            try:
                value = self.evaluate(f"Boolean({expression})")
            except RuntimeError:
                value = False
            if value:
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"it did not become true: {expression}; {self.problems()}")
            time.sleep(0.02)

    def mouse(self, x: float, y: float, *kinds: str, clicks: int = 1, **more: Any) -> None:
        for kind in kinds:
            button = {} if kind in ("mouseMoved", "mouseWheel") else {"button": "left", "clickCount": clicks}
            self.send("Input.dispatchMouseEvent", {"type": kind, "x": x, "y": y, **button, **more})

    def click_at(self, x: float, y: float, clicks: int = 1) -> None:
        self.mouse(x, y, "mouseMoved")
        for count in range(1, clicks + 1):
            self.mouse(x, y, "mousePressed", "mouseReleased", clicks=count)

    def click(self, selector: str) -> None:
        """The middle of the first element that a CSS selector names."""
        box = self.evaluate(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            " e.scrollIntoView({block: 'nearest'});"
            " const b = e.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        self.click_at(*box)

    def press(self, key: str, times: int = 1) -> None:
        code, text = _KEYS.get(key, (ord(key.upper()) if len(key) == 1 else 0, key if len(key) == 1 else ""))
        for _ in range(times):
            common = {"key": key, "windowsVirtualKeyCode": code}
            self.send("Input.dispatchKeyEvent", {"type": "keyDown", "text": text, **common})
            self.send("Input.dispatchKeyEvent", {"type": "keyUp", **common})

    def type(self, text: str) -> None:
        self.send("Input.insertText", {"text": text})

    def picture(self, path: str | os.PathLike[str]) -> None:
        """A PNG of what is seen."""
        data = self.send("Page.captureScreenshot", {"format": "png"})["data"]
        Path(path).write_bytes(base64.b64decode(data))

    def events(self, *methods: str) -> Sequence[dict[str, Any]]:
        """What happened on this page so far, of these kinds."""
        self.evaluate("1")  # drains what has come meanwhile
        mine = [event for event in self._browser.events if event.get("sessionId") == self._session]
        return [event for event in mine if event.get("method") in methods]

    def problems(self) -> list[str]:
        """Uncaught exceptions, and what the page's log says: refused scripts among it."""
        found = []
        for event in self.events("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled"):
            parameters = event["params"]
            if "exceptionDetails" in parameters:
                details = parameters["exceptionDetails"]
                found.append(details.get("exception", {}).get("description") or details["text"])
            elif "entry" in parameters:
                found.append(parameters["entry"]["text"])
            elif parameters["type"] in ("error", "warning", "assert"):
                found.append(" ".join(str(argument.get("value")) for argument in parameters["args"]))
        return found

    def close(self) -> None:
        self._browser.send("Target.closeTarget", {"targetId": self._target})
