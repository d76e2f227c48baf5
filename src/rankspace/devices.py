"""Which devices are GPUs: kernels are compiled there, launches can be recorded, and asking for a number waits."""

import torch

GPUS = {"cuda"}  # types of devices; `benchmarks/kernels/dry_run.py` has one more, whose tensors have no numbers


def is_gpu(device: torch.device) -> bool:
    return device.type in GPUS
