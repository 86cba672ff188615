"""What lesson 17 prepares, checks and draws."""

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
#: Recall@1 of networks by form and scale; network k searches part k modulo 8.
Scores = Mapping[str, Mapping[float, Sequence[float]]]
#: What widens an interval: seven eighths of the characters are learned, one eighth is searched.
OVERLAP = 1 / 8
LOOKS: dict[str, tuple[str, dict[str, Any]]] = {
    "none": ("no points", {"color": "black", "marker": "o"}),
    "points": ("synthetic points", {"color": figures.WRONG, "marker": "s"}),
    "duplicates": ("duplicates", {"color": figures.RIGHT, "marker": "^"}),
}


def recall(x: Tensor, labels: NDArray[np.int64]) -> float:
    """Recall@1 in percent: (N, d), (N,)."""
    found = retrieval.recall_at_k(x.detach().cpu(), labels, ks=(1,), metric="cosine")
    return 100 * float(found[1])


def drawings() -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
    """Drawn characters (242, 20, 1, 32, 32), 42 of them for validation, the rest in eight parts."""
    both = [
        torch.as_tensor(data.load("omniglot", part).images[:]).float() / 255
        for part in ("train", "test")
    ]
    mixed = torch.from_numpy(np.random.default_rng(17).permutation(242))
    parts = tuple(mixed[42 + i :: 8] for i in range(8))  # new ones: earlier pages had six in a row
    return torch.cat(both).unflatten(0, (-1, 20)), mixed[:42], parts


def angle(x: Tensor, own: Tensor) -> float:
    """Mean angle between samples and their proxies in degrees: unit (B, d), (B, d)."""
    return math.degrees((x * own).sum(dim=1).clamp(-1, 1).arccos().mean().item())


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
    fig, panels = plt.subplots(1, 2, figsize=(6.5, 2.45))
    names, drawn = ("$x$", r"$\hat q_1$", r"$\hat q_2$"), {}
    titles = "detached: only proxies feel it", "attached: its sample, too"
    inks = (figures.RIGHT, "0.35", "0.35")
    for axes, form, title in zip(panels, ("code", "paper"), titles, strict=True):
        by_sample, by_point = forces(turn, form)
        drawn[form] = {"by the sample": by_sample, "by the point": by_point}
        axes.add_patch(Circle((0, 0), 1, fill=False, color="0.6"))
        places = [*zip(turn.tolist(), "o**", inks, names, strict=True)]
        places += [(180 - float(turn[0]), "^", figures.WRONG, "$z$")]
        places += [(90.0, "*", "black", r"$\hat q_y$")]
        for degrees, marker, ink, name in places:
            a, b = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
            axes.plot(a, b, marker, color=ink, ms=14 if marker == "*" else 9, mec="white")
            axes.text(1.18 * a, 1.18 * b, name, ha="center", va="center", fontsize=12)
        for r, part, ink in ((0.86, by_sample, figures.RIGHT), (0.6, by_point, figures.WRONG)):
            for at, force in zip(turn.tolist(), part.tolist(), strict=False):
                if abs(force) > 2:
                    way = at + 2.7 * force  # degrees: the longest ends before the own proxy
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
                    middle, inner = math.radians((at + way) / 2), r - 0.11
                    said = inner * math.cos(middle), inner * math.sin(middle), f"{abs(force):.0f}"
                    axes.text(*said, color=ink, ha="center", va="center", fontweight="bold")
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


def by_part(scores: Sequence[float]) -> Array:
    """Means of the networks that search the same part: (n,) -> (8,), where rounds are whole."""
    each = np.asarray(scores, dtype=float)
    return each.reshape(-1, 8).mean(axis=0) if len(each) % 8 == 0 else each


def differences(scores: Scores, own: Mapping[str, float]) -> dict[str, Array]:
    """What synthetic points find more, each form at its own scale; both at 32; by part."""
    best = {form: by_part(by_scale[own[form]]) for form, by_scale in scores.items()}
    large = {form: by_part(by_scale[32.0]) for form, by_scale in scores.items()}
    found = {
        f"points − {form}, {name}": each["points"] - each[form]
        for name, each in (("own", best), ("32", large))
        for form in scores
        if form != "points"
    }
    found["none, own − 32"] = best["none"] - large["none"]
    return found | {"shrinks": found["points − none, own"] - found["points − none, 32"]}


def kept(name: str) -> tuple[Any, Any]:
    """Scores of a record, and 1 - p and the angle at the end, by form and scale."""
    record, _ = figures.recorded(name)
    scores, ends = (
        {form: {float(a): each for a, each in by.items()} for form, by in record[key].items()}
        for key in ("scores", "end")
    )
    return scores, ends


def reader(live: Scores, recorded: Scores, own: Mapping[str, float]) -> str:
    """The contrast of the title on this machine, beside the recorded one."""
    yours = differences(live, own)["points − none, own"]
    kept = figures.summary(differences(recorded, own)["points − none, own"], OVERLAP)
    none, points = (live[form] for form in ("none", "points"))
    tuned = np.mean(none[own["none"]]) - np.mean(none[32.0])
    there = np.mean(points[32.0]) - np.mean(none[32.0])
    said = (
        f"your {len(yours)} networks: no points, scale {own['none']:g} minus 32: {tuned:+.1f}\n"
        f"synthetic points minus none, both at 32: {there:+.1f}"
        f"\nthe same, each at its own best: {yours.mean():+.1f}; "
        f"the {len(recorded['points'][own['points']])} recorded "
        f"{kept['mean']:+.1f} [{kept['low']:.1f}, {kept['high']:.1f}]"
    )
    return said.replace("-", "−")


def _scales(axes: Axes, scales: Sequence[float]) -> None:
    """A logarithmic axis of the swept scales."""
    axes.set(xscale="log", xlim=(0.8 * scales[0], 1.25 * scales[-1]), xlabel="scale α")
    axes.set_xticks(scales, [f"{a:g}" for a in scales])
    axes.minorticks_off()
    axes.grid(False, axis="x")


def _levels(axes: Axes, level: Any, live: Scores, floor: Mapping[str, float], own: Any) -> None:
    """Recall@1 by scale; a ring where validation characters put a form."""
    scales = [*level["none"]]
    _scales(axes, scales)
    for place, (form, by) in zip((52, 57, 54.5), level.items(), strict=True):
        (name, look), means = LOOKS[form], [each["mean"] for each in by.values()]
        axes.plot(scales, means, lw=2, ms=6, mec="white", zorder=5, **look)
        ring: dict[str, Any] = {
            "ms": 13,
            "mfc": "none",
            "mec": look["color"],
            "mew": 1.5,
            "zorder": 6,
        }
        axes.plot(own[form], by[own[form]]["mean"], "o", **ring)
        axes.text(0.9 * scales[0], place, name, color=look["color"], fontweight="bold")
    for shift, (form, by_scale) in enumerate(live.items()):
        for alpha, values in by_scale.items():  # forms beside each other
            at, ink = [alpha * 1.15 ** (shift - 0.5)] * len(values), LOOKS[form][1]["color"]
            axes.plot(at, values, ".", color=ink, alpha=0.4, ms=5, mew=0)
    raw, blank = (floor[name] for name in ("raw pixels", "untrained"))
    axes.axhline(raw, color="0.5", lw=1.2, ls=":", zorder=0)
    for top, said in ((raw - 0.4, "raw pixels"), (48, f"untrained: {blank:.0f} %")):
        axes.text(0.85 * scales[0], top, said, color="0.4", fontsize=8.5, va="top")
    figures.letter(axes, "all find most at 1 and 3")
    axes.set(ylim=(45, 82), ylabel="Recall@1, unseen characters (%)")


def _more(axes: Axes, added: Any, gain: Mapping[str, Any]) -> None:
    """What synthetic points find more: each form at its own scale, and all at each scale."""
    scales = [*added["none"]]
    best, shift = scales[0] / 4.5, {"none": 0.93, "duplicates": 1.07}
    for form, by in added.items():
        rows = [gain[f"points − {form}, own"], *by.values()]
        at = [a * shift[form] for a in (best, *scales)]
        mean, low, high = (np.array([row[key] for row in rows]) for key in ("mean", "low", "high"))
        first = {"elinewidth": 3, "ms": 10} if form == "none" else {"elinewidth": 1.6, "ms": 6}
        for some, look in ((slice(0, 1), first), (slice(1, None), {"elinewidth": 1.6, "ms": 6})):
            ends = [(mean - low)[some], (high - mean)[some]]
            style: dict[str, Any] = {"lw": 1, "mec": "white", "zorder": 5, **look, **LOOKS[form][1]}
            axes.errorbar(at[some], mean[some], ends, **style)
    axes.axhline(0, color="black", lw=1)
    axes.axvline(scales[0] / 1.9, color="0.7", lw=1)
    _scales(axes, scales)
    axes.set(
        xlim=(best / 1.8, 1.5 * scales[-1]), xlabel="", ylim=(-7.5, 12.5), yticks=(-5, 0, 5, 10)
    )
    axes.set_xticks([best, *scales], ["each at\nits best", *(f"{a:g}" for a in scales)])
    figures.letter(axes, "no gain seen, each at its best")
    axes.set_ylabel("synthetic points find more\n(percentage points)")
    for place, form in ((0.93, "none"), (0.84, "duplicates")):
        name, look = LOOKS[form]
        said: dict[str, Any] = {"transform": axes.transAxes, "va": "center", "fontweight": "bold"}
        axes.text(0.24, place, f"than {name}", color=look["color"], **said)


def _pull(axes: Axes, pull: Any, angles: Any, law: Mapping[str, Mapping[float, float]]) -> None:
    """The share of the softmax's pull that is left: in trained networks, and by the formula."""
    scales = [*pull["none"]]
    _scales(axes, scales)
    axes.plot([*law["20°"]], [*law["20°"].values()], "--", color="0.4", lw=1.5)
    style: dict[str, Any] = {"ms": 11, "mfc": "none", "mec": "0.4", "mew": 1.2, "zorder": 4}
    axes.plot([*law["own"]], [*law["own"].values()], "D", **style)
    means = [each["mean"] for each in pull["none"].values()]
    axes.plot(scales, means, lw=1.5, ms=5, mec="white", zorder=5, **LOOKS["none"][1])
    for alpha, each in angles["none"].items():
        axes.text(alpha, 126, f"{each['mean']:.0f}°", fontsize=9, ha="center", va="center")
    axes.text(7, 22, "formula,\nat 20°", color="0.4", ha="right", va="center", fontsize=8.5)
    said: dict[str, Any] = {"fontsize": 8.5, "va": "center"}
    for place, text in ((126, "angle θ"), (97, "measured"), (70, "◇ formula, at this angle")):
        axes.text(scales[0] / 10, place, text, **said)
    axes.set(ylim=(0, 140), ylabel="pull left (%)", xlim=(scales[0] / 11, 1.5 * scales[-1]))
    axes.set_yticks((0, 50, 100))
    figures.letter(axes, "the pull does not fade")


def answer(
    scores: Scores, end: Mapping[str, Mapping[float, Any]], live: Scores,
    law: Mapping[str, Mapping[float, float]], floor: Mapping[str, float], own: Mapping[str, float],
) -> tuple[Figure, dict[str, Any]]:  # fmt: skip
    """Recall@1 by scale of each form, what synthetic points find more, and what pull is left.

    ``end`` has 1 - p and the angle to the own proxy of each network, by form and scale: (n, 2).
    """
    level = {form: {a: _of(v) for a, v in by.items()} for form, by in scores.items()}
    added = {
        form: {a: _of(by_part(scores["points"][a]) - by_part(v)) for a, v in by.items()}
        for form, by in scores.items() if form != "points"
    }  # fmt: skip
    gain = {name: _of(each) for name, each in differences(scores, own).items()}
    pull, angles = (
        {f: {a: _of(m * np.asarray(v)[:, i]) for a, v in by.items()} for f, by in end.items()}
        for i, m in enumerate((100, 1))
    )
    fig = plt.figure(figsize=(6.5, 4.6))
    panels = fig.subplot_mosaic([["level", "more"], ["level", "pull"]], height_ratios=(2, 1))
    _levels(panels["level"], level, live, floor, own)
    _more(panels["more"], added, gain)
    _pull(panels["pull"], pull, angles, law)
    return fig, {
        "scores": _named(scores, figures.sample), "end": _named(end, figures.sample),
        "level": _named(level), "more": _named(added), "gain": gain, "left": _named(pull),
        "angle": _named(angles), "floor": figures.example(dict(floor)),
        "own": figures.example(dict(own)),
    }  # fmt: skip


def _of(values: Any) -> dict[str, Any]:
    return figures.summary(by_part(values), OVERLAP)


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
