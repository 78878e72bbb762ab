//! Families of built-in chains with one size, for predictions of chains too large to be numbered.

use super::Parameters;
use crate::{Error, Result};

/// Chains that differ in one size.
pub struct Family {
    /// The chain asked for.
    pub name: String,
    /// Its size: K of `wlan:K,S`, C of `tandem:C`, N of the others.
    pub size: u64,
    /// Sizes of small chains, ascending.
    pub samples: [u64; 4],
    of: Kind,
}

impl std::fmt::Debug for Family {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Family({}, size {})", self.name, self.size)
    }
}

enum Kind {
    Wlan {
        stages: u64,
    },
    Tandem,
    /// Name, and parameters behind the number of states.
    Line(&'static str, String),
}

impl Family {
    /// The chain of some size, as [`parse`](super::parse) reads it.
    pub fn spec(&self, size: u64) -> String {
        match &self.of {
            Kind::Wlan { stages } => format!("wlan:{size},{stages}"),
            Kind::Tandem => format!("tandem:{size}"),
            Kind::Line(name, rest) => format!("{name}:{size},{rest}"),
        }
    }

    /// Its states.
    pub fn states(&self, size: u64) -> u128 {
        let size = u128::from(size);
        match self.of {
            Kind::Wlan { stages } => {
                let m = 2 * size * u128::from(stages);
                m.saturating_mul(m).saturating_mul(6).saturating_add(12 * m + 4)
            }
            Kind::Tandem => (size + 1).saturating_mul(2 * size + 1),
            Kind::Line(..) => size,
        }
    }
}

/// The family and size of a built-in chain of any number of states; `None` where `spec` is none.
pub fn family(spec: &str) -> Option<Result<Family>> {
    let (name, parameters) = spec.split_once(':')?;
    let values: Vec<&str> = parameters.split(',').map(str::trim).collect();
    let first = || {
        let example = "wlan:40,6";
        Parameters { spec, values: values.clone() }.whole(
            0,
            "the first parameter, the size,",
            u64::MAX,
            example,
        )
    };
    let rest = values[1..].join(",");
    // What is behind the size is checked in a small chain.
    let family = |of: Kind, samples: [u64; 4]| -> Result<Family> {
        let family = Family { name: spec.to_owned(), size: first()?, samples, of };
        match super::parse(&family.spec(samples[3])) {
            Some(small) => small.map(|_| family),
            None => Err(Error::Invalid(format!("{spec} is no built-in chain"))),
        }
    };
    match name {
        "wlan" => {
            let stages = rest.parse().unwrap_or(0);
            Some(family(Kind::Wlan { stages }, [12, 16, 20, 24]))
        }
        "tandem" if values.len() == 1 => Some(family(Kind::Tandem, [100, 150, 200, 250])),
        "birth-death" => Some(family(Kind::Line("birth-death", rest), [10_000, 20_000, 30_000, 40_000])),
        "circulant" => {
            let farthest =
                values[1..].iter().filter_map(|o| o.parse::<i64>().ok()).map(i64::unsigned_abs).max();
            // Cut in three, each part has more rows than it reads on both sides.
            let unit = (10 * farthest.unwrap_or(0)).clamp(10_000, 1 << 29);
            Some(family(Kind::Line("circulant", rest), [unit, 2 * unit, 3 * unit, 4 * unit]))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_states_are_those_of_the_chains() {
        for spec in ["wlan:40,6", "tandem:15", "birth-death:100,1,2", "circulant:1000,-1,1,30"] {
            let family = family(spec).unwrap().unwrap();
            assert_eq!(family.spec(family.size), spec);
            let states = super::super::parse(spec).unwrap().unwrap().transitions.states();
            assert_eq!(family.states(family.size), states as u128, "{spec}");
        }
        assert!(family("model.tra").is_none());
        for wrong in ["wlan:0,6", "wlan:40,0", "wlan:40", "birth-death:9,-1,1", "circulant:1e3,1"] {
            assert!(family(wrong).unwrap().is_err(), "{wrong}");
        }
    }
}
