//! Tandem queueing network M/Cox(2)/1 → M/M/1 with finite queues.

use crate::sparse::Repeat;
use crate::transient::chain::transitions::Transitions;

/// Rate μ1b at which service ends in phase 1; the customer moves to the second station.
const LEAVE_PHASE_1: f64 = 1.8;
/// Rate μ1a at which service enters phase 2.
const ENTER_PHASE_2: f64 = 0.2;
/// Rate μ2 at which service ends in phase 2.
const LEAVE_PHASE_2: f64 = 2.0;
/// Service rate κ of the second station.
const SECOND: f64 = 4.0;

/// Two stations in series with capacity C each.
///
/// Customers arrive at the first station at rate λ = 4C and are served there in one or two phases
/// (a Coxian distribution). Then they join the second station, which has exponential service. A
/// service at the first station cannot end while the second one is full.
///
/// A state is (sc, ph, sm): customers in the first station, phase of the service there (1 if the
/// station is empty), customers in the second. States are in lexicographic order: number sm if sc =
/// 0, and (C+1)·(2·sc − 1 + (ph − 1)) + sm otherwise. There are n = (C+1)(2C+1) = 2C² + 3C + 1
/// states.
///
/// Source: H. Hermanns, J. Meyer-Kayser, M. Siegle, "Multi terminal binary decision diagrams to
/// represent and analyse continuous time Markov chains" (NSMC 1999), in the form of PRISM's case
/// studies.
#[derive(Debug, Clone)]
pub(super) struct Tandem {
    capacity: usize,
    arrivals: f64,
}

impl Tandem {
    /// Creates the network with capacity `capacity` ≥ 1 of each station.
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity, arrivals: 4.0 * capacity as f64 }
    }

    /// Returns (sc, ph, sm) of a state.
    fn decode(&self, state: usize) -> (usize, usize, usize) {
        debug_assert!(state < self.states(), "state {state} of {}", self.states());
        let (level, sm) = (state / (self.capacity + 1), state % (self.capacity + 1));
        if level == 0 { (0, 1, sm) } else { (level.div_ceil(2), 2 - level % 2, sm) }
    }

    fn index(&self, sc: usize, ph: usize, sm: usize) -> u32 {
        let level = if sc == 0 { 0 } else { 2 * sc + ph - 2 };
        (level * (self.capacity + 1) + sm) as u32
    }
}

impl Transitions for Tandem {
    fn states(&self) -> usize {
        (self.capacity + 1) * (2 * self.capacity + 1)
    }

    /// Returns the states with repeating rows: first station neither nearly empty nor full.
    fn repeats(&self) -> Vec<Repeat> {
        let first = |customers: usize| self.index(customers, 1, 0) as usize;
        match self.capacity {
            0..7 => Vec::new(),
            capacity => {
                let period = 2 * (capacity + 1);
                vec![Repeat { rows: first(4)..first(capacity - 2), period, reach: 2 * period }]
            }
        }
    }

    fn incoming(&self, state: usize, row: &mut Vec<(u32, f64)>) {
        let (sc, ph, sm) = self.decode(state);
        if sc > 0 && (sc > 1 || ph == 1) {
            row.push((self.index(sc - 1, ph, sm), self.arrivals));
        }
        if ph == 2 {
            row.push((self.index(sc, 1, sm), ENTER_PHASE_2));
        }
        if sm < self.capacity {
            row.push((state as u32 + 1, SECOND));
        }
        // The next customer's service starts in phase 1.
        if sm > 0 && ph == 1 && sc < self.capacity {
            row.push((self.index(sc + 1, 1, sm - 1), LEAVE_PHASE_1));
            row.push((self.index(sc + 1, 2, sm - 1), LEAVE_PHASE_2));
        }
    }

    fn outgoing(&self, state: usize, row: &mut Vec<(u32, f64)>) {
        let (sc, ph, sm) = self.decode(state);
        if sc > 0 && sm < self.capacity {
            let rate = if ph == 1 { LEAVE_PHASE_1 } else { LEAVE_PHASE_2 };
            row.push((self.index(sc - 1, 1, sm + 1), rate));
        }
        if sm > 0 {
            row.push((state as u32 - 1, SECOND));
        }
        if sc > 0 && ph == 1 {
            row.push((self.index(sc, 2, sm), ENTER_PHASE_2));
        }
        if sc < self.capacity {
            row.push((self.index(sc + 1, ph, sm), self.arrivals));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_second_station_holds_customers_back() {
        let chain = Tandem::new(2);
        let [one, two, more] = [(1, 1, 1), (1, 2, 2), (2, 1, 2)].map(|(sc, ph, sm)| chain.index(sc, ph, sm));
        let wanted = [(one, SECOND), (two, ENTER_PHASE_2), (more, 8.0)];
        assert_eq!(chain.leaving(chain.index(1, 1, 2) as usize, &mut Vec::new()), wanted);
    }
}
