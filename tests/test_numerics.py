"""The instruction set: asked for when dmlkit is imported, and told as it is."""

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import faiss
import pytest

import dmlkit
from dmlkit import numerics

AVX2 = platform.machine() == "x86_64" and " avx2 " in Path("/proc/cpuinfo").read_text()
MKL = ", MKL on AMD" if AVX2 and "AuthenticAMD" in Path("/proc/cpuinfo").read_text() else ""
needs_avx2 = pytest.mark.skipif(not AVX2, reason="this machine has no AVX2")

TRAIN = """
import hashlib
from dmlkit import numerics
import torch
from torch import nn
torch.manual_seed(0)
layers = nn.Conv2d(1, 8, 4, stride=2), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(1800, 8)
model = nn.Sequential(*layers)
x = torch.randn(64, 1, 32, 32)
for _ in range(3):
    model.zero_grad()
    torch.cdist(model(x), model(x)).logsumexp(1).mean().backward()
    with torch.no_grad():
        for w in model.parameters():
            w -= 0.1 * w.grad
bits = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
print(hashlib.sha256(bits).hexdigest())
print(numerics.describe())
"""
TELL = """
import json, os, sys
import dmlkit
assert "torch" not in sys.modules and "numpy" not in sys.modules
print(json.dumps({name: os.environ.get(name) for name in dmlkit.NUMERICS}))
"""


def answer(code: str, **variables: str) -> str:
    """What a fresh Python prints, with these variables and no other of ours."""
    environment = {k: v for k, v in os.environ.items() if k not in dmlkit.NUMERICS} | variables
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@needs_avx2
def test_the_set_is_asked_for_before_anything_is_loaded_and_the_users_variable_wins() -> None:
    asked = dict(dmlkit.NUMERICS)
    if " avx512f " not in Path("/proc/cpuinfo").read_text():
        asked["NPY_DISABLE_CPU_FEATURES"] = None  # NumPy warns of what a machine has not
    assert json.loads(answer(TELL)) == asked
    own = {"ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": ""}
    assert json.loads(answer(TELL, **own)) == asked | own


def test_another_machine_is_left_alone() -> None:
    elsewhere = "import platform; platform.machine = lambda: 'arm64'" + TELL
    assert set(json.loads(answer(elsewhere)).values()) == {None}


@needs_avx2
def test_a_training_has_the_bits_of_the_variables_set_by_hand_and_tells_them() -> None:
    ours, told = answer(TRAIN).split("\n")
    assert told == f"avx2{MKL}"
    assert answer(TRAIN, **dmlkit.NUMERICS).split("\n") == [ours, told]
    other = answer(TRAIN, ATEN_CPU_CAPABILITY="default", ONEDNN_MAX_CPU_ISA="SSE41").split("\n")
    assert other[0] != ours
    assert other[1] == f"default/SSE41{MKL}"


@needs_avx2
@pytest.mark.parametrize(
    "before, variables, expected",
    [
        (
            "import numpy; ",
            {"MKL_CBWR": "COMPATIBLE", "OPENBLAS_CORETYPE": "Nehalem"},
            "avx2, MKL COMPATIBLE, OpenBLAS Nehalem",
        ),
        # What torch settled before dmlkit was imported stays in force, and is told.
        (
            "import os, torch; os.environ['ATEN_CPU_CAPABILITY'] = 'default'; torch.ones(3) + 1; "
            "del os.environ['ATEN_CPU_CAPABILITY']; ",
            {"OPENBLAS_CORETYPE": "Haswell"},  # torch loads NumPy, and with it OpenBLAS
            f"default/AVX2{MKL}",
        ),
    ],
)
def test_what_is_in_force_is_told(before: str, variables: dict[str, str], expected: str) -> None:
    code = f"{before}from dmlkit import numerics; print(numerics.describe())"
    assert answer(code, **variables) == expected


@needs_avx2
@pytest.mark.parametrize(
    "maker, told", [("GenuineIntel", "avx2"), ("AuthenticAMD", "avx2, MKL on AMD")]
)
def test_the_maker_is_told_where_mkl_takes_no_wish(
    monkeypatch: pytest.MonkeyPatch, maker: str, told: str
) -> None:
    monkeypatch.setattr(numerics, "_processor", lambda: f"vendor_id : {maker}")
    assert numerics.describe() == told


def test_away_from_x86_the_machine_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "ARM64")
    assert numerics.describe() == "arm64"


@needs_avx2
def test_every_library_still_computes_and_faiss_with_the_set_asked_for() -> None:
    code = """
import dmlkit, warnings
warnings.simplefilter("error")
import faiss, numba, numpy as np, scipy.linalg
assert numba.config.CPU_NAME == "haswell"
assert numba.njit(lambda x: x * 2)(np.arange(3.0)).tolist() == [0, 2, 4]
index = faiss.IndexFlatL2(2); index.add(np.eye(2, dtype="f4"))
assert index.search(np.eye(2, dtype="f4"), 1)[1].ravel().tolist() == [0, 1]
assert abs(scipy.linalg.eigh(np.eye(3))[0].sum() - 3) < 1e-12
print(faiss.SIMDConfig.get_level_name() if hasattr(faiss, "SIMDConfig") else "AVX2")
"""
    assert answer(code) == "AVX2"


@needs_avx2
@pytest.mark.skipif(not hasattr(faiss, "SIMDConfig"), reason="this faiss cannot be asked")
def test_faiss_heeds_the_users_variable() -> None:
    code = "import dmlkit, faiss; print(faiss.SIMDConfig.get_level_name())"
    assert answer(code, FAISS_SIMD_LEVEL="NONE") == "NONE"
