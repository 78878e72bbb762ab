"""Tests an installed wheel in seconds, on the CPU: smoke.py [DEVICE]

Also on DEVICE, which is required, or without one on the first usable adapter.
"""

import sys

import numpy as np

import kolmo

Q = np.array([[-0.02, 0.02, 0.0], [0.25, -0.26, 0.01], [0.0, 0.25, -0.25]])
usable = [d["spec"] for d in kolmo.devices() if d["unusable"] is None and d["spec"].startswith("wgpu")]
for device, epsilon in [("cpu", 1e-10)] + [(spec, 1e-3) for spec in sys.argv[1:] or usable[:1]]:
    r = kolmo.transient(Q, times=[100], device=device, epsilon=epsilon)
    assert r.status == "met" and r.bound[0] <= epsilon, r
    # From a matrix exponential with many digits.
    assert abs(r.p[0, 2] - 0.00295420974452278) <= r.bound[0], r
    print(r)
x = kolmo.solve_tridiagonal(np.full(9, -1.0), np.full(10, 4.0), np.full(9, -1.0), np.full(10, 2.0))
assert abs(x[5] - 1.0) < 1e-2, x
