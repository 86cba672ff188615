"""What the pages that move share: one look, one runtime from npm, a folder whole or not at all."""

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from joblib import Parallel, delayed
from torchvision.datasets.utils import check_integrity

from course import exporting
from dmlkit import losses

#: The look of all that moves.
LOOK = Path(__file__).parent / "site" / "static" / "look.css"
#: What runs the graphs, from npm: its version, the MD5 of its archive, and what a page needs.
RUNTIME, RUNTIME_MD5 = "onnxruntime-web@1.30.0", "7677e2cac4b2d0a14154aef901cdab13"
RUNTIME_FILES = ("ort.wasm.bundle.min.mjs", "ort-wasm-simd-threaded.wasm")


@contextmanager
def replaced(folder: Path) -> Iterator[Path]:
    """A new folder to be filled, which takes the place of ``folder`` if nothing fails."""
    folder = folder.resolve()  # workers may have another folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        made = Path(scratch) / "made"
        made.mkdir()
        yield made
        shutil.rmtree(folder, ignore_errors=True)
        made.rename(folder)


def catalog(
    export: Callable[[str, Path], dict[str, Any]], names: Sequence[str], models: Path
) -> dict[str, list[dict[str, Any]]]:
    """Export losses into a new folder, and say what a page needs to know of them.

    That is ``losses``, those that the page has, and ``missing``, those that cannot be exported.
    """
    models.mkdir()
    told = Parallel(n_jobs=-1)(delayed(exporting.attempt)(export, name, models) for name in names)
    known = [losses.entry(name) for name in names]
    entries = [
        {"name": entry.name, "title": entry.title, "family": entry.family} | loss
        for entry, loss in zip(known, told, strict=True)
    ]
    return {
        "losses": [loss for loss in entries if "why" not in loss],
        "missing": [loss for loss in entries if "why" in loss],
    }


def copy_runtime(page: Path) -> None:
    """Put onnxruntime-web, at its version, from npm, and the look beside a page."""
    from_npm(RUNTIME, RUNTIME_MD5, [f"dist/{file}" for file in RUNTIME_FILES], page / "ort")
    shutil.copy(LOOK, page)


def from_npm(package: str, md5: str, files: Sequence[str], folder: Path) -> None:
    """Put files of a package, at its version, side by side into a new folder.

    Raises RuntimeError if npm has no such package, or another one than expected.
    """
    command = ["npm", "pack", package, "--prefer-offline", "--silent"]
    with tempfile.TemporaryDirectory() as scratch:
        done = subprocess.run(command, cwd=scratch, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"npm could not fetch {package}: {done.stderr.strip()}")
        archive = Path(scratch, done.stdout.split()[-1])
        if not check_integrity(archive, md5):
            raise RuntimeError(f"npm's {package} is not the file whose MD5 is {md5}")
        folder.mkdir()
        parts = [f"--strip-components={1 + files[0].count('/')}", *(f"package/{f}" for f in files)]
        subprocess.run(["tar", "-xzf", archive, *parts], cwd=folder, check=True)


def report(folder: Path, catalog: dict[str, Any]) -> None:
    """Print what a page has and what it lacks."""
    print(f"{len(catalog['losses'])} losses in {folder}")  # noqa: T201
    for loss in catalog["missing"]:
        print(f"missing: {loss['name']}: {loss['why']}")  # noqa: T201
