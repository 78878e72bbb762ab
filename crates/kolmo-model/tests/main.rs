//! Tests of the crate's interface: texts in, states, chains and formulas out.

mod exploration;
mod language;
mod mutations;
mod properties;

use kolmo_model::properties::{Property, parse};
use kolmo_model::{Error, Instance, Names, Options, PrismModel, StateSpace, Value};

/// Two machines that fail, one repair worker, and a queue of `N` parts.
const WORKSHOP: &str = include_str!("inputs/workshop.sm");

/// Returns the fields of the cases in a section of a text of tables.
///
/// The section follows the line `== name`. Lines that begin with # are comments.
fn section<'a>(text: &'a str, name: &str) -> Vec<Vec<&'a str>> {
    let mut sections = text.split("\n== ");
    let own = sections.find_map(|text| text.strip_prefix(name)?.strip_prefix('\n')).expect("a section");
    let lines = own.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let rows: Vec<_> = lines.map(|line| line.split(" ~ ").collect()).collect();
    assert!(!rows.is_empty(), "the section '{name}' has no row");
    rows
}

fn given(text: &str) -> Vec<(String, Value)> {
    let all = kolmo_model::constants::parse(text).expect("constants");
    kolmo_model::constants::combinations(&all).expect("few").remove(0)
}

fn instance(text: &str, constants: &str) -> Instance {
    let model = PrismModel::parse("test.sm", text).unwrap_or_else(|e| panic!("{e}"));
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
