"""Transient probabilities with gradients for JAX."""

from __future__ import annotations

import importlib
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike

from . import _input
from ._gradient import FORWARD, ONCE, Pattern, expect_shapes
from .errors import InvalidInput

__all__ = ["transient"]

# Types are checked with and without JAX.
jax: Any = importlib.import_module("jax")
jnp: Any = importlib.import_module("jax.numpy")


def _array(name: str, given: Any) -> Any:
    """Convert to an array of floating-point numbers, as functions of JAX do."""
    array = jnp.asarray(given)
    if jnp.iscomplexobj(array):
        raise InvalidInput(f"{name} holds {array.dtype}; give {name}.real if all imaginary parts are 0")
    return array.astype(jnp.result_type(array, 1.0))


def _is_traced(array: Any) -> bool:
    return isinstance(array, jax.core.Tracer)


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
    """Compute probabilities of a chain as a differentiable operation of JAX.

    The computation is that of :func:`kolmo.transient`, in double precision, also under
    ``jax.jit`` and ``jax.vmap``. The result has double precision if ``jax_enable_x64`` is set.
    Gradients of first order by every rate, initial probability and time are available in reverse
    mode (``jax.grad``, ``vjp``, ``jacrev``). Bounds of the errors are not returned.

    Parameters
    ----------
    rates : Array of k numbers
        Rate of each transition, at least 0. Integers are converted to floating-point numbers.
    rows, columns : array_like of k int
        Source and target state of each transition; concrete values, not tracers.
    p0 : Array of n numbers
        Initial probabilities.
    times : float, array_like or Array
        Finite times. The derivative by the time 0 is that from the right.
    epsilon : float
        Requested bound on the sum of the errors of all probabilities at a time.
    device : str
        Where probabilities are computed, as for :func:`kolmo.transient`. Derivatives are computed
        on the CPU.

    Returns
    -------
    Array, (times, n)
        Probabilities: a row for each time. Its type is that of `rates` and `p0`, or the wider one.

    Raises
    ------
    InvalidInput
        Also for derivatives of second order, and in forward mode. Under ``jax.jit``, invalid
        numbers raise JAX's JaxRuntimeError, with the message of InvalidInput.
    OutOfMemory

    Warns
    -----
    BoundWarning
        If the bound of the probabilities exceeds `epsilon`, or that of derivatives exceeds
        `epsilon` times the sum of their absolute values or, if larger, the largest cotangent.
    """
    rates, p0 = _array("rates", rates), _array("p0", p0)
    # Concrete times are constants, and keep double precision without jax_enable_x64.
    moving = _is_traced(times)
    times = _array("times", times) if moving else _input.floats("times", times)
    expect_shapes(rates, rows, p0, times)
    pattern, times = Pattern(rows, columns, p0.shape[0], epsilon, device), times.reshape(-1)
    given = (rates, p0, times) if moving else (rates, p0)
    fixed = () if moving else (times,)
    of_given = tuple(jax.ShapeDtypeStruct(array.shape, array.dtype) for array in given)
    of_p = jax.ShapeDtypeStruct((times.shape[0], pattern.n), jnp.promote_types(rates.dtype, p0.dtype))

    def call(work: Any, shapes: Any, *arrays: Any) -> Any:
        def on_host(*held: Any) -> Any:
            made = work(*(np.asarray(array, dtype=np.float64) for array in held))
            return jax.tree.map(lambda shape, array: array.astype(shape.dtype), shapes, made)

        # Without tracers, exceptions of kolmo keep their type.
        if not any(map(_is_traced, arrays)):
            return jax.tree.map(jnp.asarray, on_host(*arrays))
        return jax.pure_callback(on_host, shapes, *arrays, vmap_method="expand_dims")

    # Their own derivatives are errors.
    @jax.custom_jvp  # type: ignore[untyped-decorator]
    def probabilities(*given: Any) -> Any:
        return call(lambda *arrays: pattern.probabilities(*arrays, *fixed), of_p, *given)

    @jax.custom_jvp  # type: ignore[untyped-decorator]
    def pulled_back(values: Any, p: Any, *given: Any) -> Any:
        def work(*arrays: Any) -> Any:
            return pattern.pulled_back(*arrays, *fixed, by_times=moving)[: len(given)]

        return call(work, of_given, values, p, *given)

    def refused(*_: Any) -> NoReturn:
        raise InvalidInput(ONCE)

    probabilities.defjvp(refused)
    pulled_back.defjvp(refused)

    def forward(*given: Any) -> Any:
        p = probabilities(*given)
        return p, (p, *given)

    solve = jax.custom_vjp(lambda *given: probabilities(*given))
    solve.defvjp(forward, lambda kept, values: pulled_back(values, *kept))
    try:
        return solve(*given)
    except TypeError as error:
        if "forward-mode" in str(error):
            raise InvalidInput(FORWARD) from error
        raise
