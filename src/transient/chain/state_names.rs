//! Names of states: the variables of a model and their values.

/// Separator between the values of a state, a control character that no value contains.
const BETWEEN: char = '\x1f';

/// Variables of a chain's model, and their values in each state.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StateNames {
    variables: Vec<String>,
    /// Values of all states, concatenated state by state.
    values: String,
    /// End of each state's values in `values`, in bytes.
    ends: Vec<usize>,
}

impl StateNames {
    /// Creates an empty list of names for these variables.
    pub fn new(variables: Vec<String>) -> Self {
        Self { variables, ..Self::default() }
    }

    /// Returns the variables.
    pub fn variables(&self) -> &[String] {
        &self.variables
    }

    /// Returns the number of states.
    pub fn states(&self) -> usize {
        self.ends.len()
    }

    /// Adds a state with its values, one per variable; an empty value means a missing one.
    ///
    /// # Panics
    /// If the number of values differs from the number of variables.
    pub fn push<'a>(&mut self, values: impl IntoIterator<Item = &'a str>) {
        let mut count = 0;
        for value in values {
            if count > 0 {
                self.values.push(BETWEEN);
            }
            self.values.push_str(value);
            count += 1;
        }
        assert_eq!(count, self.variables.len(), "a value for each variable");
        self.ends.push(self.values.len());
    }

    /// Returns the values of a state, in the order of the variables.
    pub fn values(&self, state: usize) -> impl Iterator<Item = &str> {
        let start = if state == 0 { 0 } else { self.ends[state - 1] };
        self.values[start..self.ends[state]].split(BETWEEN).take(self.variables.len())
    }

    /// Returns the name of a state, such as `(q=2, up=true)`.
    pub fn name(&self, state: usize) -> String {
        let pairs = self.variables.iter().zip(self.values(state)).filter(|(_, value)| !value.is_empty());
        let pairs: Vec<String> = pairs.map(|(variable, value)| format!("{variable}={value}")).collect();
        format!("({})", pairs.join(", "))
    }

    /// Returns the values of a state in PRISM's notation, such as `(2,true)`.
    pub fn tuple(&self, state: usize) -> String {
        format!("({})", self.values(state).collect::<Vec<_>>().join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_variables_with_values() {
        let mut names = StateNames::new(vec!["q".into(), "up".into()]);
        names.push(["2", "true"]);
        names.push(["", "a,b"]);
        assert_eq!(
            (names.states(), names.name(0), names.tuple(0)),
            (2, "(q=2, up=true)".into(), "(2,true)".into())
        );
        assert_eq!((names.name(1), names.tuple(1)), ("(up=a,b)".into(), "(,a,b)".into()));
        let mut none = StateNames::new(Vec::new());
        none.push([]);
        assert_eq!((none.name(0), none.tuple(0)), ("()".into(), "()".into()));
    }
}
