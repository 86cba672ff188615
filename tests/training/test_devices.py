"""Seeds on any device."""

import pytest
import torch

from dmlkit.training import devices


@pytest.mark.parametrize(
    "device",
    [
        "cpu",
        pytest.param(
            "cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
        ),
    ],
)
def test_a_step_is_seeded_as_torch_seeds(device):
    torch.empty(1, device=device)  # a GPU is in use by the first step
    with devices.restored_random_state():
        torch.manual_seed(7)
        expected = torch.rand(3, device=device)
        devices.seed(7)
        assert torch.equal(torch.rand(3, device=device), expected)
