"""Figures under their public address: what dmlkit.figures holds."""

from dmlkit.figures import SavedFigure, begin_notebook, save

__all__ = ["SavedFigure", "begin_notebook", "save"]
