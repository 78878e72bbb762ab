//! Waits that begin awake: a thread that sleeps is woken up late.

use std::time::{Duration, Instant};

use crate::Result;

/// Looking again and again, for a while, before a thread sleeps.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spin {
    /// Longest that the thread looks.
    pub(crate) longest: Duration,
    /// Whether it keeps its core to itself between two looks.
    pub(crate) alone: bool,
}

impl Spin {
    /// Longest look for values of another lane or rank.
    pub(crate) const VALUES: Duration = Duration::from_millis(3);

    /// Looks until something is there. None if that takes too long: then is the time to sleep.
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
