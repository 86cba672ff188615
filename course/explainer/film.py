"""Films: of two trainings, for browsers that cannot train; and of the page, as it trains."""

import io
import math
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

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
    """Write pictures as an animated WebP that ends on its last for two seconds, and that as PNG."""
    holds = [milliseconds] * (len(frames) - 1) + [2000]
    first, *rest = frames
    first.save(path, save_all=True, append_images=rest, duration=holds, loop=0, quality=60)
    frames[-1].quantize(64).save(path.with_suffix(".png"), optimize=True)


def of_the_page(address: str, size: tuple[int, int] = (900, 760)) -> list[Image.Image]:
    """The Explainer in a headless Chromium as it trains: first hard triplets, then semi-hard ones.

    Needs selenium, Chromium and its driver.
    """
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    for argument in ("headless=new", "no-sandbox", f"window-size={size[0]},{size[1]}"):
        options.add_argument(f"--{argument}")
    browser, frames = webdriver.Chrome(options), []
    try:
        browser.set_script_timeout(120)
        browser.get(address)
        browser.execute_async_script("explainer.ready.then(arguments[0])")
        for name in TRAININGS:
            wait = "const done = arguments[arguments.length - 1];"
            change = "explainer.change({data: 'groceries', loss: arguments[0], margin: 0.2})"
            browser.execute_async_script(f"{wait} {change}.then(() => done())", name)
            for count in [1] * 6 + [4] * 12 + [10] * 6:
                browser.execute_async_script(
                    f"{wait} explainer.steps(arguments[0]).then(() => done())", count
                )
                shot = Image.open(io.BytesIO(browser.get_screenshot_as_png()))
                frames.append(shot.convert("RGB"))
    finally:
        browser.quit()
    return frames
