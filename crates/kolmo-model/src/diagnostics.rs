//! Messages about a text: place, caret, remedy.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};

/// Bytes of a text from `start` until before `end`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: u32,
    pub(crate) end: u32,
}

impl Span {
    /// From the beginning of this one to the end of another one.
    pub(crate) fn to(self, other: Self) -> Self {
        Self { start: self.start, end: other.end }
    }

    pub(crate) fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

/// A text with the name that messages call it by.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) name: Arc<str>,
    pub(crate) text: Arc<str>,
    /// Places of the line breaks, ascending.
    breaks: Arc<[usize]>,
}

impl Source {
    pub(crate) fn new(name: &str, text: &str) -> Self {
        let breaks = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at).collect();
        Self { name: name.into(), text: text.into(), breaks }
    }

    /// `name:line` of a span, for messages about what happens in a state.
    pub(crate) fn place(&self, span: Span) -> String {
        format!("{}:{}", self.name, self.line(span))
    }

    pub(crate) fn line(&self, span: Span) -> usize {
        1 + self.breaks.partition_point(|at| *at < span.start as usize)
    }
}

/// One message: where, what, and what to do about it.
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

/// All messages about one text, with line, column, caret and remedy.
///
/// `Display` renders them without colours.
#[derive(Clone, Debug)]
pub struct Diagnostics {
    source: Source,
    list: Vec<Diagnostic>,
}

/// Messages that are printed of one text; the rest is counted.
pub(crate) const PRINTED: usize = 20;

impl Diagnostics {
    pub(crate) fn new(source: &Source, mut list: Vec<Diagnostic>) -> Self {
        list.sort_by_key(|d| d.span.start);
        list.dedup_by(|b, a| a.span == b.span && a.message == b.message);
        Self { source: source.clone(), list }
    }

    pub(crate) fn into_list(self) -> Vec<Diagnostic> {
        self.list
    }

    /// Number of messages.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Line and column, counted from 1, and the message of each, without the text.
    pub fn messages(&self) -> impl Iterator<Item = (usize, usize, &str)> {
        self.list.iter().map(|d| {
            let before = &self.source.text[..d.span.start as usize];
            let start = before.rfind('\n').map_or(0, |at| at + 1);
            (self.source.line(d.span), 1 + before[start..].chars().count(), &*d.message)
        })
    }

    /// The messages with the lines they speak of, with colours of the terminal if `styled`.
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
