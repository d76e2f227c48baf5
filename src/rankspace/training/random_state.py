"""The states of torch's random generators as tensors."""

from collections.abc import Mapping

import torch
from torch import Tensor

from rankspace.devices import is_gpu
from rankspace.training.processes import Processes

CPU, CUDA = "random.cpu", "random.cuda"


def device_state(device: torch.device) -> Tensor:
    """Of the generator that a device draws from, as far as the host has sent draws. Does not wait for the device."""
    return torch.cuda.get_rng_state(device) if is_gpu(device) else torch.get_rng_state()


def set_device_state(state: Tensor, device: torch.device) -> None:
    """What is sent from now on draws as from that state."""
    if is_gpu(device):
        torch.cuda.set_rng_state(state, device)
    else:
        torch.set_rng_state(state)


def seed_process(seed: int, processes: Processes) -> None:
    """Seeds what is drawn while training, differently in each process."""
    torch.manual_seed(seed * 1009 + processes.rank)


def random_tensors(device: torch.device) -> dict[str, Tensor]:
    """The states of the generators that training on a device draws from."""
    found = {CPU: torch.get_rng_state()}
    if is_gpu(device):
        found[CUDA] = device_state(device)
    return found


def load_random_tensors(tensors: Mapping[str, Tensor], processes: Processes, seed: int) -> None:
    """Goes on as the first process did; the others, whose states are not kept, are seeded afresh."""
    seed_process(seed, processes)
    if not processes.is_first:
        return
    if CPU in tensors:
        torch.set_rng_state(tensors[CPU])
    if CUDA in tensors and is_gpu(processes.device):
        set_device_state(tensors[CUDA], processes.device)
