#!/usr/bin/env python3
"""Check the property files of PRISM's examples and regression tests, and compare their results.

usage: prism_files.py FOLDER [--kolmo PATH] [--only TEXT] [--most-seconds S] [--list]

FOLDER is a checkout of PRISM: git clone --depth 1 https://github.com/prismmodelchecker/prism. All
models of type ctmc and dtmc of prism-examples/{ctmcs,dtmcs,simple} and prism-tests are checked with
the constants of their .args and auto files, but those of PRISM's exact and parametric engines. The expected value of a property is in the comment
`// RESULT: value` before it, which may have parameters. A value agrees if it is within kolmo's bound
and half a unit of the last digit that is expected; "near" if only within 1e-5 of itself, which
PRISM's own tests allow, as many expected values were iterated. Exit code 1 if a value is wrong.
Needs only the standard library.
"""
import argparse, collections, fractions, itertools, json, math, os, re, subprocess, tempfile

# Reasons for which a property may be refused, by the text of the message.
NAMED = {
    "LTL": r"of LTL", "CTL": r"of CTL", "multi": r"multi-objective",
    "several initial states": r"begins in \d+ states",
}
NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"


def text_of(path):
    raw = open(path, "rb").read()
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def kind(text):
    bare = re.sub(r"//.*", "", text)
    found = re.search(r"^\s*(ctmc|stochastic|dtmc|probabilistic|mdp|nondeterministic|pta|pomdp|popta|smg|csg|lts)\b", bare, re.M)
    kind = found and {"stochastic": "ctmc", "probabilistic": "dtmc"}.get(found[1], found[1])
    return "interval" if re.search(r"(->|\+)\s*\[[^\]]*,", bare) else kind


def properties(text):
    """Returns the text of each property, and its expectations: conditions on constants and a value."""
    found, wanted, body = [], [], ""
    lines = text.splitlines()
    for at, line in enumerate(lines):
        result = re.match(r"\s*//\s*RESULT\s*(?:\(([^)]*)\))?\s*:\s*(.*?)\s*$", line)
        if result and not body.strip():
            given = dict(p.split("=", 1) for p in (result[1] or "").replace(" ", "").split(",") if "=" in p)
            wanted.append((given, re.split(r"\s*(?://|;|\s\(.*\)$|\s=\s)", result[2])[0].strip()))
        line = re.sub(r"//.*", "", line)
        for piece in re.split(r"(?<=;)", line):
            body += piece + "\n"
            if ";" in piece:
                body = close(body, found, wanted)
        # A property may also end at the end of its line, unless the next one goes on.
        after = next((t for t in (re.sub(r"//.*", "", one).strip() for one in lines[at + 1 :]) if t), "")
        if body.strip() and balanced(body) and not re.match(r"[&|=<>!+*/)?:-]", after) and not re.match(r"\s*(const|label)\b", body) and not re.search(r"[&|=(,+*]\s*$|:\s*$", body):
            body = close(body, found, wanted)
    return found


def balanced(body):
    return all(body.count(a) == body.count(b) for a, b in ("()", "[]", "{}"))


def close(body, found, wanted):
    body = body.strip().rstrip(";").strip()
    if body and not re.match(r"(const|label)\b", body):
        found.append((body, list(wanted)))
    if body:
        wanted.clear()
    return ""


def arguments(path):
    """Lists the lines of an .args file, each as options."""
    lines = text_of(path).splitlines() if os.path.exists(path) else []
    return [line.split() for line in lines if line.strip() and not line.strip().startswith("#")]


def constants(options):
    joined = ",".join(v for o, v in zip(options, options[1:]) if o == "-const")
    return tuple(sorted(p for p in joined.split(",") if p))


def from_auto(path):
    """Lists model, properties and constants of an auto file, with the first value of each loop."""
    loops = {}
    for line in text_of(path).splitlines():
        loop = re.match(r"\s*foreach (\w+) \(\s*(\S+?)[\s)]", line)
        if loop:
            loops[loop[1]] = loop[2]
        run = re.match(r"\s*prism (\S+)\s+(\S+)(.*)", line)
        if run:
            parts = [re.sub(r'"?\$(\w+)"?', lambda m: loops[m[1]], part) for part in run.groups()]
            yield parts[0], parts[1], parts[2].split()


def value_of(text, values):
    """Evaluates an expected value: number, truth, fraction or expression over constants."""
    text = text.strip().lstrip("~").strip()
    low = text.lower()
    if low in ("true", "false"):
        return low == "true", 0
    if low.lstrip("+-") in ("infinity", "nan"):
        return float(low.replace("infinity", "inf")), 0
    if re.fullmatch(NUMBER, text):
        mantissa, _, exponent = text.lower().partition("e")
        digits = len(mantissa.partition(".")[2]) - int(exponent or 0)
        whole = "." not in text and "e" not in low
        return float(text), 0 if whole else 0.5 * 10.0**-digits
    scope = {name: fractions.Fraction(str(v)) for name, v in values.items() if not isinstance(v, bool)}
    code = re.sub(r"(?<![\w.])(\d+)(?![\w.])", r"F(\1)", text.replace("^", "**"))
    try:
        return float(eval(code, {"__builtins__": {}, "F": fractions.Fraction, "min": min, "max": max}, scope)), 0
    except Exception:
        return None, 0


def same(text, value):
    try:
        return abs(float(fractions.Fraction(text)) - float(value)) <= 1e-12 * abs(float(value))
    except (ValueError, TypeError, ZeroDivisionError):
        return str(value).lower() == text.lower()


def cases(root):
    """Lists folder, model, properties and sets of constants with selected properties."""
    for base in ("prism-examples/ctmcs", "prism-examples/dtmcs", "prism-examples/simple", "prism-tests"):
        for folder, _, names in sorted(os.walk(os.path.join(root, base))):
            autos = [one for name in names if name.startswith("auto") and not name.endswith("pp")
                     for one in from_auto(os.path.join(folder, name))] if "examples" in base else []
            for model in sorted(n for n in names if n.endswith((".sm", ".pm", ".nm", ".prism"))):
                own = sorted(n for n in names if n.startswith(model + ".") and n.endswith((".props", ".csl", ".pctl", ".ctl")))
                if "examples" in base:
                    own = sorted(n for n in names if n.endswith((".props", ".csl", ".pctl")))
                    if len([n for n in names if os.path.splitext(n)[0] == os.path.splitext(model)[0] and n in own]):
                        own = [n for n in own if os.path.splitext(n)[0] == os.path.splitext(model)[0]]
                for props in own:
                    lines = [a + b for a in arguments(os.path.join(folder, model + ".args")) or [[]]
                             for b in arguments(os.path.join(folder, props + ".args")) or [[]]]
                    runs = [options for m, p, options in autos if p == props and m == model]
                    if autos and not runs:
                        continue
                    kinds = {}
                    # PRISM's exact and parametric engines compute with fractions, and some results
                    # are theirs alone.
                    if lines and all({"-exact", "--exact", "-param"} & set(options) for options in lines):
                        continue
                    for options in runs or lines:
                        select = next((v for o, v in zip(options, options[1:]) if o == "-prop"), None)
                        if not {"-exact", "-param"} & set(options):
                            kinds.setdefault((constants(options), select), None)
                    yield folder, model, props, list(kinds) or [((), None)]


def run(a, folder, model, props, given, select):
    """Returns the rows of the report, or the message."""
    with tempfile.TemporaryDirectory() as place:
        report = os.path.join(place, "r.json")
        line = [a.kolmo, "check", model, props, "--device", "cpu", "--quiet", "--report", report]
        line += ["--const", ",".join(given)] if given else []
        line += ["--prop", select] if select else []
        try:
            done = subprocess.run(line, capture_output=True, text=True, timeout=a.most_seconds, cwd=folder)
        except subprocess.TimeoutExpired:
            return None, "timeout"
        if os.path.exists(report):
            return json.load(open(report))["properties"], done.stderr
        return None, done.stderr


def judge(row, expected):
    """Returns agree, near, wrong or undecided."""
    value, slack = value_of(expected, row["constants"])
    if isinstance(value, bool):
        return "undecided" if row["truth"] == "undecided" else "agree" if row["truth"] == str(value).lower() else "wrong"
    if value is None:
        return "no expectation"
    if row["value"] is None:
        return "agree" if math.isinf(value) and row["bound"] in (0, None) and row["truth"] is None else "wrong"
    got = float(row["value"])
    if got == value or math.isnan(got) and math.isnan(value):
        return "agree"
    away = abs(got - value)
    bound = float(row["bound"] if row["bound"] is not None else math.inf)
    if away <= bound + slack + 1e-15 * abs(value) and bound <= 1e-4 * max(1, abs(value)):
        return "agree"
    return "near" if away <= 1e-5 * abs(value) + bound and bound <= 1e-4 * max(1, abs(value)) else "wrong"


def main():
    p = argparse.ArgumentParser(usage=__doc__)
    p.add_argument("folder")
    p.add_argument("--kolmo", default="target/release/kolmo")
    p.add_argument("--only", default="")
    p.add_argument("--most-seconds", type=float, default=60)
    p.add_argument("--list", action="store_true", help="print every property with its outcome")
    a = p.parse_args()
    a.kolmo = os.path.abspath(a.kolmo)
    counts, reasons = collections.Counter(), collections.Counter()
    for folder, model, props, runs in cases(a.folder):
        shown = os.path.relpath(os.path.join(folder, props), a.folder)
        of = kind(text_of(os.path.join(folder, model)))
        if a.only not in f"{shown} {model}" or of not in ("ctmc", "dtmc"):
            continue
        listed = properties(text_of(os.path.join(folder, props)))
        for given, select in runs:
            whole, message = run(a, folder, model, props, given, select)
            chosen = [(k, body, wanted) for k, (body, wanted) in enumerate(listed)
                      if not select or str(k + 1) == select or body.startswith(f'"{select}"')]
            both = text_of(os.path.join(folder, model)) + text_of(os.path.join(folder, props))
            free = set(re.findall(r"const\s+(?:int\s+|double\s+|bool\s+)?(\w+)\s*;", re.sub(r"//.*", "", both)))
            given = tuple(c for c in given if c.split("=")[0] in free)
            fixed = {c.split("=")[0] for c in given}
            alone = whole is None and message != "timeout" or whole and len(whole) % len(chosen) or any(free & set(g) - fixed for _, _, w in chosen for g, _ in w)
            for at, (k, body, wanted) in enumerate(chosen):
                if wanted and all(value in ("?", "") for _, value in wanted):
                    continue
                if not alone:
                    rows = whole and whole[at :: len(chosen)]
                    label(a, counts, reasons, shown, model, given, k, body, wanted, rows, message)
                    continue
                # Constants that no file gives have the values of the expected results.
                extra = [g for g, _ in wanted if free & set(g) - fixed] or [{}]
                for own in {tuple(sorted(e.items())): e for e in extra}.values():
                    every = given + tuple(f"{n}={v}" for n, v in own.items() if n in free - fixed)
                    rows, message = run(a, folder, model, props, every, str(k + 1))
                    label(a, counts, reasons, shown, model, every, k, body, wanted, rows, message)
    print(dict(counts))
    # Errors are expected of PRISM's own engines.
    asked = sum(n for what, n in counts.items() if what not in ("expected error", "answered where PRISM refuses"))
    good = counts["agree"] + counts["near"] + counts["answered"]
    named = counts["refused"] - reasons["other"]
    print(f"{good} of {asked} answered as expected ({100 * good / max(1, asked):.1f} %), {counts['wrong']} wrong; "
          f"without {named} refused by name: {100 * good / max(1, asked - named):.1f} %; refused: {dict(reasons)}")
    raise SystemExit(counts["wrong"] > 0)


def label(a, counts, reasons, shown, model, given, k, body, wanted, rows, message):
    """Counts the outcome of one property, and prints what is not as expected."""
    if rows is None or any(row["refused"] for row in rows):
        message = message if rows is None else next(row["refused"] for row in rows if row["refused"])
        last = " ".join(message.split())[-400:]
        why = next((name for name, form in NAMED.items() if re.search(form, message)), "other")
        if any(value.startswith("Error") for _, value in wanted):
            counts["expected error"] += 1
            return
        counts["refused"] += 1
        reasons[why] += 1
        if why == "other" or a.list:
            print(f"REFUSED {shown} {model} {','.join(given)} {k + 1}: {body}: {last}", flush=True)
        return
    for row in rows:
        fits = [v for g, v in wanted if all(n in row["constants"] and same(x, row["constants"][n]) for n, x in g.items())]
        fits = [v for g, v in wanted if not g] or fits if len(fits) != 1 else fits
        if not fits or fits[0] == "?":
            counts["answered"] += 1
            continue
        if fits[0].startswith("Error"):
            counts["answered where PRISM refuses"] += 1
            verdict = "answered where PRISM refuses"
        else:
            verdict = judge(row, fits[0])
            counts["answered" if verdict == "no expectation" else verdict] += 1
        if verdict not in ("agree", "near") or a.list:
            got = row["truth"] if row["truth"] is not None else f"{row['value']} ± {row['bound']}"
            print(f"{verdict.upper()} {shown} {','.join(given)} {k + 1}: {body}: {got}, expected {fits[0]}", flush=True)


if __name__ == "__main__":
    main()
