//! Tests of the crate's interface: texts in, states, chains and formulas out.

mod exploration;
mod language;
mod mutations;
mod properties;

use kolmo_model::properties::{Property, parse};
use kolmo_model::{Error, Instance, Model, Names, Options, StateSpace, Value};

/// Two machines that fail, one repair worker, and a queue of `N` parts.
const WORKSHOP: &str = r#"
ctmc
const int N;
const double fail = 1/40;
formula broken = (up1 ? 0 : 1) + (up2 ? 0 : 1);
formula idle = !busy;
global parts : [0..N] init N;
module Machine1
    up1 : bool init true;
    [] up1 -> fail : (up1'=false);
    [mend1] !up1 -> 1 : (up1'=true);
    [] up1 & parts > 0 -> 3 : (parts'=parts-1);
endmodule
module Machine2 = Machine1 [ up1=up2, mend1=mend2 ] endmodule
module Repair
    busy : bool;
    [] idle & broken > 0 -> 5 : (busy'=true);
    [mend1] busy -> 0.5 : (busy'=false);
    [mend2] busy -> 0.25 : (busy'=false) + 0.75 : true;
endmodule
module Source
    [] parts < N -> 0.5 : (parts'=min(parts+2, N));
endmodule
label "down" = broken = 2;
label "full" = parts = N;
rewards "parts" true : parts; endrewards
rewards "repairs" [mend1] true : 1; [mend2] busy : 10; endrewards
rewards up1 | up2 : 1; [] parts > 0 : 0.5; endrewards
"#;

fn given(text: &str) -> Vec<(String, Value)> {
    let all = kolmo_model::constants::parse(text).expect("constants");
    kolmo_model::constants::combinations(&all).expect("few").remove(0)
}

fn instance(text: &str, constants: &str) -> Instance {
    let model = Model::parse("test.sm", text).unwrap_or_else(|e| panic!("{e}"));
    model.with_constants(&given(constants)).unwrap_or_else(|e| panic!("{e}"))
}

fn explored(text: &str, constants: &str) -> StateSpace {
    instance(text, constants).explore(&Options::default()).unwrap_or_else(|e| panic!("{e}"))
}

/// Error of a model's exploration.
fn trouble(text: &str) -> Error {
    instance(text, "").explore(&Options::default()).expect_err("this is to be refused")
}

/// Resolves all properties of a text, or returns the first error.
fn resolved(
    text: &str,
    names: &Names,
    instance: Option<&Instance>,
    given: &[(String, Value)],
) -> Result<Vec<Property>, String> {
    let properties = parse("p", text, names).map_err(|e| e.to_string())?;
    let found = properties.with_constants(instance, given, &|_| true).map_err(|e| e.to_string())?;
    found.into_iter().map(|found| found.map_err(|wrong| wrong.why.to_string())).collect()
}
