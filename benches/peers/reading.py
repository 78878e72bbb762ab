#!/usr/bin/env python3
"""Measure how long kolmo takes to read a chain's file, compared with gunzip and Storm.

usage: reading.py FILE [--kolmo PATH ...] [--repeat N] [--cores N] [--time T]

Whole processes of kolmo are timed, from the file to the first matrix-vector products. Prints one
JSON object per line: medians of wall-clock and CPU seconds, megabytes of text per second, the
phases of kolmo's report, and the peak of memory.

Programs are run alternately. Several --kolmo are compared with each other. Storm needs
`pip install stormpy==1.14.0`, and reads .tra and .drn.
"""
import argparse, importlib.util, json, os, statistics, subprocess, sys, tempfile, time

p = argparse.ArgumentParser()
p.add_argument("file")
p.add_argument("--kolmo", action="append")
p.add_argument("--repeat", type=int, default=5)
p.add_argument("--cores", type=int, default=2)
p.add_argument("--time", default="1e-4", help="so short that the first products answer it")
a = p.parse_args()
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: a.cores])

STORM = """
import sys, time, stormpy
at, used = time.perf_counter(), time.process_time()
if sys.argv[1].endswith(".drn"):
    stormpy.build_model_from_drn(sys.argv[1])
else:
    stormpy.build_sparse_model_from_explicit(*sys.argv[1:3])
print(time.perf_counter() - at, time.process_time() - used)
"""


def run(command, **more):
    """Return wall-clock seconds, CPU seconds, peak memory in bytes, and the output."""
    at = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.PIPE, **more)
    printed = child.stdout.read()
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - at
    if child.returncode:
        sys.exit(f"{command} ends with {child.returncode}")
    return seconds, used.ru_utime + used.ru_stime, used.ru_maxrss << 10, printed


with tempfile.TemporaryDirectory() as tmp:
    # This process stays small: the peak of a child is at least that of its parent.
    packed = a.file.endswith(".gz")
    cat = ["gunzip" if packed else "cat", *(["-c"] if packed else []), a.file]
    shell = lambda rest: subprocess.run(["sh", "-c", '"$@" | ' + rest, "sh", *cat], check=True, stdout=subprocess.PIPE).stdout
    size, runs, storm = int(shell("wc -c")), {}, None
    report, tra, lab = (os.path.join(tmp, name) for name in ("r.json", "m.tra", "m.lab"))
    if importlib.util.find_spec("stormpy") and a.file.removesuffix(".gz").endswith(".tra"):
        # Storm's format: a type hint instead of comments and counts, and no names of actions.
        shell(f"""awk 'BEGIN {{ print "ctmc" }} !/^#/ && NF > 2 {{ print $1, $2, $3 }}' >{tra}""")
        open(lab, "w").write("#DECLARATION\ninit\n#END\n0 init\n")
        storm = [tra, lab]
    elif importlib.util.find_spec("stormpy") and a.file.endswith(".drn"):
        storm = [a.file]
    for _ in range(a.repeat):
        for kolmo in a.kolmo or ["target/release/kolmo"]:
            line = [kolmo, "transient", a.file, "--time", a.time, "--top", "1", "--device", "cpu", "--quiet", "--report", report]
            runs.setdefault(kolmo, []).append((*run(line)[:3], json.load(open(report))["seconds"]))
        if packed:
            runs.setdefault("gunzip", []).append((*run(["sh", "-c", 'gunzip -c "$0" >/dev/null', a.file])[:3], {}))
        if storm:
            _, _, peak, printed = run([sys.executable, "-c", STORM, *storm], stderr=subprocess.DEVNULL)
            runs.setdefault("storm", []).append((*map(float, printed.split()[-2:]), peak, {}))
for name, found in runs.items():
    seconds, cpu_seconds = (statistics.median(run[k] for run in found) for k in (0, 1))
    phases = {phase: statistics.median(run[3][phase] for run in found) for phase in found[0][3]}
    print(json.dumps({"bench": "reading", "program": name, "file": a.file, "bytes": size, "seconds": seconds, "cpu_seconds": cpu_seconds,
                      "mb_per_s": size / seconds / 1e6, "phases": phases, "peak_bytes": max(run[2] for run in found), "cores": a.cores, "repetitions": a.repeat}))
