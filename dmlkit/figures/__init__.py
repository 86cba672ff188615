"""One look for every figure, and each figure kept as a PNG with its numbers beside it.

The numbers are of four kinds, which ``dmlkit reproduce --check`` compares in four ways: plain ones
are exact; ``sample``, ``timing`` and ``example`` mark the others where they are.
"""

import base64
import html
import io
import json
import os
import platform
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module, metadata, util
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
import torch
from matplotlib.animation import Animation, PillowWriter
from matplotlib.figure import Figure
from matplotlib.image import AxesImage, BboxImage
from PIL import Image
from torch import Tensor

import dmlkit
from dmlkit import numerics
from dmlkit.data import ImageSet
from dmlkit.figures.drawing import (
    RIGHT,
    WIDTH,
    WRONG,
    bare,
    contact_sheet,
    curve,
    dots,
    example,
    gains,
    letter,
    neighbors,
    sample,
    spans,
    summary,
    sweep,
    timing,
)
from dmlkit.figures.drawing import kind as kind
from dmlkit.figures.drawing import parts as parts
from dmlkit.figures.finding import Finding, findings
from dmlkit.figures.looks import ARMS, LOOKS, RECALL_AXIS, Look, look
from dmlkit.figures.verdicts import verdict
from dmlkit.files import write_whole

#: The largest PNG that is kept, in bytes.
MAX_BYTES = 130_000
#: The largest GIF that is kept beside it.
MAX_FILM_BYTES = 600_000

_LIBRARIES = (
    *("dmlkit", "torch", "torchvision", "numpy", "scipy", "pandas", "scikit-learn"),
    *("faiss-cpu", "umap-learn", "matplotlib", "seaborn"),
)
# Tried in turn until the PNG is small enough: (dots per inch, colors). With a palette of 256 a
# picture looks the same in half of the bytes, and the notebooks keep each picture once more.
# Color photographs keep 256 colors of their own, which k-means chooses, and rather lose dots.
_PHOTOGRAPHS = ((150, 256), (120, 256), (100, 256), (80, 256))
_QUALITIES = ((150, 256), (150, 64), (120, 64), (100, 64), (100, 32), (80, 32))

_LOOK = {
    "figure.constrained_layout.use": True,
    "figure.figsize": (WIDTH, 3.6),
    "figure.dpi": 100,
    "image.cmap": "cividis",
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.labelsize": 9,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "grid.linewidth": 0.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
}

__all__ = [
    "ARMS", "LOOKS", "MAX_BYTES", "RECALL_AXIS", "RIGHT", "WIDTH", "WRONG", "Finding", "Look",
    "SavedFigure", "bare", "begin_notebook", "contact_sheet", "curve", "dots",
    "example", "explore", "findings", "gains", "kept", "letter", "live", "look", "neighbors",
    "sample", "save", "spans", "summary", "sweep", "timing", "verdict", "versions",
]  # fmt: skip

provenance: dict[str, Any] | None = None


@dataclass(frozen=True)
class SavedFigure:
    """A figure on disk; a notebook shows it with its alt text and caption."""

    name: str
    alt: str
    caption: str
    png: bytes
    width: float  # inches

    def __repr__(self) -> str:
        return f"Figure {self.name}: {self.alt}"

    def _repr_png_(self) -> tuple[bytes, dict[str, Any]]:
        """The picture, and what a notebook that is kept has to know of it (``course.outputs``)."""
        return self.png, {"alt": self.alt, "figure": self.name, "width": round(96 * self.width)}

    def _repr_html_(self) -> str:
        image = _image(self.png, self.alt, f"width: {self.width:.2f}in; ")
        return f"<figure>{image}<figcaption>{html.escape(self.caption)}</figcaption></figure>"


def live(fig: Figure, alt: str) -> str:
    """A figure as HTML, in its own size, for an ``ipywidgets.HTML`` that knobs redraw.

    The figure is closed.

    >>> live(plt.figure(), "Nothing yet.").startswith("<img src=")
    True
    """
    file = io.BytesIO()
    fig.savefig(file, format="png")
    plt.close(fig)
    return _image(file.getvalue(), alt)


def _image(png: bytes, alt: str, style: str = "") -> str:
    source = f"data:image/png;base64,{base64.b64encode(png).decode()}"
    style += "max-width: 100%; background: white"
    return f'<img src="{source}" alt="{html.escape(alt)}" style="{style}">'


def begin_notebook(
    notebook: str, *, profile: str, seeds: int | Sequence[int], device: str, **parameters: Any
) -> None:
    """Set the one look of every figure, and say where the figures to come are from.

    Called once at the top of a notebook, with its name and all of its parameters. An absolute path
    among the parameters keeps only its last part, so that figures do not depend on the machine.

    >>> begin_notebook("00_start_here", profile="smoke", seeds=3, device="cpu", steps=300)
    """
    global provenance
    sns.set_theme("paper", "whitegrid", "colorblind", font="DejaVu Sans", rc=_LOOK)
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    given = {  # a Windows path splits at / and at \
        key: PureWindowsPath(value).name if _is_absolute(value) else value
        for key, value in parameters.items()
    }
    about = {"notebook": notebook, "profile": profile, "seeds": seeds, "device": device}
    provenance = plain(about | {"parameters": given})


def save(
    fig: Figure,
    name: str,
    data: Mapping[str, Any] | pd.DataFrame,
    alt: str,
    caption: str = "",
    datasets: Mapping[str, ImageSet] | None = None,
    film: Animation | None = None,
) -> SavedFigure:
    """Keep a figure as ``NAME.png`` with its numbers and provenance in ``NAME.json``.

    The folder is ``$DMLKIT_FIGURES``, else ``build/<profile>/figures``. The figure is closed; show
    the returned object instead, which carries the alt text and the caption.

    ``data`` holds the numbers drawn: scalars, strings, lists, arrays, tensors and data frames,
    nested as you like. They are kept to six significant digits. NaN, infinity and absolute paths
    are refused; ``None`` says that there is no value.

    ``dmlkit reproduce --check`` takes plain numbers for exact. Mark what is not: random numbers by
    ``sample`` (or draw them with ``curve`` and ``differences``), times by ``timing``, what one draw
    happened to give by ``example``. ``data["claims"]`` is a list of ``studies.claims.Row.facts()``.

    A ``film`` of the same numbers is kept beside it as ``NAME.gif``, five frames a second. With
    ``$DMLKIT_VECTORS`` the folder's ``vectors`` has the figure as SVG and PDF, too.

    Equal input gives equal bytes. A PNG above 150 kB is stored with fewer colors or pixels, one of
    color photographs above 240 kB with fewer pixels; where that does not suffice, and for a film
    above 600 kB, ``ValueError``.
    """
    begun = _begun()
    sets = {key: dataset.fingerprint for key, dataset in (datasets or {}).items()}
    about = {"datasets": sets, "versions": versions(), "numerics": numerics.describe()}
    record = {"alt": alt, "caption": caption, "numbers": plain(data)}
    record["provenance"] = begun | about
    text = json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    _settle(fig)
    png = _png(fig, name)
    contents = {f"{name}.png": png, f"{name}.json": text.encode()}
    if film is not None:
        contents[f"{name}.gif"] = _gif(film, name)
    if os.environ.get("DMLKIT_VECTORS"):
        contents |= {f"vectors/{name}.{kind}": _vectors(fig, kind) for kind in ("svg", "pdf")}
    _write(contents)
    width = float(fig.get_figwidth())
    plt.close(fig)  # else the notebook would show it a second time, without its alt text
    return SavedFigure(name, alt, caption, png, width)


def kept(name: str) -> SavedFigure:
    """The committed figure, in place of one that cannot be made here: its photographs are missing.

    ``dmlkit reproduce`` leaves such a figure as it is, and ``--check`` counts it as not made.
    """
    committed = dmlkit.ROOT / "figures" / name
    png = committed.with_suffix(".png").read_bytes()
    record = json.loads(committed.with_suffix(".json").read_text("utf-8"))
    record["provenance"]["made"] = False
    _write({f"{name}.png": png, f"{name}.json": json.dumps(record).encode()})
    with Image.open(io.BytesIO(png)) as picture:
        width = picture.width / picture.info["dpi"][0]
    return SavedFigure(name, record["alt"], record["caption"], png, width)


def recorded(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Numbers of a figure as another run drew it, and where they are from: its profile, its seeds.

    A lesson trains for a minute; its cells have run longer once, or more often.
    ``data/evidence/NAME.json`` keeps what ``save`` wrote there. Marks are taken off: a ``sample``
    is an array (R, ...) again.

    Raises FileNotFoundError where no such run is kept.
    """
    record = json.loads((dmlkit.ROOT / "data" / "evidence" / f"{name}.json").read_text("utf-8"))
    return _unmarked(record["numbers"]), record["provenance"]


def _unmarked(value: Any) -> Any:
    match kind(value):
        case "sample":
            return np.asarray(value["values"])
        case "timing" | "example" as mark:
            return value[mark]
    return {k: _unmarked(v) for k, v in value.items()} if isinstance(value, dict) else value


def explore(name: str, picture: SavedFigure) -> Any:
    """The explorable of this name, where a reader can move it; else the picture, as it is.

    Run headless, or without the checkout, which has the explorables (``course.explorables``), a
    notebook shows what it would show without this.
    """
    there = util.find_spec("course") and util.find_spec("course.explorables")
    # By name: the library knows nothing above it.
    return import_module("course.explorables.widget").Widget(name) if _seen() and there else picture


def _seen() -> bool:
    """Whether a reader's front end started this kernel; papermill, nbclient and nbval have none."""
    if os.environ.get("DMLKIT_FIGURES"):  # figures are reproduced
        return False
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    in_editor = "__vsc_ipynb_file__" in getattr(shell, "user_ns", {})
    return "JPY_SESSION_NAME" in os.environ or "google.colab" in sys.modules or in_editor


def _begun() -> dict[str, Any]:
    if provenance is None:
        raise RuntimeError("save was called before begin_notebook: call begin_notebook first")
    return provenance


def _write(contents: Mapping[str, bytes]) -> None:
    """Put files where figures are kept: all, or none."""
    ours = dmlkit.ROOT / "build" / _begun()["profile"] / "figures"
    folder = Path(os.environ.get("DMLKIT_FIGURES") or ours)
    write_whole({folder / x: partial(Path.write_bytes, data=b) for x, b in contents.items()})


def plain(value: Any) -> Any:
    """The same value as JSON literals, numbers to six significant digits.

    >>> plain({"recall": np.array([1 / 3, 0.5])})
    {'recall': [0.333333, 0.5]}
    """
    if isinstance(value, pd.DataFrame):
        value = value.to_dict(orient="list")
    elif isinstance(value, pd.Series | np.ndarray | np.generic | Tensor):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if _is_absolute(value):
        raise ValueError(f"{value!r} is an absolute path: it would differ by machine")
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _is_absolute(value: Any) -> bool:
    """Whether it is an absolute path, of this system or of another one."""
    systems = (PurePosixPath, PureWindowsPath)
    return isinstance(value, str) and any(path(value).is_absolute() for path in systems)


def versions() -> dict[str, str]:
    """Versions of Python and of the libraries that numbers and pictures depend on."""
    found = {"python": platform.python_version()}
    for library in _LIBRARIES:
        try:
            found[library] = metadata.version(library)
        except metadata.PackageNotFoundError:  # conda names faiss-cpu otherwise
            continue
    return found


def _settle(fig: Figure) -> None:
    """Draw until the layout rests: beside images, whose shape is fixed, each drawing moves it."""
    before = None
    fig.set_dpi(_QUALITIES[0][0])  # at another resolution words are of another width
    for _ in range(6):
        fig.draw_without_rendering()
        places = [axes.get_position().bounds for axes in fig.axes]
        if before is not None and np.allclose(places, before, rtol=0, atol=5e-4):
            return
        before = places


def _png(fig: Figure, name: str) -> bytes:
    photographs = _has_photographs(fig)
    for dpi, colors in _PHOTOGRAPHS if photographs else _QUALITIES:
        buffer = io.BytesIO()
        fig.savefig(buffer, format="png", dpi=dpi, metadata={"Software": None})
        picture = Image.open(buffer).convert("RGB")
        few = photographs * picture.width * picture.height // 100
        # k-means ends when so few pixels change their color: more rounds take most of the time.
        picture = picture.quantize(colors, kmeans=few, dither=Image.Dither.NONE)
        buffer = io.BytesIO()
        picture.save(buffer, format="png", optimize=True, dpi=(dpi, dpi))
        if buffer.tell() <= MAX_BYTES:
            return buffer.getvalue()
    raise ValueError(
        f"figure {name!r} is {buffer.tell() // 1000} kB at {dpi} dpi and {colors} colors, above "
        f"{MAX_BYTES // 1000} kB: make it smaller, or draw fewer points or pictures"
    )


def _has_photographs(fig: Figure) -> bool:
    """Whether an image in it has no transparency and more colors than a palette."""
    for image in [*fig.findobj(AxesImage), *fig.findobj(BboxImage)]:
        pixels = image.get_array()
        if pixels is not None and pixels.ndim == 3 and pixels.shape[2] == 3:
            colors = image.to_rgba(pixels, bytes=True).reshape(-1, 4)
            if len(np.unique(colors, axis=0)) > 256:
                return True
    return False


def _vectors(fig: Figure, kind: str) -> bytes:
    buffer = io.BytesIO()
    fig.savefig(buffer, format=kind, dpi=200)  # of what is an image in it
    return buffer.getvalue()


def _gif(film: Animation, name: str) -> bytes:
    """A film's frames, one after the other, again and again."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "film.gif"
        film.save(path, PillowWriter(fps=5), dpi=90)
        found = path.read_bytes()
    if len(found) > MAX_FILM_BYTES:
        raise ValueError(f"the film of {name!r} has {len(found)} bytes, above {MAX_FILM_BYTES}")
    return found
