"""Every command that the project documents: where it stands, and how it is tried.

``python -m tests.documented`` runs those that take too long for each push, as is done each week.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parent.parent
TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
#: What a command begins with.
PROGRAMS = (
    *("dmlkit", "make", "python", "python3", "pip", "pip3", "git", "cd", "source", "torchrun"),
    *("dask", "docker", "npm", "npx", "jupyter", "papermill", "conda", "uv", "bash", "curl"),
)
_FENCE = re.compile(r"^ *(```|~~~) *(\w*).*?\n(.*?)^ *\1", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"(?<!`)(?:`{1,2})(?!`)([^`]+)(?:`{1,2})(?!`)|<(?:code|pre)[^>]*>([^<]+)</")
# What may stand before a program: a prompt, settings, a way to it.
_BEFORE = re.compile(r"(?:[$!%] ?|\w+=\S+ +|(?:sudo|time|nice|uv run) +|[\w./]*bin/)*")


def pages() -> Iterator[tuple[str, str]]:
    """The name and the text of everything in which a reader may find a command."""
    names = [*tracked("*.md"), *tracked("*.ipynb"), *tracked("*.html"), *tracked("*cli*.py")]
    for name in [*names, "Makefile", "environment.yml"]:
        text = (ROOT / name).read_text("utf-8")
        if name.endswith(".ipynb"):
            text = "\n\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"])
        if name in TABLE["pages"]:
            text = _FENCE.sub("", text)
        if not name.startswith("tests/") and name != "CHANGELOG.md":  # which tells of the past
            yield name, text


def tracked(pattern: str = "*") -> list[str]:
    """The files of the project that git has, or would take."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", pattern]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return sorted(name for name in set(found.stdout.splitlines()) if (ROOT / name).is_file())


def commands(text: str) -> Iterator[str]:
    """The commands of a page: lines of its shell blocks, and what stands in backticks.

    Lists of names (``a | b``) and what a program fills in (``{name}``) are none.

    >>> list(commands("Run `make test`, with `make`.\\n```sh\\ncd here  # first\\n```\\n"))
    ['cd here', 'make test']
    >>> list(commands("~~~\\nmake lab\\n~~~\\n`A=1 bin/pip install x` <code>!git log</code>"))
    ['make lab', 'A=1 bin/pip install x', '!git log']
    """
    for _, language, block in _FENCE.findall(text):
        lines = block.replace("\\\n", " ").splitlines()
        lines = [" ".join(re.split(r"(?:^|\s)#", line)[0].split()) for line in lines]
        if language in ("sh", "bash", "shell", "zsh", "console"):
            yield from filter(None, lines)
        elif not language:
            yield from filter(_is_command, lines)
    for pair in _SPAN.findall(_FENCE.sub("", text)):
        span = " ".join("".join(pair).split())
        if _is_command(span) and not re.search(r"[{|]", span):
            yield span


def _is_command(line: str) -> bool:
    words = _BEFORE.sub("", line, count=1).split()
    return len(words) > 1 and words[0] in PROGRAMS


def documented() -> dict[str, list[str]]:
    """Each documented command, with the pages that it stands on."""
    found: dict[str, list[str]] = {}
    for name, text in pages():
        for command in commands(text):
            if name not in found.setdefault(command, []):
                found[command].append(name)
    return found


def clone(folder: Path) -> Path:
    """A clean clone of the project as it is now, with what ``make`` has set up here."""
    for name in tracked():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name)
    if (ROOT / ".venv").exists():
        (folder / ".venv").symlink_to((ROOT / ".venv").resolve())
    subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True)
    subprocess.run(["git", "add", "--all"], cwd=folder, check=True)
    return folder


def filled(command: str, own: Mapping[str, str]) -> str:
    """A command as a reader types it, with names of their own for those in capitals.

    >>> filled("dmlkit student FOLDER", {})
    'dmlkit student anna'
    """
    names = TABLE["names"] | own
    return re.sub(r"\b[A-Z]{2,}\b(?!=)", lambda word: names.get(word[0], word[0]), command)


def main() -> int:
    """Run the commands of the weekly list, in one clean clone; the exit status is how many fail."""
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        place = clone(Path(folder))
        environment = os.environ | {"PYTHONPATH": str(place)}
        environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
        for command in TABLE["weekly"]:
            print(f"$ {filled(command, {})}", flush=True)  # noqa: T201
            done = subprocess.run(["bash", "-c", filled(command, {})], cwd=place, env=environment)
            failed += done.returncode != 0
    return failed


if __name__ == "__main__":
    sys.exit(main())
