//! Text output: numbers, vectors as `.csv` and `.txt`, chains as PRISM's `.tra`.

use super::*;
use crate::transient::chain::state_names::StateNames;

/// Items formatted by one thread at a time.
const BLOCK: usize = 1 << 13;

/// Appends `value` with the fewest digits that read back as the same f64.
///
/// The form is plain (`0.25`, `120`), or has an exponent (`1.5e-7`) outside of 1e-4 … 1e15 if that
/// is shorter.
pub fn push_number(text: &mut Vec<u8>, value: f64) {
    let (start, size) = (text.len(), value.abs());
    let written = match (1e-4..1e15).contains(&size) || size == 0.0 || !size.is_finite() {
        true => write!(text, "{value}"),
        false => write!(text, "{value:e}"),
    };
    written.expect("memory takes it");
    // Large numbers of many digits are shorter in plain form, small ones never.
    if size >= 1e15 {
        let plain = value.to_string();
        if plain.len() <= text.len() - start {
            text.truncate(start);
            text.extend_from_slice(plain.as_bytes());
        }
    }
}

/// Appends `value` in decimal.
pub fn push_integer(text: &mut Vec<u8>, value: u64) {
    text.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// Writes the output of `fill` for consecutive ranges of 0..`items` in order, filled in parallel.
pub(crate) fn write_in_blocks(
    writer: &mut dyn Write,
    items: usize,
    fill: impl Fn(Range<usize>, &mut Vec<u8>) + Sync,
) -> io::Result<()> {
    let mut texts = vec![Vec::new(); 4 * threads()];
    let mut start = 0;
    while start < items {
        let count = texts.len().min((items - start).div_ceil(BLOCK));
        texts[..count].par_iter_mut().enumerate().for_each(|(k, text)| {
            let first = start + k * BLOCK;
            text.clear();
            fill(first..items.min(first + BLOCK), text);
        });
        for text in &texts[..count] {
            writer.write_all(text)?;
        }
        start = items.min(start + count * BLOCK);
    }
    Ok(())
}

/// Appends a CSV field, quoted if necessary.
pub fn push_field(text: &mut Vec<u8>, value: &str) {
    if value.contains([',', '"', '\n']) {
        text.extend_from_slice(format!("\"{}\"", value.replace('"', "\"\"")).as_bytes());
    } else {
        text.extend_from_slice(value.as_bytes());
    }
}

/// Writes the distribution π at each of `times` in PRISM's form.
///
/// Each state with positive probability gives a line `state:(value,value)=probability`, without
/// values if there are no names. With several times, a line `# t=…` precedes each. `columns[k]` is
/// π at `times[k]`.
pub fn write_prism(
    writer: &mut dyn Write,
    times: &[f64],
    columns: &[&[f64]],
    names: Option<&StateNames>,
) -> io::Result<()> {
    for (&time, column) in times.iter().zip(columns) {
        if times.len() > 1 {
            let mut line = b"# t=".to_vec();
            push_number(&mut line, time);
            line.push(b'\n');
            writer.write_all(&line)?;
        }
        write_lines(writer, column.len(), &|state, text| {
            if column[state] > 0.0 {
                push_integer(text, state as u64);
                if let Some(names) = names {
                    text.push(b':');
                    text.extend_from_slice(names.tuple(state).as_bytes());
                }
                text.push(b'=');
                push_number(text, column[state]);
                text.push(b'\n');
            }
        })?;
    }
    Ok(())
}

/// Writes the distribution π at each of `times` as CSV, one line per state.
///
/// The header is `state,probability` for one time and `state,t=…,t=…` for several, followed by
/// `,name` if states have names. `columns[k]` is π at `times[k]`, one value per state.
///
/// # Panics
/// If the numbers of columns and times differ, or columns differ in length.
pub fn write_csv(
    writer: &mut dyn Write,
    times: &[f64],
    columns: &[&[f64]],
    names: Option<&StateNames>,
) -> io::Result<()> {
    assert_eq!(times.len(), columns.len(), "one column a time");
    let states = columns.first().map_or(0, |column| column.len());
    assert!(columns.iter().all(|column| column.len() == states), "columns of equal length");
    let mut header = b"state".to_vec();
    if times.len() == 1 {
        header.extend_from_slice(b",probability");
    } else {
        for &time in times {
            header.extend_from_slice(b",t=");
            push_number(&mut header, time);
        }
    }
    header.extend_from_slice(if names.is_some() { b",name\n" } else { b"\n" });
    writer.write_all(&header)?;
    write_lines(writer, states, &|state, text| {
        push_integer(text, state as u64);
        for column in columns {
            text.push(b',');
            push_number(text, column[state]);
        }
        if let Some(names) = names {
            text.push(b',');
            push_field(text, &names.name(state));
        }
        text.push(b'\n');
    })
}

/// Writes a vector as text, one value per line.
pub fn write_text(writer: &mut dyn Write, values: &[f64]) -> io::Result<()> {
    write_lines(writer, values.len(), &|k, text| {
        push_number(text, values[k]);
        text.push(b'\n');
    })
}

/// Writes the output of `line` for each of 0..`items`, in order, on all cores.
pub fn write_lines(
    writer: &mut dyn Write,
    items: usize,
    line: &(dyn Fn(usize, &mut Vec<u8>) + Sync),
) -> io::Result<()> {
    write_in_blocks(writer, items, |range, text| range.for_each(|item| line(item, text)))
}

/// Counts the transitions of a chain by requesting every row.
pub fn count_transitions(chain: &dyn Transitions) -> u64 {
    (0..chain.states().div_ceil(BLOCK))
        .into_par_iter()
        .map_init(Vec::new, |row, block| {
            let mut count = 0;
            for state in block * BLOCK..chain.states().min((block + 1) * BLOCK) {
                count += chain.leaving(state, row).len() as u64;
            }
            count
        })
        .reduce(|| 0, |a, b| a + b)
}

/// Appends a line `i j value`.
pub(super) fn push_triple(text: &mut Vec<u8>, i: u64, j: u64, value: f64) {
    for index in [i, j] {
        push_integer(text, index);
        text.push(b' ');
    }
    push_number(text, value);
    text.push(b'\n');
}

/// Writes each transition as `i j rate` in ascending order; states count from `first`.
pub(crate) fn write_transitions(
    writer: &mut dyn Write,
    chain: &dyn Transitions,
    first: u64,
) -> io::Result<()> {
    write_in_blocks(writer, chain.states(), |states, text| {
        let mut row = Vec::new();
        for state in states {
            for &(target, rate) in chain.leaving(state, &mut row) {
                push_triple(text, state as u64 + first, u64::from(target) + first, rate);
            }
        }
    })
}

/// Writes a chain as PRISM's explicit transitions.
///
/// A line with the numbers of states and transitions precedes lines `source target rate`, ascending
/// and counted from 0. Every row is requested twice.
pub fn write_tra(writer: &mut dyn Write, chain: &dyn Transitions) -> io::Result<()> {
    if chain.is_discrete() {
        writeln!(writer, "# Transitions (DTMC)")?;
    }
    writeln!(writer, "{} {}", chain.states(), count_transitions(chain))?;
    write_transitions(writer, chain, 0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn number(value: f64) -> String {
        let mut text = Vec::new();
        push_number(&mut text, value);
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn numbers_are_written_plain_or_with_an_exponent() {
        let texts = "0 -0 1 0.25 -12.5 100 1000 120000 123456 0.01 -0.001 0.00125 -0.000125 5e-5 1e15 \
                     1234567890123456 1e300 5e-324 -2.2250738585072014e-308 1.7976931348623157e308 \
                     0.30000000000000004 NaN -inf";
        for text in texts.split(' ') {
            assert_eq!(number(text.parse().unwrap()), text);
        }
    }

    fn written(write: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> String {
        let mut text = Vec::new();
        write(&mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn csv_of_one_and_of_several_times() {
        let text = written(|text| write_csv(text, &[2.0], &[&[0.5, 0.25, 0.25]], None));
        assert_eq!(text, "state,probability\n0,0.5\n1,0.25\n2,0.25\n");
        let (times, columns) = ([0.5, f64::INFINITY], [&[1.0, 0.0][..], &[0.5, 0.5]]);
        let text = written(|text| write_csv(text, &times, &columns, None));
        assert_eq!(text, "state,t=0.5,t=inf\n0,1,0.5\n1,0,0.5\n");
        let mut names = StateNames::new(vec!["q".into(), "up".into()]);
        names.push(["0", "true"]);
        names.push(["1", "false"]);
        let text = written(|text| write_csv(text, &[1.0], &[&[1.0, 0.0]], Some(&names)));
        assert_eq!(text, "state,probability,name\n0,1,\"(q=0, up=true)\"\n1,0,\"(q=1, up=false)\"\n");
        let text = written(|text| write_prism(text, &times, &columns, Some(&names)));
        assert_eq!(text, "# t=0.5\n0:(0,true)=1\n# t=inf\n0:(0,true)=0.5\n1:(1,false)=0.5\n");
    }

    #[test]
    fn blocks_come_in_order() {
        let values: Vec<f64> = (0..200_001).map(f64::from).collect();
        let text = written(|text| write_text(text, &values));
        let read: Vec<f64> = text.lines().map(|line| line.parse().unwrap()).collect();
        assert_eq!(read, values);
    }

    #[test]
    fn tra_counts_then_lists() {
        let list = TransitionList { from: vec![2, 0, 0], to: vec![0, 2, 1], rate: vec![0.5, 1.5, 3.0] };
        let chain = Csr::from_list(3, list).unwrap();
        assert_eq!(written(|text| write_tra(text, &chain)), "3 3\n0 1 3\n0 2 1.5\n2 0 0.5\n");
    }

    proptest! {
        #[test]
        fn numbers_read_back_exactly(bits in any::<u64>()) {
            let value = f64::from_bits(bits);
            let text = number(value);
            let read: f64 = text.parse().unwrap();
            prop_assert!(read.to_bits() == bits || value.is_nan() && read.is_nan());
            // Usual numbers are written plainly even if an exponent is shorter.
            if value.is_finite() && !(1e-4..1e15).contains(&value.abs()) {
                let shortest = value.to_string().len().min(format!("{value:e}").len());
                prop_assert!(text.len() <= shortest);
            }
        }

        #[test]
        fn integers_are_those_of_the_standard_library(value in any::<u64>()) {
            let mut text = Vec::new();
            push_integer(&mut text, value);
            prop_assert_eq!(String::from_utf8(text).unwrap(), value.to_string());
        }
    }
}
