"""Films: of two trainings, for browsers that cannot train; and of the page, as it trains."""

import io
import math
import shutil
import sys
from collections.abc import Sequence
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from itertools import accumulate, islice
from pathlib import Path
from threading import Thread
from typing import Any

import torch
from PIL import Image, ImageDraw, ImageFont

from course.explainer.images import OF_EACH, Images
from course.explainer.training import Settings, train

#: What is shown, of steps 1, 5, 9, …: the loss, and what it takes as the negative.
TRAININGS = {"triplet_hard": "hardest negatives", "triplet_semihard": "semi-hard negatives"}
_EVERY, _LAST = 4, 100
_SIZE, _FINE = 300, 2  # pixels of a circle's square; drawn so many times as large
_COLORS = (
    *("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00"),
    *("#56b4e9", "#7a4fbf", "#8c6d31", "#b3261e", "#5b5b66"),
)


def film(images: Images) -> list[Image.Image]:
    """Unseen images on circles: to the left hard triplets, to the right semi-hard ones."""
    runs = [
        islice(train(images, Settings(name, {"margin": 0.2}, dim=2)), 0, _LAST, _EVERY)
        for name in TRAININGS
    ]
    return [
        _frame(1 + _EVERY * k, [unseen() for _, unseen in both])
        for k, both in enumerate(zip(*runs, strict=True))
    ]


def _frame(step: int, both: Sequence[torch.Tensor]) -> Image.Image:
    """One picture of the film, an image a dot, each class on a ring of its own."""
    side = _SIZE * _FINE
    made = Image.new("RGB", (2 * side, side + 24 * _FINE), "white")
    draw, font = ImageDraw.Draw(made), ImageFont.load_default(14 * _FINE)
    for column, (title, points) in enumerate(zip(TRAININGS.values(), both, strict=True)):
        x, y, r = side * (column + 0.5), side * 0.5 + 24 * _FINE, side * 0.4
        draw.ellipse((x - r, y - r, x + r, y + r), outline="#cccccc", width=_FINE)
        for i, (across, up) in enumerate(points[:, :2].tolist()):
            length = (math.hypot(across, up) or 1) / (r + 2.5 * _FINE * (i // OF_EACH - 4.5))
            a, b, dot = x + across / length, y - up / length, 4 * _FINE
            draw.ellipse((a - dot, b - dot, a + dot, b + dot), fill=_COLORS[i // OF_EACH])
        draw.text((x, 14 * _FINE), title, "#1b1b1f", font, anchor="mm")
        draw.text((x, y), f"step {step}", "#5b5b66", font, anchor="mm")
    return made.resize((made.width // _FINE, made.height // _FINE), Image.Resampling.LANCZOS)


def save(frames: Sequence[Image.Image], path: Path, milliseconds: int = 120) -> None:
    """Write pictures as an animated WebP that rests on its last, and that as ``…_still.webp``."""
    holds = [milliseconds] * (len(frames) - 1) + [2000]
    first, *rest = frames
    first.save(path, save_all=True, append_images=rest, duration=holds, loop=0, quality=45)
    frames[-1].save(path.with_stem(f"{path.stem}_still"), quality=75)


#: Steps between the pictures of the page, in each training.
_PACE = (1,) * 6 + (4,) * 6 + (12,) * 10
_SPHERE = (26, 48, 420, 424)  # of a picture of the page


def of_the_page(address: str) -> list[Image.Image]:
    """The Explainer in a headless Chromium as it trains: spheres, to the left by hard triplets,
    to the right by semi-hard ones.

    Needs selenium, Chromium and its driver.
    """
    from selenium import webdriver

    binary = shutil.which("chromium") or shutil.which("google-chrome")
    if binary is None or (driver := shutil.which("chromedriver")) is None:
        raise FileNotFoundError("expected Chromium and chromedriver on the path, found not both")

    def do(script: str, *arguments: Any) -> None:
        end = "const done = arguments[arguments.length - 1]"
        browser.execute_async_script(f"{end}; {script}.then(() => done())", *arguments)

    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for argument in ("headless=new", "no-sandbox", "window-size=1180,1100"):
        options.add_argument(f"--{argument}")
    browser = webdriver.Chrome(options, webdriver.ChromeService(driver))
    shots: dict[str, list[Image.Image]] = {name: [] for name in TRAININGS}
    try:
        browser.set_script_timeout(120)
        browser.get(address)
        do("explainer.ready")
        browser.execute_script("document.querySelector('.view').scrollIntoView()")
        for name in TRAININGS:
            do("explainer.change({data: 'groceries', loss: arguments[0], margin: 0.2})", name)
            for count in _PACE:
                do("explainer.steps(arguments[0])", count)
                shot = Image.open(io.BytesIO(browser.get_screenshot_as_png())).convert("RGB")
                shots[name].append(shot.crop(_SPHERE))
    finally:
        browser.quit()
    steps = accumulate(_PACE)
    return [_beside(step, both) for step, *both in zip(steps, *shots.values(), strict=True)]


def _beside(step: int, both: Sequence[Image.Image]) -> Image.Image:
    """Two spheres at the same step, below their names."""
    wide, high, head = both[0].width, both[0].height, 40
    made = Image.new("RGB", (2 * wide, high + head), "white")
    draw, font = ImageDraw.Draw(made), ImageFont.load_default(21)
    for i, (title, shot) in enumerate(zip(TRAININGS.values(), both, strict=True)):
        made.paste(shot, (i * wide, head))
        place = (wide * (i + 0.5), head / 2)
        draw.text(place, f"{title}, step {step}", "#1b1b1f", font, anchor="mm")
    return made.resize((720, round(720 * made.height / made.width)), Image.Resampling.LANCZOS)


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Nothing is to be said of what the browser fetches."""


def main(page: Path, path: Path) -> None:
    """Film a built page, into a WebP and a still of its end."""
    handler = partial(_Quiet, directory=str(page))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        save(of_the_page(f"http://127.0.0.1:{server.server_port}"), path)
        server.shutdown()


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
