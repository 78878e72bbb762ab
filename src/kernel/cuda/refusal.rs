//! Constructs that are not translated.

use naga::Span;

/// Functions that are not translated: the prelude has them in PTX, with carries and with tensor
/// cores, which WGSL and C++ lack.
pub(super) const IN_PRELUDE: [&str; 2] = ["add_long_product", "plus_four_lines"];

/// A construct that is not translated, and its place.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) construct: String,
    pub(super) span: Span,
}

impl Refusal {
    pub(super) fn new(construct: impl Into<String>) -> Self {
        Self { construct: construct.into(), span: Span::UNDEFINED }
    }

    /// Sets the place, unless the refusal has one already.
    pub(super) fn at(mut self, span: Span) -> Self {
        if !self.span.is_defined() {
            self.span = span;
        }
        self
    }
}

/// Translated text, or the construct that cannot be translated.
pub(super) type Written<T = String> = Result<T, Refusal>;

/// Returns an error for a construct; the caller sets its place in the text.
pub(super) fn refuse<T>(construct: impl Into<String>) -> Written<T> {
    Err(Refusal::new(construct))
}

/// Returns naga's name of a construct, to refuse it.
pub(super) fn name_of(construct: &impl std::fmt::Debug) -> String {
    let text = format!("{construct:?}");
    text.split(['(', ' ', '{']).next().unwrap_or_default().to_owned()
}
