//! Spin-then-block waiting, since waking a blocked thread takes tens of microseconds.

use std::time::{Duration, Instant};

use crate::Result;

/// Polling phase of a wait, before the thread blocks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spin {
    pub(crate) longest: Duration,
    /// True to spin (`spin_loop`) between polls, false to yield the core.
    pub(crate) alone: bool,
}

impl Spin {
    /// Duration of polling for values of another lane or rank.
    pub(crate) const VALUES: Duration = Duration::from_millis(3);

    /// Polls until `look` returns a value; `None` after the longest duration.
    pub(crate) fn until<V>(self, mut look: impl FnMut() -> Result<Option<V>>) -> Result<Option<V>> {
        let since = Instant::now();
        while since.elapsed() < self.longest {
            if let Some(value) = look()? {
                return Ok(Some(value));
            }
            match self.alone {
                true => std::hint::spin_loop(),
                false => std::thread::yield_now(),
            }
        }
        Ok(None)
    }
}
