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
    device: str | None = None,
    bound: bool = False,
    gradient_bound: Any = None,
) -> Any:
    """Compute probabilities of a chain as a differentiable operation of JAX.

    The computation is that of :func:`kolmo.transient`, in double precision, also under
    ``jax.jit`` and ``jax.vmap``. The result has double precision if ``jax_enable_x64`` is set.
    Gradients of first order by every rate, initial probability and time are available in reverse
    mode (``jax.grad``, ``vjp``, ``jacrev``).

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
    device : str, optional
        Where probabilities and derivatives are computed, as for :func:`kolmo.transient`. Of several
        devices, the first one computes the derivatives. Default: the CUDA device of at least 50,000
        rates of one chain in double precision, outside of ``jax.jit``; else the CPU. On their own
        device, rates and the derivatives by them are not copied to the host, except for runs that
        may end early, if memory does not suffice, and for derivatives by times.
    bound : bool
        True also returns the bounds of the probabilities.
    gradient_bound : Array of 2 numbers, optional
        Two zeros, an argument of the differentiated function. Their derivatives become bounds of
        errors: of each derivative by a rate, and of each one by an initial probability. Those of
        several calls add up, as the derivatives do.

    Returns
    -------
    p : Array, (times, n)
        Probabilities: a row for each time. Its type is that of `rates` and `p0`, or the wider one.
    bound : Array, (times,)
        If requested: bound of the sum of the errors of each row before it is rounded to its type.
        It is not differentiable.

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

    Notes
    -----
    The two newest pairs of `rows` and `columns` stay in memory, which makes later calls faster. Two
    matrices stay, too: on a GPU, and on the CPU for 50,000 rates or more that mostly differ.
    """
    rates, p0 = _array("rates", rates), _array("p0", p0)
    # Concrete times are constants, and keep double precision without jax_enable_x64.
    moving = _is_traced(times)
    if moving:
        times = _array("times", times)
    else:
        times = _input.floats("times", np.asarray(times) if isinstance(times, jax.Array) else times)
    error = _array("gradient_bound", np.zeros(2) if gradient_bound is None else gradient_bound)
    expect_shapes(rates, rows, p0, times, error)

    def on_host_of(array: Any) -> Any:
        return np.asarray(array, dtype=np.float64)

    pattern, times = Pattern(rows, columns, p0.shape[0], epsilon, device, on_host_of), times.reshape(-1)
    given = (rates, p0, times, error) if moving else (rates, p0, error)
    of_given = tuple(jax.ShapeDtypeStruct(array.shape, array.dtype) for array in given)
    of_p = jax.ShapeDtypeStruct((times.shape[0], pattern.n), jnp.promote_types(rates.dtype, p0.dtype))
    of_bound = jax.ShapeDtypeStruct(times.shape, jnp.result_type(float))

    def split(arrays: Any) -> Any:
        """Return rates, p0 and times; `error` has no effect on values."""
        return arrays[:3] if moving else (*arrays[:2], times)

    def call(work: Any, shapes: Any, *arrays: Any) -> Any:
        # Rates follow the values and probabilities of derivatives.
        place = len(arrays) - len(given)

        def on_host(*held: Any) -> Any:
            converted = (array if k == place else on_host_of(array) for k, array in enumerate(held))
            *values, bounds = work(*converted)
            # Without double precision, bounds are rounded up.
            kind = shapes[-1].dtype
            above = bounds if kind == np.float64 else np.nextafter(bounds.astype(kind), np.inf, dtype=kind)
            return *(array.astype(shape.dtype) for shape, array in zip(shapes, values, strict=False)), above

        # Without tracers, exceptions of kolmo keep their type.
        if not any(map(_is_traced, arrays)):
            return jax.tree.map(jnp.asarray, on_host(*arrays))
        return jax.pure_callback(on_host, shapes, *arrays, vmap_method="expand_dims")

    # Their own derivatives are errors.
    @jax.custom_jvp  # type: ignore[untyped-decorator]
    def probabilities(*given: Any) -> Any:
        return call(lambda *arrays: pattern.probabilities(*split(arrays)), (of_p, of_bound), *given)

    @jax.custom_jvp  # type: ignore[untyped-decorator]
    def pulled_back(values: Any, p: Any, *given: Any) -> Any:
        def work(values: Any, p: Any, *arrays: Any) -> Any:
            found = pattern.pulled_back(values, p, *split(arrays), by_times=moving)
            return found if moving else (*found[:2], found[3])

        return call(work, of_given, values, p, *given)

    def refused(*_: Any) -> NoReturn:
        raise InvalidInput(ONCE)

    probabilities.defjvp(refused)
    pulled_back.defjvp(refused)

    def forward(*given: Any) -> Any:
        found = probabilities(*given)
        return found, (found[0], *given)

    solve = jax.custom_vjp(lambda *given: probabilities(*given))
    solve.defvjp(forward, lambda kept, values: pulled_back(values[0], *kept))
    try:
        found = solve(*given)
        return (found[0], jax.lax.stop_gradient(found[1])) if bound else found[0]
    except TypeError as error:
        if "forward-mode" in str(error):
            raise InvalidInput(FORWARD) from error
        raise
