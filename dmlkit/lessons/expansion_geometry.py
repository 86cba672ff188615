"""What lesson 16 draws."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
import torch.nn.functional as F
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor, nn

from dmlkit import figures
from dmlkit.figures import globes
from dmlkit.losses import spherical

Array = NDArray[np.float64]
#: Points of samples (B, d) and their proxies in one of the arrangements: -> (B, n, d).
Placing = Callable[[Tensor, Tensor, str], Tensor]
#: A sample's angle to its proxy in the pictures, and their places on the sphere.
THETA = 40.0
PROXY = globes.place(0, 0)
OTHERS = np.stack([globes.place(65, 200), globes.place(70, 345), globes.place(85, 60)])
SAMPLE = globes.place(THETA, 90)
POINT = globes.place(THETA, 345)  # nearer to the second of the others than to the own proxy
CIRCLE = globes.place(THETA, np.linspace(0, 360, 200))
#: The color and the name of an arrangement of points.
INKS = {"together": figures.WRONG, "random": "0.45", "free": "0.7", "corners": figures.RIGHT}
NAMES = {"together": "in one place", "random": "random places", "free": "free simplex",
         "corners": "corners"}  # fmt: skip


def _globe(axes: Axes, view: Array, title: str, up: float = 0.16) -> None:
    """The sphere with its proxies, the sample and the circle of places as near as it."""
    globes.globe(axes, view, np.stack([PROXY, *OTHERS]), title)
    globes.line(axes, view, CIRCLE, color="0.25", lw=1.3)
    globes.mark(axes, view, PROXY, r"$\hat p$", up, **globes.PROXY)
    for k, q in enumerate(OTHERS):
        globes.mark(axes, view, q, rf"$\hat q_{k + 1}$", -up if k == 2 else up, **globes.OTHER)
    globes.mark(axes, view, SAMPLE, "$x$", -up, **globes.SAMPLE)


def sphere() -> Figure:
    """The plane of a proxy and a sample, and the circle of places as near as the sample."""
    fig, (flat, ball) = plt.subplots(1, 2, figsize=(6.5, 3.3))
    view = globes.camera(globes.place(42, 75), PROXY)
    _globe(ball, view, "all places as near as the sample")
    center = np.cos(np.radians(THETA)) * PROXY  # of the circle
    globes.line(ball, view, np.stack([center, SAMPLE]), color=figures.RIGHT, lw=1.8)
    globes.mark(ball, view, (center + SAMPLE) / 2, "    $r$", 0.03, ms=0)
    globes.mark(ball, view, center, ms=5, color=figures.RIGHT)
    globes.mark(ball, view, POINT, "$z$", -0.17, **globes.POINT)
    t = np.radians(np.linspace(-25, 115, 200))
    flat.plot(np.sin(t), np.cos(t), color="0.6", lw=1.2)
    a, b = np.sin(np.radians(THETA)), np.cos(np.radians(THETA))
    for start, end, ink in (
        ((0, 0), (0, 1), "0.6"),
        ((0, 0), (0, b), "black"),
        ((0, 0), (a, b), figures.RIGHT),
        ((0, b), (a, b), figures.RIGHT),
    ):
        style = {"arrowstyle": "-|>", "color": ink, "lw": 1.8, "shrinkA": 0, "shrinkB": 0}
        flat.annotate("", end, start, arrowprops=style | {"mutation_scale": 13})
    arc = np.radians(np.linspace(0, THETA, 40))
    flat.plot(0.3 * np.sin(arc), 0.3 * np.cos(arc), color="0.3", lw=1.2)
    for at, text in {
        (0.14, 0.38): r"$\theta$",
        (-0.2, 0.45): r"$\cos\theta\,\hat p$",
        (0.3, 0.83): "$r$",
        (0.75, 0.8): "$x$",
        (0, 1.1): r"$\hat p$",
        (0.44, 0.38): "1",
        (-0.06, -0.06): "0",
    }.items():
        flat.text(*at, text, ha="center", va="center", fontsize=12)
    flat.plot(0, 1, "*", color="black", ms=12)
    flat.plot(a, b, "o", color=figures.RIGHT, ms=9)
    flat.set(xlim=(-0.5, 1.05), ylim=(-0.15, 1.2), aspect="equal")
    flat.set_axis_off()
    flat.set_title(r"$x = \cos\theta\,\hat p + r$", fontweight="bold")
    return fig


def _seen_from_proxy(n_aug: int) -> Array:
    """Sample and points as the proxy sees them, at radius 1: -> (n_aug + 1, 3)."""
    d = max(n_aug, 2) + 1
    pole, ahead = torch.eye(d, dtype=torch.float64)[[-1, 0]]
    x = 0.5 * pole + math.sin(math.pi / 3) * ahead  # 60 degrees away
    both = torch.cat([x[None], spherical.expand(x[None], pole[None], n_aug)[0]])[:, :-1]
    up, right, near = F.pad(both, (0, 4 - d)).numpy().T / math.sin(math.pi / 3)
    return np.stack([right, up, near], axis=1)


def corners() -> tuple[Figure, dict[str, Any]]:
    """Sample and one, two or three points, as their proxy sees them."""
    fig, panels = plt.subplots(1, 3, figsize=(6.5, 2.75))
    titles = {1: "one: a line\n(needs d ≥ 2)", 2: "two: a triangle\n(needs d ≥ 3)"}
    titles |= {3: "three: a tetrahedron\n(needs d ≥ 4)"}
    sides: dict[str, Any] = {}
    turn = np.linspace(0, 2 * np.pi, 200)
    for axes, (n, title) in zip(panels, titles.items(), strict=True):
        seen, view = _seen_from_proxy(n), np.eye(3)
        if n == 3:
            view = globes.camera(np.array([0.4, 0.25, 0.9]), view[1])
            globes.globe(axes, view, np.eye(3)[:1])
        axes.plot(np.cos(turn), np.sin(turn), color="0.4", lw=1.2)
        for i, j in zip(*np.triu_indices(n + 1, 1), strict=True):
            globes.line(axes, view, seen[[i, j]], color=figures.WRONG, lw=1.5)
        globes.mark(axes, view, 0 * PROXY, r"       $\hat p$", 0.16, **globes.PROXY)
        for k, point in enumerate(seen):
            x, y, _ = view @ point
            away = 0.24 / max(np.hypot(x, y), 0.3)
            style: dict[str, Any] = dict(globes.POINT if k else globes.SAMPLE)
            globes.mark(axes, view, point, **style)
            name = f"$z_{k}$" if k else "$x$"
            axes.text(x + away * x, y + away * y, name, ha="center", va="center", fontsize=11)
        axes.set(xlim=(-1.4, 1.4), ylim=(-1.4, 1.4), aspect="equal")
        axes.set_title(title, fontweight="bold")
        axes.set_axis_off()
        sides[f"{n} points"] = np.linalg.norm(seen[:, None] - seen, axis=2)[0, 1:]
    return fig, sides


def _pushes(placed: Placing, way: str, alpha: float, turns: int) -> Array:
    """Mean push of seven points on the nearest of 199 proxies in 8 dimensions: -> (turns,)."""
    own = F.normalize(torch.randn(8, generator=torch.Generator().manual_seed(3)).double(), dim=0)
    generator = torch.Generator().manual_seed(34)
    q = F.normalize(torch.randn(199, 8, generator=generator).double(), dim=1)
    near = q[(q @ own).argmax()]
    r = torch.randn(8, generator=generator).double()
    r = F.normalize(r - (r @ own) * own, dim=0)
    x = math.cos(math.radians(THETA)) * own + math.sin(math.radians(THETA)) * r
    torch.manual_seed(5)
    z = torch.cat([placed(x[None], own[None], way) for _ in range(turns)])  # a batch has one turn
    share = torch.softmax(alpha * z @ torch.cat([own[None], q]).T, dim=2)
    share = share[..., 1 + int((q @ own).argmax())]
    c = near @ own
    along = (z @ own - c * (z @ near)) / (1 - c**2).sqrt()  # away from the own proxy: the push
    return np.asarray((alpha * share * along).mean(dim=1))


def by_degree(highest: int = 5) -> list[float]:
    """Variance of the mean push of seven free corners over that at random places, by degree.

    In eight dimensions the places are a sphere in seven, on which a push is a sum of degrees.
    """
    t, n = -1 / 6, 7  # the inner product of two corners; dimensions of the places
    P = [1.0, t]
    for k in range(1, highest):  # Gegenbauer's polynomials, 1 at t = 1
        P.append(((2 * k + n - 2) * t * P[k] - k * P[k - 1]) / (k + n - 2))
    return [1 + 6 * each for each in P[1:]]


def spacing(placed: Placing, alpha: float, turns: int) -> tuple[Figure, dict[str, Any]]:
    """Seven points in four arrangements: the push of each turn; the variance by degree."""
    fig = plt.figure(figsize=(6.5, 4.2))
    grid = fig.add_gridspec(4, 2, width_ratios=(1.5, 1))
    right = fig.add_subplot(grid[:, 1])
    pushes = {way: _pushes(placed, way, alpha, turns) for way in NAMES}
    typical = pushes["random"].mean()
    pushes = {way: 100 * each / typical for way, each in pushes.items()}
    edges = np.linspace(0, 400, 60).tolist()
    drawn: dict[str, Any] = {}
    for row, (way, each) in enumerate(pushes.items()):
        drawn[way] = {"mean": float(each.mean()), "spread": float(each.std())}
        left = fig.add_subplot(grid[row, 0])
        left.hist(
            np.minimum(each, 400), edges, weights=np.full(turns, 100 / turns), color=INKS[way]
        )
        left.axvline(each.mean(), color="black", lw=2)
        said = f"{NAMES[way]}\nmean {each.mean():.0f}, spread {each.std():.0f}"
        left.text(1, 0.95, said, transform=left.transAxes, ha="right", va="top", fontsize=9)
        left.set(ylim=(0, 24), yticks=(0, 10, 20), xlim=(0, 400))
        left.grid(False)
        left.tick_params(labelbottom=row == 3)
        if row == 0:
            left.set_title("each turn: share of turns (%)", fontweight="bold", loc="left")
        if row == 3:
            left.set_xlabel("push of seven points (mean at random: 100)")
    found = by_degree()
    degrees = range(1, 1 + len(found))
    right.bar(degrees, found, 0.6, color=[INKS["free"] if v < 1 else figures.WRONG for v in found])
    right.axhline(1, color=INKS["random"], lw=2)
    right.text(0.55, 1.03, "random places", color=INKS["random"], fontsize=9, va="bottom")
    for degree, value in zip(degrees, found, strict=True):
        right.text(degree, value + 0.02 if value < 0.5 or value > 1 else value - 0.03,
                   f"{value:.1f}", ha="center", va="bottom" if value < 0.5 or value > 1 else "top",
                   fontsize=9)  # fmt: skip
    right.set(xlabel="degree: smooth → sharp", xticks=list(degrees), ylim=(0, 1.7))
    right.grid(False)
    right.set_title("variance, free simplex", fontweight="bold", loc="left")
    return fig, drawn | {"variance by degree": found}


def noise(
    loss: Callable[[Tensor, Tensor, Tensor, str], Tensor],
    ways: Sequence[str],
    head: nn.Module,
    proxies: Tensor,
    X: Tensor,
    alpha: float,
    batch: int,
    turns: int,
) -> dict[str, float]:
    """Noise of the points' gradient at unit proxies by drawing their places anew.

    In percent of the noise by drawing batches of X (C, m, f).
    """
    q = F.normalize(proxies).detach().requires_grad_()
    own: list[Tensor] = []
    pushes: dict[str, list[Tensor]] = {way: [] for way in ways}
    for _ in range(12):
        y, i = torch.randint(len(X), (batch,)), torch.randint(X.shape[1], (batch,))
        x, unit = F.normalize(head(X[y, i])).detach(), F.normalize(q)
        real = F.cross_entropy(alpha * x @ unit.T, y)
        own += torch.autograd.grad(real, q, retain_graph=True)
        for way in ways:
            terms = [loss(x, y, unit, way) for _ in range(turns)]
            each = [torch.autograd.grad(term, q, retain_graph=True)[0] for term in terms]
            pushes[way].append(torch.stack(each).var(dim=0).sum())  # of (turns, C, d)
    whole = torch.stack(own).var(dim=0).sum().sqrt()
    return {way: 100 * (torch.stack(p).mean().sqrt() / whole).item() for way, p in pushes.items()}


def noises(found: Mapping[str, Mapping[str, Array]]) -> tuple[Figure, dict[str, Any]]:
    """Noise of the points in each arrangement, in percent of that of batches: bars and heads."""
    fig, panels = plt.subplots(1, len(found), figsize=(6.5, 1.6), sharey=True, sharex=True)
    ways = [way for way in NAMES if all(way in each for each in found.values())]
    for axes, (title, each) in zip(panels, found.items(), strict=True):
        for row, way in enumerate(ways):
            mean = float(np.mean(each[way]))
            axes.barh(row, mean, 0.6, color=INKS[way])
            axes.plot(each[way], [row] * len(each[way]), ".", color="black", ms=3)
            said = f"{mean:.0f}" if mean >= 1 else f"{mean:.2f}"
            axes.text(float(np.max(each[way])) + 5, row, said, va="center", size=10)
        axes.set_yticks(range(len(ways)), [NAMES[way] for way in ways])
        axes.set(ylim=(len(ways) - 0.5, -0.5), xlim=(0, 190), xticks=(0, 50, 100, 150))
        axes.set_title(title, fontweight="bold", loc="left", fontsize=10)
        axes.grid(False, axis="y")
    fig.supxlabel("noise of the points (that of batches: 100)", fontsize=10)
    return fig, {"noise": {title: {way: figures.summary(v) for way, v in each.items()}
                           for title, each in found.items()}}  # fmt: skip


def _whole(noise: Array) -> float:
    """Noise of points and of batches, which is 100, added as squares: the mean of heads."""
    return float(np.sqrt(100**2 + np.asarray(noise) ** 2).mean())


def answer(
    levels: Mapping[str, Array],
    floors: Mapping[str, float],
    score: Mapping[str, Array],
    noise: Mapping[str, Array],
    score_32: Mapping[str, Array],
    noise_32: Mapping[str, Array],
) -> tuple[Figure, dict[str, Any]]:
    """Levels; and Recall@1 minus that at random places by the whole noise, at two scales."""
    fig, (left, right) = plt.subplots(1, 2, figsize=(6.5, 3.5), width_ratios=(1, 1.7))
    means = {name: float(np.mean(each)) for name, each in levels.items()} | dict(floors)
    order = sorted(means, key=lambda name: means[name])
    for row, name in enumerate(order):
        trained = name in levels
        ink = "black" if trained else "0.5"
        left.plot([0, means[name]], [row] * 2, color="0.88", lw=1, zorder=0)
        if trained:
            left.plot(levels[name], [row] * len(levels[name]), ".", color="0.6", ms=4, zorder=2)
        left.plot(means[name], row, "o" if trained else "s", color=ink, mec="white", ms=8)
        left.text(1.02, row, f"{means[name]:.0f}", transform=left.get_yaxis_transform(),
                  va="center", color=ink, size=9.5)  # fmt: skip
    left.set_yticks(range(len(order)), [name.replace(" (", "\n(") for name in order])
    left.set(ylim=(len(order) - 0.5, -0.5), xlim=(30, 92))
    left.tick_params(axis="y", labelsize=9, length=0)
    left.grid(False, axis="y")
    left.set_title("Recall@1 (%)", fontweight="bold", loc="left")
    right.axhline(0, color="0.3", lw=1)
    drawn: dict[str, Any] = {}
    cases = (("scale 32", score_32, noise_32, "0.6"), ("scale 2", score, noise, figures.RIGHT))
    for case, found, heads, ink in cases:
        ways = [way for way in ("together", "random", "corners") if way in found]
        x = [_whole(heads[way]) for way in ways]
        away = [np.asarray(found[way]) - np.asarray(found["random"]) for way in ways]
        drawn[case] = dict(zip(ways, x, strict=True))
        right.plot(x, [each.mean() for each in away], color=ink, lw=2.4, zorder=2)
        for place, way, each in zip(x, ways, away, strict=True):
            if way != "random":
                kept = figures.summary(each)
                right.plot([place] * 2, [kept["low"], kept["high"]], color=ink, lw=6, alpha=0.4,
                           zorder=1)  # fmt: skip
                right.plot([place] * len(each), each, ".", color=ink, ms=3.5, alpha=0.6)
            right.plot(place, each.mean(), "o", color=ink, ms=8, mec="white", zorder=4)
    mark = drawn["scale 2"]
    low = float(np.mean(score["together"] - score["random"]))
    for name, place, up in (("corners", mark["corners"] - 3, 0.25), ("random\nplaces", 117, -1.5),
                            ("in one place", mark["together"] - 4, low - 0.1)):  # fmt: skip
        right.text(place, up, name, color=figures.RIGHT, fontsize=9.5, va="center", ha="right")
    right.text(144, 2.2, "scale 32 (recorded):\nin one place", color="0.45", fontsize=9,
               ha="center", va="center")  # fmt: skip
    right.set(xlabel="whole noise (batches alone: 100)", xlim=(74, 190), ylim=(-5.6, 3.4))
    right.set_title("minus that at random places", fontweight="bold", loc="left")
    kept_levels = {name: figures.sample(each) for name, each in levels.items()}
    return fig, {"whole noise": drawn, "level": kept_levels, "floor": dict(floors)}


def earlier() -> dict[str, Array]:
    """What detached points found at the best scale, 2, in an earlier form of the lesson: by row."""
    kept, _ = figures.recorded("16_detached")
    return {f"detached: {name}": np.asarray(values) for name, values in kept.items()}


def elsewhere() -> str:
    """What a study of whole networks found, in words."""
    fig, drawn, *_ = figures.verdict("16_expansion_geometry")
    plt.close(fig)
    ((each,),) = (found.values() for found in drawn.values())
    effect, low, high = (f"{each[end]:.1f}".replace("-", "−") for end in ("effect", "low", "high"))
    return f"Corners minus random places: {effect} [{low}, {high}] points. Word: {each['word']}."
