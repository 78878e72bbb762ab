//! Error messages about a text, with place, caret and suggestion.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};

/// Byte range of a text, from `start` to before `end`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: u32,
    pub(crate) end: u32,
}

impl Span {
    /// Span from the start of `self` to the end of `other`.
    pub(crate) fn to(self, other: Self) -> Self {
        Self { start: self.start, end: other.end }
    }

    pub(crate) fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

/// A text and its name in messages.
#[derive(Clone, Debug)]
pub(crate) struct SourceText {
    pub(crate) name: Arc<str>,
    pub(crate) text: Arc<str>,
    /// Positions of the line breaks, ascending.
    breaks: Arc<[usize]>,
}

impl SourceText {
    pub(crate) fn new(name: &str, text: &str) -> Self {
        let breaks = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at).collect();
        Self { name: name.into(), text: text.into(), breaks }
    }

    /// Place of a span as `name:line`, for errors in a state.
    pub(crate) fn place(&self, span: Span) -> String {
        format!("{}:{}", self.name, self.line(span))
    }

    pub(crate) fn line(&self, span: Span) -> usize {
        1 + self.breaks.partition_point(|at| *at < span.start as usize)
    }
}

/// An error message with its place and a suggestion.
#[derive(Clone, Debug)]
pub(crate) struct Diagnostic {
    pub(crate) span: Span,
    pub(crate) message: String,
    pub(crate) help: String,
}

impl Diagnostic {
    pub(crate) fn new(span: Span, message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { span, message: message.into(), help: help.into() }
    }
}

/// All error messages about one text, with line, column, caret and suggestion.
///
/// `Display` renders them without colours.
#[derive(Clone, Debug)]
pub struct Diagnostics {
    source: SourceText,
    list: Vec<Diagnostic>,
}

/// Maximum number of messages that are printed for one text. The rest are counted.
pub(crate) const PRINTED: usize = 20;

impl Diagnostics {
    pub(crate) fn new(source: &SourceText, mut list: Vec<Diagnostic>) -> Self {
        list.sort_by_key(|d| d.span.start);
        list.dedup_by(|b, a| a.span == b.span && a.message == b.message);
        Self { source: source.clone(), list }
    }

    /// Line, column (from 1) and text of each message, without the source line.
    pub fn messages(&self) -> impl Iterator<Item = (usize, usize, &str)> {
        self.list.iter().map(|d| {
            let before = &self.source.text[..d.span.start as usize];
            let start = before.rfind('\n').map_or(0, |at| at + 1);
            (self.source.line(d.span), 1 + before[start..].chars().count(), &*d.message)
        })
    }

    /// Renders the messages with their source lines, in terminal colours if `styled`.
    pub fn render(&self, styled: bool) -> String {
        let renderer = if styled { Renderer::styled() } else { Renderer::plain() };
        let text = &*self.source.text;
        let mut parts: Vec<String> = Vec::new();
        for d in self.list.iter().take(PRINTED) {
            let marked = AnnotationKind::Primary.span(d.span.range());
            let mut group = Level::ERROR
                .primary_title(&*d.message)
                .element(Snippet::source(text).path(&*self.source.name).annotation(marked));
            if !d.help.is_empty() {
                group = group.element(Level::HELP.message(&*d.help));
            }
            parts.push(renderer.render(&[group]));
        }
        if self.list.len() > PRINTED {
            parts.push(format!("and {} more errors", self.list.len() - PRINTED));
        }
        parts.join("\n\n")
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(false))
    }
}
