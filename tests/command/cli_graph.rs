//! `kolmo walk --pagerank`, and the graphs of `kolmo generate`.

use crate::support::{Place, Run, gzip, number};

/// Nodes 7 and 30 link to each other, 5 to 7 twice; 900 has no outgoing edge.
const LINKS: &str = "# Directed graph\n# FromNodeId\tToNodeId\n7\t30\n30 7\n5 7\n5 7\n30 900\n";

/// Returns the PageRank of nodes 5, 7, 30 and 900.
///
/// With a = 0.0375 + 0.2125 x_900: x_5 = a, x_7 = a + 0.85 x_5 + 0.425 x_30, x_30 = a + 0.85 x_7,
/// x_900 = a + 0.425 x_30.
fn exact() -> [f64; 4] {
    // Divided by a: x_7 = 1.85 + 0.425 (1 + 0.85 x_7).
    let seven = (1.85 + 0.425) / (1.0 - 0.425 * 0.85);
    let thirty = 1.0 + 0.85 * seven;
    let nine = 1.0 + 0.425 * thirty;
    let a = 1.0 / (1.0 + seven + thirty + nine);
    [a, a * seven, a * thirty, a * nine]
}

fn rank(place: &Place, line: &str) -> Run {
    place.ok(&format!("walk {line} --pagerank 0.85"))
}

/// Asserts that the output lists these nodes, each with its PageRank in its interval.
#[track_caller]
fn holds(run: &Run, wanted: &[(&str, f64)]) {
    let rows = run.rows();
    assert_eq!(rows[0], ["component", "estimate", "half_width"]);
    assert_eq!(rows.len(), wanted.len() + 1, "{rows:?}");
    for (row, (node, x)) in rows[1..].iter().zip(wanted) {
        let (estimate, half_width) = (number(row[1]), number(row[2]));
        assert_eq!(&row[0], node);
        let held = (estimate - x).abs() <= half_width + 1e-15;
        assert!(held && half_width <= 1e-6 * estimate, "{node}: {x}, {estimate} ± {half_width}");
    }
}

#[test]
fn graphs_come_in_lists_of_links_and_matrices() {
    let place = Place::new();
    place.put("links.txt", LINKS).put("links.txt.gz", gzip(LINKS));
    let head = "%%MatrixMarket matrix coordinate pattern general";
    place.put("links.mtx", format!("{head}\n4 4 5\n2 3\n3 2\n1 2\n1 2\n3 4\n"));
    let [five, seven, thirty, nine] = exact();

    for file in ["links.txt", "links.txt.gz"] {
        holds(&rank(&place, &format!("{file} --components 900,5")), &[("900", nine), ("5", five)]);
    }
    // Without `--component`: all nodes, the largest first.
    let all = rank(&place, "links.txt").ends(0, &["order    4 of the 4 places are certain"]);
    holds(&all, &[("30", thirty), ("7", seven), ("900", nine), ("5", five)]);
    holds(&rank(&place, "links.txt --component 5,30 --top 1"), &[("30", thirty)]);
    // Rows of a matrix are counted from 0.
    holds(&rank(&place, "links.mtx --component 0-2"), &[("0", five), ("1", seven), ("2", thirty)]);

    let run = rank(&place, "links.txt -o x.csv --report r.json --verbose");
    assert_eq!(run.stdout, "");
    assert!(place.text("x.csv").starts_with("component,estimate,half_width\n5,"));
    let report = place.json("r.json");
    assert_eq!((&report["n"], &report["links"], &report["dangling"]), (&4.into(), &5.into(), &1.into()));
    assert_eq!(report["components"][3]["component"], 900);
}

#[test]
fn seeds_and_undirected_links_are_as_asked() {
    let place = Place::new();
    place.put("links.txt", LINKS);
    // Node 900 has no outgoing edge and restarts at itself: it holds all probability.
    let run = rank(&place, "links.txt --seeds 900 --component 900,7 --report r.json");
    let rows = run.rows();
    assert!((number(rows[1][1]) - 1.0).abs() <= number(rows[1][2]));
    assert_eq!(rows[2][1], "0");
    assert_eq!(place.json("r.json")["seeds"], serde_json::json!([900]));
    // Two nodes with edges in both directions: each has one half.
    place.put("pair.txt", "1 2\n");
    holds(&rank(&place, "pair.txt --undirected --component 1"), &[("1", 0.5)]);
}

#[test]
fn built_in_graphs_are_written_and_read_back() {
    let place = Place::new();
    for (line, format) in [("rmat:6,4", "mtx"), ("barabasi:50,3", "txt")] {
        place.ok(&format!("generate {line} --seed 3 -o g.{format}"));
        let built_in = rank(&place, &format!("{line} --seed 3 --top 64"));
        assert_eq!(built_in.stdout, rank(&place, &format!("g.{format} --top 64")).stdout);
    }
    let run = rank(&place, "rmat:6,4 --dry-run --report r.json").ends(0, &["products"]);
    assert_eq!((&place.json("r.json")["links"], &run.stdout[..]), (&256.into(), ""));
}

#[test]
fn damping_factors_near_one_end() {
    let place = Place::new();
    place.put("two.txt", "0 1\n1 0\n").put("ring.txt", "0 1\n1 2\n2 3\n3 0\n");
    for damping in ["0.99999999", "0.9999999999", "0.9999999999999999"] {
        let rank = |line: &str| place.ok(&format!("walk {line} --pagerank {damping}"));
        holds(&rank("two.txt --component 0,1"), &[("0", 0.5), ("1", 0.5)]);
        // x_k = (1 − d) d^k / (1 − d⁴) = (1 + (3/2 − k) (1 − d)) / 4, up to the square of 1 − d.
        let rest = 1.0 - damping.parse::<f64>().expect("a number");
        let x = |k: f64| 0.25 * (1.0 + (1.5 - k) * rest);
        let wanted = [("0", x(0.0)), ("1", x(1.0)), ("2", x(2.0)), ("3", x(3.0))];
        holds(&rank("ring.txt --seeds 0 --component 0-3"), &wanted);
    }
    let line: String = (0..1100).map(|i| format!("{i} {}\n", (i + 1) % 1100)).collect();
    place.put("large.txt", line);
    place
        .kolmo("walk large.txt --pagerank 0.9999999999 --seeds 0 --component 5 --time-limit 0.3")
        .ends(1, &["the time limit of 300.0 ms has ended"]);
    // Rounding of 10⁸ and more products, of which the last ones are needed, is not waited for; and
    // quotients of a ring are 1 but for few roundings.
    let ring: String = (0..20_000).map(|i| format!("{i} {}\n", (i + 1) % 20_000)).collect();
    place.put("long.txt", ring);
    for (damping, code) in [("0.999999", 0), ("0.99999999", 0), ("0.99999999999", 1)] {
        let run = place.kolmo(&format!("walk long.txt --pagerank {damping} --top 1")).ends(code, &[]);
        let [x, half_width] = [1, 2].map(|column| number(run.rows()[1][column]));
        assert!((x - 5e-5).abs() <= half_width && (half_width <= 1e-6 * x) == (code == 0), "{}", run.stdout);
    }
}

#[test]
fn symmetric_input_is_undirected_already() {
    let place = Place::new();
    let head = "%%MatrixMarket matrix coordinate pattern symmetric";
    place.put("loop.mtx", format!("{head}\n3 3 3\n1 1\n2 1\n3 2\n"));
    place.put("both.txt", "0 0\n0 1\n1 0\n1 2\n2 1\n");
    for file in ["loop.mtx", "both.txt"] {
        let plain = rank(&place, file);
        assert_eq!(plain.stdout, rank(&place, &format!("{file} --undirected")).stdout);
        // Computed by NetworkX on the undirected graph.
        let first = plain.rows().iter().find(|row| row[0] == "0").map(|row| number(row[1]));
        approx::assert_abs_diff_eq!(first.expect("node 0"), 0.381_705_6, epsilon = 1e-3);
    }
}
