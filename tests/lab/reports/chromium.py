"""Chromium without a window, told what to do over a pipe.

The browser's own protocol (https://chromedevtools.github.io/devtools-protocol/) is JSON with a zero
byte after each message, on descriptors 3 and 4 of its process: nothing to install but the browser.

python -m tests.lab.reports.chromium PAGE FOLDER         light and dark, desktop and phone
python -m tests.lab.reports.chromium PAGE FOLDER NAME    one picture, NAME.png: light, desktop
"""

import base64
import contextlib
import io
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FLAGS = """--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --disable-quic
--no-first-run --disable-background-networking --disable-component-update --disable-sync
--hide-scrollbars --remote-debugging-pipe""".split()


def find():
    """The browser's program, or None."""
    return (
        shutil.which("chromium")
        or shutil.which("chromium-browser")
        or shutil.which("google-chrome")
    )


@contextlib.contextmanager
def browser(program):
    """A running browser with one empty page."""
    to_read, to_write = os.pipe()
    from_read, from_write = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [program, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        process = subprocess.Popen(
            # By name: some shells know descriptors of one digit only.
            ["sh", "-c", f'exec "$@" 3</dev/fd/{to_read} 4>/dev/fd/{from_write}', "sh", *command],
            pass_fds=(to_read, from_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(from_write)
        page = Page(to_write, from_read)
        try:
            page.attach()
            yield page
            page.send("Browser.close", session=False)
            process.wait(10)
        finally:
            process.kill()
            process.wait()
            os.close(to_write)
            os.close(from_read)


class Page:
    """A page, and everything it did: ``events`` in the order they came."""

    def __init__(self, to, back):
        self.to, self.back = to, back
        self.events = []
        self.unread = b""
        self.number = 0
        self.session = None

    def attach(self):
        targets = self.send("Target.getTargets", session=False)["targetInfos"]
        (target,) = (t["targetId"] for t in targets if t["type"] == "page")
        found = self.send("Target.attachToTarget", targetId=target, flatten=True, session=False)
        self.session = found["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")

    def send(self, method, session=True, **params):
        """A command, and what it returned; the events before that are kept."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            found = self._receive()
            if found.get("id") == self.number:
                if "error" in found:
                    raise RuntimeError(f"{method}: {found['error']['message']}")
                return found["result"]
            self.events.append(found)

    def _receive(self, seconds=20):
        until = time.monotonic() + seconds
        while b"\0" not in self.unread:
            ready, _, _ = select.select([self.back], [], [], max(0, until - time.monotonic()))
            part = os.read(self.back, 2**16) if ready else b""
            if not part:
                raise RuntimeError("the browser is gone, or does not answer")
            self.unread += part
        message, _, self.unread = self.unread.partition(b"\0")
        return json.loads(message)

    def open(self, path):
        """Load a file, until its scripts have run."""
        self.open_address(Path(path).resolve().as_uri())

    def open_address(self, address):
        before = len(self.events)
        self.send("Page.navigate", url=address)
        while not any(e.get("method") == "Page.loadEventFired" for e in self.events[before:]):
            self.events.append(self._receive())

    def run(self, script):
        """The value of an expression in the page."""
        found = self.send("Runtime.evaluate", expression=script, returnByValue=True)
        if "exceptionDetails" in found:
            raise RuntimeError(f"{script}: {found['exceptionDetails']}")
        return found["result"].get("value")

    def screen(self, width, height, phone=False):
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=phone,
        )

    def colours(self, scheme):
        """What the system is said to prefer: light or dark."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.send("Emulation.setEmulatedMedia", features=[feature])

    def drag(self, start, end, steps=5):
        """Press the mouse at a point of the screen, move it to another, let go."""
        look = {"button": "left", "clickCount": 1}
        x, y = start
        self.send("Input.dispatchMouseEvent", type="mousePressed", x=x, y=y, **look)
        for i in range(1, steps + 1):
            x = start[0] + (end[0] - start[0]) * i / steps
            y = start[1] + (end[1] - start[1]) * i / steps
            self.send(
                "Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y, button="left", buttons=1
            )
        self.send("Input.dispatchMouseEvent", type="mouseReleased", x=x, y=y, **look)

    def press(self, key):
        for kind in ("rawKeyDown", "keyUp"):
            code = {"ArrowRight": 39, "ArrowLeft": 37, "Tab": 9}[key]
            self.send(
                "Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code
            )

    def screenshot(self, height=None):
        """A PNG of the screen, or of the top of the page down to a height."""
        clip = {}
        if height is not None:
            width = self.run("innerWidth")
            box = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
            clip = {"clip": box, "captureBeyondViewport": True}
        found = self.send("Page.captureScreenshot", format="png", **clip)
        return base64.b64decode(found["data"])

    def requests(self):
        """The addresses that were asked for."""
        sent = [e for e in self.events if e.get("method") == "Network.requestWillBeSent"]
        return [event["params"]["request"]["url"] for event in sent]

    def complaints(self):
        """Errors and warnings: exceptions, the console, and what the browser itself refused."""
        kinds = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
        return [event["params"] for event in self.events if event.get("method") in kinds]


def main(page, folder, only=None):
    from PIL import Image

    looks = [(n, s) for n in ("desktop", "phone") for s in ("light", "dark")]
    with browser(find()) as tab:
        for name, scheme in looks[: 1 if only else None]:
            tab.screen(*((390, 844) if name == "phone" else (1280, 800)), phone=name == "phone")
            tab.colours(scheme)
            tab.open(page)
            tall = tab.run("document.documentElement.scrollHeight")
            image = Image.open(io.BytesIO(tab.screenshot(tall)))
            # Few colours are on the page, so that a palette loses nothing that one sees.
            path = Path(folder) / f"{only or f'{name}-{scheme}'}.png"
            image.convert("RGB").quantize(256, method=Image.Quantize.FASTOCTREE).save(
                path, optimize=True
            )
            print(path, image.size, path.stat().st_size)


if __name__ == "__main__":
    main(*sys.argv[1:])
