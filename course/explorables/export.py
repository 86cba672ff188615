"""Explorables for a page: modules, settings, a first answer, and a graph for each entry of a menu.

``python -m course.explorables.export FOLDER`` needs ``pip install 'dmlkit[site]'``; the graphs run
in what ``make playground`` fetches from npm.
"""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import torch
from joblib import Parallel, delayed
from torch import Tensor

from course import exporting, live
from course.explorables import HERE, Choice, Explorable, load, names

#: By this a module says that it computes in a closed form: no graph is exported.
CLOSED = "export function compute("


def graph(explorable: Explorable, choice: Choice) -> bytes:
    """What the formula gives for one entry of the menu, as a graph of numbers and points.

    Raises ValueError if it differs from torch.
    """
    import onnx

    _, *given = explorable.begin(choice.name)
    numbers, points = map(torch.tensor, given)
    keys = list(explorable.formula(choice, numbers, points))

    def computed(numbers: Tensor, points: Tensor) -> tuple[Tensor, ...]:
        found = explorable.formula(choice, numbers, points)
        return tuple(found[key].clone() for key in keys)

    model = exporting.exported(computed, [numbers, points], ["numbers", "points"])
    proto = onnx.load_model_from_string(model)
    for key, output in zip(keys, proto.graph.output, strict=True):
        proto.graph.node.append(onnx.helper.make_node("Identity", [output.name], [key]))
        output.name = key
    del proto.graph.value_info[:]  # a runtime finds the shapes by itself
    model = proto.SerializeToString()
    _compare(model, explorable, choice)
    return model


def _compare(model: bytes, explorable: Explorable, choice: Choice) -> None:
    """Raise ValueError where a graph differs from torch, at other numbers and other points."""
    random = torch.Generator().manual_seed(0)
    drawn = [sample(explorable, choice, random) for _ in range(20)]
    exporting.compared(
        model,
        [
            ({"numbers": n, "points": p}, explorable.formula(choice, n, p).values())
            for n, p in drawn
        ],
    )


def sample(
    explorable: Explorable, choice: Choice, random: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Numbers within their sliders, and points within the reach of those at the beginning."""
    low, high = (torch.tensor([getattr(s, end) for s in choice.sliders]) for end in ("low", "high"))
    numbers = low + (high - low) * torch.rand(len(low), generator=random)
    start = torch.tensor(explorable.begin(choice.name)[2])
    order = torch.rand(start.shape, generator=random).argsort(dim=0)
    mixed = start.gather(0, order)  # among the places that there are
    return numbers, mixed + 0.01 * start.abs().max() * torch.rand(start.shape, generator=random)


def _save(name: str, choice: Choice, folder: Path) -> dict[str, str]:
    """Write a graph; nothing is to be said of it."""
    (folder / f"{choice.name}.onnx").write_bytes(graph(load(name), choice))
    return {}


def _short(number: str) -> float:
    return float(f"{float(number):.6g}")


def write(folder: Path, most: int | None = None) -> dict[str, dict[str, Any]]:
    """Write all explorables into a folder, whole or not at all; their settings by name.

    ``most`` graphs of each are exported; without it, all.
    """
    settings = {name: load(name).describe() for name in names()}
    with live.replaced(folder) as made:
        for path in (*HERE.glob("*.js"), live.LOOK):
            shutil.copy(path, made)
        work = []
        for name in settings:
            (made / name).mkdir()
            if CLOSED not in (HERE / f"{name}.js").read_text(encoding="utf-8"):
                wanted = load(name).choices[:most]
                work += [(name, choice, made / name) for choice in wanted]
                for entry in settings[name]["choices"][len(wanted) :]:
                    entry["why"] = "left out"
        told = Parallel(n_jobs=-1)(delayed(exporting.attempt)(_save, *each) for each in work)
        for (name, choice, _), why in zip(work, told, strict=True):
            entries = {entry["name"]: entry for entry in settings[name]["choices"]}
            entries[choice.name].update(why)
        for name, known in settings.items():
            first = load(name).answer(*load(name).begin())
            known["first"] = json.loads(json.dumps(first), parse_float=_short)
            text = json.dumps(known, ensure_ascii=False)
            (made / name / "settings.json").write_text(text, encoding="utf-8")
    return settings


def main(folder: Path) -> None:
    """Write all explorables, and print what they weigh and what could not be exported."""
    for name, known in write(folder).items():
        sizes = [path.stat().st_size for path in (folder / name).iterdir()]
        print(f"{name}: {sum(sizes) / 1000:.0f} KB")  # noqa: T201
        for choice in known["choices"]:
            if "why" in choice:
                print(f"missing: {name}, {choice['title']}: {choice['why']}")  # noqa: T201


if __name__ == "__main__":
    from course.explorables import export  # by this name its functions reach other processes

    export.main(Path(sys.argv[1]))
