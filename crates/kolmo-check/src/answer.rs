//! Answers: numbers with error bounds, and truth values.

/// A number with its error bound.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Answer {
    /// Computed number.
    pub value: f64,
    /// Upper bound of the absolute error of the number.
    pub error: f64,
    /// Part of the error bound that is due to unexplored states.
    pub loss: f64,
    /// True for a probability that is proved to be strictly between 0 and 1.
    pub inside: bool,
}

impl Answer {
    pub(crate) fn new(value: f64, error: f64) -> Self {
        Self { value, error, loss: 0.0, inside: false }
    }

    /// Limits the error bound of a probability to 1/2: the value becomes the middle of its range.
    pub(crate) fn probable(self) -> Self {
        if self.error < 0.5 {
            return self;
        }
        // Without a result these are NaN, and `max` and `min` return 0 and 1.
        let low = (self.value - self.error).max(0.0);
        let high = (self.value + self.error).min(1.0);
        let error = 0.5 * (high - low) + if low > 0.0 || high < 1.0 { f64::EPSILON } else { 0.0 };
        Self { value: 0.5 * (low + high), error: error.min(0.5), ..self }
    }
}

/// Result of a property.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Found {
    /// Value of a property that asks for a number.
    Number(Answer),
    /// Truth of a property (`None`: undecided), with the number that decides it.
    Truth(Option<bool>, Option<Answer>),
    /// The property is not answered.
    Refused,
}
