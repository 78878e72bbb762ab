use std::fmt::Write;

use proptest::prelude::*;

use super::*;

fn chain(text: &str) -> Result<ChainFile> {
    parse(text.as_bytes(), Path::new("m.tra"))
}

fn list(of: &[(u32, u32, f64)]) -> TransitionList {
    of.iter().copied().collect()
}

#[test]
fn prism_dialect() {
    let read = chain("# Transitions (CTMC)\r\n\r\n4 5\r\n0 1 10 go\r\n0 0 1/4000\r\n\r\n# x\r\n 1\t3  2.5e-3 \r\n3 1 -0.0\r\n3 2 0")
        .unwrap();
    assert_eq!(read.states, 4);
    let expected = list(&[(0, 1, 10.0), (0, 0, 0.00025), (1, 3, 0.0025), (3, 1, 0.0), (3, 2, 0.0)]);
    assert_eq!(read.transitions, expected);
    assert!(read.transitions.rate[3].is_sign_positive());
    assert_eq!(chain("1 0\n").unwrap().states, 1);
}

#[test]
fn storm_dialect() {
    let expected = list(&[(0, 1, 2.0), (1, 4, 0.5)]);
    for head in ["ctmc\n", "cTmC\r\n\n", "", "# no header\n"] {
        let read = chain(&format!("{head}0 1 2\n1 4 0.5\n")).unwrap();
        assert_eq!((read.states, read.transitions), (5, expected.clone()));
    }
    // A hint before PRISM's header.
    assert_eq!(chain("ctmc\n9 2\n0 1 2\n1 4 0.5\n").unwrap().states, 9);
}

#[test]
fn surplus_transitions_are_all_read() {
    let more = chain("# c\n3 1\n0 1 1\n1 2 1\n").unwrap();
    assert_eq!(more.transitions.from, [0, 1]);
    assert_eq!(more.warnings.len(), 1);
    assert!(more.warnings[0].contains("line 2 says 1 transitions, but the file has 2; all 2 are used"));
    assert_eq!(chain("4294967294 1\n0 4294967293 1\n").unwrap().transitions.to, [4294967293]);
}

#[test]
fn finds_duplicates() {
    let path = Path::new("m.tra");
    let text = b"# c\n3 4\n0 1 1\n\n0 1 2 again\n1 0 1\n0 1 0";
    assert_eq!(lines_of(text, path, 0, 1).unwrap(), [3, 5, 7]);
    assert_eq!(lines_of(text, path, 2, 1).unwrap(), [0u64; 0]);
    assert_eq!(lines_of(b"0 1 1\n0 1 1\n", path, 0, 1).unwrap(), [1, 2]);
    assert!(lines_of(b"0 1 1\n0 x 1\n", path, 0, 1).is_err());
}

proptest! {
    #[test]
    fn every_dialect_reads_back(
        states in 1u32..200,
        picks in proptest::collection::vec((any::<u32>(), any::<u32>(), 0.0f64..1e300, 0u32..4), 0..200),
        crlf in any::<bool>(),
    ) {
        let of: Vec<_> = picks.iter().map(|&(i, j, rate, _)| (i % states, j % states, rate)).collect();
        let mut zero = String::new();
        for (&(i, j, rate), pick) in of.iter().zip(&picks) {
            let (end, rate) = match pick.3 {
                0 => (" act", format!("{rate}")),
                1 => (" ", format!("{rate:e}")),
                2 => ("", format!("{rate:e}/1")),
                _ => ("\n# c", format!("{rate:?}")),
            };
            writeln!(zero, "{i} {j} {rate}{end}").unwrap();
        }
        let (m, expected) = (of.len(), list(&of));
        let form = |text: String| if crlf { text.replace('\n', "\r\n") } else { text };
        let read = chain(&form(format!("{states} {m}\n{zero}"))).unwrap();
        prop_assert_eq!((read.states, &read.transitions), (states as usize, &expected));
        if m > 0 {
            let highest = of.iter().map(|t| t.0.max(t.1)).max().unwrap();
            let read = chain(&form(format!("ctmc\n{zero}"))).unwrap();
            prop_assert_eq!((read.states, &read.transitions), (highest as usize + 1, &expected));
        }
    }
}
