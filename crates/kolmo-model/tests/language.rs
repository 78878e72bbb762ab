//! Precedence, types, values and error messages.

use kolmo_model::{Error, PrismModel, Value};

use crate::{WORKSHOP, given, section};

const TABLES: &str = include_str!("inputs/language.txt");

/// Evaluates an expression as the value of a constant.
fn value(ty: &str, expression: &str) -> Result<Value, String> {
    let text = format!("ctmc const {ty} x = {expression}; module m v : bool; endmodule");
    let model = PrismModel::parse("e", &text).map_err(|e| e.to_string())?;
    let instance = model.with_constants(&[]).map_err(|e| e.to_string())?;
    Ok(instance.constant("x").expect("it is declared"))
}

#[test]
fn expressions_have_the_values_and_errors_of_the_manual() {
    for case in section(TABLES, "expressions") {
        let (ty, expression, expected) = (case[0], case[1], case[2]);
        let found = value(ty, expression);
        if let Some(part) = expected.strip_prefix("error: ") {
            let message = found.expect_err(expression);
            assert!(message.contains(part), "{expression}: {message}");
            continue;
        }
        let expected: Value = expected.parse().expect("a value");
        let number = || Value::Double(expected.number().expect("a number"));
        assert_eq!(found, Ok(if ty == "double" { number() } else { expected }), "{expression}");
    }
}

/// Reserved words in PRISM's manual. Of the functions they include `min` and `max` alone.
const RESERVED: &str = include_str!("inputs/reserved.txt");

#[test]
fn words_are_reserved_that_prism_reserves_and_no_others() {
    let named = |word: &str| {
        let command = format!("[{word}_a] true -> {word} : true;");
        format!("ctmc const int {word} = 1; module {word}_m {word}_x : [0..2]; {command} endmodule")
    };
    for word in RESERVED.split_whitespace() {
        let error = PrismModel::parse("m", &named(word)).expect_err(word).to_string();
        assert!(error.contains(&format!("'{word}' is a reserved word of PRISM")), "{error}");
        assert_eq!(error.contains("Storm"), word.len() == 1, "{error}");
    }
    for word in ["round", "floor", "ceil", "pow", "log", "mod", "T", "D", "Z", "player", "smg", "inf"] {
        PrismModel::parse("m", &named(word)).unwrap_or_else(|e| panic!("{e}"));
        let text = format!(
            "ctmc module {word} {word} : [0..2]; [{word}] {word}<2 -> mod(3, 2) + floor(1.5) : ({word}'={word}+1); endmodule
             module other y : [0..floor(1.5)]; [{word}] true -> pow(2, 1) : true; endmodule
             label \"{word}\" = {word} = 1; rewards [{word}] true : round(0.5)*{word}; endrewards"
        );
        let space = crate::explored(&text, "");
        assert_eq!(space.chain().row(0).collect::<Vec<_>>(), [(1, 4.0)], "{word}");
    }
}

#[test]
fn updates_without_a_rate_stand_alone() {
    let of = |updates: &str| {
        let text = format!("ctmc module m a : [0..1]; b : [0..3]; [] a=0 -> {updates}; endmodule");
        PrismModel::parse("m", &text).map(|_| ()).map_err(|error| error.to_string())
    };
    for right in section(TABLES, "updates") {
        of(right[0]).unwrap_or_else(|error| panic!("{error}"));
    }
    for case in section(TABLES, "updates without a rate") {
        let wrong = case[0];
        let error = of(wrong).expect_err(wrong);
        assert!(error.contains("was '&' meant") && error.contains("need a rate"), "{error}");
        let at = "ctmc module m a : [0..1]; b : [0..3]; [] a=0 -> ".len() + wrong.find('+').expect("a sign");
        assert!(error.contains(&format!("m:1:{}", at + 1)), "{error}");
    }
}

#[test]
fn texts_may_be_of_latin_1_and_begin_with_a_mark() {
    let old = b"\xef\xbb\xbfctmc\n// Zuverl\xe4ssigkeit \xc3\xa4\nmodule m x : bool; endmodule\n";
    let text = kolmo_model::decoded(old.to_vec());
    assert!(text.contains("Zuverlässigkeit ä\n"), "{text}");
    PrismModel::parse("m", &text).unwrap_or_else(|e| panic!("{e}"));
    // A character outside of comments is reported.
    let wrong = kolmo_model::decoded(b"ctmc module m x : bool; endmodule \xe4".to_vec());
    let error = PrismModel::parse("m", &wrong).expect_err("no comment").to_string();
    assert!(error.contains("unexpected character 'ä'") && error.contains("m:1:35"), "{error}");
    let sound = "ctmc // ∅ → X\nmodule m x : bool; endmodule";
    assert_eq!(kolmo_model::decoded(sound.as_bytes().to_vec()), sound);
}

#[test]
fn names_of_labels_and_of_variables_are_told_apart() {
    for (expression, parts) in [
        ("full", ["'full' is a label", "write \"full\""]),
        ("\"x\"", ["the label \"x\" is not known", "write x without"]),
        ("fulx", ["the name 'fulx' is not known", "declare it"]),
    ] {
        let text =
            format!("ctmc module m x : bool; endmodule label \"full\" = x; label \"other\" = {expression};");
        let error = PrismModel::parse("m", &text).expect_err(expression).to_string();
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    }
}

/// Texts of a hundred thousand parts take linear time.
///
/// The limit is five times the time on a loaded machine. Quadratic memory would be gigabytes.
#[test]
#[ignore = "slow: long texts"]
fn long_texts_take_time_in_proportion() {
    const MANY: usize = 30_000;
    let started = std::time::Instant::now();
    let each = |of: fn(usize) -> String| (0..MANY).map(of).collect::<String>();
    let small = "ctmc module m x : [0..1]; [] x=0 -> 1 : (x'=1); endmodule ";

    let modules = each(|k| format!("module m{k} x{k} : [0..1]; [go] x{k}=0 -> 1 : (x{k}'=1); endmodule "));
    let rewards = each(|k| format!("rewards \"r{k}\" x=0 : {k}; endrewards "));
    let labels = each(|k| format!("label \"l{k}\" = x={};", k % 2));

    let error = crate::trouble(&format!("ctmc {modules}")).to_string();
    assert!(error.contains("at most 4096 are supported"), "{error}");
    let space = crate::explored(&format!("{small} {rewards}"), "");
    assert!((0..MANY).all(|k| space.rewards(Some(&format!("r{k}"))).expect("rewards")[0] == k as f64));
    let space = crate::explored(&format!("{small} {labels}"), "");
    assert!((0..MANY).all(|k| space.label(&format!("l{k}")).expect("a label")[k % 2]));
    // Variables with one value have no bits in a state.
    let constants = each(|k| format!("module c{k} c{k} : [0..0]; [go{k}] c{k}=0 -> 1 : true; endmodule "));
    assert_eq!(crate::explored(&format!("ctmc {constants}"), "").states(), 1);
    assert!(started.elapsed().as_secs() < 27, "{:?}", started.elapsed());
}

fn messages(text: &str) -> Vec<(usize, usize, String)> {
    match PrismModel::parse("m.sm", text) {
        Err(Error::Text(list)) => {
            list.messages().map(|(line, column, m)| (line, column, m.to_owned())).collect()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn several_errors_are_told_at_once_each_at_its_place() {
    let text = "ctmc\nconst int N = 2\nmodule a\n x : [0..N];\n [] x < 2 -> 1 (x'=1);\n [] x > 0 -> 1 : (x'=);\nendmodule\n";
    let found = messages(text);
    let places: Vec<(usize, usize)> = found.iter().map(|(line, column, _)| (*line, *column)).collect();
    assert_eq!(places, [(3, 1), (5, 16), (6, 22)], "{found:?}");

    let text = "ctmc\nmodule a\n x : [0..3];\n b : bool;\n [] y=1 -> 1 : (x'=b);\n [] b -> x>1 : (z'=1) & (x'=1) & (x'=2);\nendmodule\nlabel \"l\" = x;\n";
    let found = messages(text);
    assert_eq!(found.len(), 6, "{found:?}");
    assert_eq!((found[0].0, found[0].1, &*found[0].2), (5, 5, "the name 'y' is not known"));
}

#[test]
fn a_message_has_line_column_caret_and_remedy() {
    let text = "ctmc\nconst int size = 3;\nmodule m\n  x : [0..sise];\nendmodule\n";
    let error = PrismModel::parse("m.sm", text).expect_err("the name is wrong").to_string();
    let expected = include_str!("inputs/message.txt").trim_end();
    assert_eq!(error, expected, "\n{error}");
}

#[test]
fn what_is_no_markov_chain_is_refused_by_name() {
    for case in section(TABLES, "refused models") {
        let found = messages(case[0]);
        assert!(found.iter().any(|(_, _, message)| message.contains(case[1])), "{}: {found:?}", case[0]);
    }
}

#[test]
fn constants_are_asked_for_by_name_and_type() {
    let model = PrismModel::parse("w.sm", WORKSHOP).expect("a model");
    assert_eq!(model.undefined_constants().map(|(name, _)| name).collect::<Vec<_>>(), ["N"]);
    assert_eq!(model.labels().collect::<Vec<_>>(), ["down", "full"]);
    assert_eq!(model.reward_structures().collect::<Vec<_>>(), ["parts", "repairs", ""]);
    for case in section(TABLES, "constants of the workshop") {
        let (constants, part) = (case[0], case[1]);
        let error = model.with_constants(&given(constants)).expect_err(constants).to_string();
        assert!(error.contains(part), "{constants}: {error}");
    }
}

#[test]
fn long_and_deep_expressions_are_taken_or_refused() {
    let model = |e: &str| {
        PrismModel::parse("m", &format!("ctmc module m x : bool; [] {e} -> 1 : (x'=!x); endmodule"))
            .map(|_| ())
    };
    model(&vec!["x"; 20_000].join(" | ")).expect("a long disjunction");
    let choices: String = (0..200).map(|k| format!("{k}=1 ? true : ")).collect();
    model(&format!("{choices}x")).expect("a long choice");
    for deep in
        ["(".repeat(10_000), "-".repeat(10_000), "!".repeat(10_000), "1+".repeat(10_000), "min(".repeat(9999)]
    {
        let error = model(&format!("{deep}1")).expect_err("nested too deep").to_string();
        assert!(error.len() < 200_000);
    }
    // Each formula is twice as large as the one before it.
    let doubled: String = (1..60).map(|k| format!("formula f{k} = f{0} + f{0};", k - 1)).collect();
    let text =
        format!("ctmc formula f0 = x; {doubled} module m x : [0..1]; [] f59 > 0 -> 1 : true; endmodule");
    let model = PrismModel::parse("m", &text).expect("the text is right");
    assert!(model.with_constants(&[]).expect_err("it grows").to_string().contains("parts"));
}

#[test]
fn formulas_where_constants_are_expected_are_refused_by_name() {
    for (text, at) in [
        ("ctmc formula f = x + 1; const int c = f; module m x:[0..c] init 0; endmodule", "m:1:39"),
        ("ctmc formula f = 3; module m x:[0..f] init 0; endmodule", "m:1:36"),
    ] {
        let model = PrismModel::parse("m", text).expect("a model");
        let error = model.with_constants(&[]).expect_err(text).to_string();
        assert!(error.contains("'f' has no value here") && error.contains(at), "{error}");
    }
}
