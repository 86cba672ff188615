"""Which arithmetic is in force: the last bits of a number depend on the instruction set."""

import os
import platform

import torch


def describe() -> str:
    """Name the instruction sets that torch and oneDNN use in this process.

    ``"avx2"`` where both use that, as ``import dmlkit`` asks for; else torch's and oneDNN's, such
    as ``"default/SSE41"``; away from x86-64 the machine's name. It tells what is in force: torch
    settles that when it first computes, which may have been before dmlkit was imported.

    >>> describe() != ""
    True
    """
    machine = platform.machine().lower()
    if machine not in ("x86_64", "amd64"):
        return machine
    torch_uses = torch.backends.cpu.get_cpu_capability().lower()
    onednn_may_use = os.environ.get("ONEDNN_MAX_CPU_ISA", "all")
    if torch_uses == onednn_may_use.lower():
        return torch_uses
    return f"{torch_uses}/{onednn_may_use}"
