"""A headless Chromium, spoken to over its DevTools protocol: open a page, ask it, look at it."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import subprocess
import tempfile
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from tornado.websocket import WebSocketClientConnection, websocket_connect

BINARY = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
LIMIT_S = 60


class Seen(NamedTuple):
    """What a page did: `answer` of the script, errors on its console, addresses it asked for, and a picture."""

    answer: Any
    errors: list[str]
    requests: list[str]
    png: bytes


class Chromium:
    """One browser for a whole module of tests; `with Chromium() as browser: browser.open(path, …)`."""

    def __enter__(self) -> Chromium:
        assert BINARY is not None
        self.profile = Path(tempfile.mkdtemp(prefix="overhead-chromium-"))
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage"]
        where = ["--remote-debugging-port=0", f"--user-data-dir={self.profile}", "about:blank"]
        self.process = subprocess.Popen([BINARY, *flags, *where], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.runner = asyncio.Runner()
        self.socket = self.runner.run(asyncio.wait_for(self._connected(), LIMIT_S))
        return self

    def __exit__(self, *exception: object) -> None:
        self.runner.run(self._closed())
        self.runner.close()
        self.process.terminate()
        self.process.wait(timeout=LIMIT_S)
        shutil.rmtree(self.profile, ignore_errors=True)

    def open(
        self, path: Path, script: str = "null", *, width: int = 1280, dark: bool = False, picture: bool = False
    ) -> Seen:
        """Open `path` from the disk at a width of so many CSS pixels; `script` is a JavaScript expression."""
        with self.page(path, width=width, dark=dark) as page:
            answer = page.evaluate(f"new Promise(done => setTimeout(() => done({script}), 250))")
            png = page.picture() if picture else b""
        return Seen(answer, page.errors, _requests(page.own), png)

    def page(self, path: Path, *, width: int = 1280, dark: bool = False, scripts: bool = True) -> Page:
        """A tab that shows `path`, to be used as a context; without `scripts` the page's own do not run."""
        return Page(self.runner, self.socket, path, width, dark, scripts)

    async def _connected(self) -> WebSocketClientConnection:
        port_file = self.profile / "DevToolsActivePort"
        while not (port_file.exists() and len(lines := port_file.read_text().splitlines()) == 2):
            await asyncio.sleep(0.05)
        return await websocket_connect(f"ws://127.0.0.1:{lines[0]}{lines[1]}", max_message_size=2**28)

    async def _closed(self) -> None:
        self.socket.close()
        while await self.socket.read_message() is not None:
            pass


_numbers = count(1)
KEYS = {"Tab": 9, "Enter": 13, " ": 32, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
TEXTS = {"Enter": "\r", " ": " "}


class Page:
    """One tab: `with browser.page(path) as page:` press keys, reload, evaluate, take a picture."""

    def __init__(self, runner: asyncio.Runner, socket: Any, path: Path, width: int, dark: bool, scripts: bool) -> None:
        self.runner, self.socket, self.path = runner, socket, path
        self.width, self.dark, self.scripts = width, dark, scripts
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> Page:
        self._run(self.start())
        return self

    def __exit__(self, *exception: object) -> None:
        self._run(self.close())

    def evaluate(self, script: str) -> Any:
        """The value of a JavaScript expression, a promise's once it is there."""
        return self._run(self.value(script))

    def press(self, *keys: str) -> None:
        """Press keys by their names, one after another, as on a keyboard."""
        for key in keys:
            self._run(self.stroke(key))

    def go(self, path: Path) -> None:
        """Open another page in this tab."""
        self._run(self.load("Page.navigate", url=path.resolve().as_uri()))

    def reload(self) -> None:
        """Load the page again."""
        self._run(self.load("Page.reload"))

    def picture(self) -> bytes:
        """The whole page as PNG."""
        return self._run(self.shot())

    @property
    def errors(self) -> list[str]:
        """What the page's console said of errors so far."""
        return _errors(self.own)

    @property
    def own(self) -> list[dict[str, Any]]:
        """The events of this page, not what an earlier page said late."""
        return [event for event in self.events if event.get("sessionId") == self.session]

    def _run(self, doing: Any) -> Any:
        return self.runner.run(asyncio.wait_for(doing, LIMIT_S))

    async def read(self) -> dict[str, Any]:
        text = await self.socket.read_message()
        assert text is not None, "Chromium closed the connection"
        message = json.loads(text)
        self.events.append(message)
        return message

    async def ask(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        number = next(_numbers)
        message = {"id": number, "method": method, "params": params, **({"sessionId": session} if session else {})}
        await self.socket.write_message(json.dumps(message))
        while (message := await self.read()).get("id") != number:
            pass
        assert "error" not in message, f"{method}: {message.get('error')}"
        return message["result"]

    async def start(self) -> None:
        self.target = (await self.ask("Target.createTarget", url="about:blank"))["targetId"]
        self.session = (await self.ask("Target.attachToTarget", targetId=self.target, flatten=True))["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self.ask(f"{domain}.enable", self.session)
        size = {"width": self.width, "height": 900, "deviceScaleFactor": 1, "mobile": self.width < 600}
        await self.ask("Emulation.setDeviceMetricsOverride", self.session, **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if self.dark else "light"}
        await self.ask("Emulation.setEmulatedMedia", self.session, features=[scheme])
        if not self.scripts:
            await self.ask("Emulation.setScriptExecutionDisabled", self.session, value=True)
        await self.load("Page.navigate", url=self.path.resolve().as_uri())

    async def load(self, method: str, **params: Any) -> None:
        await self.value("window.left = true")  # what is still there then is the page that is left
        await self.ask(method, self.session, **params)
        while True:
            try:
                if await self.value("document.readyState === 'complete' && !window.left"):
                    return
            except AssertionError:  # between two documents there is nothing to ask
                pass
            await asyncio.sleep(0.02)

    async def value(self, script: str) -> Any:
        found = await self.ask(
            "Runtime.evaluate", self.session, expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in found, found.get("exceptionDetails")
        return found["result"].get("value")

    async def stroke(self, key: str) -> None:
        about = {"key": key, "code": "Space" if key == " " else key, "windowsVirtualKeyCode": KEYS[key]}
        text = {"text": TEXTS[key]} if key in TEXTS else {}
        kind = "keyDown" if text else "rawKeyDown"
        await self.ask("Input.dispatchKeyEvent", self.session, type=kind, **about, **text)
        await self.ask("Input.dispatchKeyEvent", self.session, type="keyUp", **about)

    async def shot(self) -> bytes:
        sized = await self.ask("Page.getLayoutMetrics", self.session)
        clip = {"x": 0, "y": 0, "width": self.width, "height": sized["cssContentSize"]["height"], "scale": 1}
        shot = await self.ask("Page.captureScreenshot", self.session, captureBeyondViewport=True, clip=clip)
        return base64.b64decode(shot["data"])

    async def close(self) -> None:
        await self.ask("Target.closeTarget", targetId=self.target)


def _errors(events: list[dict[str, Any]]) -> list[str]:
    found = []
    for event in events:
        params = event.get("params", {})
        if event.get("method") == "Runtime.exceptionThrown":
            found.append(params["exceptionDetails"].get("exception", {}).get("description", "exception"))
        if event.get("method") == "Runtime.consoleAPICalled" and params["type"] in ("error", "assert"):
            found.append(" ".join(str(arg.get("value")) for arg in params["args"]))
        if event.get("method") == "Log.entryAdded" and params["entry"]["level"] == "error":
            found.append(f"{params['entry']['text']} {params['entry'].get('url', '')}".strip())
    return found


def _requests(events: list[dict[str, Any]]) -> list[str]:
    return [event["params"]["request"]["url"] for event in events if event.get("method") == "Network.requestWillBeSent"]
