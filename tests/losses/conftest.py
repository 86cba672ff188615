"""The batches that losses of pairs are compared on."""

import pytest
import torch
from torch import Tensor

from tests.losses.oracles import batch

UNEVEN = torch.tensor([7, 3, 3, 7, 9, 3, 5, 5, 7, 3, 11, 5])  # one to four samples a class


@pytest.fixture(params=["PK", "uneven"])
def x_and_y(request: pytest.FixtureRequest, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    x, y = batch(generator)
    return (x, y) if request.param == "PK" else (x[: len(UNEVEN)], UNEVEN)
