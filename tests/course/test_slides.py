"""Slides: every lesson has its deck, and a picture moves in it without a server."""

import re
from pathlib import Path
from typing import Any

import pytest

from course import book, slides

from .conftest import complaints


@pytest.fixture(scope="module")
def decks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("decks")
    assert len(list(slides.write(folder))) == len(book.course()) + 1
    return folder


@pytest.mark.parametrize("name", book.course())
def test_a_deck_has_guesses_pictures_a_sentence_and_questions(decks: Path, name: str) -> None:
    page = (decks / f"{name}.html").read_text(encoding="utf-8")
    assert page.count("What do you think?") >= 6, "three guesses, each again with its answer"
    assert "data:image/png;base64," in page
    assert "In one sentence" in page
    assert len(re.findall("<li>", page.partition("To discuss")[2])) >= 2
    assert not re.findall(r'(?:src|href)="(?!data:|https?:)', page)
    assert "<!--" not in page
    assert not re.findall(r"\$[^$\n<]+\$", re.sub(r"<script.*?</script>", "", page, flags=re.S))


def test_a_picture_moves_without_a_server(decks: Path, chromium: Any) -> None:
    page = decks / "06_prototypes.html"
    count = page.read_text(encoding="utf-8").partition('class="moves"')[0].count("<section")
    complaints(chromium)
    chromium.get(f"{page.as_uri()}#{count}")
    shown = """
    const stage = document.querySelector("section.now .moves"), done = arguments[0];
    const look = () => stage.querySelector("img[alt]") ? setTimeout(look, 50)
      : done((stage.shadowRoot ?? stage).querySelectorAll("svg").length);
    look();
    """
    assert chromium.execute_async_script(shown) >= 1
    assert complaints(chromium) == []


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("")
    with pytest.raises(ValueError, match="expected a folder for the decks, got the file"):
        list(slides.write(tmp_path / "a"))
