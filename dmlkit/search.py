"""Search by picture: an index, in a file, of what a Run's model makes of a folder or a split."""

import json
import math
import os
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from operator import index as whole
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import faiss
import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from dmlkit import cache_folder, data, figures, training
from dmlkit.arrays import Array
from dmlkit.checks import check_choice, check_gallery, listed
from dmlkit.data import ImageSet, folder
from dmlkit.data.own import readable
from dmlkit.data.pictures import Pictures, decode, stamp
from dmlkit.files import StrPath, told, write_whole
from dmlkit.neighbors import Metric, Sets, as_matrix, by_faiss, metric_of
from dmlkit.retrieval import nearest_neighbors
from dmlkit.training import Run

Item = tuple[str, ...]  # a picture's name, its class, and a stamp: another one where it changed

#: How many cells or items a search has in view: faiss's word, and our default.
BREADTH = {"ivfpq": ("nprobe", 8), "hnsw": ("efSearch", 64)}


@dataclass(eq=False)
class Index:
    """An embedded set, ready to be searched.

    ``"flat"`` compares a query with all N embeddings: the neighbors of ``nearest_neighbors``. Only
    a part is looked at by ``"ivfpq"``, which is small (cells, and codes for what is left: Jégou,
    Douze and Schmid 2011), and ``"hnsw"``, which is fast (links between near items: Malkov and
    Yashunin 2020). Keep copies out of the latter: they link to each other, and cut off the rest. Of
    8,000 random rows, 2,000 of them equal, it found 65 % of the neighbors of others (99.7 % without
    copies), and 78 % however broad the search.

    >>> index = Index.build(np.array([[0.0], [1.0], [3.0]]), metric="euclidean")
    >>> index.search(np.array([[2.5]]), k=2)
    (array([[2, 1]]), array([[0.5, 1.5]], dtype=float32))
    """

    kind: str
    metric: Metric
    faiss: Any  # its typing stubs know no index's own attributes
    run: str = ""  # whose embeddings these are
    items: list[Item] = field(default_factory=list)  # by their place, where they are known
    removed: set[int] = field(default_factory=set)  # places

    @classmethod
    def build(
        cls,
        embeddings: Array,
        kind: str = "flat",
        metric: Metric = "cosine",
        factory: str | None = None,
        seed: int = 0,
    ) -> "Index":
        """Index embeddings (N, d) by angle, or by distance (euclidean); a seed gives one index.

        ``factory`` is another index of its kind, in faiss's words: ``"HNSW12,Flat"``.
        """
        check_choice(("flat", *BREADTH), kind=kind)
        check_choice(("euclidean", "cosine"), metric=metric)
        x = _as_faiss(embeddings, "embeddings", metric).numpy()
        made: Any = faiss.index_factory(x.shape[1], factory or _factory(kind, *x.shape))
        if kind == "ivfpq":
            for clustering in (made.cp, made.pq.cp):
                clustering.seed = whole(seed)
                clustering.min_points_per_centroid = 1  # else faiss complains on stderr
            # faiss's 25 rounds on 256 points a centroid take ten times as long, and find no more.
            made.pq.cp.niter, made.pq.cp.max_points_per_centroid = 10, 64
        if kind == "hnsw":
            made.hnsw.rng = faiss.RandomGenerator(whole(seed))  # type: ignore[attr-defined]
        with training.repeatable_numerics(threads=1):
            made.train(x)
        index = cls(kind, metric, made)
        index.add(embeddings)
        return index

    def __len__(self) -> int:
        return self.faiss.ntotal - len(self.removed)

    def add(self, embeddings: Array, items: Iterable[Item] = ()) -> None:
        """Append embeddings (n, d), whose places follow those that are there.

        All have an item, or none has: ValueError for others, and for another number of columns.
        """
        x, items = self._rows(embeddings, "embeddings"), list(items)
        if len(self.items) + len(items) not in (0, self.faiss.ntotal + len(x)):
            raise ValueError(
                f"items: expected one for each embedding or none at all, got {len(items)} for "
                f"{len(x)} embeddings, and {len(self.items)} for the {self.faiss.ntotal} before"
            )
        # Several threads would link a graph in the order in which they happen to come.
        with training.repeatable_numerics(threads=1):
            self.faiss.add(x.numpy())
        self.items += items

    def remove(self, places: Iterable[int]) -> None:
        """Find the items at these places no more; all others keep theirs.

        Raises ValueError, and removes none, for a place that is empty.
        """
        gone = set(map(whole, listed(places)))  # JSON knows no NumPy
        if absent := gone & self.removed | {i for i in gone if not 0 <= i < self.faiss.ntotal}:
            raise ValueError(
                f"places: expected some of 0 to {self.faiss.ntotal - 1} that are not removed yet, "
                f"got {', '.join(map(str, sorted(absent)[:5]))}"
            )
        self.removed |= gone

    def search(self, queries: Array, k: int, breadth: int | None = None) -> tuple[Array, Array]:
        """The k nearest items of every query: (Q, d) -> (Q, k), (Q, k), as ``nearest_neighbors``.

        ``breadth`` is how many cells (ivfpq) or items (hnsw) are kept in view; a query that comes
        upon fewer than k items looks further, at twice as many, until it has found k.
        """
        if not 1 <= (k := whole(k)) <= len(self):
            raise ValueError(f"k: expected 1 to {len(self)}, the items of the index, got {k}")
        x, more = self._rows(queries, "queries"), k + len(self.removed)
        if self.kind == "flat":
            y, own = torch.as_tensor(self.faiss.reconstruct_n()), torch.full((len(x),), -1)
            places, squared = by_faiss(x, own, y, self.faiss, more)
        else:
            places, squared = self._look(x, more, whole(breadth or BREADTH[self.kind][1]))
        if self.removed:
            gone = torch.isin(places, torch.tensor(sorted(self.removed)))
            order = gone.int().argsort(dim=1, stable=True)[:, :k]
            places, squared = places.gather(1, order), squared.gather(1, order)
        found = Sets(x, x, metric_of(self.metric)).read(squared)
        if isinstance(queries, Tensor):
            return places.to(queries.device), found.to(queries.device)
        return places.numpy(), found.numpy()

    def _rows(self, embeddings: Array, name: str) -> Tensor:
        """What is to be compared with the index: see ``_as_faiss``."""
        x = _as_faiss(embeddings, name, self.metric)
        if x.shape[1] != self.faiss.d:
            raise ValueError(
                f"{name}: expected as many columns as the index, {self.faiss.d}, got {x.shape[1]}"
            )
        return x

    def _look(self, x: Tensor, k: int, breadth: int) -> tuple[Tensor, Tensor]:
        """Places and squared distances (Q, k) of a search of a part, as far as k items are away."""
        places, squared = torch.full((len(x), k), -1), torch.full((len(x), k), math.inf)
        short, width = torch.arange(len(x)), breadth
        while len(short):
            if width < 2 * self.faiss.ntotal:
                name, _ = BREADTH[self.kind]
                faiss.ParameterSpace().set_index_parameter(self.faiss, name, width)
                found = self.faiss.search(x[short].numpy(), k)
            else:  # to some items of an HNSW no link leads
                found = self.faiss.storage.search(x[short].numpy(), k)
            squared[short], places[short] = map(torch.from_numpy, found)
            short, width = short[(places[short] < 0).any(dim=1)], 2 * width
        return places, squared.clamp_min_(0)

    def recall(
        self, queries: Array, gallery: Array, k: int = 10, own: Array | None = None
    ) -> float:
        """Of every query's k exact neighbors in the gallery that was indexed, the share found.

        ``own`` (Q,) are the gallery's rows that are the queries themselves, −1 for none.
        """
        check_gallery(queries, gallery, own)
        exact, _ = nearest_neighbors(queries, k, gallery, self.metric, own)
        found, _ = self.search(queries, k if own is None else k + 1)
        rows = [-1] * len(found) if own is None else own
        sets = zip(exact, found, rows, strict=True)
        return float(np.mean([np.isin(a, b[b != row][:k]).mean() for a, b, row in sets]))

    def save(self, path: StrPath) -> None:
        """Write one file, all of it or nothing."""
        about = {name: getattr(self, name) for name in ("kind", "metric", "run", "items")}
        text = json.dumps(about | {"removed": sorted(self.removed)})

        def write(beside: Path) -> None:
            with beside.open("wb") as file:
                np.savez(file, about=np.array(text), index=faiss.serialize_index(self.faiss))

        write_whole({Path(path): write})

    @classmethod
    def load(cls, path: StrPath) -> "Index":
        """Read what ``save`` wrote. Raises ValueError for any other file."""
        try:
            with Path(path).open("rb") as file, np.load(file) as kept:
                about = json.loads(str(kept["about"]))
                about["items"] = list(map(tuple, about["items"]))
                about["removed"] = set(about["removed"])
                return cls(faiss=faiss.deserialize_index(kept["index"]), **about)
        except FileNotFoundError:
            raise
        except Exception as error:  # each library refuses in its own way
            raise ValueError(f"{path} is not as Index.save writes it ({told(error)})") from None


def _as_faiss(embeddings: Array, name: str, metric: Metric) -> Tensor:
    """Embeddings (n, d) float32; ValueError for numbers whose squares float32 cannot hold."""
    x = as_matrix(embeddings, name, metric)
    if (largest := x.abs().max().item()) and not 1e-16 < largest < 1e16:
        raise ValueError(
            f"{name}: expected numbers between 1e-16 and 1e16, got up to {largest:.0e}: scale them"
        )
    return x.float().cpu()


def _factory(kind: str, N: int, d: int) -> str:
    if kind == "ivfpq":
        cells = max(1, min(round(4 * N**0.5), N // 39))  # a centroid learns from 39 or more
        m = max(m for m in range(1, max(1, d // 4) + 1) if d % m == 0)
        # "np": codes as they come; faiss would spend most of its time on an order we never use.
        return f"IVF{cells},PQ{m}x8np"
    return {"flat": "Flat", "hnsw": "HNSW32,Flat"}[kind]


# A Run, and pictures as its model sees them


class Gallery(NamedTuple):
    """The pictures that are searched."""

    images: ImageSet
    items: list[Item]


def find_run(name: StrPath) -> Run:
    """A Run by its folder, or by the first letters of its name in ``data/runs``."""
    if (Path(name) / "run.json").is_file():
        return training.load_run(name)
    known = sorted(path.parent for path in (cache_folder() / "runs").glob("*/run.json"))
    found = [path for path in known if path.name.startswith(str(name))]
    if len(found) != 1:
        there = ", ".join(path.name for path in found or known) or "none"
        raise ValueError(f"'{name}' is no Run's folder, and begins no single Run's name of {there}")
    return training.load_run(found[0])


def gallery(run: Run, pictures: StrPath | None = None, split: str | None = None) -> Gallery:
    """All pictures of a folder that holds one folder per class, else of a split of the Run's data.

    The split is the Run's own, if none is given; where that trains, of a ``final`` training, it is
    all that one has, and what was kept apart, too.
    """
    if pictures:
        images = folder.listing(Path(pictures)).image_set()
    else:
        split, args = split or run.experiment.split, run.experiment.data_args
        args = {**args, "test_share": 0} if split == "train" and "given" in args else args
        images = data.load(run.experiment.data, split, **args)
    classes = [images.class_names[label] for label in images.labels]
    if isinstance(images.images, Tensor):
        of_all, N = images.fingerprint, len(images)
        told = images.attributes.get("path", [f"{split} {i}" for i in range(N)])  # of features
        return Gallery(images, list(zip(map(str, told), classes, [of_all] * N, strict=True)))
    paths, boxes = images.images.paths, images.images.boxes
    stamps = [f"{stamp(path)}{boxes[i] if boxes else ''}" for i, path in enumerate(paths)]
    items: list[Item] = list(zip(map(str, paths), classes, stamps, strict=True))
    return Gallery(replace(images, images=as_seen(run, paths)) if pictures else images, items)


def as_seen(run: Run, paths: Sequence[StrPath | BinaryIO]) -> Tensor | Pictures:
    """Picture files, or their bytes, as the Run's data set gives its own: (N, C, H, W) uint8.

    Color is resized and cropped as the Run's pictures are. A Run of Glyphs or Omniglot sees gray
    ink on 0; the more common half of the tones is taken for the paper. For a Run of features a file
    holds those of a picture, (F,) float32, as .npy or as mere bytes; ValueError for any other.
    """
    args = run.experiment.data_args
    if run.image_shape[1:] == (1, 1):
        return torch.stack([_vector(path, run.image_shape[0]) for path in paths])
    if run.experiment.data in ("glyphs", "omniglot"):
        return torch.stack([_ink(path, args.get("size", 32)) for path in paths])
    args = {"keep_aspect": run.experiment.data == "grocery", **args}  # by the loader's default
    return Pictures(paths, **{k: args[k] for k in ("crop", "resize", "keep_aspect") if k in args})


def _vector(path: StrPath | BinaryIO, F: int) -> Tensor:
    content = Path(path).read_bytes() if isinstance(path, str | os.PathLike) else path.read()
    if content[:6] == b"\x93NUMPY":  # whose header is not trusted with the size
        content = content[10 + int.from_bytes(content[8:10], "little") :]
    if len(content) != 4 * F:
        raise ValueError(
            f"expected the {F} features of a picture, {4 * F} bytes of float32, got {len(content)}"
        )
    if not np.isfinite(vector := np.frombuffer(content, "<f4").copy()).all():
        raise ValueError(f"expected {F} finite features, got others")
    return torch.from_numpy(vector)[:, None, None]


def _ink(path: StrPath | BinaryIO, side: int) -> Tensor:
    gray = np.array(Image.fromarray(decode(path, side)).convert("L"))
    return torch.from_numpy(255 - gray if np.median(gray) > 127 else gray)[None]  # (1, H, W)


def _embed(run: Run, images: Tensor | Pictures, device: str) -> np.ndarray:
    return training.embed(run.model().to(training.device_type(device)), images)


def index(
    run: Run, gallery: Gallery, path: StrPath, kind: str = "flat", device: str = "auto"
) -> tuple[Index, int]:
    """The index of a gallery in a file, and how many pictures were embedded for it now.

    What is new in the gallery is added, what is gone is removed, and what cannot be read is left
    out, with a warning. Raises ValueError for the index of another Run.
    """
    made, there = None, dict[Item, int]()
    if Path(path).exists():
        made = Index.load(path)
        if made.run != run.path.name:
            raise ValueError(
                f"{path} is an index of Run {made.run}, not of {run.path.name}: "
                "their embeddings cannot be compared; name another file, or delete this one"
            )
        if made.kind == kind:
            there = {item: i for i, item in enumerate(made.items) if i not in made.removed}
    kept = there.keys() & set(gallery.items)
    new = [i for i, item in enumerate(gallery.items) if item not in kept]
    images, good = _readable(gallery.images.images, new, Path(path))
    items = [gallery.items[i] for i, is_good in zip(new, good, strict=True) if is_good]
    if not (items or kept):
        raise ValueError(f"expected pictures, but of {len(good)} none can be read")
    if made is None or not kept:
        made = Index.build(_embed(run, images, device), kind, run.experiment.metric)
        made.run, made.items = run.path.name, items
    else:
        made.remove(there[item] for item in there.keys() - kept)
        if items:
            made.add(_embed(run, images, device), items)
    made.save(path)
    return made, len(items)


def _readable(
    images: Tensor | Pictures, rows: list[int], path: Path
) -> tuple[Tensor | Pictures, NDArray[np.bool_]]:
    """Some pictures without those that cannot be read, and which of the rows these are."""
    if isinstance(images, Tensor):
        return images[rows], np.ones(len(rows), dtype=bool)
    some = images.subset(rows)
    good = readable(some.paths, path, some.boxes, "skip")
    return some.subset(np.flatnonzero(good)), good


def nearest(
    run: Run, gallery: Gallery, index: Index, picture: StrPath, k: int = 5, device: str = "auto"
) -> pd.DataFrame:
    """The k pictures of the gallery most like a picture, nearest first, one row each.

    The columns are ``picture``, ``class``, ``place`` (in the gallery), and ``cosine`` or
    ``euclidean``, by the metric of the index.
    """
    places, values = index.search(_embed(run, as_seen(run, [picture]), device), min(k, len(index)))
    found = [index.items[place] for place in places[0]]
    names, classes, _ = zip(*found, strict=True)
    where = [gallery.items.index(item) for item in found]
    score = {str(index.metric): values[0].tolist()}
    return pd.DataFrame({"picture": names, "class": classes, "place": where} | score)


def panel(run: Run, gallery: Gallery, picture: StrPath, found: pd.DataFrame) -> Figure:
    """The query, and beside it what was found; to be saved with ``bbox_inches="tight"``."""
    query = as_seen(run, [picture])[0:1]
    pictures = torch.cat([query, gallery.images.images[found["place"].to_numpy()]])
    width = max(4, 84 // len(pictures))  # of a column, in letters
    labels = [
        "\n".join([*textwrap.wrap(name, width), f"{value:.2f}"])
        for name, value in zip(found["class"], found.iloc[:, -1], strict=True)
    ]
    figure, axes = figures.contact_sheet(pictures[None], columns=["query\n", *labels])
    axes.tick_params(labelsize=8)
    figure.set_layout_engine("none")
    figure.subplots_adjust(0, 0, 1, 1)
    return figure
