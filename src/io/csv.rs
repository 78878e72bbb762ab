//! Probabilities at one time as CSV: the header `state,probability`, then one line per state.

use super::*;

/// Reads the probabilities; further fields of a line are ignored.
pub(super) fn read_vector(path: &Path) -> Result<Vec<f64>> {
    parse(&text::read(path)?, path)
}

fn parse(bytes: &[u8], path: &Path) -> Result<Vec<f64>> {
    let mut lines = Lines::new(bytes, path).filter(|line| !line.bytes.is_empty());
    let fields =
        |bytes| -> Vec<&[u8]> { <[u8]>::splitn(bytes, 3, |&b| b == b',').map(<[u8]>::trim_ascii).collect() };
    let head = lines.next().map(|line| fields(line.bytes)).unwrap_or_default();
    if !matches!(head[..], [b"state", b"probability"] | [b"state", b"probability", b"name"]) {
        let reason = "expected the first line `state,probability`, for the probabilities of one time";
        return Err(Error::file(path, reason));
    }
    let mut values = Vec::new();
    for line in lines {
        let value = match fields(line.bytes)[..] {
            [state, value, ..] if text::unsigned(state) == Some(values.len() as u64) => value,
            _ => return Err(line.error(format!("invalid line {line}: expected state {}", values.len()))),
        };
        let fault = || line.error(format!("{} {}", quote(value), quantity::fault(value)));
        values.push(text::number(value).ok_or_else(fault)?);
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_of_one_time() {
        let read = |text: &str| parse(text.as_bytes(), Path::new("p.csv")).map_err(|e| e.to_string());
        assert_eq!(read("state,probability\n0,0.25\n1,0.75\n"), Ok(vec![0.25, 0.75]));
        assert_eq!(read("state,probability,name\n0,1,\"(q=0, up=true)\"\n"), Ok(vec![1.0]));
        assert!(read("state,t=1,t=2\n0,1,1\n").unwrap_err().contains("the probabilities of one time"));
        assert!(
            read("state,probability\n1,1\n")
                .unwrap_err()
                .contains("p.csv:2: invalid line '1,1': expected state 0")
        );
        assert!(read("state,probability\n0,x\n").unwrap_err().contains("p.csv:2: 'x'"));
    }
}
