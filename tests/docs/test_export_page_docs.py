"""The commands of docs/export-page.md, run as printed."""

import re
import shlex
from pathlib import Path

from cli_tools import call

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "export-page.md").read_text(encoding="utf-8")


def test_commands(tmp_path):
    (block,) = re.findall(r"```sh\n(.*?)```", TEXT, flags=re.DOTALL)
    for line in block.splitlines():
        program, *arguments = shlex.split(line)
        assert program == "metricdp"
        answer = call(*arguments, cwd=tmp_path)
        assert answer.returncode == 0, answer.stderr
    assert {path.name for path in (tmp_path / "page").iterdir()} == {
        "app.webmanifest", "index.html", "mechanisms", "page", "register.js", "worker.js",
    }  # fmt: skip


def test_the_readme_of_the_extension_explains_every_permission():
    folder = ROOT / "js" / "extension"
    manifest, build = (folder / "manifest.json").read_text(), (folder / "build.mjs").read_text()
    asked = {
        name
        for text in re.findall(r"permissions\"?: \[([^\]]*)\]", manifest + build)
        for name in re.findall(r"\"(\w+)\"", text)
    }
    explained = set(re.findall(r"^\| `(\w+)`", (folder / "README.md").read_text(encoding="utf-8"), flags=re.MULTILINE))
    assert asked == explained == {"geolocation", "storage", "offscreen"}
    assert "host_permissions" not in manifest + build
