#!/usr/bin/env python3
"""Solve chains with every method of `kolmo transient`; compare errors, products and times.

usage: methods.py FOLDER [--kolmo PATH] [--device D] [--only NAME] [--methods A,B] [--most X]
                  [--rounds N] [--slow]

FOLDER has one folder per chain: model.tra or model.tra.gz, and case.json with alpha and references
(t, name). A reference is a vector in a .npy file.

* The error of every method must be within its bound.
* `auto` may take at most 5 % more products than `uniformization`. Times are the least of N
  rounds, and the methods run in turns.
* --most skips references with a larger alpha t.
* --slow adds an exit at rate 1e-7 alpha from every tenth state to an absorbing state. It solves
  for alpha t = 1e8 and 1e10 within 1e-6, and compares `auto` with `krylov` within the sum of
  their bounds.

The last line counts. Needs only the standard library.
"""
import argparse, ast, gzip, json, os, struct, subprocess, sys, tempfile

SLACK = 5e-12  # accuracy of the references


def vector(path):
    with open(path, "rb") as file:
        data = file.read()
    (size,) = struct.unpack("<H", data[8:10])
    assert ast.literal_eval(data[10:10 + size].decode())["descr"] == "<f8", path
    return struct.unpack(f"<{(len(data) - 10 - size) // 8}d", data[10 + size:])


def distance(a, b):
    return sum(abs(x - y) for x, y in zip(a, b, strict=True))


class Case:
    def __init__(self, folder, name):
        self.name, self.folder = name, os.path.join(folder, name)
        with open(os.path.join(self.folder, "case.json")) as file:
            self.info = json.load(file)
        models = [os.path.join(self.folder, model) for model in ("model.tra", "model.tra.gz")]
        self.model = next(model for model in models if os.path.exists(model))
        self.alpha = self.info["alpha"]

    def leaking(self, place):
        """Writes the chain with slow exits to a file, and returns its path."""
        read = gzip.open if self.model.endswith(".gz") else open
        with read(self.model, "rt") as file:
            head, *lines = [line for line in file if line.strip() and not line.startswith("#")]
        states = int(head.split()[0])
        leaks = [f"{state} {states} {1e-7 * self.alpha!r}\n" for state in range(0, states, 10)]
        path = os.path.join(place, f"{self.name}.tra")
        with open(path, "w") as file:
            file.write(f"{states + 1} {len(lines) + len(leaks)}\n")
            file.writelines(sorted(lines + leaks, key=lambda line: [int(n) for n in line.split()[:2]]))
        label = os.path.join(place, f"{self.name}.lab")
        original = os.path.join(self.folder, "model.lab")
        if os.path.exists(original):
            with open(original) as file, open(label, "w") as copy:
                copy.write(file.read())
        return path


def solve(args, model, time, epsilon, method, place, limit=600):
    """Returns report and probabilities; None if the time limit was exceeded."""
    out, report = os.path.join(place, "p.npy"), os.path.join(place, "r.json")
    line = [args.kolmo, "transient", model, "--time", repr(time), "--epsilon", repr(epsilon), "--device", args.device,
            "--method", method, "-o", out, "--report", report, "--quiet"]
    try:
        run = subprocess.run(line, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return None, None
    if run.returncode not in (0, 1):
        raise SystemExit(f"{' '.join(line)}: {run.stderr}")
    with open(report) as file:
        return json.load(file), vector(out)


def bound(report):
    return sum(part for part in report["bound"].values() if isinstance(part, float | int))


def way(report):
    expansion = report["expansion"]
    stopped = any(time["stopped"] for time in report["per_time"])
    taken = "sweep" if not expansion or expansion["given_up"] else expansion["method"]
    return taken + (" + stop" if stopped else "")


def references(args, cases):
    failed = passed = 0
    print(f"{'chain':<16} {'alpha t':>8} {'method':<15} {'products':>9} {'error':>8} {'bound':>8} {'solve':>9}  way")
    for case in cases:
        for reference in case.info["references"]:
            mean = case.alpha * reference["t"]
            if mean > args.most:
                continue
            wanted = vector(os.path.join(case.folder, reference["name"]))
            epsilon = 1e-9 if mean > 2e4 else 1e-10
            least, rows = {}, {}
            with tempfile.TemporaryDirectory() as place:
                for turn in range(args.rounds):
                    # Alternates the order, so that no method has an advantage.
                    for method in args.methods[::-1 if turn % 2 else 1]:
                        report, got = solve(args, case.model, reference["t"], epsilon, method, place)
                        if report is None:
                            continue
                        seconds = report["seconds"]["solve"]
                        least[method] = min(seconds, least.get(method, seconds))
                        rows[method] = (report, distance(got, wanted))
            for method, (report, error) in rows.items():
                held = error <= bound(report) + SLACK
                passed, failed = passed + held, failed + (not held)
                print(f"{case.name:<16} {mean:>8.0f} {method:<15} {report['terms']:>9} {error:>8.1e} {bound(report):>8.1e} "
                      f"{least[method]:>9.6f} s  {way(report)}{'' if held else '  ABOVE ITS BOUND'}", flush=True)
            if "auto" in least and "uniformization" in least:
                share = least["auto"] / max(least["uniformization"], 1e-9)
                print(f"{'':<16} {'':>8} auto takes {share:.2f} of the time of uniformization", flush=True)
                few = rows["auto"][0]["terms"] <= 1.05 * rows["uniformization"][0]["terms"]
                passed, failed = passed + few, failed + (not few)
    return passed, failed


def slow(args, cases):
    failed = passed = 0
    print(f"{'chain':<16} {'alpha t':>8} {'method':<8} {'products':>9} {'bound':>8} {'status':<8} {'solve':>9}  way")
    with tempfile.TemporaryDirectory() as place:
        for case in cases:
            model = case.leaking(place)
            for mean in (mean for mean in (1e8, 1e10) if mean <= args.most):
                rows = []
                for method in (method for method in ("auto", "krylov") if method in args.methods):
                    report, got = solve(args, model, mean / case.alpha, 1e-6, method, place, limit=args.limit)
                    if report is None:
                        print(f"{case.name:<16} {mean:>8.0e} {method:<8} more than {args.limit} s", flush=True)
                        continue
                    rows.append((report, got))
                    print(f"{case.name:<16} {mean:>8.0e} {method:<8} {report['terms']:>9} {bound(report):>8.1e} "
                          f"{report['status']:<8} {report['seconds']['solve']:>7.3f} s  {way(report)}", flush=True)
                if len(rows) == 2:
                    held = distance(rows[0][1], rows[1][1]) <= bound(rows[0][0]) + bound(rows[1][0])
                    passed, failed = passed + held, failed + (not held)
                    if not held:
                        print(f"{case.name:<16} {mean:>8.0e} the answers differ by more than both bounds", flush=True)
    return passed, failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--kolmo", default="target/release/kolmo")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only")
    parser.add_argument("--methods", default="uniformization,auto,krylov,chebyshev")
    parser.add_argument("--most", type=float, default=float("inf"))
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--limit", type=float, default=120, help="seconds of a run with --slow")
    parser.add_argument("--slow", action="store_true")
    args = parser.parse_args()
    args.methods = args.methods.split(",")
    names = sorted(name for name in os.listdir(args.folder) if not args.only or name in args.only.split(","))
    cases = [Case(args.folder, name) for name in names]
    passed, failed = (slow if args.slow else references)(args, cases)
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed or not passed else 0)


main()
