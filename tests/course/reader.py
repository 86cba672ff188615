"""What a reader of an explorable does and sees: by pointer, by keys, by touch."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from course import explorables

#: In a page and in JupyterLab, the shadow root of the explorable with this alt text.
FIND = """
const hosts = [...document.querySelectorAll("*")].filter((el) => el.shadowRoot);
return hosts.find((el) => el.shadowRoot.querySelector("svg")?.ariaLabel === arguments[0]) ?? null;
"""
#: The question that the numbers answer, and every number that is shown; nothing while one waits.
SHOWN = """
const frame = arguments[0].querySelector(".frame");
return frame.ariaBusy === "true" || !frame.dataset.of ? null : [JSON.parse(frame.dataset.of),
  [...frame.querySelectorAll("[data-of]")].filter((el) => el.matches("output, span"))
    .map((el) => [el.dataset.of, el.textContent])];
"""
#: What keys must reach, and what each is called.
KEYED = "select, input, button, summary, [tabindex]"
CALLED = """
return [...arguments[0].querySelectorAll(arguments[1])]
  .filter((el) => el.checkVisibility())
  .map((el) => el.ariaLabel || el.labels?.[0]?.textContent || el.textContent);
"""
FOCUS = """
const [root, css] = arguments;
root.activeElement?.blur();
const reached = window.reached = new Set();
root.addEventListener("focusin", ({target}) => target.matches(css) && reached.add(target));
root.querySelector(css).focus();
"""
MIDDLE = """
const box = arguments[0].getBoundingClientRect(), part = arguments[1];
return [box.x + part * box.width, box.y + box.height / 2];
"""


def touch(browser: Any, part: Any, right: float = 0, down: float = 0, at: float = 0.5) -> None:
    """A finger on the middle of a part (or another share of its width), which may move on."""
    x, y = browser.execute_script(MIDDLE, part, at)

    def send(kind: str, *points: Mapping[str, float]) -> None:
        event = {"type": kind, "touchPoints": list(points)}
        browser.execute_cdp_cmd("Input.dispatchTouchEvent", event)

    send("touchStart", {"x": x, "y": y})
    for k in range(1, 9 if right or down else 1):
        send("touchMove", {"x": x + right * k / 8, "y": y + down * k / 8})
    send("touchEnd")


class Reader:
    """A reader of one explorable."""

    def __init__(self, browser: Any, name: str) -> None:
        from selenium.webdriver.support.ui import WebDriverWait

        self.browser, self.known = browser, explorables.load(name)
        self.wait = WebDriverWait(browser, 60, 0.05, ignored_exceptions=[Exception])
        host = self.wait.until(lambda b: b.execute_script(FIND, self.known.alt))
        browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", host)
        self.root = host.shadow_root
        self.wait.until(lambda _: self.shown())
        browser.execute_script("arguments[0].querySelector('details').open = true", self.root)
        self.wait.until(lambda _: len(self.shown()[1]) > len(self.known.readouts))

    def all(self, css: str) -> list[Any]:
        return list(self.root.find_elements("css selector", css))

    def shown(self) -> Any:
        return self.browser.execute_script(SHOWN, self.root)

    def check(self, shown: Any = None) -> dict[str, Any]:
        """Every number that is shown is torch's, to four digits."""
        asked, numbers = shown or self.wait.until(lambda _: self.shown())
        answer = self.known.answer(asked["choice"], asked["numbers"], asked["points"])
        assert len(numbers) >= len(self.known.readouts) > 0
        for path, text in numbers:
            expected: Any = answer
            for key in path.split("."):
                expected = expected[int(key) if isinstance(expected, list) else key]
            found = float(text.replace("−", "-"))
            assert found == pytest.approx(expected, rel=6e-4, abs=1e-4), (asked, path)
        return dict(asked)

    def after(self, act: Callable[[], Any]) -> dict[str, Any]:
        """What is asked after an act of the reader, once the numbers answer it."""
        before = self.wait.until(lambda _: self.shown())
        act()

        def changed(_: Any) -> Any:
            shown = self.shown()
            return shown if shown and shown[0] != before[0] else None

        return self.check(self.wait.until(changed))

    def drag(self, right: int, down: int) -> dict[str, Any]:
        from selenium.webdriver import ActionChains

        dot = self.all(".handle .halo")[0]
        chain = ActionChains(self.browser, 40).click_and_hold(dot).move_by_offset(right, down)
        return self.after(chain.release().perform)


def tour(reader: Reader) -> None:
    """Drag, keys, menu, sliders, play, reset; nothing but keys from the second step on."""
    from selenium.webdriver import Keys

    start = reader.check()
    if reader.all(".handle"):
        moved = reader.drag(25, 30)
        assert moved["points"][0] != start["points"][0]
        handle = reader.all(".handle")[-1]
        turned = reader.after(lambda: handle.send_keys(Keys.ARROW_UP))
        assert turned["points"][-1] != moved["points"][-1]
    for slider in reader.all("input"):
        before = reader.check()["numbers"]
        assert reader.after(lambda s=slider: s.send_keys(Keys.ARROW_LEFT * 3))["numbers"] != before
    if reader.all("option:not(:disabled):nth-child(2)"):
        before = reader.check()["choice"]
        menu = reader.all("select")[0]
        assert reader.after(lambda: menu.send_keys(Keys.ARROW_DOWN))["choice"] != before
    if reader.all("button.main"):
        _play(reader)
    if reader.all(".handle"):
        handle = reader.all(".handle")[0]
        reader.after(lambda: handle.send_keys(Keys.ARROW_DOWN))
        reset = reader.all(".buttons button")[-1]
        end = reader.after(lambda: reset.send_keys(Keys.ENTER))
        assert end["points"] == reader.known.begin(end["choice"])[2]


def _play(reader: Reader) -> None:
    from selenium.webdriver import Keys

    button, label = reader.all("button.main")[0], reader.all("button.main")[0].text
    reader.after(lambda: button.send_keys(Keys.ENTER))
    if button.text != label:  # it has not ended yet
        button.send_keys(Keys.ENTER)
    reader.wait.until(lambda _: button.text == label)
    reader.check()


def touched(reader: Reader) -> None:
    """A finger drags the first handle while the page stays, and moves the first slider."""
    scrolled = "return scrollY"
    if handles := reader.all(".handle .halo"):
        before = reader.check()["points"][0], reader.browser.execute_script(scrolled)
        asked = reader.after(lambda: touch(reader.browser, handles[0], 25, 30))
        assert asked["points"][0] != before[0]
        assert reader.browser.execute_script(scrolled) == before[1], "the finger held the handle"
    if sliders := reader.all("input"):
        before = reader.check()["numbers"]
        low, high, value = (float(sliders[0].get_attribute(e)) for e in ("min", "max", "value"))
        away = 0.1 if value > (low + high) / 2 else 0.9
        asked = reader.after(lambda: touch(reader.browser, sliders[0], at=away))
        assert asked["numbers"] != before


def first_step(reader: Reader) -> None:
    """One key on the first thing that can be moved: it reaches the stage, and numbers answer it."""
    from selenium.webdriver import Keys

    reader.check()
    if movable := reader.all(".handle") + reader.all("input"):
        reader.after(lambda: movable[0].send_keys(Keys.ARROW_UP))
    else:
        reader.after(lambda: reader.all("select, button.main")[0].send_keys(Keys.ARROW_DOWN))


def every_control_by_keys(reader: Reader) -> None:
    """The Tab key reaches each control, from the first one on, and each has a name."""
    from selenium.webdriver import ActionChains, Keys

    called = reader.browser.execute_script(CALLED, reader.root, KEYED)
    assert all(called), called
    reader.browser.execute_script(FOCUS, reader.root, KEYED)
    ActionChains(reader.browser).send_keys(Keys.TAB * (len(called) + 2)).perform()
    found = "return [...window.reached].map((el) => el.ariaLabel || el.id || el.textContent)"
    found = reader.browser.execute_script(found)
    assert len(found) == len(called), (found, called)
