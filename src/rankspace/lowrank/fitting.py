"""The search behind `CPD.fit`: HALS and projected Levenberg-Marquardt from several starts, on plain tensors."""

from collections.abc import Sequence

import torch
from torch import Tensor

from rankspace.errors import MissingExtraError

# Up to this many numbers in all matrices, a fit is polished by solving for all of them at once: a step costs their
# number cubed in time (0.2 s at 3,000 on two cores) and squared in memory (72 MB a copy).
MAX_POLISHED = 3000


def multiply_out(matrices: Sequence[Tensor]) -> Tensor:
    operands = [part for i, matrix in enumerate(matrices) for part in (matrix, [0, i + 1])]
    return torch.einsum(*operands, list(range(1, len(matrices) + 1)))


def one_hot(tensor: Tensor, rank: int) -> list[Tensor]:
    """Exact for rank >= all dimensions but the longest, multiplied: one component for each fibre along that one."""
    longest = max(range(tensor.dim()), key=lambda i: tensor.shape[i])
    fibres = tensor.movedim(longest, -1)
    places = torch.ones(fibres.shape[:-1]).nonzero()  # [fibre, order - 1]
    matrices = [tensor.new_zeros(rank, size) for size in tensor.shape]
    matrices[longest][: len(places)] = fibres.reshape(len(places), -1)
    others = [matrix for i, matrix in enumerate(matrices) if i != longest]
    for matrix, place in zip(others, places.T, strict=True):
        matrix[torch.arange(len(places)), place] = 1
    return matrices


def search(
    tensor: Tensor, rank: int, seed: int, restarts: int, max_iterations: int, tolerance: float
) -> tuple[list[Tensor], int, int]:
    """The best matrices, the starts used and the iterations of all starts; see `CPD.fit`."""
    generator = torch.Generator().manual_seed(seed)
    size = tensor.norm()
    target = tensor / size
    polished = rank * sum(target.shape) <= MAX_POLISHED
    best: list[Tensor] = []
    best_error, start, iterations = float("inf"), 0, 0
    while start < restarts and best_error > tolerance:
        matrices = [torch.rand(rank, dim, generator=generator, dtype=torch.float64) for dim in target.shape]
        if start % 2 == 1:
            matrices = _redraw_one(best, matrices, best_error, generator)
        if start == 0 or not polished:
            matrices, steps = _hals(matrices, target, 20 if polished else max_iterations, tolerance)
            iterations += steps
        if polished:
            matrices, steps = _polish(_balanced(matrices), target, max_iterations, tolerance)
            iterations += steps
        error = (multiply_out(matrices) - target).norm().item()
        if error < best_error:
            best, best_error = matrices, error
        start += 1
    return [best[0] * size, *best[1:]], start, iterations


def _redraw_one(best: list[Tensor], fresh: list[Tensor], error: float, generator: torch.Generator) -> list[Tensor]:
    """`best` with one component replaced by that of `fresh`, scaled to the norm `error`."""
    q = int(torch.randint(len(best[0]), (), generator=generator))
    scale = error ** (1 / len(best))
    chosen = torch.arange(len(best[0]))[:, None] == q
    return [torch.where(chosen, scale * b / b[q].norm(), a) for a, b in zip(best, fresh, strict=True)]


def _balanced(matrices: list[Tensor]) -> list[Tensor]:
    """The same tensor, the rows of each component of equal norm: the polish measures its steps in them."""
    norms = torch.stack([matrix.norm(dim=1, keepdim=True) for matrix in matrices])
    mean = norms.prod(0) ** (1 / len(matrices))
    return [matrix * mean / torch.where(norm > 0, norm, 1.0) for matrix, norm in zip(matrices, norms, strict=True)]


def _hals(matrices: list[Tensor], tensor: Tensor, iterations: int, tolerance: float) -> tuple[list[Tensor], int]:
    """Hierarchical alternating least squares, which updates one row of one matrix at a time."""
    try:
        from tensorly import backend_context
        from tensorly.decomposition import non_negative_parafac_hals
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            "CPD.fit: tensorly is not installed; install it with pip install 'rankspace[cpd]'."
        ) from error
    with backend_context("pytorch", local_threadsafe=True):
        start = (tensor.new_ones(len(matrices[0])), [matrix.T for matrix in matrices])
        (weights, factors), errors = non_negative_parafac_hals(
            tensor, len(matrices[0]), init=start, n_iter_max=iterations, tol=tolerance / 100, return_errors=True
        )
    first, *others = (factor.T for factor in factors)
    return [first * weights[:, None], *others], len(errors)


def _polish(matrices: list[Tensor], tensor: Tensor, max_iterations: int, tolerance: float) -> tuple[list[Tensor], int]:
    """Levenberg-Marquardt on all matrices at once, kept nonnegative: entries at 0 that want to fall are held there."""
    sizes, damping = [matrix.numel() for matrix in matrices], 1e-3
    residual = multiply_out(matrices) - tensor
    errors = [residual.norm().item()]
    gradient, curvature = _normal_equations(matrices, residual)
    for iteration in range(max_iterations):
        flat = torch.cat([matrix.flatten() for matrix in matrices])
        free = ((flat > 0) | (gradient < 0)).nonzero()[:, 0]
        damped = curvature[free][:, free] + damping * torch.eye(len(free), dtype=torch.float64)
        flat[free] -= torch.linalg.solve_ex(damped, gradient[free]).result
        tried = [part.view_as(m) for part, m in zip(flat.clamp(min=0).split(sizes), matrices, strict=True)]
        residual = multiply_out(tried) - tensor
        errors.append(min(errors[-1], residual.norm().item()))
        if errors[-1] < errors[-2]:
            matrices, damping = tried, max(damping / 3, 1e-12)
            gradient, curvature = _normal_equations(matrices, residual)
        else:
            damping *= 2
        if errors[-1] <= tolerance or (iteration >= 50 and errors[-1] > 0.98 * errors[-50]):
            break
    return matrices, len(errors) - 1


def _normal_equations(matrices: list[Tensor], residual: Tensor) -> tuple[Tensor, Tensor]:
    """J^T residual and J^T J, where J is the derivative of the tensor by all matrices; J itself is never built."""
    modes = range(len(matrices))
    grams = torch.stack([matrix @ matrix.T for matrix in matrices])
    gradients, blocks = [], []
    for i in modes:
        others = [part for j in modes if j != i for part in (matrices[j], [0, j + 1])]
        gradients.append(torch.einsum(residual, [j + 1 for j in modes], *others, [0, i + 1]).flatten())
        row = []
        for j in modes:
            gram = grams[[k for k in modes if k not in (i, j)]].prod(0)  # [rank, rank]
            if i == j:
                block = torch.einsum("qp,ab->qapb", gram, torch.eye(matrices[i].shape[1], dtype=gram.dtype))
            else:
                block = torch.einsum("qp,pa,qb->qapb", gram, matrices[i], matrices[j])
            row.append(block.reshape(matrices[i].numel(), -1))
        blocks.append(torch.cat(row, 1))
    return torch.cat(gradients), torch.cat(blocks)
