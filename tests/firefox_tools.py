"""Firefox without a window, spoken to by Marionette, its own protocol for tests: messages of JSON over a socket."""

import json
import shutil
import socket
import subprocess
import tempfile
import time
from contextlib import closing, contextmanager
from pathlib import Path

FIREFOX = next(filter(None, map(shutil.which, ("firefox-esr", "firefox"))), None)
SECONDS = 60


class Firefox:
    """A running browser."""

    def __init__(self, port):
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=SECONDS)
        self._buffer = b""
        self._sent = 0
        self._message()  # what it is
        self.command("WebDriver:NewSession")
        self.command("WebDriver:SetTimeouts", script=SECONDS * 1000)

    def close(self):
        self._socket.close()

    def _message(self):
        while b":" not in self._buffer:
            self._more()
        size, self._buffer = self._buffer.split(b":", 1)
        while len(self._buffer) < int(size):
            self._more()
        message, self._buffer = self._buffer[: int(size)], self._buffer[int(size) :]
        return json.loads(message)

    def _more(self):
        part = self._socket.recv(2**16)
        assert part, "Firefox has closed the connection"
        self._buffer += part

    def command(self, name, **params):
        self._sent += 1
        text = json.dumps([0, self._sent, name, params]).encode()
        self._socket.sendall(b"%d:%s" % (len(text), text))
        _, _, error, result = self._message()
        assert error is None, (name, error)
        return result.get("value", result) if isinstance(result, dict) else result

    def install(self, folder):
        """Install an extension until the browser ends, and return the address of its pages."""
        ours = self.command("Addon:Install", path=str(folder), temporary=True)
        host = self.privileged("return WebExtensionPolicy.getByID(arguments[0]).mozExtensionHostname", ours)
        return f"moz-extension://{host}/"

    def privileged(self, script, *arguments):
        """Run a script as the browser itself."""
        self.command("Marionette:SetContext", value="chrome")
        try:
            return self.evaluate(script, *arguments)
        finally:
            self.command("Marionette:SetContext", value="content")

    def evaluate(self, script, *arguments):
        """Run a script in the page, as the page's own, and return what it returns."""
        return self.command("WebDriver:ExecuteScript", script=script, args=list(arguments), sandbox=None)

    def visit(self, address):
        self.command("WebDriver:Navigate", url=address)

    def wait(self, script, *arguments):
        """Run a script until what it returns is true."""
        end = time.monotonic() + SECONDS
        while not (found := self.evaluate(script, *arguments)):
            assert time.monotonic() < end, f"never true: {script}"
            time.sleep(0.05)
        return found


@contextmanager
def firefox(preferences):
    """Launch Firefox with a fresh profile."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        lines = [f"user_pref({json.dumps(name)}, {json.dumps(value)});" for name, value in preferences.items()]
        (Path(profile) / "user.js").write_text("\n".join([*lines, 'user_pref("marionette.port", 0);']))
        command = [
            FIREFOX,
            "--headless",
            "--marionette",
            "--remote-allow-system-access",
            "--no-remote",
            "--profile",
            profile,
        ]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            with closing(Firefox(_port(Path(profile) / "MarionetteActivePort", process))) as browser:
                yield browser
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _port(path, process):
    end = time.monotonic() + SECONDS
    while not (path.exists() and path.read_text().strip()):
        assert process.poll() is None, "Firefox has ended by itself"
        assert time.monotonic() < end, "Firefox does not answer"
        time.sleep(0.05)
    return int(path.read_text())
