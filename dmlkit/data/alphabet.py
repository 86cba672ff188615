"""The characters that Glyphs are made of: Unicode in the fonts that matplotlib ships."""

import io
import unicodedata
from collections import Counter
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.ft2font import FT2Font, GlyphIndexType

BOARD = 48  # px, the side of the board that a character is drawn on
BOX = 42  # px, the longest side of its outline there
_MIN_FACES = 8  # a class is drawn in at least so many faces
_ALIKE = 0.9  # characters that correlate more than this in one face are one class

_STYLES = {  # family -> file names in regular, bold, italic, bold italic
    "DejaVu Sans": ("", "-Bold", "-Oblique", "-BoldOblique"),
    "DejaVu Serif": ("", "-Bold", "-Italic", "-BoldItalic"),
    "DejaVu Sans Mono": ("", "-Bold", "-Oblique", "-BoldOblique"),
    "STIX General": ("", "Bol", "Italic", "BolIta"),
}
FACES = tuple(
    (family, weight, slant, family.replace(" ", "") + style)
    for family, styles in _STYLES.items()
    for style, weight, slant in zip(
        styles,
        ("regular", "bold", "regular", "bold"),
        ("upright", "upright", "italic", "italic"),
        strict=True,
    )
)


class Alphabet(NamedTuple):
    """The characters that are classes, as drawn by each face."""

    codes: NDArray[np.int64]  # (C,) Unicode code points, rising
    ink: NDArray[np.uint8]  # (C, 16, 48, 48), outlines in a centered box of 42 px
    drawn: NDArray[np.bool_]  # (C, 16) whether the face has the character


_SCRIPTS = ("LATIN", "GREEK", "CYRILLIC", "ARMENIAN", "GEORGIAN", "LAO")
_CATEGORIES = {"N": "numbers", "P": "punctuation", "Sm": "math"}


def group(character: str) -> str:
    """The script of a character, or the kind of sign it is.

    >>> [group(character) for character in "aéЖ→≤5!♞"]
    ['latin', 'latin-accented', 'cyrillic', 'arrows', 'math', 'numbers', 'punctuation', 'symbols']
    """
    name, category = unicodedata.name(character), unicodedata.category(character)
    script = name.split()[0]
    if script in _SCRIPTS:
        accented = script == "LATIN" and " WITH " in name
        return "latin-accented" if accented else script.lower()
    if "ARROW" in name or "HARPOON" in name:
        return "arrows"
    return _CATEGORIES.get(category) or _CATEGORIES.get(category[0], "symbols")


def _is_candidate(character: str) -> bool:
    """Whether a character may be a class: a letter, number, punctuation mark or symbol."""
    category, name = unicodedata.category(character), unicodedata.name(character, "")
    return (
        category[0] in "LNPS"
        and category not in ("Lm", "Sk")  # modifiers
        and not name.startswith(("BOX DRAWINGS", "BRAILLE"))
        # Mathematical letters are letters in another face, and the face is no class here.
        and not unicodedata.decomposition(character).startswith("<font>")
    )


def draw_alphabet() -> Alphabet:
    """Draw every candidate in every face, and keep one of each set of look-alikes."""
    from matplotlib import get_data_path  # a slow import, needed on first use only
    from matplotlib.ft2font import FT2Font

    folder = Path(get_data_path()) / "fonts" / "ttf"
    # A font in memory loads glyphs four times as fast as one that is read from its file.
    fonts = [FT2Font(io.BytesIO((folder / f"{face[3]}.ttf").read_bytes())) for face in FACES]
    maps = [font.get_charmap() for font in fonts]
    frequent = (c for c, n in Counter(chain.from_iterable(maps)).items() if n >= _MIN_FACES)
    codes = sorted(code for code in frequent if _is_candidate(chr(code)))
    glyphs = np.array([[charmap.get(code, 0) for charmap in maps] for code in codes])  # (C, 16)
    ink = np.zeros((*glyphs.shape, BOARD, BOARD), dtype=np.uint8)
    drawn = np.zeros(glyphs.shape, dtype=bool)
    for i, k in zip(*np.nonzero(glyphs), strict=True):  # glyph 0 is .notdef
        drawn[i, k] = _draw(fonts[k], glyphs[i, k], ink[i, k])
    kept = _distinct(ink, drawn)
    kept = kept[drawn[kept].sum(axis=1) >= _MIN_FACES]  # a face may list a character and be blank
    return Alphabet(np.array(codes)[kept], ink[kept], drawn[kept])


def _draw(font: "FT2Font", glyph: "GlyphIndexType", board: NDArray[np.uint8]) -> bool:
    """Draw one glyph, its outline centered in the box; returns whether it has one."""
    from matplotlib.ft2font import LoadFlags

    size = 32.0  # px, only to learn the glyph's proportions
    for _ in range(2):
        font.set_size(size, 72)
        drawing = font.load_glyph(glyph, LoadFlags.NO_HINTING)
        left, bottom, right, top = drawing.bbox  # in 1/64 px
        longest = max(right - left, top - bottom)
        if not longest:
            return False
        size *= 64 * BOX / longest
    x = (BOARD - (right - left) / 64) / 2 - left // 64  # matplotlib adds the left bearing
    y = (BOARD - (top - bottom) / 64) / 2
    font.draw_glyph_to_bitmap(board, int(x), int(y), drawing)
    return True


def _distinct(ink: NDArray[np.uint8], drawn: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Which characters to keep so that no two of them look alike in a face that has both.

    Normalized correlation at 16 x 16. Pixels are rounded to integers whose products sum exactly in
    float32, so that the choice does not hang on how a machine orders its sums.
    """
    alike = np.zeros((len(ink), len(ink)), dtype=bool)
    for face, present in zip(ink.swapaxes(0, 1), drawn.T, strict=True):
        pixels = torch.from_numpy(face)[:, None].float()
        x = F.avg_pool2d(pixels, BOARD // 16, divisor_override=1).flatten(1).numpy()  # (C, 256)
        x = np.round((x - x.mean(axis=1, keepdims=True)) / 9)
        bound = np.where(present, np.sqrt(_ALIKE * (x**2).sum(axis=1)), np.float32(np.inf))
        alike |= x @ x.T > np.outer(bound, bound)
    kept: list[int] = []
    for i in range(len(ink)):
        if not alike[i, kept].any():
            kept.append(i)
    return np.array(kept)
