"""Matches of new queries for lesson 30: `python -m studies.fresh` makes data/evidence/30_fresh.csv.

Those that `studies.matches` asked come again, and the next of the same draw, with one matcher.
"""

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
from dmlkit.data.features import LARGEST
from dmlkit.data.images import to_float
from dmlkit.files import write_whole
from dmlkit.lessons.after_the_first_ten import FRESH, KNOWN

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


def main() -> None:
    """Count, and write what the lesson reads."""
    torch.set_num_threads(1)
    images = data.load("grocery", "test", fold=None, features="tf_efficientnet_lite0@224")
    queries, new = asked(images)
    features: Any = images.images
    assert images.queries is not None, "the second visit is marked"
    x, gallery = F.normalize(features.flatten(1)), np.flatnonzero(~images.queries)
    cosines, order = (x[torch.from_numpy(queries)] @ x[torch.from_numpy(gallery)].T).topk(10, dim=1)
    first = gallery[order.numpy()]
    photographs = data.load("grocery", "test", fold=None, crop=224, resize=252).images
    points = _points(photographs, np.unique([*queries, *first.ravel()]))
    every, agree = np.zeros((2, *first.shape), int)
    for i, row in enumerate(tqdm(queries.tolist(), "matching")):
        for k, other in enumerate(first[i].tolist()):
            p, q = points[row], points[other]
            pairs = rerank.mutual(p.what, q.what)
            every[i, k] = len(pairs)
            agree[i, k] = rerank.consistent(p.at[pairs[:, 0]], q.at[pairs[:, 1]]).sum()
    columns = {"first": first, "cosines": cosines.numpy().astype(float).round(4),
               "agree": agree, "all": every}  # fmt: skip
    frame = pd.DataFrame(
        {"query": queries, "new": new * 1}
        | {
            name: [" ".join(map(str, row)) for row in each.tolist()]
            for name, each in columns.items()
        }
    )
    write_whole({FRESH: partial(frame.to_csv, index=False)})


if __name__ == "__main__":
    main()
