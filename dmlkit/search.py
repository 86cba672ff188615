"""Search by picture: a Run's model, the pictures that are searched, an index of them on disk."""

import hashlib
import json
import os
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from PIL import Image
from torch import Tensor, nn

from dmlkit import cache_folder, data, figures, training
from dmlkit.data import ImageSet
from dmlkit.data.pictures import SUFFIXES, Pictures, check_readable, open_picture
from dmlkit.files import write_whole
from dmlkit.index import Index
from dmlkit.training import Run

_LETTERS = 84  # of a panel's titles, side by side in one line
_SAMPLE = 256  # pictures, at most, whose exact neighbors an approximate index is compared with


class Gallery(NamedTuple):
    """The pictures that are searched, as a Run's model sees them."""

    images: ImageSet
    names: tuple[str, ...]  # of pictures
    stamp: str  # another one when a picture was added, removed or changed

    @property
    def classes(self) -> list[str]:
        """The class of every picture."""
        return [self.images.class_names[label] for label in self.images.labels]


def find_run(name: str) -> Run:
    """A Run by its folder, or by its name in ``data/runs`` or the first letters of that.

    Raises FileNotFoundError where there is none, ValueError where there are several.
    """
    store, stem = cache_folder() / "runs", Path(name).name
    named = [Path(name)] if (Path(name) / "run.json").is_file() else []
    known = [path.parent for path in store.glob("*/run.json")]
    found = named or [path for path in known if stem and path.name.startswith(stem)]
    if not found:
        raise FileNotFoundError(
            f"there is no Run {name!r}, neither as a folder nor in {store}: `dmlkit train` makes "
            "one, and says its name"
        )
    if len(found) > 1:
        raise ValueError(f"{name!r} could be {', '.join(sorted(path.name for path in found))}")
    return training.load_run(found[0])


def keep_place(*runs: Run) -> None:
    """Write down where the data sets were that Runs were trained on, for ``kept_place``."""
    place = os.environ.get("DMLKIT_DATA")
    for run in runs:
        if place and run.experiment.data != "glyphs":  # which are made anywhere
            path = _note(run)
            path.parent.mkdir(parents=True, exist_ok=True)
            text = str(Path(place).resolve())
            write_whole({path: partial(Path.write_text, data=text, encoding="utf-8")})


def kept_place(run: Run) -> Path | None:
    """The folder of data sets that a Run was trained in, if it was written down and is there."""
    path = _note(run)
    place = Path(path.read_text(encoding="utf-8")) if path.is_file() else None
    return place if place and place.is_dir() else None


def _note(run: Run) -> Path:
    return cache_folder() / "places" / run.path.name


def gallery(run: Run, pictures: Path | None = None, split: str | None = None) -> Gallery:
    """The pictures in a folder and below it, or a split of the Run's data set (default: its own).

    A picture in a folder has the name of the folder that holds it for its class.

    Raises FileNotFoundError where there is no such folder, ValueError for one without pictures,
    and where both a folder and a split are given.
    """
    if pictures and split:
        raise ValueError(f"give a folder of pictures ({pictures}) or a split ({split}), not both")
    if pictures is None:
        images = _of_run(run, split or run.experiment.split)
        if isinstance(images.images, Tensor):
            names = tuple(f"{split or run.experiment.split} {i}" for i in range(len(images)))
            return Gallery(images, names, images.fingerprint)
        paths: Sequence[Path] = images.images.paths
        return Gallery(images, tuple(map(str, paths)), _stamp(paths))
    if not pictures.is_dir():
        raise FileNotFoundError(f"{pictures} is no folder: expected one of pictures")
    paths = sorted(
        path for path in pictures.resolve().rglob("*") if path.suffix.lower() in SUFFIXES
    )
    if not paths:
        raise ValueError(f"there is no picture ({' '.join(SUFFIXES)}) in {pictures}")
    classes, labels = np.unique([path.parent.name for path in paths], return_inverse=True)
    images = ImageSet(
        as_seen(run, paths), labels.astype(np.int64), classes[labels], tuple(map(str, classes))
    )
    return Gallery(images, tuple(map(str, paths)), _stamp(paths))


def _of_run(run: Run, split: str) -> ImageSet:
    """A split of the Run's data set, wherever its pictures are now."""
    experiment, args = run.experiment, dict(run.experiment.data_args)
    if "root" in args and not Path(args["root"]).is_dir():
        del args["root"]  # they were moved: else $DMLKIT_DATA tells
    try:
        return data.load(experiment.data, split, **args)
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"the pictures of Run {run.path.name} are not where they were: say by --root where "
            f"they are now, or search others by --pictures ({error})"
        ) from error


def as_seen(run: Run, paths: Sequence[Path]) -> Tensor | Pictures:
    """Picture files as the Run's data set gives its own: (N, C, H, W) uint8.

    Color is resized and cropped as the Run's pictures are. A Run of Glyphs or Omniglot sees gray
    ink on 0; the more common half of the tones is taken for the paper.
    """
    args = run.experiment.data_args
    if run.experiment.data in ("glyphs", "omniglot"):
        try:
            return torch.stack([_ink(path, args.get("size", 32)) for path in paths])
        except ValueError:
            check_readable(paths)
            raise
    how = {key: args[key] for key in ("crop", "resize", "keep_aspect") if key in args}
    return Pictures(paths, **how)


def _ink(path: Path, side: int) -> Tensor:
    with open_picture(path) as image:
        gray = np.array(image.convert("L").resize((side, side), Image.Resampling.BOX))
    return torch.from_numpy(255 - gray if np.median(gray) > 127 else gray)[None]  # (1, H, W)


def _stamp(paths: Sequence[Path]) -> str:
    """Names, sizes and times of files: their contents would take minutes to read."""
    facts = [(str(path), (s := path.stat()).st_size, s.st_mtime_ns) for path in paths]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def index(
    run: Run, gallery: Gallery, path: Path, kind: str = "flat", device: str = "auto"
) -> tuple[Index, bool]:
    """The index of a gallery in a file, and whether it was built now.

    It is built where there is none, where the pictures have changed, or where another kind is asked
    for. An approximate one is compared with exact search: ``facts["recall"]``, of the 10 nearest.

    Raises ValueError for the index of another Run, and for what ``Index.build`` refuses.
    """
    if path.exists():
        found = Index.load(path)
        if found.facts.get("run") != run.path.name:
            raise ValueError(
                f"{path} is an index of Run {found.facts.get('run')}, not of {run.path.name}: "
                "their embeddings cannot be compared; name another file, or delete this one"
            )
        asked = kind, gallery.stamp, len(gallery.names)
        if (found.kind, found.facts.get("stamp"), len(found)) == asked:
            return found, False
    try:
        embeddings = training.embed(_model(run, device), gallery.images)
    except ValueError:
        if isinstance(gallery.images.images, Pictures):
            check_readable(gallery.images.images.paths)
        raise
    facts = {"run": run.path.name, "stamp": gallery.stamp}
    made = Index.build(embeddings, kind, run.experiment.metric, facts=facts)
    if kind != "flat":
        sample = embeddings[:: -(-len(embeddings) // _SAMPLE)]
        share = made.recall(sample, embeddings, k=min(10, len(embeddings)))
        made = replace(made, facts=facts | {"recall": share})
    made.save(path)
    return made, True


def nearest(
    run: Run, gallery: Gallery, index: Index, picture: Path, k: int = 5, device: str = "auto"
) -> pd.DataFrame:
    """The k pictures of the gallery most like a picture, nearest first, one row each.

    The columns are ``picture``, ``class``, ``place`` (in the gallery), and ``cosine`` or
    ``euclidean``, by the metric of the index.
    """
    query = ImageSet(as_seen(run, [picture]), np.zeros(1, np.int64), np.array([""]), ("query",))
    embedding = training.embed(_model(run, device), query)
    places, values = index.search(embedding, min(k, len(index)))
    found = [int(place) for place in places[0] if place >= 0]
    return pd.DataFrame(
        {
            "picture": [gallery.names[place] for place in found],
            "class": [gallery.classes[place] for place in found],
            "place": found,
            str(index.metric): values[0, : len(found)].tolist(),
        }
    )


def panel(run: Run, gallery: Gallery, picture: Path, found: pd.DataFrame) -> Figure:
    """The query, and beside it what was found; to be saved with ``bbox_inches="tight"``."""
    query = as_seen(run, [picture])[0:1]
    pictures = torch.cat([query, gallery.images.images[found["place"].to_numpy()]])
    width = max(4, _LETTERS // len(pictures))  # of a column
    values = found.iloc[:, -1]
    labels = [
        "\n".join([*textwrap.wrap(name.replace("$", r"\$"), width), f"{value:.2f}"])
        for name, value in zip(found["class"], values, strict=True)
    ]
    figure, axes = figures.contact_sheet(pictures[None], columns=["query\n", *labels])
    axes.tick_params(labelsize=8)
    figure.set_layout_engine("none")
    figure.subplots_adjust(0, 0, 1, 1)
    return figure


def _model(run: Run, device: str) -> nn.Module:
    return run.model().to(training.device_type(device))


def place_of_index(run: Run, pictures: Path | None, split: str | None) -> Path:
    """Where the index of a folder or split is kept, if no file is named."""
    what = str(pictures.resolve()) if pictures else f"split {split or run.experiment.split}"
    name = f"{run.path.name}-{hashlib.sha256(what.encode()).hexdigest()[:12]}.index"
    return cache_folder() / "indices" / name
