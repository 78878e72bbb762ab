#!/usr/bin/env python3
"""Run `kolmo check` on models of the Quantitative Verification Benchmark Set, and compare.

usage: models.py FOLDER [--kolmo PATH] [--device LIST] [--most-states N] [--epsilon E]
                 [--only NAME]

FOLDER/*/index.json lists models, properties, constants, numbers of states and published results.
A value passes if it is within the printed bound of an exact result or an interval, or within 1e-5
of an approximate result. The last line counts. Needs only the standard library.
"""
import argparse, fractions, glob, json, math, os, subprocess, sys, tempfile, time

# Exact results are fractions of thousands of digits.
sys.set_int_max_str_digits(0)


def published(value):
    """Returns the lower and upper end of a result, and its tolerance."""
    if isinstance(value, dict) and "num" in value:
        exact = fractions.Fraction(int(value["num"]), int(value["den"]))
        return exact, exact, 0
    if isinstance(value, dict) and "lower" in value:
        return fractions.Fraction(value["lower"]), fractions.Fraction(value["upper"]), 0
    if isinstance(value, dict):
        value = value.get("approx")
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return value, value, 0
    return fractions.Fraction(value), fractions.Fraction(value), 1e-5 * abs(value)


def passes(row, value):
    low, high, slack = published(value)
    if isinstance(low, bool):
        return row["truth"] in (str(low).lower(), "undecided")
    if row["value"] is None or row["bound"] is None:
        return False
    if low == "∞" or math.isinf(float(row["value"])):
        return low == "∞" and float(row["value"]) == math.inf and row["bound"] == 0
    # The printed value is rounded to a double.
    slack += row["bound"] + 2.0**-52 * abs(row["value"])
    return low - fractions.Fraction(slack) <= fractions.Fraction(row["value"]) <= high + fractions.Fraction(slack)


def check(a, folder, file, instance):
    """Returns the numbers of passed, failed and skipped results."""
    model, properties = (os.path.join(folder, name) for name in file["original-file"])
    results = [r for r in instance.get("results", []) if r.get("value") is not None]
    text = open(properties).read() if os.path.exists(properties) else ""
    asked = results
    over = len(results) - len(asked)
    states = instance.get("states")
    if not model.endswith((".prism", ".sm", ".pm")) or not os.path.exists(model) or not states or not isinstance(states[0]["number"], int) or states[0]["number"] > a.most_states or not asked:
        return 0, 0, len(results)
    declared = open(model).read() + text
    constants = ",".join(f"{v['name']}={v['value']}" for v in instance["values"]
                         if any(f"const {kind} {v['name']};" in declared for kind in ("int", "double", "bool")))
    names = list(dict.fromkeys(r["property"] for r in asked))
    with tempfile.TemporaryDirectory() as place:
        report = os.path.join(place, "r.json")
        line = [a.kolmo, "check", model, properties, "--prop", ",".join(names), "--device", a.device,
                "--epsilon", a.epsilon, "--report", report] + (["--const", constants] if constants else [])
        began = time.time()
        run = subprocess.run(line, capture_output=True, text=True)
        took = time.time() - began
        name = f"{os.path.basename(model)} {constants}"
        if run.returncode not in (0, 1):
            print(f"FAILED {name}: {run.stderr.strip()[-600:]}", flush=True)
            return 0, len(asked), over
        found = json.load(open(report))
    right = found["chains"][0]["n"] == states[0]["number"]
    if not right:
        print(f"FAILED {name}: {found['chains'][0]['n']} states, published {states[0]['number']}", flush=True)
    rows = dict(zip(names, found["properties"]))
    wrong = [r for r in asked if not passes(rows[r["property"]], r["value"])]
    for r in wrong:
        row = rows[r["property"]]
        print(f"FAILED {name} {r['property']}: {row['value']} ± {row['bound']}, published {r['value']}"[:400], flush=True)
    missed = "" if run.returncode == 0 else " bound not met"
    print(f"{len(asked) - len(wrong)} of {len(asked)} {name} {found['chains'][0]['n']} states {took:.1f} s{missed}", flush=True)
    return len(asked) - len(wrong), len(wrong) + (not right), over


def main():
    p = argparse.ArgumentParser()
    p.add_argument("folder")
    p.add_argument("--kolmo", default="target/release/kolmo")
    p.add_argument("--device", default="cpu")
    p.add_argument("--most-states", type=float, default=1e6)
    p.add_argument("--epsilon", default="1e-9")
    p.add_argument("--only")
    a = p.parse_args()
    total = [0, 0, 0]
    for index in sorted(glob.glob(os.path.join(a.folder, "*/index.json"))):
        folder = os.path.dirname(index)
        if a.only and os.path.basename(folder) != a.only:
            continue
        for file in json.load(open(index))["files"]:
            for instance in file["open-parameter-values"]:
                total = [x + y for x, y in zip(total, check(a, folder, file, instance))]
    print(f"{total[0]} passed, {total[1]} failed, {total[2]} passed over")
    raise SystemExit(total[1] > 0)


main()
