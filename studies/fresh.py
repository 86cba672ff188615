"""Matches of new queries for lesson 30: `python -m studies.fresh` makes data/evidence/30_fresh.csv.

Those that `studies.matches` asked come again, and the next of the same draw, with one matcher.

`python -m studies.fresh tuned` makes 30_tuned.csv: the same queries of cartons, each in the gallery
of its own fold (20 or 21 products), by the features of lesson 24's fine-tuned networks, which never
saw these products, and by untouched ones. Matches are of the untouched map in both. The question,
written before it ran: does the second look, its rule chosen by the known queries of the other folds
as before, still gain over the fine-tuned cosine? *Yes* or *no* if the wider 95 % interval, over 31
products or over nine kinds, excludes 0; else *open*.
"""

import itertools
import sys
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor
from tqdm.auto import tqdm

from dmlkit import data, models, rerank
from dmlkit.data import grocery
from dmlkit.data.features import LARGEST
from dmlkit.data.images import to_float
from dmlkit.files import write_whole
from dmlkit.lessons.after_the_first_ten import CARTONS, FRESH, KNOWN, TUNED

#: The most queries of a product that are asked after the known ones.
NEW = 10


def asked(images: data.ImageSet) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Rows of queries (Q,), of 30_matches.csv and the next of the same draw; which are new."""
    drawn = pd.Series(images.labels)[images.queries].sample(frac=1, random_state=0)
    place = drawn.groupby(drawn).cumcount()
    rows = np.sort(place[place < KNOWN + NEW].index.to_numpy())
    return rows, (place[rows] >= KNOWN).to_numpy()


def _points(images: Any, rows: NDArray[np.intp]) -> dict[int, rerank.Points]:
    """The 28 × 28 map of each photograph as points, a byte a number, as 30_maps.npz keeps it."""
    model: Any = models.build("tf_efficientnet_lite0", 1, images[0], pretrained=True).eval()
    made: list[Tensor] = []
    model.backbone.blocks[2].register_forward_hook(lambda _m, _a, out: made.append(out.half()))
    found = {}
    parts = np.split(rows, range(64, len(rows), 64))
    with torch.inference_mode():
        for part in tqdm(parts, "maps"):
            made.clear()
            batch = torch.stack([images[row] for row in part.tolist()])
            model(to_float(batch).contiguous(memory_format=torch.channels_last))
            for row, fmap in zip(part.tolist(), made[0], strict=True):
                scale = float(fmap.abs().max()) / LARGEST
                found[row] = rerank.points(scale * (fmap.float() / scale).round())
    return found


def counted(queries: NDArray[np.intp], first: NDArray[np.intp]) -> NDArray[np.intp]:
    """How many parts of each query (Q,) and its results (Q, 10) match and agree, and match at all:
    -> (2, Q, 10)."""
    photographs = data.load("grocery", "test", fold=None, crop=224, resize=252).images
    points = _points(photographs, np.unique([*queries, *first.ravel()]))
    found = np.zeros((2, *first.shape), int)
    for i, row in enumerate(tqdm(queries.tolist(), "matching")):
        for k, other in enumerate(first[i].tolist()):
            p, q = points[row], points[other]
            pairs = rerank.mutual(p.what, q.what)
            agree = rerank.consistent(p.at[pairs[:, 0]], q.at[pairs[:, 1]]).sum()
            found[:, i, k] = agree, len(pairs)
    return found


def _rows(**columns: NDArray[Any]) -> pd.DataFrame:
    """A table whose cells hold one number or, of (Q, 10), ten."""
    return pd.DataFrame(
        {name: each if each.ndim == 1 else [" ".join(map(str, row)) for row in each.tolist()]
         for name, each in columns.items()}
    )  # fmt: skip


def main() -> None:
    """Count, and write what the lesson reads."""
    torch.set_num_threads(1)
    images = data.load("grocery", "test", fold=None, features="tf_efficientnet_lite0@224")
    queries, new = asked(images)
    features: Any = images.images
    assert images.queries is not None, "the second visit is marked"
    x, gallery = F.normalize(features.flatten(1)), np.flatnonzero(~images.queries)
    if "tuned" in sys.argv[1:]:
        frame, path = _tuned(images, queries, new, x, gallery), TUNED
    else:
        cosines, order = (x[queries] @ x[gallery].T).topk(10, dim=1)
        first = gallery[order.numpy()]
        agree, every = counted(queries, first)
        rounded = cosines.numpy().astype(float).round(4)
        columns = {"first": first, "cosines": rounded, "agree": agree, "all": every}
        frame, path = _rows(query=queries, new=new * 1, **columns), FRESH
    write_whole({path: partial(frame.to_csv, index=False)})


def _tuned(
    images: data.ImageSet, queries: NDArray[np.intp], new: NDArray[np.bool_], x: Tensor,
    gallery: NDArray[np.intp],
) -> pd.DataFrame:  # fmt: skip
    """Queries of cartons among the products of their own fold, by both embeddings."""
    made: Any = data.load("grocery", "test", fold=None, features="photos_grocery_lite0@128").images
    embeddings = {"fine-tuned": F.normalize(made.flatten(1)), "untouched": x}
    parts = []
    for (name, z), fold in itertools.product(embeddings.items(), grocery.FOLDS):
        of = images.labels[queries]
        own = np.isin(of, fold) & (of >= CARTONS[0]) & (of < CARTONS[1])
        shelf = gallery[np.isin(images.labels[gallery], fold)]
        cosines, order = (z[queries[own]] @ z[shelf].T).topk(10, dim=1)
        parts.append((name, queries[own], new[own], shelf[order.numpy()], cosines.numpy()))
    names = np.repeat([part[0] for part in parts], [len(part[1]) for part in parts])
    asks, fresh, first, found = (
        np.concatenate(each) for each in list(zip(*parts, strict=True))[1:]
    )
    agree, _ = counted(asks, first)
    columns = {"first": first, "cosines": found.astype(float).round(4), "agree": agree}
    return _rows(embedding=names, query=asks, new=fresh * 1, **columns)


if __name__ == "__main__":
    main()
