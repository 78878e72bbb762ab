#!/usr/bin/env python3
"""Print the phases of whole processes: medians from reports, and the time outside of them.

    python3 tests/start.py [--kolmo target/release/kolmo] [--runs 5] [--json FILE] DEVICE…
    python3 tests/start.py --read MODEL.tra[.gz] DEVICE…

`around` is the time before and after that of the report: loading the process, and closing the
device in the driver. `peak` is the peak memory of the process in MB. Chains above --most-states
are skipped.

--read measures a file with a time so short that one product suffices. It also prints `gunzip` to
/dev/null, and Storm's build_sparse_model_from_explicit if the module stormpy is installed and the
text is in Storm's form (`ctmc`, then triples)."""

import argparse
import gzip
import json
import os
import statistics
import subprocess
import sys
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
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    took = time.perf_counter() - began
    if status:
        raise SystemExit(f"{command} ended with {status}")
    seconds = json.loads(report.read_text())["seconds"]
    phases = {phase: seconds[phase] for phase in PHASES}
    # Linux reports KiB.
    return {"process": took, "around": took - seconds["total"], **phases, "peak": usage.ru_maxrss * 1024 / 1e6}


def timed(command):
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


# Measured inside of the process, since the modules of Storm take seconds to load.
STORM = """
import sys, time, stormpy
began = time.perf_counter()
stormpy.build_sparse_model_from_explicit(*sys.argv[1:])
print(time.perf_counter() - began)
"""


def by_storm(path, folder):
    """Returns the seconds in which Storm reads a text; None without Storm or in another form."""
    packed = path.suffix == ".gz"
    with gzip.open(path) if packed else path.open("rb") as text:
        begins = text.readline()
    if packed or begins.strip() != b"ctmc":
        return None
    labels = folder / "storm.lab"
    labels.write_text("#DECLARATION\ninit\n#END\n0 init\n")
    run = subprocess.run([sys.executable, "-c", STORM, path, labels], capture_output=True, text=True)
    if run.returncode:
        print(run.stderr.strip().splitlines()[-1])
        return None
    return float(run.stdout.splitlines()[-1])


def read(args, path, folder):
    """Prints the times from a file to its first product, and those of the other programs."""
    packed = path.suffix == ".gz"
    if packed:
        with gzip.open(path) as text:
            size = sum(len(piece) for piece in iter(lambda: text.read(1 << 20), b""))
    else:
        size = path.stat().st_size
    for device in args.devices:
        own, gunzip, storm = [], [], []
        for _ in range(args.runs):
            own.append(run(args.kolmo, f"{path} --time 1e-12 --top 1", device, folder))
            if packed:
                gunzip.append(timed(["gunzip", "-c", path]))
            storm.append(by_storm(path, folder))
        median = {name: statistics.median(run[name] for run in own) for name in own[0]}
        took = median["process"]
        print(f"{path.name:24} {device:8}", *(f"{name} {value:.3f}" for name, value in median.items()))
        print(f"    {size / took / 1e6:.0f} MB/s of text; least {min(run['process'] for run in own):.3f} s")
        if packed:
            beside = statistics.median(gunzip)
            print(f"    gunzip {beside:.3f} s, least {min(gunzip):.3f}; over it {took / beside:.2f}")
        if all(storm):
            beside = statistics.median(storm)
            print(f"    Storm {beside:.3f} s, least {min(storm):.3f}: {beside / took:.1f} x", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kolmo", default="target/release/kolmo")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--most-states", type=float, default=4e7)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--read", type=Path, action="append")
    parser.add_argument("devices", nargs="+")
    args = parser.parse_args()
    # Outputs are in memory if there is a file system for it.
    place = "/dev/shm" if Path("/dev/shm").is_dir() else None
    if args.read:
        with tempfile.TemporaryDirectory(dir=place) as folder:
            for path in args.read:
                read(args, path, Path(folder))
        return
    rows = []
    names = ["process", "around", *PHASES, "peak"]
    print(f"{'case':36} {'device':8}", *(f"{name:>9}" for name in names))
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
