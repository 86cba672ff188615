"""``--set NAME=VALUE`` on the command line."""

import json
from collections.abc import Sequence
from typing import Any

#: As Python writes them, since JSON's own spelling is easily missed.
_WORDS = {"True": True, "False": False, "None": None}


def literals(settings: Sequence[str] | None) -> dict[str, Any]:
    """Settings by name: values are JSON, Python's True, False and None, or else strings.

    Raises ValueError for what is no NAME=VALUE.

    >>> literals(["steps=10", "metric=euclidean", "augment=True"])
    {'steps': 10, 'metric': 'euclidean', 'augment': True}
    """
    found: dict[str, Any] = {}
    for setting in settings or ():
        name, equals, value = setting.partition("=")
        if not (name and equals):
            raise ValueError(f"a setting is --set NAME=VALUE, but this is --set {setting!r}")
        try:
            found[name] = json.loads(value)
        except json.JSONDecodeError:
            found[name] = _WORDS.get(value, value)
    return found
