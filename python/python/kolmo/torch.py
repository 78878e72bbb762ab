"""Transient probabilities with gradients for PyTorch."""

from __future__ import annotations

import importlib
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike

from . import _input
from ._gradient import FORWARD, ONCE, Pattern, expect_shapes
from .errors import InvalidInput

__all__ = ["transient"]

# Types are checked with and without PyTorch.
torch: Any = importlib.import_module("torch")


def _on_host(*tensors: Any) -> list[Any]:
    return [tensor.detach().cpu().double().numpy() for tensor in tensors]


def _mapped(in_dims: tuple[Any, ...], tensors: tuple[Any, ...], ranks: tuple[int, ...]) -> list[Any]:
    """Move the axis of vmap to the front; the last `ranks` axes of a tensor belong to one chain."""
    inner = max(t.dim() - rank - (d is not None) for t, d, rank in zip(tensors, in_dims, ranks, strict=False))
    moved = []
    for tensor, d, rank in zip(tensors, in_dims, ranks, strict=False):
        if d is not None:
            tensor = tensor.movedim(d, 0)
            missing = inner - (tensor.dim() - 1 - rank)
            tensor = tensor.reshape(tensor.shape[:1] + (1,) * missing + tensor.shape[1:])
        moved.append(tensor)
    return moved


def _summed(tensor: Any, shape: Any) -> Any:
    """Add up the derivatives over axes that were broadcast."""
    tensor = tensor.sum(dim=tuple(range(tensor.dim() - len(shape)))) if tensor.dim() > len(shape) else tensor
    spread = tuple(k for k, size in enumerate(shape) if size == 1 and tensor.shape[k] > 1)
    return tensor.sum(dim=spread, keepdim=True) if spread else tensor


class _Transient(torch.autograd.Function):  # type: ignore[misc]
    """Probabilities (..., m, n) of rates (..., k), p0 (..., n) and times (..., m)."""

    @staticmethod
    def forward(rates: Any, p0: Any, times: Any, pattern: Pattern) -> Any:
        p = np.array(pattern.probabilities(*_on_host(rates, p0, times)))
        return torch.from_numpy(p).to(rates.device, torch.promote_types(rates.dtype, p0.dtype))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        *tensors, ctx.pattern = inputs
        ctx.save_for_backward(*tensors, output)

    @staticmethod
    def backward(ctx: Any, values: Any) -> tuple[Any, ...]:
        rates, p0, times, p = ctx.saved_tensors
        found = _Adjoint.apply(values, p, rates, p0, times, ctx.pattern, ctx.needs_input_grad[2])
        return *(_summed(by, of.shape) for by, of in zip(found, (rates, p0, times), strict=True)), None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *given: Any) -> tuple[Any, int]:
        return _Transient.apply(*_mapped(in_dims, given[:3], (1, 1, 1)), given[3]), 0

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> NoReturn:
        raise InvalidInput(FORWARD)


class _Adjoint(torch.autograd.Function):  # type: ignore[misc]
    """Derivatives of Σ values · p by rates, p0 and times, for all leading axes.

    Its own derivatives are errors. Without it, second derivatives would be 0.
    """

    @staticmethod
    def forward(values: Any, p: Any, rates: Any, p0: Any, times: Any, pattern: Pattern, by_times: bool) -> Any:
        found = pattern.pulled_back(*_on_host(values, p, rates, p0, times), by_times=by_times)
        return tuple(torch.from_numpy(by).to(of) for by, of in zip(found, (rates, p0, times), strict=True))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *values: Any) -> NoReturn:
        raise InvalidInput(ONCE)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *given: Any) -> tuple[Any, tuple[int, ...]]:
        return _Adjoint.apply(*_mapped(in_dims, given[:5], (2, 2, 1, 1, 1)), *given[5:]), (0, 0, 0)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> NoReturn:
        raise InvalidInput(ONCE)


def _tensor(name: str, given: Any, *, whole: bool = False) -> Any:
    """Convert to a tensor of floating-point numbers; `whole` allows tensors of integers."""
    if isinstance(given, (list, tuple)) and any(torch.is_tensor(part) for part in given):
        raise InvalidInput(f"{name} is a list of tensors; give torch.stack({name}), which keeps derivatives")
    if not torch.is_tensor(given):
        return torch.tensor(_input.floats(name, given))
    if given.is_complex():
        raise InvalidInput(f"{name} holds {given.dtype}; give {name}.real if all imaginary parts are 0")
    if given.is_floating_point():
        return given
    if whole and given.dtype != torch.bool:
        return given.double()
    raise InvalidInput(f"{name} holds {given.dtype}: expected floating-point numbers; give {name}.double()")


def transient(
    rates: Any,
    rows: ArrayLike,
    columns: ArrayLike,
    p0: Any,
    times: Any,
    *,
    epsilon: float = 1e-9,
    device: str = "cpu",
) -> Any:
    """Compute probabilities of a chain as a differentiable operation of PyTorch.

    The computation is that of :func:`kolmo.transient`, in double precision. Gradients of
    first order by every rate, initial probability and time are available in reverse mode, also to
    ``torch.func.grad``, ``vjp`` and ``jacrev``. ``torch.vmap`` maps rates, initial probabilities
    and times, for example the initial states of the rows of a transition matrix. Bounds of the
    errors are not returned.

    Parameters
    ----------
    rates : Tensor of k numbers
        Rate of each transition, at least 0, in a floating-point type; float64 is recommended. An
        array or list is converted to float64.
    rows, columns : array_like of k int
        Source and target state of each transition.
    p0 : Tensor of n numbers
        Initial probabilities, in a floating-point type.
    times : float, array_like or Tensor
        Finite times. The derivative by the time 0 is that from the right.
    epsilon : float
        Requested bound on the sum of the errors of all probabilities at a time.
    device : str
        Where probabilities are computed, as for :func:`kolmo.transient`. Derivatives are computed
        on the CPU.

    Returns
    -------
    Tensor, (times, n)
        Probabilities: a row for each time. It is on the device of `rates`; its type is that of
        `rates` and `p0`, or the wider one.

    Raises
    ------
    InvalidInput
        Also for derivatives of second order, and in forward mode.
    OutOfMemory

    Warns
    -----
    BoundWarning
        If the bound of the probabilities exceeds `epsilon`, or that of derivatives exceeds
        `epsilon` times the sum of their absolute values or, if larger, the largest cotangent.
    """
    rates, p0, times = _tensor("rates", rates), _tensor("p0", p0), _tensor("times", times, whole=True)
    expect_shapes(rates, rows, p0, times)
    return _Transient.apply(rates, p0, times.reshape(-1), Pattern(rows, columns, p0.shape[0], epsilon, device))
