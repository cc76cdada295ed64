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
        visit = _visit(self.socket, path, script, width, dark, picture)
        return self.runner.run(asyncio.wait_for(visit, LIMIT_S))

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


async def _visit(socket: Any, path: Path, script: str, width: int, dark: bool, picture: bool) -> Seen:
    events: list[dict[str, Any]] = []

    async def read() -> dict[str, Any]:
        text = await socket.read_message()
        assert text is not None, "Chromium closed the connection"
        message = json.loads(text)
        events.append(message)
        return message

    async def ask(method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        number = next(_numbers)
        message = {"id": number, "method": method, "params": params, **({"sessionId": session} if session else {})}
        await socket.write_message(json.dumps(message))
        while (message := await read()).get("id") != number:
            pass
        assert "error" not in message, f"{method}: {message.get('error')}"
        return message["result"]

    target = (await ask("Target.createTarget", url="about:blank"))["targetId"]
    session = (await ask("Target.attachToTarget", targetId=target, flatten=True))["sessionId"]
    for domain in ("Page", "Runtime", "Log", "Network"):
        await ask(f"{domain}.enable", session)
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    await ask("Emulation.setDeviceMetricsOverride", session, **size)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    await ask("Emulation.setEmulatedMedia", session, features=[scheme])
    await ask("Page.navigate", session, url=path.resolve().as_uri())
    while not any(event.get("method") == "Page.loadEventFired" for event in events):
        await read()
    settled = f"new Promise(done => setTimeout(() => done({script}), 250))"
    found = await ask("Runtime.evaluate", session, expression=settled, awaitPromise=True, returnByValue=True)
    assert "exceptionDetails" not in found, found.get("exceptionDetails")
    png = b""
    if picture:
        sized = await ask("Page.getLayoutMetrics", session)
        clip = {"x": 0, "y": 0, "width": width, "height": sized["cssContentSize"]["height"], "scale": 1}
        shot = await ask("Page.captureScreenshot", session, captureBeyondViewport=True, clip=clip)
        png = base64.b64decode(shot["data"])
    await ask("Target.closeTarget", targetId=target)
    own = [event for event in events if event.get("sessionId") == session]  # not what an earlier page said late
    return Seen(found["result"].get("value"), _errors(own), _requests(own), png)


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
