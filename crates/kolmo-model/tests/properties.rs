//! CSL properties: parsing, resolution, error messages.

use kolmo_model::properties::{Comparison, Formula, Goal, Path, Property, parse};
use kolmo_model::{FilterKind, Model, Names, Type, Value, Values};

use crate::{WORKSHOP, explored, given, instance};

fn resolved(text: &str, constants: &str) -> Vec<Property> {
    let instance = instance(WORKSHOP, "N=3");
    let properties = parse("p.csl", text, instance.model().names()).unwrap_or_else(|e| panic!("{e}"));
    properties.with_constants(Some(&instance), &given(constants), &|_| true).unwrap_or_else(|e| panic!("{e}"))
}

fn one(text: &str) -> Formula {
    resolved(text, "").remove(0).formula
}

#[test]
fn a_file_has_names_constants_labels_and_comments() {
    let text = "// first\nconst double T; const double half = T/2;\nlabel \"bad\" = \"down\" | parts = 0;\n\
        \"soon\": P=? [ F<=T \"bad\" ];\n\nP>=0.5 [ !\"bad\" U[half,T] \"full\" ]\nS<0.1 [ \"bad\" ];\n1 - \"soon\"";
    let all = resolved(text, "T=8");
    assert_eq!(
        all.iter().map(|p| p.ty).collect::<Vec<_>>(),
        [Type::Double, Type::Bool, Type::Bool, Type::Double]
    );
    assert_eq!(all[0].name.as_deref(), Some("soon"));
    assert_eq!(all[0].text, "P=? [ F<=T \"bad\" ]");
    let Formula::Probability {
        bound: None,
        path: Path::Until { left: None, from, to, .. },
        complement: false,
    } = &all[0].formula
    else {
        panic!("{:?}", all[0])
    };
    assert_eq!((*from, *to), (0.0, 8.0));
    let Formula::Probability {
        bound: Some(bound), path: Path::Until { left: Some(_), from, to, .. }, ..
    } = &all[1].formula
    else {
        panic!("{:?}", all[1])
    };
    assert_eq!((bound.comparison, bound.limit, *from, *to), (Comparison::GreaterEqual, 0.5, 4.0, 8.0));
    assert_eq!(bound.decide(0.4, 0.45), Some(false));
    assert_eq!(bound.decide(0.5, 0.6), Some(true));
    assert_eq!(bound.decide(0.49, 0.51), None);
    assert!(matches!(&all[2].formula, Formula::SteadyState { bound: Some(_), .. }));
    let Formula::Combination(combination, parts) = &all[3].formula else { panic!("{:?}", all[3]) };
    assert_eq!(parts.len(), 1);
    assert_eq!(combination.value(&[Value::Double(0.25)]).expect("a number"), Value::Double(0.75));
}

#[test]
fn every_form_is_read() {
    let times = |text: &str| match one(text) {
        Formula::Probability { path: Path::Until { from, to, .. }, complement, .. } => (from, to, complement),
        other => panic!("{text}: {other:?}"),
    };
    assert_eq!(times("P=? [ F \"down\" ]"), (0.0, f64::INFINITY, false));
    assert_eq!(times("P=? [ true U>=2 \"down\" ]"), (2.0, f64::INFINITY, false));
    assert_eq!(times("P=? [ F[1,3] parts=0 & up1 ]"), (1.0, 3.0, false));
    assert_eq!(times("P=? [ F[2,2] parts=0 ]"), (2.0, 2.0, false));
    assert_eq!(times("P=? [ F=2 parts=0 ]"), (2.0, 2.0, false));
    assert_eq!(times("P=? [ G<=2*3+1 (parts>0) ]"), (0.0, 7.0, true));
    assert_eq!(times("P=? [ (up1 U<=5 up2) ]"), (0.0, 5.0, false));
    assert_eq!(times("P=? [ F<=2 (parts=0) ]"), (0.0, 2.0, false));
    assert!(matches!(one("P>0 [ X up1 ]"), Formula::Probability { path: Path::Next(_), .. }));
    let goal = |text: &str| match one(text) {
        Formula::Reward { structure, goal, .. } => (structure, goal),
        other => panic!("{text}: {other:?}"),
    };
    assert!(
        matches!(goal("R{\"parts\"}=? [ C<=2 ]"), (Some(name), Goal::Cumulative(2.0)) if name == "parts")
    );
    assert!(matches!(goal("R=? [ C ]"), (None, Goal::Total)));
    assert!(matches!(goal("R=? [ I=4 ]"), (None, Goal::Instantaneous(4.0))));
    assert!(matches!(goal("R=? [ F \"down\" ]"), (None, Goal::Reach(_))));
    assert!(matches!(goal("R{\"repairs\"}<=3.5 [ S ]"), (Some(_), Goal::SteadyState)));
    for (text, expected) in [
        ("filter(min, P=? [ F<=1 \"down\" ], parts=2)", FilterKind::Min),
        ("filter(avg, R=? [ I=1 ])", FilterKind::Average),
        ("filter(forall, P>0.1 [ F \"down\" ], \"full\")", FilterKind::ForAll),
        ("filter(+, parts, up1)", FilterKind::Sum),
        ("filter(state, P=? [ X up1 ], parts=3 & up1 & up2 & !busy)", FilterKind::State),
        ("filter(print, up1)", FilterKind::Print),
    ] {
        assert!(matches!(one(text), Formula::Filter { kind, .. } if kind == expected), "{text}");
    }
    // Operators are nested, and operands of boolean operators.
    let Formula::Combination(combination, parts) =
        one("P>0.5 [ F<=1 P<0.1 [ F \"down\" ] ] & !(parts=2) | \"init\"")
    else {
        panic!("a combination")
    };
    assert_eq!(parts.len(), 3);
    assert!(matches!(
        (&parts[0], &parts[1], &parts[2]),
        (Formula::Probability { .. }, Formula::State(_), Formula::Label(_))
    ));
    let truth = |all: [bool; 2]| Values::Truth(all.to_vec());
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
    assert_eq!(evaluate("parts"), Values::Numbers(parts.clone()));
    assert_eq!(evaluate("parts/2"), Values::Numbers(parts.iter().map(|p| p / 2.0).collect()));
    assert_eq!(evaluate("\"full\""), Values::Truth(space.label("full").expect("a label")));
    assert_eq!(evaluate("!\"full\" & N=3"), Values::Truth(parts.iter().map(|p| *p < 3.0).collect()));
    assert_eq!(evaluate("true"), Values::Truth(vec![true; space.states()]));
}

#[test]
fn labels_of_a_file_are_names_enough() {
    let names = Names::bare(["a", "b"], [""], Vec::new());
    let properties =
        parse("arg", "const double t; P=? [ !\"a\" U<=t \"b\" | \"deadlock\" ]; R=? [ C<=t ]", &names);
    let all = properties
        .expect("labels are known")
        .with_constants(None, &given("t=3"), &|_| true)
        .expect("a constant");
    let Formula::Probability { path: Path::Until { left: Some(left), right, to: 3.0, .. }, .. } =
        &all[0].formula
    else {
        panic!("{:?}", all[0])
    };
    assert!(matches!(&**left, Formula::Combination(_, parts) if parts.len() == 1));
    assert!(matches!(&**right, Formula::Combination(_, parts) if parts.len() == 2));
    let error = parse("arg", "P=? [ F \"c\" ] + x", &names).expect_err("neither is known").to_string();
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
        ("q>0 & up", Values::Truth(vec![false, false, true])),
        ("load*2 >= q + 1", Values::Truth(vec![true, true, false])),
        ("up ? q : 7", Values::Numbers(vec![0.0, 7.0, 2.0])),
        ("load + q", Values::Numbers(vec![0.5, 2.5, 2.25])),
        ("true", Values::Truth(vec![true; 3])),
    ] {
        let parsed = parse("arg", text, &names).unwrap_or_else(|e| panic!("{e}"));
        let formula = parsed.with_constants(None, &[], &|_| true).expect("no constants").remove(0).formula;
        let Formula::State(formula) = formula else { panic!("{formula:?}") };
        assert_eq!(formula.values(3, given).expect("values"), wanted, "{text}");
    }
    let error = |text: &str, names: &Names| parse("arg", text, names).expect_err(text).to_string();
    assert!(error("P=? [ F<=1 lod>1 ]", &names).contains("did you mean 'load'?"));
    assert!(error("P=? [ F<=1 zz>1 ]", &names).contains("the chain has: q, up, load"));
    assert!(error("P=? [ F<=1 \"zz\" ]", &names).contains("the chain has: a, deadlock, init"));
    assert!(error("P=? [ F<=1 a ]", &names).contains("write \"a\""));
    let bare = Names::bare(["a"], ["r"], Vec::new());
    assert!(error("P=? [ F<=1 zz>1 ]", &bare).contains("no variables; name labels in quotation marks: a, "));
    assert!(error("R{\"zz\"}=? [ C<=1 ]", &bare).contains("the chain has: r"));
    assert!(error("R=? [ C<=1 ]", &names).contains("the chain has no rewards"));
}

/// Texts with many named properties take linear time.
#[test]
fn many_properties_are_resolved_one_by_one() {
    let started = std::time::Instant::now();
    let text: String = (0..20_000).map(|k| format!("\"p{k}\": P=? [ F<={k} up1 ];\n")).collect();
    let instance = instance(WORKSHOP, "N=3");
    let properties = parse("p", &text, instance.model().names()).expect("it is right");
    let all = properties.with_constants(Some(&instance), &[], &|_| true).expect("no constants");
    assert_eq!(all.len(), 20_000);
    assert!(started.elapsed().as_secs() < 30, "{:?}", started.elapsed());
}

#[test]
fn constants_of_properties_that_are_not_wanted_may_have_no_value() {
    let text = "const double T; const int K; const double half = T/2; label \"some\" = parts >= K;
        \"first\": P=? [ F<=half busy ]; \"second\": P=? [ F \"some\" ]; \"third\": S>=0.5 [ busy ]; P>=0.5 [ F<=1 \"third\" ]";
    let instance = instance(WORKSHOP, "N=3");
    let properties = parse("p", text, instance.model().names()).expect("it is right");
    assert_eq!(
        properties.property_names().collect::<Vec<_>>(),
        [Some("first"), Some("second"), Some("third"), None]
    );
    let missing = |wanted: usize, constants: &[(String, Value)]| {
        let found = properties.with_constants(Some(&instance), constants, &|place| place == wanted);
        match found {
            Ok(found) => {
                assert_eq!(found.len(), 1);
                String::new()
            }
            Err(error) => error.to_string(),
        }
    };
    let without: String = missing(0, &[]);
    assert!(without.contains("double T") && !without.contains("int K"), "{without}");
    let without = missing(1, &given("T=1"));
    assert!(without.contains("int K") && !without.contains("double T"), "{without}");
    for (wanted, constants) in [(0, "T=1"), (1, "K=2"), (2, ""), (3, "")] {
        assert_eq!(missing(wanted, &given(constants)), "");
    }
}

#[test]
fn what_is_not_answered_is_refused_by_name() {
    let model = Model::parse("w.sm", WORKSHOP).expect("a model");
    for (text, part) in [
        ("P=? [ up1 W up2 ]", "weak until"),
        ("P=? [ up1 R up2 ]", "release"),
        ("P=? [ F G up1 ]", "within another path formula"),
        ("P=? [ !F up1 ]", "negated"),
        ("P=? [ up1 U (F up2) ]", "outside of an operator"),
        ("Pmax=? [ F up1 ]", "Pmax"),
        ("Pmin=? [ F up1 ]", "Pmin"),
        ("A [ F up1 ]", "CTL"),
        ("R=? [ C<3 ]", "']'"),
        ("R=? [ F<=3 up1 ]", "takes no times"),
        ("R{\"pats\"}=? [ S ]", "did you mean 'parts'?"),
        ("P=? [ F<=parts up1 ]", "is a variable"),
        ("P=? [ F parts ]", "true or false"),
        ("P=? up1", "'['"),
        ("P [ F up1 ]", "=? or a bound"),
        ("filter(mean, up1)", "known are min"),
        ("filter(values, P=? [ F up1 ])", "answers from every state need no filter"),
        ("LRA=? [ up1 ]", "write S=? [ condition ]"),
        ("P=? [ F[1,inf] up1 ]", "without an end are written >=t"),
        ("P=? [ F<=1 down ]", "write \"down\""),
        ("\"down\": up1", "given twice"),
        ("const int N = 3;", "declared twice"),
        ("up1 up2", "separated by ';'"),
    ] {
        let error = parse("p", text, model.names()).expect_err(text).to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
    let instance = instance(WORKSHOP, "N=3");
    for (text, part) in [
        ("P>=1.5 [ F up1 ]", "from 0 to 1"),
        ("P=? [ F<=-1 up1 ]", "0 or more"),
        ("P=? [ F[3,2] up1 ]", "earlier time"),
        ("R=? [ C<=1/0 ]", "the time is inf"),
        ("const double t; P=? [ F<=t up1 ]", "double t"),
    ] {
        let properties = parse("p", text, instance.model().names()).unwrap_or_else(|e| panic!("{e}"));
        let error = properties.with_constants(Some(&instance), &[], &|_| true).expect_err(text).to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
}
