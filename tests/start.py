#!/usr/bin/env python3
"""Phases of whole processes: medians of what reports say, and of what passed around it.

    python3 tests/start.py [--kolmo target/release/kolmo] [--runs 5] [--json FILE] DEVICE…

`around` is what passed before the report's clock began and after it ended: the process is loaded, and the driver lets go of
the device. Chains above --most-states are left out."""

import argparse
import json
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

CASES = [
    ("tandem:15 --time 10", 496),
    ("wlan:12,6 --time 10", 126_148),
    ("wlan:60,6 --time 10 --top 1", 3_119_044),
    ("wlan:204,6 --time 10 --top 1", 35_985_604),
    ("wlan:204,6 --time 10 -o OUT", 35_985_604),
    ("wlan:589,6 --time 1 --top 1", 299_824_564),
]
PHASES = ["load", "build", "upload", "solve", "download"]


def run(kolmo, arguments, device, folder):
    report, out = folder / "report.json", folder / "p.npy"
    words = [str(out) if word == "OUT" else word for word in arguments.split()]
    command = [kolmo, "transient", *words, "--device", device, "--quiet", "--report", report]
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    took = time.perf_counter() - began
    seconds = json.loads(report.read_text())["seconds"]
    return {"process": took, "around": took - seconds["total"], **{phase: seconds[phase] for phase in PHASES}}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kolmo", default="target/release/kolmo")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--most-states", type=float, default=4e7)
    parser.add_argument("--json", type=Path)
    parser.add_argument("devices", nargs="+")
    args = parser.parse_args()
    rows = []
    names = ["process", "around", *PHASES]
    print(f"{'case':36} {'device':8}", *(f"{name:>9}" for name in names))
    # Outputs go to memory where there is a file system for that.
    place = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=place) as folder:
        for case, states in CASES:
            for device in args.devices if states <= args.most_states else []:
                runs = [run(args.kolmo, case, device, Path(folder)) for _ in range(args.runs)]
                median = {name: statistics.median(run[name] for run in runs) for name in names}
                rows.append({"case": case, "device": device, "runs": runs, "median": median})
                print(f"{case:36} {device:8}", *(f"{median[name]:9.3f}" for name in names), flush=True)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
