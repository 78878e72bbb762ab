"""Transient probabilities with gradients for JAX."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ._gradient import Pattern

__all__ = ["transient"]

# Types are checked with and without JAX.
jax: Any = importlib.import_module("jax")
jnp: Any = importlib.import_module("jax.numpy")


def transient(
    rates: Any, rows: ArrayLike, columns: ArrayLike, p0: Any, times: ArrayLike, *, epsilon: float = 1e-9
) -> Any:
    """Compute probabilities of a chain as a differentiable operation of JAX.

    The computation is that of :func:`kolmo.transient` on the CPU, in double precision, also under
    ``jax.jit``. The result has double precision if ``jax_enable_x64`` is set. Gradients by every
    rate and every initial probability are available in reverse mode. Bounds of the errors are not
    returned.

    Parameters
    ----------
    rates : Array of k numbers
        Rate of each transition, at least 0.
    rows, columns : array_like of k int
        Source and target state of each transition; concrete values, not tracers.
    p0 : Array of n numbers
        Initial probabilities.
    times : float or array_like
        Finite times; concrete values, not tracers.
    epsilon : float
        Requested bound on the sum of the errors of all probabilities at a time.

    Returns
    -------
    Array, (times, n)
        Probabilities: a row for each time.

    Raises
    ------
    InvalidInput, OutOfMemory
    """
    rates, p0 = jnp.asarray(rates), jnp.asarray(p0)
    pattern = Pattern(rows, columns, p0.size, times, epsilon)
    of_rates, of_p0 = (jax.ShapeDtypeStruct(a.shape, jnp.result_type(a, jnp.float32)) for a in (rates, p0))
    of_p = jax.ShapeDtypeStruct((len(pattern.times), pattern.n), of_rates.dtype)

    def call(work: Any, shapes: Any, *arrays: Any) -> Any:
        def on_host(*held: Any) -> Any:
            made = work(*(np.asarray(array, dtype=np.float64) for array in held))
            return jax.tree.map(lambda shape, array: array.astype(shape.dtype), shapes, made)

        return jax.pure_callback(on_host, shapes, *arrays, vmap_method="sequential")

    @jax.custom_vjp  # type: ignore[untyped-decorator]
    def solve(rates: Any, p0: Any) -> Any:
        return call(pattern.probabilities, of_p, rates, p0)

    def backward(kept: Any, values: Any) -> Any:
        return call(pattern.pulled_back, (of_rates, of_p0), *kept, values)

    solve.defvjp(lambda rates, p0: (solve(rates, p0), (rates, p0)), backward)
    return solve(rates, p0)
