"""Everything that must be so before a release: `make release-check`. What is published is left in `dist/`."""

from __future__ import annotations

import argparse
import hashlib
import shutil
import sys
import tempfile
import tomllib
from functools import partial
from pathlib import Path

from release import contents, dependencies, installs, versions
from release.running import Failed, Skipped, Step, run, run_steps

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
_PYTHON = "Programming Language :: Python :: 3."


def supported() -> list[str]:
    """Return the versions of Python that pyproject.toml promises."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [f"3.{one.removeprefix(_PYTHON)}" for one in project["classifiers"] if one.startswith(_PYTHON)]


def versions_agree() -> str:
    """Compare all places that state the version."""
    wrong = versions.disagreements()
    if wrong:
        raise Failed(*wrong)
    return f"{versions.version()} in {len(versions.VERSIONS)} files"


def build() -> str:
    """Build the source distribution, and the wheel from it, in an empty `dist/`."""
    shutil.rmtree(DIST, ignore_errors=True)
    run(sys.executable, "-m", "build", "--outdir", DIST, cwd=ROOT)
    return "\n".join(sorted(path.name for path in DIST.iterdir()))


def built(ending: str) -> Path:
    """Return the one file in `dist/` with an ending."""
    found = [*DIST.glob(f"*{ending}")]
    if len(found) != 1:
        raise Failed(f"There must be one file *{ending} in dist/, and there are {len(found)}.")
    return found[0]


def metadata() -> str:
    """Check the metadata as the package index does."""
    run(sys.executable, "-m", "twine", "check", "--strict", built(".whl"), built(".tar.gz"), cwd=ROOT)
    return contents.index_page(contents.description(built(".whl")))


def holds() -> str:
    """Check what is inside."""
    return f"{contents.wheel(built('.whl'), ROOT)}\n{contents.sdist(built('.tar.gz'), ROOT)}"


def npm() -> str:
    """Pack the npm package and check what is inside."""
    return contents.npm_package(ROOT, DIST)


def tried(ending: str, version: str, scratch: Path) -> str:
    """Install one of the two into an empty environment of one Python, and try it."""
    python = installs.interpreter(version)
    if python is None:
        raise Skipped(f"This machine has no Python {version}, so nothing was tried on it.")
    package = built(ending)
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        made = installs.environment(python, Path(folder) / "environment", str(package))
        lines = contents.five_lines(contents.description(built(".whl")))
        installs.trial(made, Path(folder) / "empty", versions.version(), lines)
    return "the README's lines, fit and certify run"


def materials(scratch: Path) -> str:
    """Write the bill of materials of an environment with all extras, and check licences."""
    package = built(".whl")
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        made = installs.environment(Path(sys.executable), Path(folder) / "environment", f"{package}[all]")
        return dependencies.bill_of_materials(made, DIST / f"metricdp-{versions.version()}.cdx.json")


def checksums() -> str:
    """Write the checksums of all that is published."""
    paths = sorted(path for path in DIST.iterdir() if path.name != "SHA256SUMS")
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in paths]
    (DIST / "SHA256SUMS").write_text("".join(sums), encoding="utf-8")
    return "".join(sums).rstrip()


def main() -> None:
    """Run all steps; end with 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--pythons", default=",".join(supported()), help="versions to install on (default: %(default)s)"
    )
    pythons = parser.parse_args().pythons.split(",")
    with tempfile.TemporaryDirectory(prefix="metricdp-release-") as name:
        scratch = Path(name)
        steps: list[tuple[str, Step]] = [
            ("versions agree", versions_agree),
            ("build", build),
            ("metadata and page on the index", metadata),
            ("contents", holds),
            ("npm package", npm),
            *(
                (f"{kind} on Python {version}", partial(tried, ending, version, scratch))
                for version in pythons
                for kind, ending in (("wheel", ".whl"), ("source distribution", ".tar.gz"))
            ),
            ("licences and bill of materials", partial(materials, scratch)),
            ("checksums", checksums),
        ]
        well = run_steps(steps)
    sys.exit(0 if well else 1)


if __name__ == "__main__":
    main()
