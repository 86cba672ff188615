"""The page as a folder: graphs, images, film, and the files that read them."""

import json
import logging
import shutil
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from joblib import Parallel, delayed

from course import playground
from course.explainer import graphs, images, step
from course.explainer.film import film
from dmlkit import losses

HERE = Path(__file__).parent
#: What the browser reads as it is.
FILES = ("index.html", "explainer.css", "explainer.js", "draw.js", "random.js", "worker.js")


def _attempt(name: str, folder: Path) -> dict[str, Any]:
    """What ``graphs.export_loss`` says, or why the loss cannot be exported."""
    warnings.simplefilter("ignore")  # the exporters', about themselves
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    try:
        return graphs.export_loss(name, folder)
    except Exception as error:  # whatever an exporter raises, the page names the loss and why
        return {"name": name, "title": losses.entry(name).title, "why": playground.reason(error)}


def write_images(folder: Path) -> dict[str, Any]:
    """Write each set of images as bytes, and say what the page needs to know of it."""
    told = {}
    for found in (images.glyphs(), images.groceries()):
        pixels = torch.cat([found.train, found.unseen])
        (folder / f"{found.title}.bin").write_bytes(pixels.numpy().tobytes())
        told[found.title] = {
            "about": found.about,
            "channels": pixels.shape[1],
            "names": found.names,
            "visits": found.visits,
            "lines": found.lines(),
        }
    return told


def write(folder: Path, names: Sequence[str] = tuple(graphs.LOSSES)) -> dict[str, Any]:
    """Build the page into a folder, whole or not at all, and give its catalog.

    That has ``losses``, those of the page, and ``missing``, those that cannot be exported.
    """
    folder = folder.resolve()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        page = Path(scratch) / "page"
        (page / "models").mkdir(parents=True)
        for file in FILES:
            shutil.copy(HERE / file, page)
        playground.copy_runtime(Path(scratch), page / "ort")
        jobs = [delayed(graphs.export_network)(page / "models")]
        _, *told = Parallel(n_jobs=-1)(
            jobs + [delayed(_attempt)(name, page / "models") for name in names]
        )
        data = write_images(page)
        (page / "film.svg").write_text(film(images.glyphs()))
        catalog = {
            "sizes": {
                "shapes": step.SHAPES,
                "classes": step.CLASSES,
                "images": step.IMAGES,
                "unseen": images.UNSEEN,
                "ofEach": images.OF_EACH,
                "batch": step.BATCH,
                "dim": step.DIM,
                "side": step.SIDE,
                "proxyRate": step.PROXY_RATE,
            },
            "data": data,
            "losses": [loss for loss in told if "why" not in loss],
            "missing": [loss for loss in told if "why" in loss],
        }
        (page / "explainer.json").write_text(json.dumps(catalog))
        shutil.rmtree(folder, ignore_errors=True)
        page.rename(folder)
    return catalog


def main(folder: Path) -> None:
    """Build the page, and print what it has and what it lacks."""
    catalog = write(folder)
    print(f"{len(catalog['losses'])} losses in {folder}")  # noqa: T201
    for loss in catalog["missing"]:
        print(f"missing: {loss['name']}: {loss['why']}")  # noqa: T201
