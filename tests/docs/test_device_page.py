"""The JavaScript of docs/device.md runs as it stands there."""

import re
import shutil

import pytest

from device_tools import PACKAGE, ROOT, VECTORS, needs_node, run_node

BLOCKS = re.findall(r"^```js\n(.*?)^```", (ROOT / "docs" / "device.md").read_text(), re.DOTALL | re.MULTILINE)

# What a browser has: a position, a file to fetch, and somebody to send a report to.
BROWSER = """
import { readFile as read } from "node:fs/promises";
globalThis.fetch = async (name) => ({ arrayBuffer: async () => Uint8Array.from(await read(name)).buffer });
globalThis.send = (report) => console.log(JSON.stringify(report));
const coords = { longitude: 24.94, latitude: 60.17, accuracy: 5 };
const geolocation = { getCurrentPosition: (found) => found({ coords }) };
Object.defineProperty(globalThis, "navigator", { value: { geolocation } });
"""


@needs_node
@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_blocks_run(number, tmp_path):
    shutil.copy(VECTORS / "spline-ground.mdp", tmp_path / "city.mdp")
    code = BLOCKS[number].replace('from "metricdp"', f'from "{PACKAGE.as_uri()}/src/index.js"')
    before = BROWSER if "navigator" in code else ""
    (tmp_path / "block.mjs").write_text(f"{before}process.chdir({str(tmp_path)!r});\n{code}")
    printed = run_node(tmp_path / "block.mjs")
    assert "lon" in printed
    assert '"lon":24.94,' not in printed  # the true position is never the report


def test_there_are_blocks():
    assert len(BLOCKS) == 3
