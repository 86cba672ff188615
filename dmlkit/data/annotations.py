"""MATLAB's annotations of Cars, read by a process of their own.

SciPy's reader is compiled, and a damaged file can end the process that it runs in by a signal. This
file is also what that process runs, so it imports nothing of dmlkit.
"""

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

SECONDS = 120  # that the process may take
_BYTES = 4 * 2**30  # of memory, where the system keeps count of it


def read(path: Path) -> list[tuple[str, int, str]]:
    """File name, class from 1 and name of that class, of each annotation of ``cars_annos.mat``.

    Raises ValueError for a file that is not in its format, whatever it does to SciPy.
    """
    command = [sys.executable, "-P", __file__, str(path)]  # -P: no module of the working folder
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    try:
        child = subprocess.run(
            command, capture_output=True, env=environment, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise ValueError(f"it cannot be read within {SECONDS} s") from None
    if child.returncode < 0:
        raise ValueError(f"reading it ended a process by signal {-child.returncode}: it is damaged")
    if child.returncode:
        lines = child.stderr.decode(errors="replace").strip().splitlines()
        raise ValueError(lines[-1] if lines else "a process that read it failed")
    return [(name, number, of_class) for name, number, of_class in json.loads(child.stdout)]


def _print(path: str) -> None:
    """What ``read`` gives, as JSON on the standard output."""
    import numpy as np
    import scipy.io

    with suppress(ImportError, OSError, ValueError):  # no such limits, or narrower ones already
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        resource.setrlimit(resource.RLIMIT_AS, (_BYTES, _BYTES))
    content = scipy.io.loadmat(path, squeeze_me=True, chars_as_strings=True)
    rows = np.atleast_1d(content["annotations"])
    ids = rows["class"].astype(np.int64)
    names = np.atleast_1d(content["class_names"])
    if not len(ids) or ids.min() < 1 or ids.max() > len(names):
        raise ValueError(f"expected classes 1 to {len(names)}, one name each")
    of_classes = names[ids - 1].astype(np.str_).tolist()
    paths = rows["relative_im_path"].astype(np.str_).tolist()
    json.dump(list(zip(paths, ids.tolist(), of_classes, strict=True)), sys.stdout)


if __name__ == "__main__":
    _print(sys.argv[1])
