"""What lesson 00 draws."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import matplotlib.pyplot as plt
import numpy as np
import torch
import torch.nn.functional as F
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.offsetbox import AnnotationBbox, OffsetImage
from matplotlib.patches import Circle, Rectangle
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist
from sklearn.manifold import TSNE
from torch import Tensor

from dmlkit import figures, losses, models, retrieval
from dmlkit.data.batches import PK
from dmlkit.data.images import ImageSet

#: Groups whose first class is shown.
GROUPS = ("latin", "greek", "cyrillic", "georgian", "math", "arrows", "numbers", "armenian")
CELLS = 7  # of a side of the map
DISC = 0.36  # radius of a drawing's disc, in cells
EACH = 5  # drawings of a character on it
FRAMES = 15  # of the map that moves, after the first


def eight(test: ImageSet) -> np.ndarray:
    """The drawings (160,) of the first class of each of eight groups."""
    assert test.groups is not None, "glyphs have groups"
    firsts = [test.labels[test.groups == group][0] for group in GROUPS]
    return np.flatnonzero(np.isin(test.labels, firsts))


def grown(
    train: ImageSet, test: ImageSet, steps: int, where: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """A training as in section 3, by dmlkit's loss; where the eight characters are meanwhile.

    ``steps``, ``places`` on a map that moves on (frames, 160, 2), ``nearest`` (frames, 160), and
    the share that is ``right`` (frames,) in percent, with that by raw ``pixels``. Then a few of
    these drawings: which ``rows`` of the 160 they are, and the ``nearest`` of each among them,
    before and after.
    """
    rows = eight(test)
    images, seen = (cast(Tensor, each.images).to(where).float() / 255 for each in (train, test))
    torch.manual_seed(0)
    model = models.ConvNet(dim=64).to(where).to(memory_format=torch.channels_last)
    draw, loss = PK(train.labels, 32, 2, seed=0), losses.TripletLoss(margin=0.2, mining="semihard")
    torch.optim.swa_utils.update_bn((images[draw(k)] for k in range(60)), model)  # no weight moves
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    decay = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1, (1 - s / steps) / 0.3))

    @torch.no_grad()
    def embedded() -> np.ndarray:
        found = model.eval()(seen[rows]).cpu().numpy()
        model.train()
        return np.asarray(found)

    stops, frames = np.linspace(0, steps, min(steps, FRAMES) + 1).round().astype(int), [embedded()]
    for k in range(steps):
        i = draw(k)
        optimizer.zero_grad()
        loss(model(images[i]), torch.from_numpy(train.labels[i]).to(where)).backward()
        optimizer.step()
        decay.step()
        if k + 1 in stops:
            frames.append(embedded())
    kind = np.unique(test.labels[rows], return_inverse=True)[1]
    few = np.concatenate([np.flatnonzero(kind == k)[:EACH] for k in range(len(GROUPS))])
    ends = [retrieval.nearest_neighbors(frames[k][few], 1, metric="cosine")[0] for k in (0, -1)]
    near = [retrieval.nearest_neighbors(f, 1, metric="cosine")[0][:, 0] for f in frames]
    right = [100 * float(np.mean(test.labels[rows[n]] == test.labels[rows])) for n in near]
    flat = cast(Tensor, test.images)[rows].flatten(1).float().numpy()
    by_pixels = retrieval.nearest_neighbors(flat, 1, metric="cosine")[0][:, 0]
    return {
        "steps": stops.tolist(),
        "places": np.round([100 * p / np.abs(p).max() for p in _maps(frames)], 1).tolist(),
        "nearest": np.array(near).tolist(),
        "right": right,
        "pixels": 100 * float(np.mean(test.labels[rows[by_pixels]] == test.labels[rows])),
        "class": kind.tolist(),
    }, {"rows": few.tolist(), "nearest": [of[:, 0].tolist() for of in ends]}


def _maps(frames: Sequence[np.ndarray]) -> list[np.ndarray]:
    """A map of each frame; it begins with the one before, so that drawings move little."""
    places: list[np.ndarray] = []
    for f in frames:
        tsne = TSNE(
            2, perplexity=15, metric="cosine", random_state=0,
            init=1e-4 * places[-1] / places[-1].std() if places else "pca",
        )  # fmt: skip
        places.append(tsne.fit_transform(f))
    return places


def _cells(spots: np.ndarray) -> np.ndarray:
    """Cells of a grid that keep neighbors near, one for each drawing: (n, 2) -> (n, 2)."""
    spots = (CELLS - 1) * (spots - spots.min(axis=0)) / np.ptp(spots, axis=0)
    cells = np.stack(np.meshgrid(*2 * [np.arange(CELLS)]), axis=2).reshape(-1, 2)
    return np.asarray(cells[linear_sum_assignment(cdist(spots, cells, "sqeuclidean"))[1]])


def _around(one: np.ndarray, other: np.ndarray, cells: np.ndarray) -> np.ndarray:
    """A line from disc to disc, bent as little as keeps it off the others: (2,), (2,) -> (n, 2)."""
    one, other = sorted((one, other), key=tuple)  # there and back on one line
    along = other - one
    far, side = float(np.hypot(*along)), np.array([-along[1], along[0]])
    t = np.linspace(0, 1, 201)[:, None]
    rest = cells[(cells != one).any(axis=1) & (cells != other).any(axis=1)]
    best, least = np.empty((0, 2)), np.inf
    for bend in (0, *np.outer(np.arange(0.06, 0.9, 0.06), (1, -1)).ravel()):
        path = one + t * along + 2 * bend * t * (1 - t) * side
        ends = np.minimum(np.hypot(*(path - one).T), np.hypot(*(path - other).T))
        path = path[ends > min(DISC, 0.4 * far)]
        crossed = (cdist(path, rest) < DISC + 0.03).any(axis=1).sum()
        crossed += 9 * (abs(path - (CELLS - 1) / 2) > CELLS / 2 - 0.05).any(axis=1).sum()  # outside
        if crossed < least:
            best, least = path, crossed
    return best


def grid(film: Mapping[str, Any], few: Mapping[str, Any], test: ImageSet) -> Figure:
    """A few drawings of eight characters, each with a line to its nearest: before and after."""
    shown = np.array(few["rows"])
    rows, kind = eight(test)[shown], np.array(film["class"])[shown]
    fig, panels = plt.subplots(1, 2, figsize=(7.6, 4.2), layout="constrained")
    titles = "before training", f"after {film['steps'][-1]} steps"
    for axes, frame, near, title in zip(panels, (0, -1), few["nearest"], titles, strict=True):
        cells = _cells(np.array(film["places"][frame])[shown])
        hit = kind[near] == kind
        for row, (x, y), right in zip(rows, cells, hit, strict=True):
            paper = to_rgb(figures.RIGHT if right else figures.WRONG)
            axes.add_patch(Circle((x, y), DISC, fc=0.85 + 0.15 * np.array(paper), lw=0, zorder=1))
            drawing = np.zeros((32, 32, 4))
            drawing[..., 3] = (test.images[row][0] / 100 - 0.6).clamp(0, 1)  # clear paper
            axes.imshow(drawing, extent=(x - 0.4, x + 0.4, y - 0.4, y + 0.4), zorder=2)
        for one, other, right in zip(cells, cells[near], hit, strict=True):
            ink, line = (figures.RIGHT, "-") if right else (figures.WRONG, (0, (2, 1)))
            path = _around(one, other, cells)
            axes.plot(*path.T, color=ink, ls=line, lw=1.6, alpha=0.8, zorder=0)
        axes.set(xlim=(-0.6, CELLS - 0.4), ylim=(-0.6, CELLS - 0.4), aspect="equal")
        figures.bare(axes)
        axes.spines[:].set_visible(False)
        said = f"{title}: {hit.sum()} of {len(hit)} right"
        axes.set_title(said, fontweight="bold", fontsize=11)
    return fig


def triplet(f: Tensor, push: Tensor, train: ImageSet) -> Figure:
    """A triplet of drawings on a circle, with the force on each."""
    batch = PK(train.labels, classes=32, per_class=4, seed=0)(step=0)  # (128,), class after class
    three = train.images[batch[[0, 1, 4]], 0] / 255  # two of the first class, one of the second
    spots, colors = f.detach().numpy(), [figures.RIGHT, figures.RIGHT, figures.WRONG]
    fig, axes = plt.subplots(figsize=(4.6, 3.4))
    axes.add_patch(Circle((0, 0), 1, fill=False, color="0.7"))
    for i, text in ((1, "$D^2 = 2$: too far"), (2, "$D^2 = 1$: too near")):
        axes.plot(*spots[[0, i]].T, color="0.6", lw=1, zorder=0)
        axes.annotate(text, 0.82 * spots[[0, i]].mean(axis=0), ha="right", va="center")
    axes.quiver(*spots.T, *(0.25 * push.numpy().T), color=colors, angles="xy", scale_units="xy",
                scale=1, width=0.011, zorder=3)  # fmt: skip
    axes.plot(*spots.T, ".", color="black", zorder=4)
    words = "anchor", "positive", "negative"
    for word, image, spot, color in zip(words, three, spots, colors, strict=True):
        x, y = 1.33 * spot
        axes.imshow(image, cmap="gray", extent=(x - 0.2, x + 0.2, y - 0.2, y + 0.2))
        axes.text(x + 0.26, y, word, color=color, va="center", fontweight="bold")
    axes.set(xlim=(-1.05, 2.25), ylim=(-1.35, 1.55), aspect="equal")
    axes.axis("off")
    return fig


#: Ink of each setting, and its name.
FEW = -1  # points up, of the name of four images each
INKS = {"32": "#8ec1e3", "100": "#3d94d1", "300": figures.RIGHT, "few": "#9440a6",
        "shuffled": "0.5"}  # fmt: skip
NAMES = {"few": "300 classes, 4 images each", "shuffled": "300 classes, shuffled"}


def sweep(
    recall: Mapping[str, np.ndarray], fell: Mapping[str, np.ndarray], floor: Mapping[str, float]
) -> tuple[Figure, dict[str, Any]]:
    """The loss by the step, and Recall@1 by the number of classes to learn from."""
    fig, (left, right) = plt.subplots(
        1, 2, figsize=(7.4, 3.2), width_ratios=(1.2, 1), layout="constrained"
    )
    drawn: dict[str, Any] = {"recall": {}, "loss": {}, "floor": figures.example(dict(floor))}
    ends: dict[str, float] = {}
    for name, ink in INKS.items():
        line = fell[name].mean(axis=0)
        left.plot(line, color=ink, lw=1.8)
        ends[name] = float(line[-10:].mean())
        drawn["recall"][name] = figures.sample(recall[name])
        drawn["loss"][name] = {
            "first": figures.sample(fell[name][:, 0].tolist()),
            "last": figures.sample(fell[name][:, -10:].mean(axis=1).tolist()),
        }
        at = int(name) if name.isdigit() else 300
        right.plot([at] * len(recall[name]), recall[name], ".", color=ink, alpha=0.5, mew=0, ms=7)
        mean, full = recall[name].mean(), name.isdigit()
        right.plot(at, mean, "o", color=ink, mfc=ink if full else "white", ms=8, mew=2, zorder=3)
        said = {"few": ", 4 images each", "shuffled": ", shuffled"}.get(name, "")
        right.annotate(f"{mean:.0f} %{said}", (at, mean), (-8, FEW if name == "few" else 9),
                       textcoords="offset points", ha="right", va="center" if name == "few" else
                       "baseline", color=ink if name == "few" else "0.2", fontsize=9)  # fmt: skip
    high = -1.0
    for name in sorted(ends, key=ends.__getitem__):  # names from below, none on another
        high = max(high + 0.014, ends[name])
        left.text(len(line) + 3, high, NAMES.get(name, f"{name} classes"), color=INKS[name],
                  va="center", fontsize=8)  # fmt: skip
    three = ("32", "100", "300")
    right.plot([int(n) for n in three], [recall[n].mean() for n in three], color="0.6", zorder=1)
    for name, value in floor.items():
        right.axhline(value, color="0.5", ls=":", lw=1.3, zorder=0)
        right.text(16, value - 0.6, name, fontsize=8, color="0.35", va="top")
    left.axhline(0.2, color="0.2", ls=":", lw=1.3)
    left.text(2.05 * len(line), 0.204, "margin: all images at one point", fontsize=8, ha="right")
    left.set(xlabel="step", ylabel="loss", ylim=(0, 0.22), xlim=(0, 2.1 * len(line)))
    left.set_xticks([0, len(line) // 3, 2 * len(line) // 3, len(line)])
    right.set(xscale="log", xlim=(15, 400), ylim=(0, 58), xlabel="classes to learn from")
    right.set_xticks([32, 100, 300], ["32", "100", "300"])
    right.minorticks_off()
    right.set_ylabel("Recall@1, 100 new characters (%)")
    left.set_title("the loss", fontweight="bold", loc="left")
    right.set_title("what is found", fontweight="bold", loc="left")
    return fig, drawn


def answer(
    found: Mapping[str, Sequence[tuple[Any, Any, Tensor]]],
    recall: Mapping[str, np.ndarray],
    floor: Mapping[str, float],
    at_rest: Sequence[float],
    test: ImageSet,
) -> tuple[Figure, dict[str, Any]]:
    """Which unseen characters learning helps, and whose first results are right."""
    labels = test.labels
    fig, (axes, gallery) = plt.subplots(
        1, 2, figsize=(8.4, 3.9), width_ratios=(1, 1.15), layout="constrained"
    )
    few = recall["few"] - recall["32"]
    gain = {"300 − 32 classes": recall["300"] - recall["32"],
            "300 × 4 images − 32 × 40": few,
            "300 classes: 40 − 4 images": recall["300"] - recall["few"],
            "100 − 32 classes": recall["100"] - recall["32"],
            "300 − 100 classes": recall["300"] - recall["100"]}  # fmt: skip
    drawn: dict[str, Any] = {"gain": {name: figures.summary(each) for name, each in gain.items()}}
    drawn["300 classes − untrained"] = figures.sample(recall["300"] - at_rest)
    drawn["300 classes − shuffled labels"] = figures.sample(recall["300"] - recall["shuffled"])
    drawn["shuffled labels minus untrained"] = figures.sample(recall["shuffled"] - at_rest)
    drawn["300 classes − raw pixels"] = figures.sample(recall["300"] - floor["raw pixels"])

    def nearest(f: Tensor) -> np.ndarray:
        x = F.normalize(f)
        return np.asarray((x @ x.T).fill_diagonal_(-2).argmax(dim=1))

    def by_class(f: Tensor) -> np.ndarray:
        """R@1 (%) of each of the 100 classes, by the gallery of all: (2000, d) -> (100,)."""
        right = labels[nearest(f)] == labels
        return np.array([100 * right[labels == c].mean() for c in np.unique(labels)])

    pixels = cast(Tensor, test.images).flatten(1).double()
    each = {name: np.mean([by_class(f) for *_, f in found[name]], axis=0) for name in found}
    each["raw pixels"] = by_class(pixels)
    drawn["classes"] = {
        f"minus {name}": figures.sample(each["300"] - each[name]) for name in ("32", "raw pixels")
    }
    drawn["found worse"] = int(np.sum(each["300"] < each["raw pixels"]))  # of 100 characters
    _by_character(axes, each["raw pixels"], each["300"], test)
    levels = floor["raw pixels"], recall["300"].mean()
    axes.set_title("pixels find {:.0f} %, networks {:.0f} %".format(*levels), fontweight="bold")
    near = {name: nearest(f) for name, f in
            (("raw pixels", pixels), ("trained", found["300"][0][2]))}  # fmt: skip
    right = {name: labels[rows] == labels for name, rows in near.items()}
    kinds = {
        "both\nright": right["raw pixels"] & right["trained"],
        "trained\nalone": ~right["raw pixels"] & right["trained"],
        "pixels\nalone": right["raw pixels"] & ~right["trained"],
        "neither": ~right["raw pixels"] & ~right["trained"],
    }
    _results(gallery, test, near, kinds)
    drawn["first results"] = {kind.replace("\n", " "): own.mean() for kind, own in kinds.items()}
    return fig, drawn


def _results(
    gallery: Axes, test: ImageSet, near: Mapping[str, np.ndarray], kinds: Mapping[str, np.ndarray]
) -> None:
    """A query of each of the ``kinds`` and its first results, {embedding: (2000,)}."""
    labels = test.labels
    draw = np.random.default_rng(0)
    for x, (kind, own) in enumerate(kinds.items()):
        gallery.text(x, -0.52, f"{kind}\n{100 * own.mean():.0f} %", ha="center",
                     va="bottom", fontsize=9, fontweight="bold")  # fmt: skip
        query = draw.choice(np.flatnonzero(own))
        for y, rows in enumerate((np.arange(len(labels)), *near.values())):
            image = 255 - cast(Tensor, test.images)[rows[query], 0]
            box = x - 0.44, x + 0.44, y + 0.44, y - 0.44
            gallery.imshow(image, cmap="gray", extent=box, vmin=0, vmax=255)
            if y:
                hit = labels[rows[query]] == labels[query]
                ink, line = (figures.RIGHT, "-") if hit else (figures.WRONG, ":")
                corner = x - 0.44, y - 0.44
                frame = Rectangle(corner, 0.88, 0.88, fill=False, ec=ink, lw=2, ls=line)
                gallery.add_patch(frame)
    for y, name in enumerate(("query", *near)):
        gallery.text(-0.6, y, name, ha="right", va="center", fontsize=9, fontweight="bold")
    gallery.set(xlim=(-0.55, 3.5), ylim=(2.5, -0.5), aspect="equal")
    gallery.axis("off")


def _by_character(axes: Axes, before: np.ndarray, after: np.ndarray, test: ImageSet) -> None:
    """How often each character (100,) is found, by raw pixels and trained; the extremes drawn."""
    worse = after < before
    for own, ink in ((~worse, figures.RIGHT), (worse, figures.WRONG)):
        axes.plot(before[own], after[own], "o", color=ink, alpha=0.6, ms=5, mew=0)
    axes.plot([0, 100], [0, 100], color="0.4", lw=1, zorder=0)
    order, names = np.argsort(after - before), np.unique(test.labels)
    taken = np.stack([before, after], axis=1)  # places of dots, then of drawings, too
    ways = 11 * np.exp(2j * np.pi * np.arange(12) / 12)
    for character in (*order[:3], *order[-3:]):
        one = np.flatnonzero(test.labels == names[character])[0]
        dark = (cast(Tensor, test.images)[one, 0].numpy() / 100 - 0.6).clip(0, 1)
        picture = OffsetImage(np.dstack([*np.zeros((3, 32, 32)), dark]), zoom=0.6)
        spot = before[character], after[character]
        around = spot + np.stack([ways.real, ways.imag], axis=1)
        free = cdist(around, taken).min(axis=1) * (abs(around - 50) < 45).all(axis=1)
        place = around[free.argmax()]
        taken = np.vstack([taken, place])
        axes.add_artist(AnnotationBbox(
            picture, spot, xybox=place, frameon=False,
            arrowprops={"arrowstyle": "-", "color": "0.5", "lw": 0.8}))  # fmt: skip
    for text, x, y, ink in (
        (f"{(~worse).sum()} characters:\nas often, or more", 3, 97, figures.RIGHT),
        (f"{worse.sum()}: less often", 97, 3, figures.WRONG),
    ):
        ends: dict[str, Any] = {"ha": "left", "va": "top"} if x < 50 else {"ha": "right"}
        axes.text(x, y, text, color=ink, fontsize=9, fontweight="bold", **ends)
    axes.set(xlim=(0, 100), ylim=(0, 100), aspect="equal")
    axes.set(xlabel="found by raw pixels (%)", ylabel="found by trained networks (%)")


def layers(inside: Sequence[Sequence[float]]) -> Figure:
    """Recall@1 after each layer of untrained networks."""
    fig, axes = plt.subplots(figsize=(6.5, 2.5))
    axes.plot(np.transpose(inside), "o", color=figures.RIGHT, alpha=0.4, ms=4, mew=0)
    axes.plot(np.mean(inside, axis=0), color=figures.RIGHT, lw=2)
    axes.set_xticks(range(6), ["raw pixels", *(f"layer {n}" for n in range(1, 5)), "the embedding"])
    axes.set(ylim=(0, 45), ylabel="Recall@1 (%)", title="lost from the third layer on")
    return fig
