#!/usr/bin/env python3
"""Check properties of PRISM's discrete-time models with kolmo and with Storm, and compare.

usage: dtmc_models.py FOLDER [--kolmo PATH] [--only NAME]

FOLDER is prism-examples/dtmcs of a checkout of PRISM. Needs `pip install stormpy==1.14.0`. A value
passes if it is within kolmo's bound plus 10⁻⁵ of itself, as Storm iterates. The last line counts.
"""
import argparse, os, time

from storm import agree, by_kolmo, by_storm

BRP = [
    "P=? [ F srep=1 & rrep=3 & recv ]", "P=? [ F s=5 ]", "P=? [ F s=5 & srep=2 ]", "P=? [ F s=5 & srep=1 & i>8 ]",
    "P=? [ F !(srep=0) & !recv ]", "P=? [ F<=50 s=5 ]", "P=? [ s<5 U[7,20] k=2 ]", "P=? [ s<3 U<=9 k=2 ]",
    "P=? [ F<=100000 s=5 ]", "P=? [ X s=1 ]",
]
LEADER = [
    'P=? [ F "elected" ]', 'P=? [ F<=12 "elected" ]', 'R{"num_rounds"}=? [ F "elected" ]', 'R{"num_rounds"}=? [ C<=15 ]',
    'P=? [ F[5,9] "elected" ]',
]
HERMAN = [
    'P=? [ F "stable" ]', 'R{"steps"}=? [ F "stable" ]', 'P=? [ F<=10 "stable" ]', 'R{"steps"}=? [ C<=100 ]',
    'P=? [ !"stable" U[3,8] "stable" ]',
]
# The expected steps of Herman's ring need a single initial state.
MODELS = [
    ("brp/brp.pm", "N=16,MAX=2", BRP), ("brp/brp.pm", "N=64,MAX=5", BRP),
    *((f"leader_sync/leader{n}_{k}.pm", "", LEADER) for n, k in [(3, 2), (3, 8), (4, 5), (5, 4), (6, 3)]),
    *((f"herman/herman{n}.pm", "", HERMAN) for n in [3, 5, 7, 9]),
]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("folder")
    p.add_argument("--kolmo", default="target/release/kolmo")
    p.add_argument("--only", default="")
    a = p.parse_args()
    passed = failed = 0
    for name, constants, properties in MODELS:
        if a.only not in name:
            continue
        path = os.path.join(a.folder, name)
        if "herman" in name:
            text = open(path).read().replace("init\n\ttrue\nendinit", "")
            path = os.path.join(os.environ.get("TMPDIR", "/tmp"), os.path.basename(path))
            open(path, "w").write(text)
        begun = time.time()
        ours = by_kolmo(a.kolmo, path, constants, properties)
        between = time.time()
        theirs = by_storm(path, constants, properties)
        print(f"{name} {constants}  kolmo {between - begun:.2f} s, Storm {time.time() - between:.2f} s")
        for text, (value, bound), other in zip(properties, ours, theirs):
            right = agree(value, bound, other, 1e-5)
            passed, failed = passed + right, failed + (not right)
            print(f"  {'ok ' if right else 'NOT'} {text}: {value} ± {bound:.1e}, Storm {other}")
    print(f"{passed} passed, {failed} failed")
    raise SystemExit(failed > 0)


if __name__ == "__main__":
    main()
