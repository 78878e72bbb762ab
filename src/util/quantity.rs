//! Parsing and formatting of counts and sizes, range errors of numbers, and powers of two.
//!
//! Scaling by powers of two keeps numbers in range without rounding.

/// Parses a count: digits, possibly grouped (`1_000_000`) or with an exponent (`2.5e6`).
pub fn count<T: TryFrom<u64>>(text: &str) -> Option<T> {
    let bare = text.replace('_', "");
    if text.starts_with('_') || text.ends_with('_') {
        return None;
    }
    let whole = match bare.parse::<u64>() {
        Ok(whole) => whole,
        // Above 2^53 doubles skip integers.
        Err(_) => match bare.parse::<f64>() {
            Ok(value) if value.fract() == 0.0 && (0.0..=9007199254740992.0).contains(&value) => value as u64,
            _ => return None,
        },
    };
    whole.try_into().ok()
}

/// True if the text of a number that was read as 0 has a nonzero digit: it underflowed.
pub(crate) fn is_not_zero(text: &[u8]) -> bool {
    let digits = text.split(|b| matches!(b, b'e' | b'E' | b'd' | b'D' | b'/')).next().unwrap_or(text);
    digits.iter().any(|b| matches!(b, b'1'..=b'9'))
}

/// Returns a reason if the number at the start of a text is rounded to 0 or infinity.
pub fn out_of_range(text: &[u8]) -> Option<&'static str> {
    match fast_float2::parse_partial::<f64, _>(text) {
        Ok((value, length)) if value.is_infinite() && text[..length].iter().any(u8::is_ascii_digit) => {
            Some("is above 1.8e308, the largest double")
        }
        Ok((0.0, length)) if is_not_zero(&text[..length]) => {
            Some("is below 4.9e-324, the smallest double above 0")
        }
        _ => None,
    }
}

/// Returns the reason why a text is not a usable finite number.
pub(crate) fn fault(text: &[u8]) -> &'static str {
    out_of_range(text).unwrap_or("is not a finite number")
}

/// Returns the greatest common divisor.
pub(crate) fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Returns 2^k, a normal number.
pub(crate) const fn power(k: i32) -> f64 {
    f64::from_bits(((1023 + k) as u64) << 52)
}

/// Returns k with 2^k ≤ |v| < 2^(k+1); −1074, the exponent of the smallest double, for 0.
pub(crate) fn exponent(v: f64) -> i32 {
    let biased = |v: f64| (v.to_bits() >> 52 & 0x7ff) as i32;
    match biased(v) {
        0 if v == 0.0 => -1074,
        0 => biased(v * power(64)) - 64 - 1023,
        normal => normal - 1023,
    }
}

/// Returns v·2^k, rounded once if it leaves the range of normal doubles.
pub(crate) fn times_power_of_two(v: f64, k: i32) -> f64 {
    if k.abs() <= 1022 {
        return v * power(k);
    }
    // At most one of the three products rounds with effect. Each factor shifts by more bits than a
    // double has digits, so a further factor makes a rounded, subnormal product 0.
    let k = k.clamp(-3000, 3000);
    let third = k / 3;
    v * power(third) * power(third) * power(k - 2 * third)
}

/// Returns the smallest number that occurs more than once, if any.
pub(crate) fn duplicate(numbers: &[u32]) -> Option<u32> {
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable();
    sorted.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_as_people_write_them() {
        for (text, read) in
            [("7", 7), ("1e5", 100_000), ("2.5E3", 2500), ("1_000_000", 1_000_000), ("3.0", 3)]
        {
            assert_eq!(count(text), Some(read), "{text}");
        }
        assert_eq!(count(&u64::MAX.to_string()), Some(u64::MAX));
        for text in ["", "_", "_1", "1_", "1.5", "1e-1", "-1", "1e300", "inf", "nan", "1e19", "0x10", "1 000"]
        {
            assert_eq!(count::<u64>(text), None, "{text}");
        }
        assert_eq!(count::<u8>("256"), None);
    }

    #[test]
    fn powers_of_two_are_exact_as_long_as_the_range_allows() {
        for (v, k) in [(1.0, 0), (1.5, 0), (2.0, 1), (0.75, -1), (-3.0, 1), (f64::MAX, 1023), (5e-324, -1074)]
        {
            assert_eq!(exponent(v), k, "{v:e}");
        }
        assert_eq!(exponent(f64::MIN_POSITIVE * 0.75), -1023);
        let (least, odd) = (5e-324, 1.0 + f64::EPSILON);
        assert_eq!(times_power_of_two(least, 2097), power(1023));
        assert_eq!(times_power_of_two(power(1023), -2097), least);
        assert_eq!(times_power_of_two(odd, -1022), odd * f64::MIN_POSITIVE);
        assert_eq!(times_power_of_two(times_power_of_two(odd, 1000), -2000), times_power_of_two(odd, -1000));
        assert_eq!((times_power_of_two(1.0, 5000), times_power_of_two(1.0, -5000)), (f64::INFINITY, 0.0));
        // 2^−1074 · 1.5 is halfway between two doubles and goes to the even one; 1.25 rounded twice
        // would, too.
        assert_eq!(
            (
                times_power_of_two(1.5, -1074),
                times_power_of_two(1.25, -1074),
                times_power_of_two(1.75, -1073)
            ),
            (1e-323, 5e-324, 2e-323)
        );
    }
}
