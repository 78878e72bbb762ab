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

    /// Middle of an interval, with half its length as error.
    pub(crate) fn within((low, high): (f64, f64)) -> Self {
        let value = if low == high { low } else { 0.5 * low + 0.5 * high };
        match (low == high, value.is_finite()) {
            (true, _) => Self::new(value, 0.0),
            (_, true) => Self::new(value, (high - value).max(value - low).next_up()),
            _ => Self::new(value, f64::INFINITY),
        }
    }

    /// Interval that contains the exact number.
    pub(crate) fn range(&self) -> (f64, f64) {
        match self.error {
            0.0 => (self.value, self.value),
            error if error < f64::INFINITY => {
                ((self.value - error).next_down(), (self.value + error).next_up())
            }
            _ => (f64::NEG_INFINITY, f64::INFINITY),
        }
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
pub enum Verdict {
    /// Value of a property that asks for a number.
    Number(Answer),
    /// Truth of a property (`None`: undecided), with the number that decides it.
    Truth(Option<bool>, Option<Answer>),
    /// The property is not answered.
    Refused,
}

impl Verdict {
    /// Truth of a value within an interval of the truth values 0 and 1.
    pub(crate) fn truth((low, high): (f64, f64)) -> Self {
        Self::Truth(if low == high { Some(low == 1.0) } else { None }, None)
    }

    /// Interval of a number, or of a truth value.
    pub(crate) fn range(&self) -> (f64, f64) {
        match self {
            Self::Number(answer) => answer.range(),
            Self::Truth(Some(truth), _) => Answer::new(f64::from(u8::from(*truth)), 0.0).range(),
            Self::Truth(None, _) | Self::Refused => (0.0, 1.0),
        }
    }
}
