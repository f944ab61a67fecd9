"""A real browser without a window: Chromium, driven through its DevTools pipe, with no package between.

Add here a thing that a test or a screenshot asks of a browser. Keep out what a page should show.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests import optional


@dataclass
class Page:
    """One tab. `requests` has the address of everything that it asked for, `posted` address and body of what it sent,
    `messages` what its console shows."""

    to_browser: int
    from_browser: int
    session: str = ""
    requests: list[str] = field(default_factory=list)
    posted: list[tuple[str, str]] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)
    _last: int = 0
    _read: bytes = b""
    _loaded: bool = False

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The answer of the browser to a DevTools command."""
        self._last += 1
        question: dict[str, Any] = {"id": self._last, "method": method, "params": parameters}
        if self.session:
            question["sessionId"] = self.session
        os.write(self.to_browser, json.dumps(question).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._last:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def open(self, url: str) -> None:
        """Open an address and wait until it is loaded."""
        self._loaded = False
        self.ask("Page.navigate", url=url)
        while not self._loaded:
            self._next()

    def look(
        self, *, width: int, height: int = 900, is_dark: bool = False, is_phone: bool = False, is_print: bool = False
    ) -> None:
        """Give the page a window of this size in CSS pixels, a colour scheme and a medium."""
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=2 if is_phone else 1, mobile=is_phone,
        )  # fmt: skip
        self.ask("Emulation.setScrollbarsHidden", hidden=True)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self.ask("Emulation.setEmulatedMedia", media="print" if is_print else "screen", features=[scheme])

    def value(self, expression: str) -> Any:
        """The value of a JavaScript expression, which the page's own policy does not forbid to DevTools."""
        return self.ask("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def press(self, key: str) -> None:
        """Press and release a key: Tab or Enter."""
        code = {"Tab": 9, "Enter": 13}[key]
        text = {"text": "\r"} if key == "Enter" else {}
        self.ask("Input.dispatchKeyEvent", type="keyDown", key=key, code=key, windowsVirtualKeyCode=code, **text)
        self.ask("Input.dispatchKeyEvent", type="keyUp", key=key, code=key, windowsVirtualKeyCode=code)

    def photograph(self, at: Path, above: str | None = None) -> None:
        """The whole page, not only its window, as PNG; with the CSS selector `above`, what is above the end of it."""
        clip = {}
        if above is not None:
            box = self.value(f"document.querySelector({json.dumps(above)}).getBoundingClientRect().bottom + scrollY")
            width = self.value("document.documentElement.clientWidth")
            clip = {"clip": {"x": 0, "y": 0, "width": width, "height": box + 16, "scale": 1}}
        shot = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=True, **clip)
        at.write_bytes(base64.b64decode(shot["data"]))

    def printed(self, at: Path) -> None:
        """The page as it is printed on A4, as PDF."""
        made = self.ask("Page.printToPDF", preferCSSPageSize=True, paperWidth=8.27, paperHeight=11.69)
        at.write_bytes(base64.b64decode(made["data"]))

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._read:
            more = os.read(self.from_browser, 1 << 20)
            if not more:
                raise RuntimeError("the browser ended")
            self._read += more
        text, _, self._read = self._read.partition(b"\0")
        answer: dict[str, Any] = json.loads(text)
        parameters = answer.get("params", {})
        match answer.get("method"):
            case "Page.loadEventFired":
                self._loaded = True
            case "Network.requestWillBeSent":
                request = parameters["request"]
                self.requests.append(request["url"])
                if "postData" in request:
                    self.posted.append((request["url"], request["postData"]))
            case "Runtime.consoleAPICalled" | "Runtime.exceptionThrown":
                self.messages.append(json.dumps(parameters))
            case "Log.entryAdded":
                self.messages.append(parameters["entry"]["text"])
            case "Page.javascriptDialogOpening":
                self.messages.append(f"dialog: {parameters['message']}")
                self.ask("Page.handleJavaScriptDialog", accept=True)
        return answer


@contextmanager
def browsing(profile: Path, *, reaches: str = "") -> Iterator[Page]:
    """A tab of a browser that can reach no network: no name has an address, and every proxy is a closed port.

    With `reaches`, that address of this machine alone: a server that a test started.
    """
    (program,) = optional.required("chromium")
    rules = "MAP * ~NOTFOUND" + (f", EXCLUDE {reaches}" if reaches else "")
    its_input, our_output = os.pipe()
    our_input, its_output = os.pipe()
    command = [
        *(program, "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--no-first-run"),
        *(f"--host-resolver-rules={rules}", "--proxy-server=127.0.0.1:9", f"--user-data-dir={profile}"),
        *("--disable-background-networking", "--disable-component-update", "about:blank"),
    ]
    # DevTools reads from descriptor 3 and writes to 4, whatever numbers the pipes have here.
    started = subprocess.Popen(
        ["bash", "-c", f'exec "$@" 3<&{its_input} 4>&{its_output}', "bash", *command],
        pass_fds=(its_input, its_output), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    os.close(its_input)
    os.close(its_output)
    page = Page(our_output, our_input)
    try:
        target = page.ask("Target.createTarget", url="about:blank")["targetId"]
        session = page.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page.session = session
        for domain in ("Page", "Network", "Runtime", "Log"):
            page.ask(f"{domain}.enable")
        yield page
        page.session = ""
        page.ask("Browser.close")
    finally:
        os.close(our_output)
        os.close(our_input)
        try:
            started.wait(timeout=10)
        except subprocess.TimeoutExpired:
            started.kill()
