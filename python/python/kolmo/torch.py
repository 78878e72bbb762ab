"""Transient probabilities with gradients for PyTorch."""

from __future__ import annotations

import importlib
from typing import Any

from numpy.typing import ArrayLike

from ._gradient import Pattern

__all__ = ["transient"]

# Types are checked with and without PyTorch.
torch: Any = importlib.import_module("torch")


class _Transient(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(rates: Any, p0: Any, pattern: Pattern) -> Any:
        return torch.from_numpy(pattern.probabilities(rates.detach().cpu(), p0.detach().cpu())).to(rates)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        rates, p0, ctx.pattern = inputs
        ctx.save_for_backward(rates, p0)

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, values: Any) -> tuple[Any, Any, None]:
        rates, p0 = ctx.saved_tensors
        arrays = (array.detach().cpu().double() for array in (rates, p0, values))
        by_rates, by_p0 = ctx.pattern.pulled_back(*arrays)
        return torch.from_numpy(by_rates).to(rates), torch.from_numpy(by_p0).to(p0), None


def transient(
    rates: Any, rows: ArrayLike, columns: ArrayLike, p0: Any, times: ArrayLike, *, epsilon: float = 1e-9
) -> Any:
    """Compute probabilities of a chain as a differentiable operation of PyTorch.

    The computation is that of :func:`kolmo.transient` on the CPU, in double precision. Gradients of
    first order by every rate and every initial probability are available. Bounds of the errors are
    not returned.

    Parameters
    ----------
    rates : Tensor of k numbers
        Rate of each transition, at least 0. Float64 is recommended.
    rows, columns : array_like of k int
        Source and target state of each transition.
    p0 : Tensor of n numbers
        Initial probabilities.
    times : float or array_like
        Finite times.
    epsilon : float
        Requested bound on the sum of the errors of all probabilities at a time.

    Returns
    -------
    Tensor, (times, n)
        Probabilities: a row for each time.

    Raises
    ------
    InvalidInput, OutOfMemory
    """
    rates, p0 = torch.as_tensor(rates), torch.as_tensor(p0)
    return _Transient.apply(rates, p0, Pattern(rows, columns, p0.numel(), times, epsilon))
