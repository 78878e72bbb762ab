#!/usr/bin/env python3
"""Check properties of models with kolmo and with Storm, and compare.

usage: storm.py [--kolmo PATH] [--precision P] [--only NAME]

Needs `pip install stormpy==1.14.0`; 2.0.0 has wrong results for I=t. Models and properties are in
tests/models/: NAME.sm with constants in its first line, `// const N=4`, and NAME.csl with one
property per line. A value passes if it is within kolmo's bound plus Storm's precision, which is
relative for large values. A truth value passes if it equals Storm's or is undecided. The last
line counts.
"""
import argparse, csv, glob, io, math, os, subprocess

import stormpy


def by_storm(path, constants, properties):
    program = stormpy.parse_prism_program(path, True)
    parsed = stormpy.parse_properties_for_prism_program(";".join(properties), program)
    program, parsed = stormpy.preprocess_symbolic_input(program, parsed, constants)
    program = program.as_prism_program()
    environment = stormpy.Environment()
    # Sparse elimination for properties without time bounds.
    environment.solver_environment.set_linear_equation_solver_type(stormpy.EquationSolverType.eigen)
    answers = []
    for one in parsed:
        options = stormpy.BuilderOptions([one.raw_formula])
        options.set_build_all_reward_models(True)
        options.set_build_all_labels(True)
        model = stormpy.build_sparse_model_with_options(program, options)
        found = stormpy.model_checking(model, one, environment=environment)
        answers.append(found.at(model.initial_states[0]))
    return answers


def by_kolmo(kolmo, path, constants, properties):
    line = [kolmo, "check", path, "--device", "cpu", "--epsilon", "1e-9", "--quiet"] + properties
    run = subprocess.run(line + (["--const", constants] if constants else []), capture_output=True, text=True)
    if run.returncode not in (0, 1):
        raise SystemExit(f"{path}: {run.stderr}")
    rows = list(csv.reader(io.StringIO(run.stdout)))[1:]
    return [(row[-2], float(row[-1])) for row in rows]


def agree(value, bound, other, precision):
    if isinstance(other, bool):
        return value in (str(other).lower(), "undecided")
    value = float(value)
    if math.isinf(value) or math.isinf(other):
        return value == other
    return abs(value - other) <= bound + precision * max(1.0, abs(other))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--kolmo", default="target/release/kolmo")
    p.add_argument("--precision", default="1e-9")
    p.add_argument("--only")
    a = p.parse_args()
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "models")
    # Settings may be set only once.
    stormpy.set_settings(["--precision", a.precision, "--timebounded:kappa", "1e-15"])
    passed = failed = 0
    for path in sorted(glob.glob(os.path.join(folder, "*.sm"))):
        name = os.path.basename(path)[:-3]
        if a.only and name != a.only:
            continue
        first = open(path).readline()
        constants = first[len("// const "):].strip() if first.startswith("// const ") else ""
        lines = (line.strip() for line in open(path[:-3] + ".csl"))
        properties = [line for line in lines if line and not line.startswith("//")]
        ours = by_kolmo(a.kolmo, path, constants, properties)
        theirs = by_storm(path, constants, properties)
        for text, (value, bound), other in zip(properties, ours, theirs):
            if agree(value, bound, other, float(a.precision)):
                passed += 1
            else:
                failed += 1
                print(f"FAILED {name} {text}: {value} ± {bound:.2e}, Storm {other}", flush=True)
        print(f"{name}: {len(properties)} properties", flush=True)
    print(f"{passed} passed, {failed} failed")
    raise SystemExit(failed > 0)


if __name__ == "__main__":
    main()
