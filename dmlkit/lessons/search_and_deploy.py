"""What lesson 26 draws and checks."""

from typing import Any

from matplotlib.figure import Figure

from dmlkit import figures
import numpy as np
import matplotlib.pyplot as plt
# END IMPORTS


def stranger(
    every: Any,
    names: Any,
    nearness: Any,
    photos: Any,
    product: Any,
    queries: Any,
    small: Any,
    untouched: Any,
    where: Any,
) -> tuple[Figure, Any, Any, Any]:
    """TODO: one sentence."""
    asked, near = nearness(untouched, every)  # (2485,), (2485, 81)
    others = np.where(asked[:, None] == every, -1, near)  # the own product is taken out
    SHOWN = {"A usual stranger": 0.5, "A hard stranger": 0.9}  # are less near
    fig, panels = plt.subplots(2, 3, figsize=(5.5, 4.1), layout="constrained")
    cosines = {}
    for line, (name, place) in zip(panels, SHOWN.items(), strict=True):
        i = others.max(axis=1).argsort()[int(place * len(others))]
        s = np.where(product[photos] == asked[i], -1, untouched[queries[i]] @ untouched[photos].T)
        order = s.argsort()[::-1]
        two = order[np.sort(np.unique(product[photos][order], return_index=True)[1])[:2]]
        cosines[name] = s[two].tolist()
        said = [name, *(f"found {k}.: cosine {s[at]:.2f}" for k, at in enumerate(two, 1))]
        for axes, row, text in zip(line, [queries[i], *photos[two]], said, strict=True):
            axes.imshow(small.images[where[row]].permute(1, 2, 0).numpy(), cmap="gray")
            figures.bare(axes, f"{text}\n{names[product[row]].replace('-', ' ')}")
        line[0].title.set(color=figures.WRONG, fontweight="bold")
    return fig, asked, cosines, near


def curves_picture(cheap: Any, customers: Any, few: Any, pixels: Any) -> Any:
    """TODO: one sentence."""
    fig, panels = plt.subplots(3, 10, figsize=(6, 2.4))
    shown = f"untouched, {few}"
    for line, price, t in zip(panels, (0.2, 0.5, 0.8), cheap[shown], strict=True):
        for axes, customer, picture in zip(line, customers, pixels, strict=True):
            its = customer["of"][shown]
            answered, right = its["cosine"] > t, its["right"]
            axes.imshow(picture if answered else 255 - (255 - picture.mean(axis=2)) / 4,
                        cmap="gray", vmin=0, vmax=255)  # fmt: skip
            mark, ink = ("right", figures.RIGHT) if right else ("wrong", figures.WRONG)
            figures.bare(axes)
            axes.set_xlabel(
                mark if answered else "?", color=ink if answered else "0.4", fontsize=8, labelpad=1
            )
        line[0].set_ylabel(f"price {price}", rotation=0, ha="right", va="center", fontsize=9)
    for i, words in ((0, "eight customers with a product of the catalog"), (8, "two strangers")):
        at = panels[0, i].text(0, 1.1, words, fontsize=9, transform=panels[0, i].transAxes)
        at.set_in_layout(False)
    return fig


def histogram(cost: Any, curves: Any, met: Any, parts: Any, ts: Any) -> tuple[Figure, Any]:
    """TODO: one sentence."""

    def nearer(a: np.ndarray, of_a: np.ndarray, b: np.ndarray, of_b: np.ndarray) -> float:
        """How often (%) a cosine of a is above one of b, each with its weight: (A,), (B,)."""
        order = b.argsort()
        below = np.r_[0, of_b[order].cumsum()] / of_b.sum()
        return 100 * (below[np.searchsorted(b[order], a)] * of_a).sum() / max(of_a.sum(), 1e-9)

    fig, panels = plt.subplots(
        len(met), 1, figsize=(6.5, 1.8 * len(met)), sharex=True, sharey=True, layout="constrained"
    )
    above, low = {}, min(np.quantile(s, 0.001) for parts in met.values() for _, s, _, _ in parts)
    bins, answers = np.linspace(low, 1, 61), {"color": figures.RIGHT, "fontweight": "bold"}
    for axes, (name, parts) in zip(panels, met.items(), strict=True):
        of, stranger, best, right = (np.concatenate(part) for part in zip(*parts, strict=True))
        each = 100 / np.bincount(of)[of] / len(np.unique(of))  # products count the same
        t = ts[cost(curves[name], 0.5).argmin()]
        axes.hist([best[~right], best[right]], bins, weights=[each[~right], each[right]],
                  stacked=True, color=["0.45", figures.RIGHT])  # fmt: skip
        axes.hist(stranger, bins, weights=-each, color=figures.WRONG)
        axes.plot([t, t], [-10, 17], color="black", lw=2)
        above[name] = nearer(best[right], each[right], stranger, each)
    for axes, (name, share) in zip(panels, above.items(), strict=True):
        axes.axhline(0, color="0.3", lw=1)
        axes.set_title(f"{name}: a right answer is nearer than a stranger in {share:.0f} % of pairs",
                       loc="left", fontweight="bold", fontsize=9.5)  # fmt: skip
        axes.set(ylim=(-10, 17), yticks=[-8, 0, 8], yticklabels=["8 %", "0", "8 %"])
    words = {"known, first match right": (9, figures.RIGHT), "known, first match wrong": (4, "0.45"),
             "strangers": (-6, figures.WRONG)}  # fmt: skip
    for word, (height, ink) in words.items():
        panels[0].text(low + 0.01, height, word, color=ink, fontweight="bold")
    panels[-1].set(xlabel="cosine with the nearest product", xlim=(low, 1))
    return fig, above


def sweep(
    curves: Any,
    fates: Any,
    few: Any,
    mean_of: Any,
    save_by: Any,
    tables: Any,
    trained: Any,
    tuned: Any,
    units: Any,
) -> tuple[Figure, Any, Any]:
    """TODO: one sentence."""
    fig, axes = plt.subplots(figsize=(6.5, 3))
    scores = {0: units("", save_by(tables[f"untouched, {few}"], price=0.5))}
    scores |= {most: units("", mean_of(each, price=0.5)) for most, each in trained.items()}
    tuned_name = f"fine-tuned, {few}"
    floor = (
        {"fine-tuned": save_by(tables[tuned_name], price=0.5).mean()} if tuned is not None else {}
    )
    drawn = figures.sweep(axes, scores, floor, unit="", digits=1)
    axes.set(ylim=(0, None), xlabel="steps of the head", ylabel="saved of 100 customers")
    drawn["minus none"] = {
        str(most): figures.sample(each - scores[0]) for most, each in scores.items() if most
    }
    drawn["at one in ten"] = {
        name: dict(zip(fates, map(figures.example, c[(c[:, 0] <= 10).argmax()]), strict=True))
        for name, c in curves.items()
    }
    return fig, drawn, tuned_name
