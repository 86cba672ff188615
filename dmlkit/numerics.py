"""Which arithmetic is in force: the last bits of a number depend on the instruction set."""

import os
import platform
from pathlib import Path

import threadpoolctl  # comes with scikit-learn
import torch

from dmlkit import NUMERICS


def describe() -> str:
    """Name the instruction sets of this process: torch's, oneDNN's, and others that are not ours.

    ``"avx2"`` where all use that, as ``import dmlkit`` asks for; else torch's and oneDNN's, such as
    ``"default/SSE41"``; away from x86-64 the machine's name. Then, where they are not as pinned,
    MKL's setting and the cores that the OpenBLAS of NumPy, SciPy and faiss compute for:
    ``"avx2, MKL COMPATIBLE, OpenBLAS SkylakeX"``. On AMD's processors MKL takes no such wish, and
    computes other last bits than on Intel's: ``"avx2, MKL on AMD"``. What torch and OpenBLAS tell
    is in force: they settle it once, which may have been before dmlkit was imported. Of oneDNN and
    MKL only the environment is known, and nothing of NumPy's own loops, faiss's and Numba's.

    >>> describe() != ""
    True
    """
    machine = platform.machine().lower()
    if machine not in ("x86_64", "amd64"):
        return machine
    found = torch.backends.cpu.get_cpu_capability().lower()
    onednn_may_use = os.environ.get("ONEDNN_MAX_CPU_ISA", "all")
    if found != onednn_may_use.lower():
        found += f"/{onednn_may_use}"
    mkl = os.environ.get("MKL_CBWR") or "any"
    if torch.backends.mkl.is_available() and mkl != NUMERICS["MKL_CBWR"]:
        found += f", MKL {mkl}"
    elif torch.backends.mkl.is_available() and "AuthenticAMD" in _processor():
        found += ", MKL on AMD"
    cores = {library.get("architecture") for library in threadpoolctl.threadpool_info()}
    if others := sorted(filter(None, cores - {NUMERICS["OPENBLAS_CORETYPE"]})):
        found += f", OpenBLAS {'/'.join(others)}"
    return found


def _processor() -> str:
    """What the system says of its processor, its maker among it."""
    about = Path("/proc/cpuinfo")
    return about.read_text() if about.exists() else platform.processor()
