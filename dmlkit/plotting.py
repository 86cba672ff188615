"""Figures under their public address: what dmlkit.figures holds."""

from dmlkit.figures import SavedFigure, save, start

__all__ = ["SavedFigure", "save", "start"]
