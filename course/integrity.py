"""Whether committed figures are as they were made: records by their digest, pictures by pixels.

Numbers alone let a wrong picture pass. So a record keeps a hash of the picture's pixels, which is
compared twice:

- with the committed PNG, always: another picture, or one that was retouched, is named;
- with the picture that was just made, where both were drawn from equal numbers by equal libraries
  (matplotlib, FreeType and Pillow, and those that made the numbers). Another FreeType draws other
  edges, and random numbers that are rounded otherwise are drawn elsewhere: there pictures cannot be
  compared by pixels, and the notes say how many. Numbers are kept to six digits: another CPU's last
  bits may shade an edge by a level or two, or a few specks of it by more, which ``FAINT`` and
  ``SPECKS`` allow; and they may move what a figure with random numbers shows beside them, as the
  points of a map, which is no failure but noted.

The record's own digest names what was edited by hand, be it a number within the tolerance, a
version, or an example. It is no signature: who computes it anew is not found out by it.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from course.check import Outcome
from course.records import digest, file_hash, kind, malformed, parts, pixels

#: The largest difference of a pixel, of 255 levels, between pictures that are the same ...
FAINT = 16
#: ... but for so many pixels: fewer than a letter has, or a line. (One CPU shaded 2 by 17 levels.)
SPECKS = 8
# Of provenance: figures made with others are made elsewhere, which is no failure.
_SURROUNDINGS = ("device", "datasets", "versions", "numerics")


def verify(
    committed: Mapping[str, Any], made: Mapping[str, Any], folder: Path, fresh: Mapping[str, Path]
) -> Outcome:
    """Hold committed records, whose pictures are in a folder, against their hashes and those made.

    The pictures that were just made are at the paths ``fresh``, by the figure's name. Figures from
    before there were hashes are counted in the notes, and are no failure.
    """
    outcome = Outcome()
    known = {name: record for name, record in committed.items() if not list(malformed(record))}
    hashed = {name for name, r in known.items() if "picture" in r and "digest" in r}
    for name, record in known.items():
        found = [*_picture_on_disk(folder / f"{name}.png", record)]
        found += _film_on_disk(folder / f"{name}.gif", record)
        if "digest" in record and record["digest"] != digest(record):
            found.append("its record was changed after it was made")
        outcome.failures += [f"{name}: {line}" for line in found]
    equal = [name for name in sorted(hashed & made.keys()) if _drawn_alike(known[name], made[name])]
    for name in equal:
        same_hash = known[name]["picture"]["pixels"] == made[name]["picture"]["pixels"]
        if not (same_hash or _look_alike(folder / f"{name}.png", fresh[name])):
            told = outcome.notes if _has_chance(known[name]["numbers"]) else outcome.failures
            told.append(
                f"{name}: another picture is drawn now, from equal numbers and by equal libraries"
            )
    if others := len(hashed & made.keys()) - len(equal):
        outcome.notes.append(
            f"{others} of {len(hashed)} pictures cannot be compared with those made now: random "
            "numbers, times or libraries are not equal"
        )
    if missing := len(known) - len(hashed):
        outcome.notes.append(
            f"no hash yet: {missing} figures, which `dmlkit reproduce` gives one as it makes them"
        )
    outcome.notes += _moved_surroundings(known, made)
    return outcome


def _picture_on_disk(png: Path, record: Mapping[str, Any]) -> Iterator[str]:
    if not png.exists():
        yield f"the committed {png.name} is missing"
    elif "picture" in record:
        try:
            if pixels(png.read_bytes()) != record["picture"]["pixels"]:
                yield f"the committed {png.name} is not the picture that was made with its record"
        except (OSError, KeyError, TypeError) as error:
            yield f"the committed {png.name} cannot be compared: {error}"


def _film_on_disk(gif: Path, record: Mapping[str, Any]) -> Iterator[str]:
    if "film" not in record:
        if gif.exists():
            yield f"its record knows nothing of the committed {gif.name}"
    elif not gif.exists():
        yield f"the committed {gif.name} is missing"
    elif file_hash(gif.read_bytes()) != record["film"]:
        yield f"the committed {gif.name} is not the film that was made with its record"


def _look_alike(old: Path, new: Path) -> bool:
    """Whether two pictures are equal but for faint shades and a few specks."""
    a, b = (np.asarray(Image.open(path).convert("RGBA"), dtype=np.int16) for path in (old, new))
    if a.shape != b.shape:
        return False
    return int((np.abs(a - b) > FAINT).any(axis=-1).sum()) <= SPECKS


def _has_chance(numbers: Any) -> bool:
    """Whether a record has any number that is random, a time, or an example."""
    return kind(numbers) != "plain" or any(_has_chance(part) for _, part in parts(numbers))


def _drawn_alike(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether two pictures have to be equal: their numbers are, and all that drew them."""
    if "picture" not in new or old["numbers"] != new["numbers"]:
        return False
    before, after = (
        [
            {key: value for key, value in record["picture"].items() if key != "pixels"},
            {part: record["provenance"].get(part) for part in _SURROUNDINGS},
        ]
        for record in (old, new)
    )
    return before == after


def _moved_surroundings(committed: Mapping[str, Any], made: Mapping[str, Any]) -> Iterator[str]:
    """Each library, device or data set that is another one than committed, once for all figures."""
    figures: dict[str, list[str]] = {}
    for name in committed.keys() & made.keys():
        old, new = (side[name]["provenance"] for side in (committed, made))
        for part in ("device", "datasets", "versions"):
            a, b = old.get(part), new.get(part)
            if isinstance(a, Mapping) and isinstance(b, Mapping):
                pairs = [(f"{part}/{key}", a.get(key), b.get(key)) for key in sorted({*a, *b})]
            else:
                pairs = [(part, a, b)]
            for key, before, after in pairs:
                if before != after:
                    line = f"provenance/{key}: committed {before}, now {after}"
                    figures.setdefault(line, []).append(name)
    for line, names in sorted(figures.items()):
        yield f"{line} ({len(names)} figures)"
