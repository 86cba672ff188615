"""The page as a folder: graphs, images, film, and the files that read them."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from course import live
from course.explainer import film, graphs, images, step

HERE = Path(__file__).parent
#: What the page knows of its losses and images.
CATALOG = "explainer.json"
#: What the browser reads as it is.
FILES = ("index.html", "explainer.css", "explainer.js", "draw.js", "random.js", "worker.js")


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
    """Build the page into a folder, whole or not at all, and give its catalog of losses."""
    with live.replaced(folder) as page:
        for file in FILES:
            shutil.copy(HERE / file, page)
        live.copy_runtime(page)
        catalog = live.catalog(graphs.export_loss, names, page / "models")
        graphs.export_network(page / "models")
        data = write_images(page)
        film.save(film.film(images.glyphs()), page / "film.webp")
        sizes = {
            "shapes": step.SHAPES,
            "classes": step.CLASSES,
            "images": step.IMAGES,
            "unseen": images.UNSEEN,
            "ofEach": images.OF_EACH,
            "batch": step.BATCH,
            "dim": step.DIM,
            "side": step.SIDE,
            "proxyRate": step.PROXY_RATE,
        }
        told = {"sizes": sizes, "data": data} | catalog
        (page / CATALOG).write_text(json.dumps(told))
    return catalog
