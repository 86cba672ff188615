"""The Explainer: a page in which a network trains, with any of the losses of a choice.

``python -m course.explainer FOLDER`` builds it; it needs ``pip install 'dmlkit[site]'`` and npm.
The page knows no equation: ``step`` says what a training step is, ``graphs`` exports its parts to
ONNX and compares them with torch, ``images`` has what is trained on. Whatever is random is a
function of seed and step (``step.draws``), the same in Python and in ``random.js``.
"""
