//! The `kolmo` command.
fn main() {}
