//! CSL properties: parsing, resolution, error messages.

use kolmo_model::properties::{Comparison, Formula, PathFormula, Property, parse};
use kolmo_model::{Names, PerState, Type, Value};

use crate::{WORKSHOP, explored, given, instance, resolved, section};

const TABLES: &str = include_str!("inputs/properties.txt");

/// Resolves properties of the workshop.
fn of_workshop(text: &str, constants: &str) -> Result<Vec<Property>, String> {
    let instance = instance(WORKSHOP, "N=3");
    resolved(text, instance.model().names(), Some(&instance), &given(constants))
}

fn one(text: &str) -> Formula {
    of_workshop(text, "").unwrap_or_else(|e| panic!("{e}")).remove(0).formula
}

#[test]
fn a_file_has_names_constants_labels_and_comments() {
    let text = "// first\nconst double T; const double half = T/2;\nlabel \"bad\" = \"down\" | parts = 0;\n\
        \"soon\": P=? [ F<=T \"bad\" ];\n\nP>=0.5 [ !\"bad\" U[half,T] \"full\" ]\nS<0.1 [ \"bad\" ];\n1 - \"soon\"";
    let all = of_workshop(text, "T=8").unwrap_or_else(|e| panic!("{e}"));
    let types: Vec<Type> = all.iter().map(|p| p.ty).collect();
    assert_eq!(types, [Type::Double, Type::Bool, Type::Bool, Type::Double]);
    assert_eq!(all[0].name.as_deref(), Some("soon"));
    assert_eq!(all[0].text, "P=? [ F<=T \"bad\" ]");
    let Formula::Probability { bound, path, complement } = &all[0].formula else { panic!("{:?}", all[0]) };
    assert!(bound.is_none() && !complement, "{:?}", all[0]);
    assert!(matches!(path, PathFormula::Until { left: None, from: 0.0, to: 8.0, .. }), "{path:?}");
    let Formula::Probability { bound: Some(bound), path, .. } = &all[1].formula else {
        panic!("{:?}", all[1])
    };
    assert!(matches!(path, PathFormula::Until { left: Some(_), from: 4.0, to: 8.0, .. }), "{path:?}");
    assert_eq!((bound.comparison, bound.limit), (Comparison::GreaterEqual, 0.5));
    assert_eq!(bound.decide(0.4, 0.45), Some(false));
    assert_eq!(bound.decide(0.5, 0.6), Some(true));
    assert_eq!(bound.decide(0.49, 0.51), None);
    assert!(matches!(&all[2].formula, Formula::SteadyState { bound: Some(_), .. }));
    let Formula::Combination(combination, parts) = &all[3].formula else { panic!("{:?}", all[3]) };
    assert_eq!(parts.len(), 1);
    let values = combination.values(&[PerState::Numbers(vec![0.25, 1.0])]).expect("numbers");
    assert_eq!(values, PerState::Numbers(vec![0.75, 0.0]));
}

#[test]
fn every_form_is_read() {
    for case in section(TABLES, "untils") {
        let (text, number) = (case[0], |k: usize| case[k].parse::<f64>().expect("a number"));
        let expected = (number(1), number(2), case[3] == "true");
        match one(text) {
            Formula::Probability { path: PathFormula::Until { from, to, .. }, complement, .. } => {
                assert_eq!((from, to, complement), expected, "{text}");
            }
            other => panic!("{text}: {other:?}"),
        }
    }
    assert!(matches!(one("P>0 [ X up1 ]"), Formula::Probability { path: PathFormula::Next(_), .. }));
    for case in section(TABLES, "rewards") {
        let (text, form, name) = (case[0], case[1], case.get(2).copied());
        let Formula::Reward { structure, goal, .. } = one(text) else { panic!("{text}") };
        assert_eq!(structure.as_deref(), name, "{text}");
        assert!(format!("{goal:?}").starts_with(form), "{text}: {goal:?}");
    }
    for case in section(TABLES, "filters") {
        let Formula::Filter { kind, .. } = one(case[0]) else { panic!("{}", case[0]) };
        assert_eq!(format!("{kind:?}"), case[1], "{}", case[0]);
    }
    // Operators are nested, and operands of boolean operators.
    let text = "P>0.5 [ F<=1 P<0.1 [ F \"down\" ] ] & !(parts=2) | \"init\"";
    let Formula::Combination(combination, parts) = one(text) else { panic!("a combination") };
    assert!(matches!(&parts[..], [Formula::Probability { .. }, Formula::State(_), Formula::Label(_)]));
    let truth = |all: [bool; 2]| PerState::Truth(all.to_vec());
    let values = combination.values(&[truth([true, false]), truth([true, true]), truth([false, false])]);
    assert_eq!(values.expect("truth"), truth([true, false]));
}

#[test]
fn formulas_over_variables_have_values_in_all_states() {
    let space = explored(WORKSHOP, "N=3");
    let evaluate = |text: &str| match one(text) {
        Formula::State(formula) => space.evaluate(&formula).expect("values"),
        other => panic!("{text}: {other:?}"),
    };
    let parts: Vec<f64> = (0..space.states()).map(|state| space.values(state)[0] as f64).collect();
    assert_eq!(evaluate("parts"), PerState::Numbers(parts.clone()));
    assert_eq!(evaluate("parts/2"), PerState::Numbers(parts.iter().map(|p| p / 2.0).collect()));
    assert_eq!(evaluate("\"full\""), PerState::Truth(space.label("full").expect("a label")));
    assert_eq!(evaluate("!\"full\" & N=3"), PerState::Truth(parts.iter().map(|p| *p < 3.0).collect()));
    assert_eq!(evaluate("true"), PerState::Truth(vec![true; space.states()]));
}

#[test]
fn labels_of_a_file_are_names_enough() {
    let names = Names::bare(["a", "b"], [""], Vec::new());
    let text = "const double t; P=? [ !\"a\" U<=t \"b\" | \"deadlock\" ]; R=? [ C<=t ]";
    let all = resolved(text, &names, None, &given("t=3")).expect("labels are known");
    let Formula::Probability { path, .. } = &all[0].formula else { panic!("{:?}", all[0]) };
    let PathFormula::Until { left: Some(left), right, to: 3.0, .. } = path else { panic!("{path:?}") };
    assert!(matches!(&**left, Formula::Combination(_, parts) if parts.len() == 1));
    assert!(matches!(&**right, Formula::Combination(_, parts) if parts.len() == 2));
    let error = resolved("P=? [ F \"c\" ] + x", &names, None, &[]).expect_err("neither is known");
    assert!(error.contains("\"c\"") && error.contains("'x'"), "{error}");
}

#[test]
fn variables_of_a_file_have_values() {
    let variables = [("q", Type::Int), ("up", Type::Bool), ("load", Type::Double)];
    let names = Names::bare(["a"], [""; 0], variables.map(|(name, ty)| (name.to_owned(), ty)).to_vec());
    let states = [(0, true, 0.5), (1, false, 1.5), (2, true, 0.25)];
    let given = |state: usize, all: &mut Vec<Value>| {
        let (q, up, load) = states[state];
        all.extend([Value::Int(q), Value::Bool(up), Value::Double(load)]);
    };
    for (text, wanted) in [
        ("q>0 & up", PerState::Truth(vec![false, false, true])),
        ("load*2 >= q + 1", PerState::Truth(vec![true, true, false])),
        ("up ? q : 7", PerState::Numbers(vec![0.0, 7.0, 2.0])),
        ("load + q", PerState::Numbers(vec![0.5, 2.5, 2.25])),
        ("true", PerState::Truth(vec![true; 3])),
    ] {
        let formula = resolved(text, &names, None, &[]).unwrap_or_else(|e| panic!("{e}")).remove(0).formula;
        let Formula::State(formula) = formula else { panic!("{formula:?}") };
        assert_eq!(formula.values(3, given).expect("values"), wanted, "{text}");
    }
    let bare = Names::bare(["a"], ["r"], Vec::new());
    for case in section(TABLES, "refused for a chain in a file") {
        let (text, part, names) = (case[0], case[1], if case.len() > 2 { &bare } else { &names });
        let error = resolved(text, names, None, &[]).expect_err(text);
        assert!(error.contains(part), "{text}: {error}");
    }
}

#[test]
fn copies_of_nested_operators_are_limited() {
    let nested = |start: &str| of_workshop(&format!("{}up2{}", start.repeat(40), " ]".repeat(40)), "");
    let error = nested("P>0 [ up1 W ").expect_err("W copies its operands");
    assert!(error.contains("too deep"), "{error}");
    for start in ["A [ up1 U ", "R>0 [ up1 U "] {
        assert_eq!(nested(start).expect(start).len(), 1);
    }
}

#[test]
fn an_error_ends_with_its_line() {
    let text = "P=? [ F G<=1 up1 ]\nP=? [ F up1 ]\n1 +\n2 * P=? [ X\nup1 ]\nP=? [ up1 up2 ]\nup1 &\nup2\n";
    let instance = instance(WORKSHOP, "N=3");
    let all = parse("p", text, instance.model().names()).expect("errors are kept");
    let all = all.with_constants(Some(&instance), &[], &|_| true).expect("no constants");
    let texts: Vec<_> = all.iter().map(|found| found.as_ref().map(|p| &*p.text)).collect();
    let right = |k: usize| texts[k].expect("it is right");
    assert_eq!(texts.len(), 5);
    assert!(texts[0].is_err() && texts[3].is_err());
    assert_eq!([right(1), right(2), right(4)], ["P=? [ F up1 ]", "1 +\n2 * P=? [ X\nup1 ]", "up1 &\nup2"]);
}

#[test]
fn paths_are_rewritten_to_what_is_answered() {
    let shape = |text: &str| format!("{:?}", one(text));
    for case in section(TABLES, "rewritten") {
        let (text, same) = (case[0], case[1]);
        assert_eq!(shape(text), shape(same), "{text}");
    }
}

/// Texts with many named properties take linear time.
#[test]
fn many_properties_are_resolved_one_by_one() {
    let started = std::time::Instant::now();
    let text: String = (0..20_000).map(|k| format!("\"p{k}\": P=? [ F<={k} up1 ];\n")).collect();
    assert_eq!(of_workshop(&text, "").expect("no constants").len(), 20_000);
    assert!(started.elapsed().as_secs() < 30, "{:?}", started.elapsed());
}

#[test]
fn constants_of_properties_that_are_not_wanted_may_have_no_value() {
    let text = "const double T; const int K; const double half = T/2; label \"some\" = parts >= K;
        \"first\": P=? [ F<=half busy ]; \"second\": P=? [ F \"some\" ]; \"third\": S>=0.5 [ busy ]; P>=0.5 [ F<=1 \"third\" ]";
    let instance = instance(WORKSHOP, "N=3");
    let properties = parse("p", text, instance.model().names()).expect("it is right");
    let names: Vec<_> = properties.property_names().collect();
    assert_eq!(names, [Some("first"), Some("second"), Some("third"), None]);
    let missing = |wanted: usize, constants: &[(String, Value)]| {
        let found = properties.with_constants(Some(&instance), constants, &|place| place == wanted);
        found.map_or_else(|error| error.to_string(), |found| "found ".repeat(found.len()))
    };
    let without: String = missing(0, &[]);
    assert!(without.contains("double T") && !without.contains("int K"), "{without}");
    let without = missing(1, &given("T=1"));
    assert!(without.contains("int K") && !without.contains("double T"), "{without}");
    for (wanted, constants) in [(0, "T=1"), (1, "K=2"), (2, ""), (3, "")] {
        assert_eq!(missing(wanted, &given(constants)), "found ");
    }
}

#[test]
fn what_is_not_answered_is_refused_by_name() {
    for case in section(TABLES, "refused") {
        let (text, part) = (case[0], case[1]);
        let error = of_workshop(text, "").expect_err(text);
        assert!(error.contains(part), "{text}: {error}");
    }
}

#[test]
fn steps_are_whole_numbers_and_strict_bounds_count() {
    let names = Names::bare(["a"], ["r"], Vec::new()).discrete(true);
    let interval = |text: &str| {
        let properties = parse("p", text, &names).expect("a property");
        let found = properties.with_constants(None, &[], &|_| true).expect("no constants");
        found.into_iter().next().expect("one").map(|property| match property.formula {
            Formula::Probability { path: PathFormula::Until { from, to, .. }, .. } => (from, to),
            _ => (0.0, 0.0),
        })
    };
    for case in section(TABLES, "steps") {
        let (text, found) = (case[0], interval(case[0]).map_err(|wrong| wrong.why.to_string()));
        match found {
            Ok(times) => assert_eq!(format!("{times:?}"), case[1], "{text}"),
            Err(why) => assert!(why.contains(case[1]), "{text}: {why}"),
        }
    }
}

#[test]
fn weak_until_release_and_older_filters_are_rewritten() {
    let negated = |text: &str| match one(text) {
        Formula::Probability {
            path: PathFormula::Until { left: Some(_), from, to, .. }, complement, ..
        } => complement.then_some((from, to)),
        other => panic!("{text}: {other:?}"),
    };
    assert_eq!(negated("P=? [ up1 W up2 ]"), Some((0.0, f64::INFINITY)));
    assert_eq!(negated("P=? [ up1 R<=3 up2 ]"), Some((0.0, 3.0)));
    assert_eq!(negated("P=? [ up1 U up2 ]"), None);
    for case in section(TABLES, "older filters") {
        let Formula::Filter { kind, states: Some(_), .. } = one(case[0]) else { panic!("{}", case[0]) };
        assert_eq!(format!("{kind:?}"), case[1], "{}", case[0]);
    }
}
