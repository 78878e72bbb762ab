//! Texts of numbers that no double is near.

/// Whether the text of a number that was read as 0 names another: one below the smallest double.
pub(crate) fn is_not_zero(text: &[u8]) -> bool {
    let digits = text.split(|b| matches!(b, b'e' | b'E' | b'/')).next().unwrap_or(text);
    digits.iter().any(|b| matches!(b, b'1'..=b'9'))
}

/// Why the number that a text starts with is rounded to 0 or to infinity, if it is.
pub(crate) fn out_of_range(text: &[u8]) -> Option<&'static str> {
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

/// Why a text is not a finite number that can be used.
pub(crate) fn fault(text: &[u8]) -> &'static str {
    out_of_range(text).unwrap_or("is not a finite number")
}
