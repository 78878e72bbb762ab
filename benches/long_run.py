"""Compares long-run questions of kolmo with Storm, and kolmo with closed forms.

    python3 long_run.py KOLMO MODELS [RUNS]

KOLMO is the command kolmo. MODELS is a folder with the models of the Quantitative Verification
Benchmark Set (cluster/cluster.prism, …). Each time is the median of RUNS whole commands (default
5), with parsing and building. Storm is measured on the smaller models if stormpy is installed.
"""

import csv
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

STORM = """
import sys, stormpy
program = stormpy.parse_prism_program(sys.argv[1], True)
formulas = stormpy.parse_properties(sys.argv[2], program)
program, formulas = stormpy.preprocess_symbolic_input(program, formulas, sys.argv[3])
model = stormpy.build_model(program.as_prism_program(), formulas)
found = stormpy.model_checking(model, formulas[0])
print(repr(found.at(model.initial_states[0])))
"""

MODELS = [
    ("cluster", 'S=? [ "premium" ]', "N=64"),
    ("tandem", 'R{"customers"}=? [ S ]', "c=255"),
    ("kanban", 'R{"throughput"}=? [ S ]', "t=3"),
    ("mapk_cascade", 'R{"time"}=? [ F kpp=3 ]', "N=3"),
    ("polling/polling.12", "S=? [ s1=1 & !(s=1 & a=1) ]", ""),
    ("fms", 'R{"productivity"}=? [ S ]', "n=4"),
    ("embedded", "S=? [ m=0 ]", "MAX_COUNT=2"),
    ("embedded", "S=? [ m=0 ]", "MAX_COUNT=4"),
    ("network", 'R{"first"}=? [ S ]', "N=60"),
    ("network", 'R{"first"}=? [ S ]', "N=100"),
]

# Storm takes minutes for most of these.
LARGE = [
    ("tandem", 'R{"customers"}=? [ S ]', "c=127"),
    ("tandem", 'R{"customers"}=? [ S ]', "c=511"),
    ("tandem", 'R{"customers"}=? [ S ]', "c=1023"),
    ("cluster", 'S=? [ "premium" ]', "N=256"),
    ("kanban", 'R{"throughput"}=? [ S ]', "t=5"),
]

# Closed network of four stations with N customers; the last one has N - a - b - c of them.
NETWORK = "ctmc const int N; module network a : [0..N] init N; b : [0..N]; c : [0..N];"
NETWORK += " [] a>0 & b<N -> 1.5 : (a'=a-1)&(b'=b+1); [] a>0 & c<N -> 0.9 : (a'=a-1)&(c'=c+1);"
NETWORK += " [] a>0 -> 0.6 : (a'=a-1); [] b>0 & a<N -> 2 : (b'=b-1)&(a'=a+1);"
NETWORK += " [] c>0 & a<N -> 1.05 : (c'=c-1)&(a'=a+1); [] c>0 -> 0.45 : (c'=c-1);"
NETWORK += " [] a+b+c<N & a<N -> 1.1 : (a'=a+1); endmodule"
NETWORK += ' rewards "first" true : a; endrewards'

QUEUE = "ctmc const int K; module queue n : [0..K]; [] n<K -> 0.999 : (n'=n+1);"
QUEUE += " [] n>0 -> 1 : (n'=n-1); endmodule"
QUEUE += ' rewards "length" true : n; endrewards'
GAME = "ctmc const int N; module game n : [0..N] init floor(N/4);"
GAME += " [] n>0 & n<N -> 1 : (n'=n+1); [] n>0 & n<N -> 1 : (n'=n-1); endmodule"
GRID = "ctmc const int N; formula x1 = mod(x,10)=9; formula x0 = mod(x,10)=0;"
GRID += " formula y1 = mod(y,10)=9; formula y0 = mod(y,10)=0; const double e = 1e-8;"
GRID += " module grid x : [0..N]; y : [0..N];"
GRID += " [] x<N -> (x1?e:1) : (x'=x+1); [] x>0 -> (x0?e:1) : (x'=x-1);"
GRID += " [] y<N -> (y1?e:1) : (y'=y+1); [] y>0 -> (y0?e:1) : (y'=y-1); endmodule"


def queue_length(size, load=0.999):
    """Mean length of a queue with the capacity `size`."""
    return load / (1 - load) - (size + 1) * load ** (size + 1) / (1 - load ** (size + 1))


CLOSED = [
    ("M/M/1/K", QUEUE, 'R{"length"}=? [ S ]', "K=100000", queue_length(100000)),
    ("ruin", GAME, "P=? [ F n=N ]", "N=100000", 0.25),
    ("ruin", GAME, "P=? [ F n=N ]", "N=1000000", 0.25),
    ("time of a game", GAME, "T=? [ F n=0 | n=N ]", "N=100000", 25000 * 75000 / 2),
    ("time of a game", GAME, "T=? [ F n=0 | n=N ]", "N=1000000", 250000 * 750000 / 2),
    ("weakly coupled grid", GRID, "S=? [ x<=159 ]", "N=319", 0.5),
]


def timed(command, runs):
    """Median seconds of some runs, and the standard output of the last one."""
    seconds = []
    for _ in range(runs):
        started = time.perf_counter()
        run = subprocess.run(command, capture_output=True, text=True)
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds), run.stdout


def kolmo(command, model, question, constants, runs):
    """Seconds, value and bound."""
    options = [*(["--const", constants] if constants else []), "--device", "cpu"]
    seconds, out = timed([command, "check", model, question, *options], runs)
    _, value, bound = list(csv.reader(out.splitlines()))[-1]
    return seconds, float(value), float(bound)


def model_file(models, name, folder):
    """Path of a model of the benchmark set, or of the network of queues."""
    if name == "network":
        path = pathlib.Path(folder) / "network.prism"
        path.write_text(NETWORK)
        return str(path)
    return str(models / f"{name if '/' in name else f'{name}/{name}'}.prism")


def main():
    command, models = sys.argv[1], pathlib.Path(sys.argv[2])
    runs = int(sys.argv[3]) if len(sys.argv) > 3 else 5
    folder = tempfile.TemporaryDirectory()
    print("| question | kolmo, s | value | bound | Storm, s | value |\n|---|---|---|---|---|---|")
    for name, question, constants in MODELS + LARGE:
        model = model_file(models, name, folder.name)
        seconds, value, bound = kolmo(command, model, question, constants, runs)
        row = f"{seconds:.2f} | {value!r} | {bound:.1e}"
        if (name, question, constants) in MODELS:
            storm, out = timed([sys.executable, "-c", STORM, model, question, constants], runs)
            row += f" | {storm:.2f} | {out.split()[-1]}" if out.split() else " | – | –"
        else:
            row += " | – | –"
        print(f"| {name} {constants}, `{question}` | {row} |", flush=True)
    print("\n| question | kolmo, s | value | bound | error |\n|---|---|---|---|---|")
    for name, text, question, constants, exact in CLOSED:
        with tempfile.NamedTemporaryFile("w", suffix=".prism") as file:
            file.write(text)
            file.flush()
            seconds, value, bound = kolmo(command, file.name, question, constants, runs)
        row = f"{seconds:.2f} | {value!r} | {bound:.1e} | {abs(value - exact):.1e}"
        print(f"| {name} {constants} | {row} |", flush=True)


main()
