"""Transient probabilities with gradients for PyTorch."""

from __future__ import annotations

import contextlib
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


def _on_device(rates: Any) -> Any:
    """Make a context in which PyTorch exports these rates."""
    return torch.cuda.device(rates.device) if rates.is_cuda else contextlib.nullcontext()


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
    """Probabilities (..., m, n) of rates (..., k), p0 (..., n) and times (..., m), and bounds (..., m).

    The derivatives by `gradient_bound` are bounds (..., 2) of the derivatives by rates and p0.
    """

    @staticmethod
    def forward(rates: Any, p0: Any, times: Any, gradient_bound: Any, pattern: Pattern) -> Any:
        with _on_device(rates):
            p, bound = map(np.array, pattern.probabilities(rates.detach().double().contiguous(), *_on_host(p0, times)))
        made = torch.from_numpy(p).to(rates.device, torch.promote_types(rates.dtype, p0.dtype))
        return made, torch.from_numpy(bound).to(rates.device)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        *tensors, ctx.pattern = inputs
        p, bound = output
        ctx.mark_non_differentiable(bound)
        ctx.save_for_backward(*tensors, p)

    @staticmethod
    def backward(ctx: Any, values: Any, _: Any) -> tuple[Any, ...]:
        *given, p = ctx.saved_tensors
        found = _Adjoint.apply(values, p, *given, ctx.pattern, ctx.needs_input_grad[2])
        return *(_summed(by, of.shape) for by, of in zip(found, given, strict=True)), None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *given: Any) -> tuple[Any, tuple[int, int]]:
        if in_dims[:3] == (None, None, None):
            # The bounds alone are mapped.
            given, in_dims = (given[0].expand(info.batch_size, -1), *given[1:]), (0, *in_dims[1:])
        return _Transient.apply(*_mapped(in_dims, given[:4], (1, 1, 1, 1)), given[4]), (0, 0)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> NoReturn:
        raise InvalidInput(FORWARD)


class _Adjoint(torch.autograd.Function):  # type: ignore[misc]
    """Derivatives of Σ values · p by rates, p0 and times, and their bounds, for all leading axes.

    Its own derivatives are errors. Without it, second derivatives would be 0.
    """

    @staticmethod
    def forward(
        values: Any, p: Any, rates: Any, p0: Any, times: Any, gradient_bound: Any, pattern: Pattern, by_times: bool
    ) -> Any:
        held, (values, p, *others) = rates.detach().double().contiguous(), _on_host(values, p, p0, times)
        with _on_device(rates):
            found, like = pattern.pulled_back(values, p, held, *others, by_times=by_times), (rates, p0, times, gradient_bound)
        return tuple(torch.as_tensor(by).to(of) for by, of in zip(found, like, strict=True))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *values: Any) -> NoReturn:
        raise InvalidInput(ONCE)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *given: Any) -> tuple[Any, tuple[int, ...]]:
        return _Adjoint.apply(*_mapped(in_dims, given[:6], (2, 2, 1, 1, 1, 1)), *given[6:]), (0, 0, 0, 0)

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
    device: str | None = None,
    bound: bool = False,
    gradient_bound: Any = None,
) -> Any:
    """Compute probabilities of a chain as a differentiable operation of PyTorch.

    The computation is that of :func:`kolmo.transient`, in double precision. Gradients of
    first order by every rate, initial probability and time are available in reverse mode, also to
    ``torch.func.grad``, ``vjp`` and ``jacrev``. ``torch.vmap`` maps rates, initial probabilities
    and times, for example the initial states of the rows of a transition matrix.

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
    device : str, optional
        Where probabilities and derivatives are computed, as for :func:`kolmo.transient`. Of several
        devices, the first one computes the derivatives. Default: the CUDA device of at least 50,000
        rates of one chain, else the CPU. On their own device, rates and the derivatives by them
        are not copied to the host, except for runs that may end early, if memory does not suffice,
        and for derivatives by times.
    bound : bool
        True also returns the bounds of the probabilities.
    gradient_bound : Tensor of 2 numbers, optional
        Two zeros of float64 with ``requires_grad=True``. Their derivatives become bounds of errors:
        of each derivative by a rate, and of each one by an initial probability. Those of several
        calls and several backward passes add up, as the derivatives do.

    Returns
    -------
    p : Tensor, (times, n)
        Probabilities: a row for each time. It is on the device of `rates`; its type is that of
        `rates` and `p0`, or the wider one.
    bound : Tensor, (times,)
        If requested: bound of the sum of the errors of each row before it is rounded to its type,
        in float64. It is not differentiable.

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

    Notes
    -----
    The two newest pairs of `rows` and `columns` stay in memory, which makes later calls faster. Two
    matrices stay, too: on a GPU, and on the CPU for 50,000 rates or more that mostly differ.
    """
    rates, p0, times = _tensor("rates", rates), _tensor("p0", p0), _tensor("times", times, whole=True)
    error = _tensor("gradient_bound", np.zeros(2) if gradient_bound is None else gradient_bound)
    expect_shapes(rates, rows, p0, times, error)
    pattern = Pattern(rows, columns, p0.shape[0], epsilon, device, lambda held: _on_host(held)[0])
    found = _Transient.apply(rates, p0, times.reshape(-1), error, pattern)
    return found if bound else found[0]
