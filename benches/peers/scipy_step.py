#!/usr/bin/env python3
"""Compare SciPy's `csr @ x` followed by `pi += w*x` with kolmo's fused step on one chain.

usage: scipy_step.py [MODEL] [--kolmo PATH] [--repeat N]

Prints one JSON object per line with the keys of `kolmo bench`; SciPy's has "peer": "scipy". Needs
numpy and scipy. SciPy multiplies the transposed uniformized matrix P^T, including its diagonal.
"""
import argparse, json, os, statistics, subprocess, tempfile, time
import numpy as np, scipy.sparse as sp

p = argparse.ArgumentParser()
p.add_argument("model", nargs="?", default="wlan:113,6")
p.add_argument("--kolmo", default="target/release/kolmo")
p.add_argument("--repeat", type=int, default=10)
a = p.parse_args()

with tempfile.TemporaryDirectory() as tmp:
    report, rates = os.path.join(tmp, "r.json"), os.path.join(tmp, "rates.npz")
    subprocess.run([a.kolmo, "bench", "spmv", a.model, "--device", "cpu", "--repeat", str(a.repeat), "--report", report], check=True, stdout=subprocess.DEVNULL)
    ours = [json.loads(line) for line in open(report)]
    subprocess.run([a.kolmo, "generate", a.model, "-o", rates, "--quiet"], check=True)
    R = sp.load_npz(rates)
exits = np.asarray(R.sum(axis=1)).ravel()
n, alpha = R.shape[0], exits.max()
P = (R.T.tocsr() / alpha + sp.diags(1 - exits / alpha)).tocsr()
P.indices = P.indices.astype(np.int32)
del R
x, pi, w = np.full(n, 1 / n), np.zeros(n), 1e-4
seconds = []
for _ in range(a.repeat + 1):
    t = time.perf_counter()
    x = P @ x
    pi += w * x
    seconds.append(time.perf_counter() - t)
seconds = seconds[1:]
bytes_ = 12 * P.nnz + 32 * n
theirs = {"bench": "spmv", "peer": "scipy", "case": a.model, "device": "cpu", "backend": "cpu", "precision": "f64", "n": n, "nnz": P.nnz, "format": "csr",
          "lanes": 1, "accumulate": True, "bytes": bytes_, "bytes_moved": 12 * P.nnz + 8 * n + 48 * n,
          "seconds": {"min": min(seconds), "median": statistics.median(seconds)},
          "gb_per_s": bytes_ / statistics.median(seconds) / 1e9, "copy_gb_per_s": ours[0]["copy_gb_per_s"], "relative_error": 0.0, "repetitions": a.repeat}
for record in ours + [theirs]:
    print(json.dumps(record))
