"""Lesson 02: the cosines of trained networks stay, and the scale is turned: who gets the push?"""

import json
from functools import cache

import torch
from torch import Tensor

import dmlkit
from course.explorables import Choice, Explorable, Slider


@cache
def negatives() -> dict[str, list[list[float]]]:
    """By the scale of the training: cosines of each anchor's negatives, the nearest first."""
    text = (dmlkit.ROOT / "figures" / "02_dial.json").read_text("utf-8")
    return {
        f"at{scale}": each["example"]
        for scale, each in json.loads(text)["numbers"]["negatives"].items()
    }


def dial(choice: Choice, numbers: Tensor, points: Tensor) -> dict[str, Tensor]:
    """Shares of the push by rank, in percent: means over anchors (31,); and α times the spread."""
    del points
    s, alpha = torch.tensor(negatives()[choice.name], dtype=torch.float64), numbers[0].double()
    push = (alpha * (s - s[:, :1])).exp() * (1 - s**2).clamp_min(0).sqrt()  # (32, 31)
    shares = 100 * (push / push.sum(dim=1, keepdim=True)).mean(dim=0)
    return {"share": shares[0], "shares": shares, "spread": alpha * s.std()}


def _at(scale: int, question: str) -> Choice:
    slider = Slider("scale α", 1.0, 100.0, float(scale), log=True)
    return Choice(f"at{scale}", f"trained at {scale}", question, (slider,))


EXPLORABLE = Explorable(
    figure="02_dial",
    alt="31 bars: how much of the push the nearest negative of an anchor gets, the second, and so "
    "on, with the embedding of a trained network, at a scale that can be moved.",
    discover="With a given embedding the dial decides all. But each of the networks that trained "
    "at 16 and at 64 has, at its own scale, nearly the same bars and the same α times the spread.",
    menu="Embedding",
    choices=(
        _at(16, "Turn α to 64: what does the nearest get? Nothing trains here."),
        _at(64, "The slider starts where this network trained. Compare with the one at 16."),
        _at(4, "This one trained at 4. At which α has it the bars of the one at 16?"),
    ),
    points=list,
    start=(),
    formula=dial,
    data=lambda: {"negatives": negatives()},
    readouts={"share": "Share of the nearest (%)", "spread": "α times the spread"},
)
