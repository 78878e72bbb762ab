"""Compare `kolmo walk --pagerank` for 100 nodes with igraph's PageRank of all nodes (PRPACK).

    python -m venv v && v/bin/pip install igraph numpy
    v/bin/python benches/peers/igraph_pagerank.py target/release/kolmo [--undirected] [rmat:20,8 …]

Prints for each graph the seconds of both programs, the best of five alternating runs, and the
number of kolmo's intervals that contain igraph's value. The times compared are those of igraph's
`Graph.pagerank` on a graph in memory, and `seconds.solve` of kolmo's report. Neither includes
reading the edges and building the graph; `graph` is kolmo's time for these two.
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import time

import igraph
import numpy as np

TARGETS = 100
RELATIVE = 1e-4
DAMPING = 0.85


def read(path):
    """Return the number of nodes and the edges of a pattern .mtx, nodes counted from 0."""
    with open(path) as file:
        file.readline()
        nodes = int(file.readline().split()[0])
        return nodes, np.fromstring(file.read(), dtype=np.int64, sep=" ").reshape(-1, 2) - 1


def compare(kolmo, spec, directed, folder):
    path = folder / "graph.mtx"
    subprocess.run([kolmo, "generate", spec, "-o", path, "-q"], check=True)
    nodes, links = read(path)
    if not directed:
        # igraph counts undirected self-loops twice.
        links = links[links[:, 0] != links[:, 1]]
        with open(path, "w") as file:
            file.write(f"%%MatrixMarket matrix coordinate pattern general\n{nodes} {nodes} {len(links)}\n")
            file.writelines(f"{a} {b}\n" for a, b in (links + 1).tolist())
    graph = igraph.Graph(n=nodes, edges=links, directed=directed)
    linked = np.unique(links)
    targets = np.random.default_rng(1).choice(linked, TARGETS, replace=False)
    command = [kolmo, "walk", path, "--pagerank", DAMPING, "--relative", RELATIVE, "-q", "--device", "cpu"]
    command += ["--component", ",".join(map(str, targets)), "--report", folder / "r.json", "-o", folder / "x.csv"]
    command += [] if directed else ["--undirected"]
    theirs, ours = [], []
    for _ in range(5):
        started = time.perf_counter()
        ranks = np.array(graph.pagerank(damping=DAMPING))
        theirs.append(time.perf_counter() - started)
        subprocess.run([str(word) for word in command], check=True)
        report = json.loads((folder / "r.json").read_text())
        ours.append(report["seconds"]["solve"])
    inside = sum(abs(c["estimate"] - ranks[c["component"]]) <= c["half_width"] for c in report["components"])
    worst = max(abs(c["estimate"] / ranks[c["component"]] - 1) for c in report["components"])
    kind = "" if directed else " undirected"
    print(
        f"{spec}{kind}: {nodes} nodes, {len(links)} links; igraph {igraph.__version__} {min(theirs):.3f} s,"
        f" kolmo {min(ours):.3f} s ({report['products']} products), ratio {min(theirs) / min(ours):.1f};"
        f" {inside} of {TARGETS} inside, largest difference {worst:.1e}; graph {report['seconds']['load']:.2f} s"
    )


def main():
    kolmo, *rest = sys.argv[1:]
    specs = [word for word in rest if word != "--undirected"] or ["rmat:20,8"]
    with tempfile.TemporaryDirectory() as folder:
        for spec in specs:
            compare(kolmo, spec, "--undirected" not in rest, pathlib.Path(folder))


if __name__ == "__main__":
    main()
