"""What lesson 17 prepares, checks and draws; lesson 16 takes its features and heads from here."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
import torch.nn.functional as F
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle
from numpy.typing import NDArray
from torch import Tensor, nn

from dmlkit import data, figures, losses, models, retrieval
from dmlkit.losses import spherical

Array = NDArray[np.float64]
#: Recall@1 of networks by form and scale; network k searches part k modulo 6.
Scores = Mapping[str, Mapping[float, Sequence[float]]]
#: What widens an interval: five sixths of the characters are learned, one sixth is searched.
OVERLAP = 1 / 6
LOOKS: dict[str, tuple[str, dict[str, Any]]] = {
    "none": ("no points", {"color": "black", "marker": "o"}),
    "points": ("synthetic points", {"color": figures.RIGHT, "marker": "s"}),
    "duplicates": ("duplicates", {"color": figures.WRONG, "marker": "^"}),
}
#: Features of characters to train on, of others, labels of these, Recall@1 of what is untrained.
Bed = tuple[Tensor, Tensor, NDArray[np.int64], dict[str, float]]


def recall(x: Tensor, labels: NDArray[np.int64]) -> float:
    """Recall@1 in percent: (N, d), (N,)."""
    found = retrieval.recall_at_k(x.detach().cpu(), labels, ks=(1,), metric="cosine")
    return 100 * float(found[1])


def characters(k: int, classes: int, shown: int = 20) -> Bed:
    """Features of what repetition k learns (C, m, 384) and searches (N, 384), labels, and floors.

    The features are of a network that learned 300 other characters; ten blocks of 76 characters
    share none. The floors are Recall@1 of raw pixels and of the features' 8 principal components.
    """
    part: dict[str, Any] = {"part": "evaluate", "val_classes": 0, "class_split": k}
    part |= {"train_classes": classes, "per_class": shown, "test_classes": 76}
    train, test = (data.load("glyphs", which, **part) for which in ("train", "test"))
    network = models.ConvNet(64, pretrained=True)
    rest = nn.Sequential(*list(network)[:-1], nn.Flatten()).eval()
    images, unseen = (torch.as_tensor(each.images[:]).float() / 255 for each in (train, test))
    with torch.no_grad():
        X, Z = (torch.cat([rest(some) for some in each.split(1000)]) for each in (images, unseen))
    X, Z = (X - X.mean(dim=0)) / X.std(), (Z - X.mean(dim=0)) / X.std()
    axes = torch.linalg.eigh(X.T @ X).eigenvectors[:, -8:]
    floors = {
        "raw pixels": recall(unseen.flatten(1), test.labels),
        "principal axes (8)": recall(Z @ axes, test.labels),
        "all features (384)": recall(Z, test.labels),
    }
    return X.view(classes, shown, -1), Z, test.labels, floors


def begin(
    k: int, X: Tensor, d: int, rate: float, steps: int
) -> tuple[nn.Module, nn.Parameter, torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler]:
    """A head (384 -> d), a proxy for each class of X (C, m, 384), Adam, and a rate that falls.

    Proxies learn at ten times the rate of the head; both fall to 0 in the last 30 % of the steps.
    """
    torch.manual_seed(k)
    head, proxies = nn.Linear(X.shape[2], d), nn.Parameter(torch.randn(len(X), d))
    groups: list[dict[str, Any]] = [
        {"params": head.parameters()},
        {"params": [proxies], "lr": 10 * rate},
    ]
    optimizer = torch.optim.Adam(groups, lr=rate)
    decay = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1, (1 - s / steps) / 0.3))
    return head, proxies, optimizer, decay


def drawings() -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
    """Drawn characters (242, 20, 1, 32, 32), 42 of them for validation, the rest in six parts."""
    both = [
        torch.as_tensor(data.load("omniglot", part).images[:]).float() / 255
        for part in ("train", "test")
    ]
    mixed = torch.from_numpy(np.random.default_rng(17).permutation(242))
    return torch.cat(both).unflatten(0, (-1, 20)), mixed[:42], mixed[42:].tensor_split(6)


@torch.no_grad()
def recall_of(network: nn.Module, images: Tensor) -> float:
    """Recall@1 in percent, each drawing against all others: (C, 20, 1, 32, 32)."""
    x = network.eval()(images.flatten(0, 1))
    return recall(x, np.arange(len(images)).repeat(images.shape[1]))


def floors(images: Tensor, parts: Sequence[Tensor]) -> dict[str, float]:
    """Recall@1 of raw pixels, and of untrained networks that met batches: means over the parts."""
    untrained = []
    for k, part in enumerate(parts):
        torch.manual_seed(k)
        network = models.ConvNet(8, widths=(8, 16, 32))
        torch.optim.swa_utils.update_bn(images[part].flatten(0, 1).split(110), network)
        untrained.append(recall_of(network, images[part]))
    pixels = [recall_of(nn.Flatten(), images[part]) for part in parts]
    return {"raw pixels": float(np.mean(pixels)), "untrained": float(np.mean(untrained))}


def felt(
    turn: Tensor, forces: Callable[[Tensor, str], tuple[Tensor, Tensor]]
) -> tuple[Figure, dict[str, Any]]:
    """Who feels a point, detached and attached, on a circle; the own proxy is held."""
    fig, panels = plt.subplots(1, 2, figsize=(6.5, 2.9))
    names, drawn = ("$x$", r"$\hat q_1$", r"$\hat q_2$"), {}
    titles = "detached: only proxies feel it", "attached: its sample, too"
    inks = (figures.RIGHT, "0.35", "0.35")
    for axes, form, title in zip(panels, ("code", "paper"), titles, strict=True):
        by_sample, by_point = forces(turn, form)
        drawn[form] = {"by the sample": by_sample, "by the point": by_point}
        axes.add_patch(Circle((0, 0), 1, fill=False, color="0.6"))
        places = [*zip(turn.tolist(), "o**", inks, names, strict=True)]
        places += [(180 - float(turn[0]), "^", figures.WRONG, "$z$")]
        places += [(90.0, "*", "black", r"$\hat p$")]
        for degrees, marker, ink, name in places:
            a, b = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
            axes.plot(a, b, marker, color=ink, ms=14 if marker == "*" else 9, mec="white")
            axes.text(1.18 * a, 1.18 * b, name, ha="center", va="center", fontsize=12)
        for r, part, ink in ((0.86, by_sample, figures.RIGHT), (0.7, by_point, figures.WRONG)):
            for at, force in zip(turn.tolist(), part.tolist(), strict=False):
                if abs(force) > 2:
                    way = at + 4.5 * force  # degrees
                    start, end = (
                        (r * math.cos(math.radians(to)), r * math.sin(math.radians(to)))
                        for to in (at, way)
                    )
                    bend = f"arc3,rad={math.tan(math.radians((way - at) / 4))}"
                    axes.annotate(
                        "", end, start, arrowprops={
                            "arrowstyle": "-|>,head_length=0.45,head_width=0.22", "color": ink,
                            "lw": 2.4, "mutation_scale": 9, "shrinkA": 0, "shrinkB": 0,
                            "connectionstyle": bend})  # fmt: skip
        axes.set(xlim=(-1.25, 1.25), ylim=(0, 1.3), aspect="equal")
        axes.set_axis_off()
        axes.set_title(title, fontweight="bold")
    who = (("by the sample", figures.RIGHT), ("by its synthetic point", figures.WRONG))
    keys = [Line2D([], [], color=ink, lw=3, label=f"force {name}") for name, ink in who]
    fig.legend(handles=keys, loc="outside lower center", ncols=2, frameon=False)
    return fig, drawn


def same_as_dmlkit(on_points: Callable[..., Tensor], alpha: float, lam: float) -> None:
    """Assert that value and gradients are those of dmlkit's SphericalExpansion."""
    generator = torch.Generator().manual_seed(0)
    f = torch.randn(64, 16, generator=generator).requires_grad_()
    y = torch.arange(64) % 10
    theirs = losses.NormalizedSoftmaxLoss(10, 16, temperature=1 / alpha)
    for places in ("rotated", "none"):
        see = spherical.SphericalExpansion(theirs, 15, lam, False, directions=places, steps=0)
        found = []
        for way in ("ours", "theirs"):
            torch.manual_seed(1)  # both turn the points alike
            x, q = F.normalize(f), F.normalize(theirs.proxies)
            real = F.cross_entropy(alpha * x @ q.T, y)
            added = on_points(x, y, q, 26, alpha, places) if way == "ours" else None
            value = see(f, y) if added is None else real + lam * added
            found.append((value, *torch.autograd.grad(value, (f, theirs.proxies))))
        torch.testing.assert_close(*found, atol=1e-5, rtol=1e-4)


def setting(
    searched: Mapping[str, Mapping[str, Any]], scale: float | None = None
) -> tuple[float, float]:
    """Scale and rate of {scale: {rate: scores}} that are best; at one scale, the rate."""
    means = {
        (float(alpha), float(rate)): float(np.mean(values))
        for alpha, rates in searched.items()
        for rate, values in rates.items()
        if scale is None or float(alpha) == scale
    }
    return max(means, key=lambda each: means[each])


def tuned_scale(searched: Mapping[str, Any], forms: Sequence[str]) -> float:
    """The scale at which the forms, each at its best rate, find most in the mean."""

    def found(alpha: str) -> float:
        each = [max(map(np.mean, searched[form][alpha].values())) for form in forms]
        return float(np.mean(each))

    return float(max(searched[forms[0]], key=found))


def by_part(scores: Sequence[float]) -> Array:
    """Means of the networks that search the same part: (n,) -> (parts,), six of whole rounds."""
    each = np.asarray(scores, dtype=float)
    return each.reshape(-1, 6).mean(axis=0) if len(each) % 6 == 0 else each


def differences(
    scores: Scores, tuned: float, large: float, own: Mapping[str, float]
) -> dict[str, Array]:
    """The differences of the rule by part, at the tuned scale and at the large one; and others."""
    at = {
        alpha: {form: by_part(by_scale[alpha]) for form, by_scale in scores.items()}
        for alpha in (tuned, large)
    }
    found = {
        f"points − {form}, scale {alpha:g}": each["points"] - each[form]
        for form in ("duplicates", "none")
        for alpha, each in at.items()
    }
    for form in ("duplicates", "none"):
        small, big = (found[f"points − {form}, scale {a:g}"] for a in (tuned, large))
        found[f"points − {form}, tuned − large"] = small - big
    found["none, tuned − large"] = at[tuned]["none"] - at[large]["none"]
    best = {form: by_part(scores[form][own[form]]) for form in scores}
    return found | {"points − none, own scales": best["points"] - best["none"]}


def _lines(
    axes: Axes, found: Mapping[str, Mapping[float, Any]], names: Mapping[str, str], gap: float
) -> None:
    """Means by scale, {form: {scale: summary}}, with names at the last, at least a gap apart."""
    place, scales = -np.inf, [*next(iter(found.values()))]
    for form, by_scale in sorted(found.items(), key=lambda item: item[1][scales[-1]]["mean"]):
        means, (_, look) = [each["mean"] for each in by_scale.values()], LOOKS[form]
        axes.plot(scales, means, lw=2, ms=7, mec="white", zorder=5, **look)
        place, color = max(place + gap, means[-1]), look["color"]
        at = (1.18 * scales[-1], place)
        axes.text(*at, names[form], color=color, va="center", fontsize=9, fontweight="bold")
    axes.set(xscale="log", xlim=(0.8 * scales[0], 1.12 * scales[-1]), xlabel="scale α")
    axes.set_xticks(scales, [f"{a:g}" for a in scales])
    axes.minorticks_off()
    axes.grid(False, axis="x")


def _summaries(scores: Scores, minus: Scores | None = None) -> dict[str, dict[float, Any]]:
    """Of each form and scale over the parts; of what synthetic points have more, with minus."""
    return {
        form: {
            a: figures.summary(by_part(minus["points"][a]) - by_part(v) if minus else by_part(v),
                               OVERLAP)
            for a, v in by.items()
        }
        for form, by in scores.items() if not minus or form != "points"
    }  # fmt: skip


def answer(
    scores: Scores,
    live: Scores,
    floor: Mapping[str, float],
    tuned: float,
    own: Mapping[str, float],
    faded: float,
) -> tuple[Figure, dict[str, Any]]:
    """Recall@1 by scale of each form, and what synthetic points have more than the others.

    Above the scale ``faded``, less than half of the softmax's pull is left.
    """
    level, added, scales = _summaries(scores), _summaries(scores, scores), [*scores["none"]]
    fig, (left, right) = plt.subplots(1, 2, figsize=(6.5, 3.9))
    _lines(left, level, {form: name for form, (name, _) in LOOKS.items()}, 5.5)
    for place, (form, by_scale) in enumerate(live.items()):
        for alpha, values in by_scale.items():  # forms beside each other
            at, ink = [alpha * 1.1 ** (place - 1)] * len(values), LOOKS[form][1]["color"]
            left.plot(at, values, ".", color=ink, alpha=0.4, ms=5, mew=0)
    for name, value in floor.items():
        left.axhline(value, color="0.5", lw=1.2, ls=":", zorder=0)
        left.text(0.85 * scales[0], value - 0.8, name, color="0.4", fontsize=8.5, va="top")
    left.set(ylim=(0, 90), ylabel="Recall@1, unseen characters (%)")
    figures.letter(left, "all are best at 1 and 3")
    right.axhline(0, color="black", lw=1)
    _lines(right, added, {"none": "than no\npoints", "duplicates": "than\nduplicates"}, 1.6)
    for form, by in added.items():
        ends = [[each[end] for each in by.values()] for end in ("low", "high")]
        right.fill_between(scales, *ends, color=LOOKS[form][1]["color"], alpha=0.15, lw=0)
    right.set(ylabel="synthetic points find more (percentage points)")
    figures.letter(right, "a gain is seen only at 32")
    for axes in (left, right):
        axes.axvspan(faded, 1.12 * scales[-1], color="0.92", lw=0, zorder=-1)
    said = {"ha": "right", "va": "top", "color": "0.4", "fontsize": 8.5}
    left.text(1.08 * scales[-1], 89, "less than\nhalf of\nthe pull\nis left", **said)
    gain = differences(scores, tuned, scales[-1], own)
    return fig, {
        "scores": _named(scores, figures.sample), "level": _named(level), "more": _named(added),
        "gain": {name: figures.summary(each, OVERLAP) for name, each in gain.items()},
        "floor": figures.example(dict(floor)), "tuned": figures.example(tuned),
        "own": figures.example(dict(own)), "faded": figures.example(float(faded)),
    }  # fmt: skip


def _named(found: Mapping[str, Mapping[float, Any]], made: Callable[[Any], Any] = dict) -> Any:
    """With scales as texts: {form: {scale: value}}."""
    return {form: {f"{a:g}": made(v) for a, v in by.items()} for form, by in found.items()}


def searching(searched: Mapping[str, Any]) -> tuple[Figure, dict[str, Any]]:
    """Recall@1 on validation characters by rate, for each scale a panel."""
    scales = [*searched["none"]]
    fig, panels = plt.subplots(1, len(scales), figsize=(6.5, 2.6), sharey=True)
    for axes, alpha in zip(panels, scales, strict=True):
        for form, (name, look) in LOOKS.items():
            at = [float(rate) for rate in searched[form][alpha]]
            means = [np.mean(values) for values in searched[form][alpha].values()]
            axes.plot(at, means, lw=1.6, ms=5, mec="white", label=name, **look)
        axes.set(xscale="log", xlabel="learning rate")
        axes.set_xticks((0.01, 0.1), ("0.01", "0.1"))
        axes.minorticks_off()
        figures.letter(axes, f"α = {alpha}")
    panels[0].set_ylabel("Recall@1 (%)")
    fig.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    best = {}
    for form, found in searched.items():
        alpha, rate = setting(found)
        best[form] = float(np.mean(found[f"{alpha:g}"][f"{rate:g}"]))
    kept = {
        form: {
            alpha: {rate: figures.sample(v) for rate, v in rates.items()}
            for alpha, rates in found.items()
        }
        for form, found in searched.items()
    }
    return fig, {"searched": kept, "best": best}
