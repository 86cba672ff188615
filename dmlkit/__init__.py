"""dmlkit: learn, teach and honestly test deep metric learning."""

import os
import platform
from importlib import metadata
from pathlib import Path

__version__ = "0.2.0"

_CHECKOUT = Path(__file__).resolve().parent.parent
_AROUND = (Path.cwd(), *Path.cwd().parents)
_COPIES = (folder for folder in _AROUND if (folder / "data" / "claims.csv").is_file())

#: The project: the checkout that holds this package, else (an installed wheel) the folder around
#: the current one that is a copy of the course, as a student's is, else the current one.
ROOT = _CHECKOUT if (_CHECKOUT / "notebooks").is_dir() else next(_COPIES, Path.cwd())

#: One instruction set for every machine that has it, so that all of them round alike. Each library
#: reads its own variable when it is loaded or first computes; kernels and workers inherit them.
NUMERICS = {
    "ATEN_CPU_CAPABILITY": "avx2",  # torch's own loops
    "ONEDNN_MAX_CPU_ISA": "AVX2",  # its convolutions
    "MKL_CBWR": "AVX2",  # its matrix products and decompositions
    "OPENBLAS_CORETYPE": "Haswell",  # those of NumPy, SciPy and faiss
    "NPY_DISABLE_CPU_FEATURES": "X86_V4",  # NumPy's own loops: no AVX-512
    "FAISS_SIMD_LEVEL": "AVX2",
    "NUMBA_CPU_NAME": "haswell",  # UMAP
    "NUMBA_CPU_FEATURES": "",  # only those of that processor
}


def cache_folder() -> Path:
    """Where dmlkit keeps what it makes itself (Glyphs, Runs): ``$DMLKIT_CACHE``, else ``data/``."""
    return Path(os.environ.get("DMLKIT_CACHE") or ROOT / "data")


def _pin_numerics(cpuinfo: Path = Path("/proc/cpuinfo")) -> None:
    """Ask for AVX2 on an x86-64 machine that has it; a variable that the user has set wins."""
    if platform.machine() not in ("x86_64", "AMD64") or not cpuinfo.is_file():
        return
    flags = cpuinfo.read_text()
    if " avx2 " not in flags:
        return
    pinned = dict(NUMERICS)
    numpy = tuple(map(int, metadata.version("numpy").split(".")[:2]))
    if " avx512f " not in flags or numpy < (2, 4):
        del pinned["NPY_DISABLE_CPU_FEATURES"]  # NumPy would warn of what it does not know
    for name, value in pinned.items():
        os.environ.setdefault(name, value)


_pin_numerics()
