#!/usr/bin/env python3
"""Check properties of models in discrete time with kolmo and with Storm, and compare.

usage: dtmc_models.py PRISM BENCHMARKS [--kolmo PATH] [--only NAME] [--time]

PRISM is a checkout of github.com/prismmodelchecker/prism, BENCHMARKS the folder benchmarks/dtmc of
github.com/ahartmanns/qcomp. Needs `pip install stormpy==1.14.0`. Numbers of states and transitions
have to be equal. Up to 3,000 states Storm computes with fractions, and values have to be within
kolmo's bound. Beyond that Storm's sound value iteration is within 1e-6 of each value by itself,
its default precision, and this is added. With --time, wall times and memory from the text to the
answer of two large models follow. The last line counts.
"""
import argparse, math, os, re, subprocess, sys, tempfile, time

import stormpy

from storm import agree, by_kolmo

BRP = [
    "P=? [ F srep=1 & rrep=3 & recv ]", "P=? [ F s=5 ]", "P=? [ F s=5 & srep=2 ]", "P=? [ F s=5 & srep=1 & i>8 ]",
    "P=? [ F !(srep=0) & !recv ]", "P=? [ F<=50 s=5 ]", "P=? [ s<5 U[7,20] k=2 ]", "P=? [ s<3 U<=9 k=2 ]",
    "P=? [ F<=100000 s=5 ]", "P=? [ X s=1 ]", "P=? [ (F s=5) & (G !(s=1 & (X s=3))) ]", "P=? [ F (k=1 & (X (X k=0))) ]",
]
LEADER = [
    'P=? [ F "elected" ]', 'P=? [ F<=12 "elected" ]', 'R{"num_rounds"}=? [ F "elected" ]', 'R{"num_rounds"}=? [ C<=15 ]',
    'P=? [ F[5,9] "elected" ]',
]
HERMAN = [
    'P=? [ F "stable" ]', 'R{"steps"}=? [ F "stable" ]', 'P=? [ F<=10 "stable" ]', 'R{"steps"}=? [ C<=100 ]',
    'P=? [ !"stable" U[3,8] "stable" ]',
]
CROWDS = [
    "P=? [ F observe0>1 ]", "P=? [ F<=30 observe0>1 ]", "P=? [ (G F observe0>1) & (F observe1>0) ]",
    "P=? [ F (observe0>0 & (X observe1>0)) ]", "P=? [ (F G observe0<1) | (observe1=0 U observe0>1) ]",
]
NAND = ["P=? [ F s=4 & z/N<0.1 ]", "R=? [ F s=4 ]"]
EGL = ['P=? [ F !"knowA" & "knowB" ]', 'P=? [ F !"knowB" & "knowA" ]', 'R{"messages_A_needs"}=? [ F phase=4 ]']
LOST = ['P=? [ F "Target" ]', 'R=? [ F "Done" ]']
OSCILLATORS = ['R{"time_to_synch"}=? [ F order_parameter >= lambda ]', 'R{"power_consumption"}=? [ F order_parameter >= lambda ]']
COUPONS = ["P=? [ F all ]", 'R{"draws"}=? [ F all ]', "P=? [ F<=12 all ]"]
# Coupon collector with draws of `d` coupons at once, as in the benchmark's program.
COUPON = """dtmc
const int coupons = {n}; const int D = {d};
formula all = {all};
module collector
  {variables}
  k : [0..D-1];
  {draws}
  [] all -> true;
endmodule
rewards "draws" !all & k=0 : 1; endrewards
"""


def coupon(n, d):
    """Writes a collector of n coupons, d of which are drawn at once, and returns its path."""
    known = range(n)
    draw = lambda step: " + ".join(f"1/coupons : (c{j}'=true) & (k'={step})" for j in known)
    # Coupons that a draw of several completes are counted at its end.
    draws = [f"[] !(all & k=0) & k<D-1 -> {draw('k+1')};", f"[] !(all & k=0) & k=D-1 -> {draw('0')};"]
    text = COUPON.format(n=n, d=d, all="k=0 & " + " & ".join(f"c{j}" for j in known),
                         variables=" ".join(f"c{j} : bool;" for j in known), draws="\n  ".join(draws))
    path = os.path.join(tempfile.gettempdir(), f"coupon{n}-{d}.pm")
    open(path, "w").write(text)
    return path


def models(prism, benchmarks):
    """Lists paths, constants and properties."""
    p, q = (lambda name: os.path.join(prism, "prism-examples/dtmcs", name)), (lambda name: os.path.join(benchmarks, name))
    yield p("brp/brp.pm"), "N=16,MAX=2", BRP
    yield p("brp/brp.pm"), "N=64,MAX=5", BRP
    for n, k in [(3, 2), (3, 8), (4, 5), (5, 4), (6, 3)]:
        yield p(f"leader_sync/leader{n}_{k}.pm"), "", LEADER
    for n in (3, 5, 7, 9):
        # The expected steps of Herman's ring need a single initial state.
        path = os.path.join(tempfile.gettempdir(), f"herman{n}.pm")
        open(path, "w").write(open(p(f"herman/herman{n}.pm")).read().replace("init\n\ttrue\nendinit", ""))
        yield path, "", HERMAN
    for runs, crowd in [(3, 5), (4, 10), (6, 5)]:
        yield q("crowds/crowds.prism"), f"TotalRuns={runs},CrowdSize={crowd}", CROWDS
    yield q("nand/nand.prism"), "N=20,K=1", NAND
    yield q("egl/egl.prism"), "N=5,L=2", EGL
    for n in (20, 100):
        yield q("haddad-monmege/haddad-monmege.pm"), f"N={n},p=0.7", LOST[: 1]
    for size in ("3-6", "6-6", "6-8", "6-10", "8-8"):
        yield q(f"oscillators/oscillators.{size}-0.1-1.prism"), "mu=0.1,lambda=1.0", OSCILLATORS
    for replies in (1, 2):
        # All initial states together lead to 3.4e9 states: one of them is taken.
        path = os.path.join(tempfile.gettempdir(), "bluetooth1.pm")
        chosen = "rec=0 & z1=4000 & freq=2 & train=1 & c=2 & rep=3 & send=2 & // "
        open(path, "w").write(open(q("bluetooth/bluetooth.prism")).read().replace("\trec=0 & // ", chosen))
        yield path, f"mrec={replies}", ["R=? [ F rec=mrec ]", "P=? [ F<=120 rec=mrec ]", "P=? [ F rec=mrec ]"]
    for n, d in [(5, 2), (7, 3), (9, 4)]:
        yield coupon(n, d), "", COUPONS


def by_storm(path, constants, properties, exact=3000):
    """Returns Storm's answers, its numbers of states and transitions, and its precision."""
    program = stormpy.parse_prism_program(path, False)
    parsed = stormpy.parse_properties_for_prism_program(";".join(properties), program)
    program, parsed = stormpy.preprocess_symbolic_input(program, parsed, constants)
    program = program.as_prism_program()
    options = stormpy.BuilderOptions([one.raw_formula for one in parsed])
    options.set_build_all_reward_models(True)
    options.set_build_all_labels(True)
    # All states are to be counted, also those after a goal.
    whole = stormpy.build_sparse_model_with_options(program, stormpy.BuilderOptions(True, True))
    size = (whole.nr_states, whole.nr_transitions)
    small = whole.nr_states <= exact
    build = stormpy.build_sparse_exact_model_with_options if small else stormpy.build_sparse_model_with_options
    model = build(program, options)
    environment = stormpy.Environment()
    if not small:
        environment.solver_environment.set_linear_equation_solver_type(stormpy.EquationSolverType.native)
        environment.solver_environment.set_force_sound(True)
    answers = [stormpy.model_checking(model, one, environment=environment).at(model.initial_states[0]) for one in parsed]
    # Storm's infinite fraction is this number.
    number = lambda v: v if isinstance(v, (bool, float)) else math.inf if float(v) == 1e11 else float(v)
    return [number(v) for v in answers], size, 0.0 if small else 1e-6


def size_by_kolmo(kolmo, path, constants):
    """Returns the numbers of states and transitions, with self-loops."""
    line = [kolmo, "check", path, "P=? [ F<=0 true ]", "--device", "cpu"] + (["--const", constants] if constants else [])
    said = subprocess.run(line, capture_output=True, text=True).stderr
    found = re.search(r"explored ([\d ]+) states, [\d ]+ transitions \(([\d ]+) with self-loops\)", said)
    states, transitions = (int(group.replace(" ", "")) for group in found.groups())
    return states, transitions


def timed(kolmo, benchmarks):
    """Prints wall times and memory of both from the text to the answer."""
    for name, constants, text in [("crowds", "TotalRuns=5,CrowdSize=20", CROWDS[0]), ("nand", "N=20,K=4", NAND[0])]:
        path = os.path.join(benchmarks, f"{name}/{name}.prism")
        script = f"""
import stormpy, time, sys
begun = time.time()
program = stormpy.parse_prism_program({path!r}, False)
parsed = stormpy.parse_properties_for_prism_program({text!r}, program)
program, parsed = stormpy.preprocess_symbolic_input(program, parsed, {constants!r})
model = stormpy.build_sparse_model_with_options(program.as_prism_program(), stormpy.BuilderOptions([p.raw_formula for p in parsed]))
print(stormpy.model_checking(model, parsed[0]).at(model.initial_states[0]), time.time() - begun)
"""
        for who, line in [("kolmo", [kolmo, "check", path, text, "--const", constants, "--device", "cpu", "--quiet"]),
                          ("Storm", [sys.executable, "-c", script])]:
            begun = time.time()
            child = subprocess.Popen(line, stdout=subprocess.PIPE, text=True)
            out = child.stdout.read()
            _, _, usage = os.wait4(child.pid, 0)
            print(f"{name} {constants} {who}: {time.time() - begun:.2f} s, {usage.ru_maxrss / 1024:.0f} MiB: {out.split()[-1]}")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("prism")
    p.add_argument("benchmarks")
    p.add_argument("--kolmo", default="target/release/kolmo")
    p.add_argument("--only", default="")
    p.add_argument("--time", action="store_true")
    a = p.parse_args()
    passed = failed = 0
    for path, constants, properties in models(a.prism, a.benchmarks):
        name = os.path.basename(path)
        if a.only not in name:
            continue
        ours = by_kolmo(a.kolmo, path, constants, properties)
        theirs, size, precision = by_storm(path, constants, properties)
        own = size_by_kolmo(a.kolmo, path, constants)
        print(f"{name} {constants}: {own} states and transitions, Storm {size}{', exact' if precision == 0 else ''}")
        passed, failed = passed + (own == size), failed + (own != size)
        for text, (value, bound), other in zip(properties, ours, theirs):
            # An exact fraction is rounded to a double.
            right = agree(value, bound, other, max(precision, 2.0**-52))
            passed, failed = passed + right, failed + (not right)
            print(f"  {'ok ' if right else 'NOT'} {text}: {value} ± {bound:.1e}, Storm {other}", flush=True)
    if a.time:
        timed(a.kolmo, a.benchmarks)
    print(f"{passed} passed, {failed} failed")
    raise SystemExit(failed > 0)


if __name__ == "__main__":
    main()
