"""Run `kolmo walk` on every matrix of a folder, to 1e-6 of the largest unknown, with b = 1.

    python -m venv v && v/bin/pip install numpy
    v/bin/python benches/walk_matrices.py target/release/kolmo FOLDER [--seconds 2]

Three components of each are estimated. A matrix NAME.mtx has its solution in NAME.x.npy. Prints a
table: number of unknowns; the norm of L, or `refused` without a certificate of convergence; seconds
of the command and of its walks; largest half-width and error, relative to the largest unknown. The
exit code is 1 if a matrix with a certificate takes longer than --seconds, misses its bound, or has an
error above its half-width.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np


def measure(kolmo, path, folder):
    x = np.load(path.with_suffix("").with_suffix(".x.npy"))
    n, size = len(x), float(np.abs(x).max())
    components = sorted({0, n // 2, n - 1})
    report = folder / "r.json"
    line = [kolmo, "walk", path, "--component", ",".join(map(str, components)), "--epsilon", repr(1e-6 * size)]
    line += ["--device", "cpu", "--quiet", "--report", report]
    started = time.perf_counter()
    run = subprocess.run([str(word) for word in line], capture_output=True, text=True)
    seconds = time.perf_counter() - started
    if run.returncode == 2 and "random walks" in run.stderr:
        return {"n": n, "gate": False, "seconds": seconds, "why": run.stderr.strip()}
    if run.returncode not in (0, 1):
        sys.exit(f"{path}: {run.stderr}")
    r = json.loads(report.read_text())
    all = [(c["half_width"] / size, abs(c["estimate"] - x[c["component"]]) / size) for c in r["components"]]
    inside = max(error - half for half, error in all) <= 0.0
    return {
        "n": n, "gate": True, "seconds": seconds, "parts": r["seconds"], "norm": r["norm"], "status": r["status"], "inside": inside,
        "half_width": max(half for half, _ in all), "error": max(error for _, error in all), "products": r["krylov_products"],
    }


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("kolmo")
    p.add_argument("folder", type=pathlib.Path)
    p.add_argument("--seconds", type=float, default=2.0, help="that a matrix may take")
    a = p.parse_args()
    missed = []
    print(f"{'matrix':16}{'n':>7}  {'gate':8}{'seconds':>8}{'walks':>8}{'half width':>12}{'error':>10}  status")
    with tempfile.TemporaryDirectory() as folder:
        for path in sorted(a.folder.glob("*.mtx")):
            m = measure(a.kolmo, path, pathlib.Path(folder))
            name = path.stem
            if not m["gate"]:
                print(f"{name:16}{m['n']:7}  {'refused':8}{m['seconds']:8.2f}  {m['why'][:100]}")
                continue
            status = m["status"] + ("" if m["inside"] else ", outside of its interval")
            print(
                f"{name:16}{m['n']:7}  {m['norm']:<8.6f}{m['seconds']:8.2f}{m['parts']['solve']:8.2f}{m['half_width']:12.1e}"
                f"{m['error']:10.1e}  {status}, {m['products']} products"
            )
            if m["seconds"] > a.seconds or m["status"] != "met" or not m["inside"]:
                missed.append(name)
    print("missed: " + ", ".join(missed) if missed else f"all within {a.seconds:g} s")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
