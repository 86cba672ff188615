"""An explorable in a notebook: dmlkit computes in the kernel, the browser draws."""

import json
import re
from typing import Any

import anywidget
import traitlets

from course.explorables import HERE, load

_LOOK = HERE.parent / "site" / "static" / "look.css"


def bundle(name: str) -> str:
    """A module with what it imports and its look as one text: a widget has no other files."""
    stage, own = ((HERE / f"{file}.js").read_text(encoding="utf-8") for file in ("stage", name))
    look = f"const LOOK = {json.dumps(_LOOK.read_text(encoding='utf-8'))};"
    stage = re.sub(r"^const LOOK = .+;$", lambda _: look, stage, count=1, flags=re.MULTILINE)
    return stage + re.sub(r'^import \{[^}]*\} from "./stage.js";$', "", own, flags=re.MULTILINE)


class Widget(anywidget.AnyWidget):
    """``answer`` follows ``choice``, its ``numbers`` and ``points``.

    >>> seen = Widget("springs", choice="contrastive")
    >>> seen.points = [[20], [60], [140], [175], [255], [300]]  # moves them in the browser, too
    >>> round(seen.answer["value"], 3)
    0.684
    """

    _esm = traitlets.Unicode().tag(sync=True)
    settings = traitlets.Dict().tag(sync=True)
    choice = traitlets.Unicode().tag(sync=True)
    numbers = traitlets.List(traitlets.CFloat()).tag(sync=True)
    points = traitlets.List(traitlets.List(traitlets.CFloat())).tag(sync=True)
    answer = traitlets.Dict().tag(sync=True)

    def __init__(self, name: str, choice: str = "", **given: Any) -> None:
        self.explorable = load(name)
        chosen, numbers, points = self.explorable.begin(choice)
        known = {"settings": self.explorable.describe(), "numbers": numbers, "points": points}
        super().__init__(_esm=bundle(name), choice=chosen, **(known | given))
        self.observe(self._compute, ["choice", "numbers", "points"])
        self._compute()

    def _compute(self, _change: Any = None) -> None:
        asked = self.choice, self.numbers, self.points
        if self.answer.get("of") != list(asked):  # one message may change all three
            self.answer = {**self.explorable.answer(*asked), "of": list(asked)}
