"""The house: what imports what, from the syntax trees."""

import ast
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = ("dmlkit", "studies", "course", "benchmarks")


def modules(room: str) -> dict[str, Path]:
    """Every module of a room by its name."""
    found = {}
    for path in (ROOT / room).rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = {name: path for room in ROOMS for name, path in modules(room).items()}


@cache
def uses(name: str) -> frozenset[str]:
    """The modules that one imports, anywhere in its file but for its types; not those around it."""
    found = set()
    for node in ast.walk(ast.parse(MODULES[name].read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            wanted = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= wanted & MODULES.keys() or {node.module}
    return frozenset(found & MODULES.keys()) - {name}


def layers(below: Mapping[str, Iterable[str]]) -> dict[str, int]:
    """How far above the ground each thing stands; RecursionError for a circle."""

    @cache
    def layer(name: str) -> int:
        return 1 + max((layer(used) for used in below[name]), default=0)

    return {name: layer(name) for name in below}


def of_room(room: str) -> dict[str, list[str]]:
    """Which modules of a room each of them uses."""
    return {name: [used for used in uses(name) if used in modules(room)] for name in modules(room)}


@pytest.mark.parametrize("room", ROOMS)
def test_there_is_no_circle(room):
    assert layers(of_room(room))


def test_the_library_has_few_layers():
    """Of its files and folders: what a folder uses is what its files use of others."""
    rooms: dict[str, set[str]] = {}
    for name, used in of_room("dmlkit").items():
        room = ".".join(name.split(".")[:2])
        rooms.setdefault(room, set()).update(".".join(each.split(".")[:2]) for each in used)
    found = layers({room: used - {room} for room, used in rooms.items()})
    assert max(found.values()) <= 10, sorted(found.items(), key=lambda pair: -pair[1])


def test_a_room_knows_none_above_it():
    """The library knows itself alone; studies the library; the course both; benchmarks all."""
    for place, room in enumerate(ROOMS):
        below = set(ROOMS[: place + 1])
        for name in modules(room):
            assert {used.split(".")[0] for used in uses(name)} <= below, name
