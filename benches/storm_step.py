#!/usr/bin/env python3
"""Compare a step of uniformization, in every matrix format, with Storm on one core.

usage: storm_step.py [--kolmo PATH] [--levels L,L] [--threads N,N] [--rounds N]
                     [--precision P] CHAIN...

A CHAIN is MODEL.prism[:NAME=V,...] or an explicit file (.tra, .tra.gz). polling.12.prism:N=13 gets
a 13th station. Needs `pip install stormpy==1.14.0`.

Both programs get the same file. Storm's step is the difference of two checks of P=? [ F[t,t] "on" ],
divided by the difference of their numbers of steps. All states but one are "on", so that Storm
multiplies the whole matrix. kolmo's step adds to an accumulator. Programs alternate; times are
the least of all rounds, in ms. KOLMO_LEVEL selects vector instructions of kolmo: avx512, avx2,
portable.
"""
import argparse, gzip, json, math, os, re, subprocess, tempfile, time

FORMATS = ["hyb", "packed", "pattern"]


def prepared(kolmo, chain, folder):
    """Name of a chain, its file for kolmo, and its file for Storm with the label "on"."""
    path, _, constants = chain.partition(":")
    name = os.path.basename(path).split(".")[0] + (" " + constants if constants else "")
    if name.startswith("model"):
        name = os.path.basename(os.path.dirname(path))
    if os.path.basename(path) == "polling.12.prism" and constants == "N=13":
        text = open(path).read().replace("N = 12", "N = 13").replace("[1..12]", "[1..13]")
        last = re.findall(r"^\s*\[(?:loop|serve)12[ab]?\].*\n", text, re.M)
        more = [line.replace("12", "13") for line in last]
        for line in last:
            text = text.replace(line, line.replace("(s'=1)", "(s'=s+1)"))
        at = text.index("endmodule")
        text = text[:at] + "".join(more) + text[at:]
        last = next(line for line in text.splitlines() if line.startswith("module station12"))
        text = text.replace(last, last + "\n" + last.replace("12", "13"))
        path, constants = os.path.join(folder, "polling.prism"), ""
        open(path, "w").write(text)
    if path.endswith((".prism", ".sm")):
        out = os.path.join(folder, "chain.tra")
        line = [kolmo, "generate", path, "-o", out, "--quiet"]
        subprocess.run(line + (["--const", constants] if constants else []), check=True)
        path = out
    drn = os.path.join(folder, "chain.drn")
    open(drn, "w").write(explicit(path))
    return name, path, drn


def explicit(path):
    """The chain of a .tra file as text in the format DRN; all states but 0 are "on"."""
    lines = (gzip.open if path.endswith(".gz") else open)(path, "rt").read().splitlines()
    lines = [line for line in lines if line[:1].isdigit()]
    rows = [[] for _ in range(int(lines[0].split()[0]))]
    for line in lines[1:]:
        source, target, rate = line.split()[:3]
        if source != target:
            rows[int(source)].append((int(target), float(rate)))
    text = ["@type: CTMC", "@parameters", "", "@reward_models", "", "@nr_states", str(len(rows)),
            "@nr_choices", str(len(rows)), "@model"]
    for state, row in enumerate(rows):
        # Storm has no state without a transition.
        row = sorted(row) or [(state, 1.0)]
        leave = math.fsum(rate for _, rate in row)
        text += [f"state {state} !{leave!r} {'on' if state else 'init'}", "\taction 0"]
        text += [f"\t\t{target} : {rate!r}" for target, rate in row]
    return "\n".join(text) + "\n"


def last_term(mean, epsilon=1e-7):
    """Last Poisson term above which the tail is below `epsilon`."""
    term, tail = int(mean + 12 * math.sqrt(mean)) + 40, 0.0
    while tail < epsilon:
        tail += math.exp(term * math.log(mean) - mean - math.lgamma(term + 1))
        term -= 1
    return term + 1


class Storm:
    def __init__(self, path):
        import stormpy
        self.stormpy = stormpy
        self.model = stormpy.build_model_from_drn(path)
        self.rate = 1.02 * max(self.model.exit_rates)

    def check(self, mean):
        """Seconds and number of steps of a check at time `mean`/rate."""
        time_bound = mean / self.rate
        formula = self.stormpy.parse_properties(f'P=? [ F[{time_bound!r},{time_bound!r}] "on" ]')[0]
        since = time.perf_counter()
        self.stormpy.model_checking(self.model, formula.raw_formula)
        return time.perf_counter() - since, last_term(mean)

    def step(self):
        (few, first), (many, last) = self.check(200.0), self.check(3200.0)
        return (many - few) / (last - first)


def run_kolmo(line, level, threads, report):
    settings = dict(os.environ, RAYON_NUM_THREADS=str(threads), KOLMO_LEVEL=level)
    line = line + ["--device", "cpu", "--report", report, "--quiet"]
    subprocess.run(line, env=settings, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return open(report).read()


def kolmo_steps(kolmo, path, level, threads, precision, report):
    """Seconds of a step in each format."""
    line = [kolmo, "bench", "spmv", path, "--matrix-format", "all", "--repeat", "3", "--precision", precision]
    records = [json.loads(record) for record in run_kolmo(line, level, threads, report).splitlines()]
    return {r["format"]: r["seconds"]["min"] for r in records if r["accumulate"]}, records[0]


def chosen_format(kolmo, path, level, threads, precision, report):
    """The format of a run of so many steps that all rows are tried."""
    def found(time_bound):
        line = [kolmo, "transient", path, "--time", repr(time_bound), "--top", "1", "--precision", precision]
        return json.loads(run_kolmo(line, level, threads, report))
    return found(2100 / found(1e-6)["alpha"])["format"]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("chains", nargs="+")
    p.add_argument("--kolmo", default="target/release/kolmo")
    p.add_argument("--levels", default="avx512,avx2,portable")
    p.add_argument("--threads", default="1,2")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--precision", default="f64")
    a = p.parse_args()
    print("| chain | states | Storm | level | threads | " + " | ".join(FORMATS)
          + " | auto | auto / best | Storm / auto | one thread / auto |")
    print("|---" * (9 + len(FORMATS)) + "|")
    for chain in a.chains:
        with tempfile.TemporaryDirectory() as folder:
            name, path, drn = prepared(a.kolmo, chain, folder)
            report = os.path.join(folder, "report.json")
            storm = Storm(drn)
            cases = [(l, int(t)) for l in a.levels.split(",") for t in a.threads.split(",")]
            least, theirs, one = {case: {} for case in cases}, math.inf, {}
            for _ in range(a.rounds):
                theirs = min(theirs, storm.step())
                for case in cases:
                    found, first = kolmo_steps(a.kolmo, path, *case, a.precision, report)
                    for key, seconds in found.items():
                        least[case][key] = min(seconds, least[case].get(key, math.inf))
            for level, threads in cases:
                times = least[level, threads]
                auto = chosen_format(a.kolmo, path, level, threads, a.precision, report)
                mine = times[auto]
                one.setdefault(level, mine)
                each = " | ".join(f"{1e3 * times[f]:.3f}" if f in times else "–" for f in FORMATS)
                print(f"| {name} | {first['n']} | {1e3 * theirs:.3f} | {level} | {threads} | {each} | {auto} "
                      f"| {mine / min(times.values()):.2f} | {theirs / mine:.2f} | {one[level] / mine:.2f} |",
                      flush=True)


if __name__ == "__main__":
    main()
