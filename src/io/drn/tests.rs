use std::fmt::Write;

use proptest::prelude::*;

use super::*;

const HEAD: &str = "@type: CTMC\n@parameters\n\n@reward_models\nup jumps \n@nr_states\n3\n@model\n";

fn chain(text: &str) -> Result<ChainFile> {
    parse(text.as_bytes(), Path::new("m.drn"))
}

#[test]
fn full_file() {
    let read = chain(
        "// Exported by storm\r\n// Original model type: CTMC\r\n@type: CTMC\r\n@value_type: double\r\n@parameters\r\n\r\n\
         @reward_models\r\nup jumps \r\n@nr_states\r\n3\r\n@nr_choices\r\n3\r\n@model\r\n\
         state 0 !2.5 [1.5, 0] init \"all fine\"\r\n//[x=1]\r\n\taction __NOLABEL__ [0, 2]\r\n\t\t1 : 2\r\n\t\t2 : 0.5\r\n\
         state 1 !1\r\n\taction go\r\n\t\t1 : 1\r\n\r\nstate 2 !0.25 [0, -1] \"all fine\"\r\n\taction 0 [0, 0]\r\n\t\t0 : 1/4",
    )
    .unwrap();
    assert_eq!(read.states, 3);
    assert_eq!(read.transitions.from, [0, 0, 1, 2]);
    assert_eq!(read.transitions.to, [1, 2, 1, 0]);
    assert_eq!(read.transitions.rate, [2.0, 0.5, 1.0, 0.25]);
    let sets = [("init", vec![0]), ("all fine", vec![0, 2])];
    assert_eq!(read.labels.sets, sets.map(|(n, s)| (n.to_string(), s)));
    let rewards = [("up", vec![1.5, 0.0, 0.0]), ("jumps", vec![5.0, 0.0, -1.0])];
    assert_eq!(read.rewards, rewards.map(|(n, values)| Reward { name: n.into(), values }));
    assert_eq!(read.warnings, Vec::<String>::new());
}

/// Regression: a form feed ended a word but was no blank, so reading labels never ended.
#[test]
fn form_feeds_are_blanks() {
    let read = chain("@type: CTMC\n@nr_states: 2\n@model\nstate 0 !1 a\x0cb\naction 0\n1 : 1\nstate 1\x0c\n")
        .unwrap();
    assert_eq!(read.labels.sets, [("a".to_string(), vec![0]), ("b".to_string(), vec![0])]);
}

#[test]
fn comments_behind_lines() {
    let read = chain(
        "@type: CTMC\n@nr_states: 2\n@model\nstate 0 !1 a \"//b\" // c d\naction 0 // go\n1 : 1// no\nstate 1 // x\n",
    );
    assert!(read.unwrap_err().to_string().contains(":6: rate '1// no'"));
    let read = chain(
        "@type: CTMC\n@nr_states: 2\n@model\nstate 0 !1 a \"//b\" // c d\naction 0 // go\n1 : 1 // yes\nstate 1 // x\n",
    )
    .unwrap();
    assert_eq!(read.labels.sets, [("a".to_string(), vec![0]), ("//b".to_string(), vec![0])]);
    assert_eq!((read.transitions.rate, read.warnings), (vec![1.0], vec![]));
}

#[test]
fn exit_rates_and_choices_may_be_absent() {
    let text = "@type: CTMC\n@parameters\n\n@nr_states\n2\n@model\nstate 0\n\taction 0\n\t\t1 : 4\nstate 1\n";
    let read = chain(text).unwrap();
    assert!(read.rewards.is_empty() && read.warnings.is_empty() && read.labels.sets.is_empty());
    let reason = chain(&text.replace("state 1", "state 1 [1]")).unwrap_err().to_string();
    assert!(reason.contains("invalid number of rewards 1: expected 0"), "{reason}");
}

#[test]
fn exit_rates_are_compared_at_the_digits_printed() {
    let reason = |exit: &str, rate: &str| {
        let text = format!(
            "@type: CTMC\n@nr_states: 1\n@nr_choices: 1\n@model\nstate 0 !{exit}\naction 0\n0 : {rate}\n0 : 10"
        );
        chain(&text).err().map(|e| e.to_string())
    };
    assert_eq!(reason("10.0067", "0.00665"), None);
    assert_eq!(reason("10.006650000000001", "0.00665"), None);
    assert_eq!(
        reason("10.0068", "0.00600").as_deref(),
        Some(
            "m.drn:5: the exit rate of state 0 is 10.0068, but its transitions sum to 10.006; correct one of them, or \
             export the model again"
        )
    );
    assert!(reason("10.006650001000000", "0.00665").is_some());
    // Storm prints ten digits; each number is off by at most half a unit of the last digit.
    assert_eq!(reason("10.3333333333", "0.3333333333"), None);
    assert!(reason("10.33333335", "0.3333333333").is_some());
    assert_eq!(significant_digits(b"0.00250e12"), 3);
    assert_eq!(significant_digits(b"1/3"), 17);
}

#[test]
fn another_number_of_choices_is_a_warning() {
    let read = chain(
        "@type: CTMC\n@nr_states\n2\n@nr_choices\n7\n@model\nstate 0 !2\naction 0\n1 : 2\nstate 1 !30\naction 0\n0 : 30\n",
    )
    .unwrap();
    assert_eq!(read.warnings.len(), 1);
    assert!(read.warnings[0].contains("@nr_choices is 7, but the file has 2 actions"));
}

#[test]
fn finds_duplicates() {
    let text = format!("{HEAD}state 0\naction 0\n1 : 1\n2 : 1\n1 : 2\nstate 1\naction 0\n1 : 1\nstate 2\n");
    assert_eq!(lines_of(text.as_bytes(), Path::new("m.drn"), 0, 1).unwrap(), [11, 13]);
}

proptest! {
    #[test]
    fn reads_back(
        rows in proptest::collection::vec((
            proptest::collection::vec((0u32..1000, 0.0f64..1e9), 0..5), -5.0f64..5.0, -5.0f64..5.0, any::<bool>(),
        ), 1..30),
    ) {
        let n = rows.len();
        let mut text = format!("@type: CTMC\n@value_type: double\n@reward_models\nr\n@nr_states\n{n}\n@model\n");
        let (mut list, mut values, mut set) = (TransitionList::default(), Vec::new(), Vec::new());
        for (state, (row, rate, jump, labelled)) in rows.iter().enumerate() {
            let exit = exit_rate(row.iter().map(|t| t.1));
            let label = if *labelled { " \"x y\"" } else { "" };
            writeln!(text, "state {state} !{exit} [{rate}]{label}\n\taction {state} [{jump}]").unwrap();
            for (target, rate) in row {
                let target = target % n as u32;
                writeln!(text, "\t\t{target} : {rate:e}").unwrap();
                list.extend([(state as u32, target, *rate)]);
            }
            values.push(rate + exit * jump);
            if *labelled {
                set.push(state as u32);
            }
        }
        let read = chain(&text).unwrap();
        prop_assert_eq!(read.states, n);
        prop_assert_eq!(read.transitions, list);
        prop_assert_eq!(&read.rewards[0].values, &values);
        prop_assert_eq!(read.labels.get("x y").unwrap_or(&[]), &set[..]);
        prop_assert_eq!(read.warnings, Vec::<String>::new());
    }
}
