"""Kernels run on the GPU where there is one, else as Python under Triton's interpreter.

Triton asks for its switch when a kernel is defined, so it is set before anything imports one.
"""

import os

import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
