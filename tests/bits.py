#!/usr/bin/env python3
"""Print hashes of the output of some hundred commands, to check that a change moves no bit.

usage: bits.py [--kolmo PATH] [--devices cpu,wgpu:0] [--mpirun] > FILE

Run it before and after a change, and compare the files. A line has the first 16 digits of a SHA-256
of stdout, the exit code and `out.csv`, then the command. Needs only the standard library.
"""
import argparse, hashlib, os, shutil, subprocess, sys, tempfile

p = argparse.ArgumentParser()
p.add_argument("--kolmo", default="target/release/kolmo")
p.add_argument("--devices", default="cpu,wgpu:0", help="devices that commands are run on, each by itself")
p.add_argument("--mpirun", action="store_true", help="ranks, too; kolmo must be built with the feature mpi")
a = p.parse_args()
kolmo = os.path.abspath(a.kolmo)

commands = []


def both(line, devices=None):
    for device in devices or a.devices.split(","):
        commands.append(f"{line} --device {device}")


# Chains: formats, precisions, lanes, methods, times, selections.
for precision in ("f64", "f32"):
    for form in ("hyb", "packed", "pattern", "auto"):
        both(f"transient wlan:6,4 --time 0.5,3 --matrix-format {form} --precision {precision} -o out.csv")
        commands.append(f"transient wlan:6,4 --time 2 --matrix-format {form} --precision {precision} --device cpu,cpu -o out.csv")
    for method in ("sweep", "uniformization"):
        both(f"transient tandem:12 --time 0,1,7 --method {method} --precision {precision} -o out.csv")
    both(f"transient birth-death:5000,1,1.1 --time inf --epsilon 1e-3 --precision {precision} -o out.csv")
    both(f"transient tandem:30 --time 40 --precision {precision} --checked -o out.csv")
    both(f"transient tandem:8 --times 0:0.25:4 --top 5 --precision {precision}")
for form in ("hyb", "packed", "pattern"):
    both(f"transient wlan:6,4 --time 0.5,3 --matrix-format {form} --precision q64 -o out.csv", ["cpu"])
commands.append("transient tandem:40 --time 2 --device cpu,cpu -o out.csv")
both("transient wlan:3,3 --time 2 --matrix-format hyb -o out.csv")
for lanes in ("cpu,cpu", "cpu,cpu,cpu", "wgpu:0,wgpu:0", "cpu,wgpu:0"):
    if all(l in a.devices for l in lanes.split(",")):
        for rest in ("", " --halo-depth 3"):
            commands.append(f"transient wlan:8,4 --time 1{rest} --device {lanes} -o out.csv")
both("transient wlan:8,4 --time 1e6 --epsilon 1e-4 --top 3")
both("transient wlan:2,2 --time 1,2,4,8,16 --states 0,5-9")

# Walks: sequences, precisions, row orders, sweeps, right-hand sides, functionals.
for sequence in ("sobol", "philox"):
    for precision in ("f64", "f32"):
        both(f"walk poisson2d:12,0.9 --component 3,77 --sequence {sequence} --chains 4096 --precision {precision}")
for rest in ("--scramble none", "--sweeps 0", "--sweeps 4", "--splitting scaled-jacobi", "--replicates 4",
             "--length 30"):
    both(f"walk random-dominant:300,6,0.8,signed --component 0,9-11 --chains 8192 --seed 5 {rest}")
commands.append("walk poisson3d:8,0.95 --component 100 --epsilon 1e-4 --device cpu,cpu")
for rest in ("", "--component 3 --precision f32", "--control krylov --epsilon 1e-9", "--control none --chains 4096"):
    both(f"walk poisson2d:12,0.9 --functional h.txt {rest}")

# PageRank: iterates in f32 and f64, from all nodes and from seeds.
for model in ("rmat:10,8", "barabasi:2000,4"):
    for rest in ("--relative 1e-4", "--relative 1e-9", "--undirected", "--seeds 5,17", "--epsilon 1e-9",
                 "--component 5,17 --epsilon 1e-3 --seeds 0 --undirected"):
        commands.append(f"walk {model} --pagerank 0.85 --top 20 {rest} --device cpu")

# Tridiagonal systems: sizes near tiles and blocks, pivoting, cyclic, batches, refinement.
for n in (1, 2, 7, 127, 128, 129, 2048, 5001, 100000):
    both(f"tridiagonal random:{n} -o out.csv")
for rest in ("--precision f32", "--pivot scaled", "--pivot none --refine 0", "--cyclic", "--lanes 3", "--refine 2"):
    both(f"tridiagonal random:20011 {rest} -o out.csv")
both("tridiagonal laplace:4096 -o out.csv")
both("tridiagonal toeplitz:3000,-1,2.5,-1 -o out.csv")
both("tridiagonal random:200,16 -o out.csv")
commands.append("tridiagonal random:300001 --device cpu,cpu -o out.csv")

if a.mpirun:
    for count in (2, 3):
        for line in ("transient wlan:9,4 --time 1 -o out.csv", "tridiagonal random:50000 -o out.csv",
                     "walk poisson2d:12,0.9 --component 3,77 --chains 4096"):
            commands.append(f"mpirun {count}: {line} --device cpu")

for line in commands:
    count, _, rest = line.partition(": ") if line.startswith("mpirun") else ("", "", line)
    words = [kolmo, *rest.split(), "--quiet"]
    # An explicit epsilon, so that no hash depends on its default.
    if rest.startswith("transient") and "--epsilon" not in rest:
        words += ["--epsilon", "1e-6"]
    if count:
        words = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", count.split()[1], *words]
    folder = tempfile.mkdtemp()
    if "h.txt" in words:
        # A third of the unknowns, with either sign.
        with open(os.path.join(folder, "h.txt"), "w") as file:
            file.writelines(f"{0.5 * (i % 7) - 1 if i % 3 == 0 else 0}\n" for i in range(144))
    ran = subprocess.run(words, cwd=folder, capture_output=True)
    digest = hashlib.sha256(ran.stdout + bytes([ran.returncode & 255]))
    if os.path.exists(out := os.path.join(folder, "out.csv")):
        digest.update(open(out, "rb").read())
    shutil.rmtree(folder)
    print(digest.hexdigest()[:16], f"exit {ran.returncode}", line)
    if ran.returncode == 2:
        print(f"{line}: {ran.stderr.decode().strip()}", file=sys.stderr)
print(f"{len(commands)} commands", file=sys.stderr)
