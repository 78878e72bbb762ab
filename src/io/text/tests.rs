use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::*;

#[test]
fn fortran_exponents_are_read() {
    for (text, value) in
        [("1.5D0", 1.5), ("-2d-3", -2e-3), ("+25D+02", 2500.0), ("1.D2", 100.0), ("3D1/2D0", 15.0)]
    {
        assert_eq!(number(text.as_bytes()), Some(value), "{text}");
    }
    for text in ["1.5D", "D0", "1.5D+", "1D2D3", "1e2D3", "1D400", "1D-400"] {
        assert_eq!(number(text.as_bytes()), None, "{text}");
    }
}

#[test]
fn unpacked_bytes_are_bounded_by_the_memory_there_is() {
    struct EndlessReader;
    impl Read for EndlessReader {
        fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
            bytes.fill(1);
            Ok(bytes.len())
        }
    }
    // An offset near the maximum: only the available memory limits the count.
    let mut bounded = CheckedReader { count: u64::MAX / 2, ..CheckedReader::new(EndlessReader) };
    assert_eq!(bounded.read(&mut [0; 8]).unwrap(), 8);
    let mut small = CheckedReader::new(&b"12345678"[..]);
    let mut text = Vec::new();
    small.read_to_end(&mut text).unwrap();
    assert_eq!((&text[..], small.count), (&b"12345678"[..], 8));
    let asked = expect_unpacked(u64::MAX, || "a file".to_owned()).unwrap_err().to_string();
    assert!(asked.contains("a file") && asked.contains("available"), "{asked}");
}
use crate::io::{drn, mtx, rate_matrix_kind, tra};
use crate::transient::chain::ChainFile;

/// Writes a file and reads it; returns the message of an error.
fn through_file(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    read(file.path()).map_err(|e| {
        assert!(e.to_string().starts_with(&file.path().display().to_string()), "{e}");
        e.to_string()
    })
}

pub(in crate::io) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn plain_and_zipped_files() {
    assert_eq!(through_file(b"").unwrap(), b"");
    assert_eq!(through_file(b"a\nb").unwrap(), b"a\nb");
    assert_eq!(through_file(b"\xef\xbb\xbfa").unwrap(), b"a");
    assert_eq!(through_file(&gzip(b"")).unwrap(), b"");
    assert_eq!(through_file(&[gzip(b"one\n"), gzip(b"two\n")].concat()).unwrap(), b"one\ntwo\n");
}

#[test]
fn damaged_gzip() {
    let long: Vec<u8> = (0..20_000u32).flat_map(|i| format!("{i}\n").into_bytes()).collect();
    let zipped = gzip(&long);
    for length in [2, 9, 11, zipped.len() / 2, zipped.len() - 9, zipped.len() - 1] {
        let message = through_file(&zipped[..length]).unwrap_err();
        assert!(message.contains("ends early") && message.contains("truncated"), "{length}: {message}");
    }
    let mut corrupt = zipped.clone();
    let sum = corrupt.len() - 6;
    corrupt[sum] ^= 1;
    assert!(through_file(&corrupt).unwrap_err().contains("corrupt"));
    // A forged length neither allocates memory nor is trusted.
    let mut forged = gzip(b"x");
    let end = forged.len();
    forged[end - 4..].fill(0xff);
    assert!(through_file(&forged).is_err());
}

#[test]
fn binary_files_are_refused() {
    let mut tar = vec![b'a'; 600];
    tar[257..262].copy_from_slice(b"ustar");
    for (bytes, part) in [
        (&b"PK\x03\x04abc"[..], "ZIP"),
        (b"\x93NUMPY\x01\x00", ".npy"),
        (b"\xfd7zXZ\0\0", "xz"),
        (b"\xff\xfe1\0", "UTF-16"),
        (b"1 2\n\0", "byte 4 is NUL"),
        (&tar, "UMB"),
        (&gzip(&tar), "UMB"),
        (&gzip(&gzip(b"1")), "twice"),
    ] {
        let message = through_file(bytes).unwrap_err();
        assert!(message.contains(part), "{message}");
    }
    let mut late = vec![b'1'; CHUNK + 10];
    late[CHUNK + 3] = 0;
    assert!(binary(&late).unwrap().starts_with(&format!("byte {} is NUL", CHUNK + 3)));
}

#[test]
fn missing_files_and_directories() {
    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(read(&dir.path().join("none")), Err(Error::Io { .. })));
    assert!(read(dir.path()).is_err());
}

#[test]
fn lines_and_chunks() {
    let lines: Vec<_> =
        TextLines::new(b" a \r\n\nb", Path::new("")).map(|line| (line.number, line.bytes)).collect();
    assert_eq!(lines, [(1, &b"a"[..]), (2, b""), (3, b"b")]);
    assert_eq!(count_lines(b""), 0);
    assert_eq!(count_lines(b"a\n\nb"), 3);
    assert_eq!(count_lines(b"a\n"), 1);
    let text = b"0123456789abcde\n".repeat(200_000);
    let chunks = chunks(&text);
    assert!(
        chunks.len() > 2 && chunks.iter().all(|chunk| chunk.ends_with(b"\n") && chunk.len() < CHUNK + 20)
    );
    assert_eq!(chunks.concat(), text);
    assert_eq!(super::chunks(&vec![b'x'; 3 * CHUNK]).len(), 1);
}

#[test]
fn numbers() {
    assert_eq!(number(b"1/4000"), Some(0.00025));
    assert_eq!(number(b"-1.5e-3"), Some(-0.0015));
    assert_eq!(number(b"1/3"), Some(1.0 / 3.0));
    for none in [&b""[..], b"inf", b"nan", b"1e999", b"1/0", b"1/", b"/2", b"0x10", b"1,5", b"1e", b"--1"] {
        assert_eq!(number(none), None, "{}", quote(none));
    }
    assert_eq!(unsigned(b"000123456789012345"), Some(123456789012345));
    for none in [&b""[..], b"-1", b"+1", b"1.0", b"1000000000000000000", b"18446744073709551617"] {
        assert_eq!(unsigned(none), None, "{}", quote(none));
    }
    assert_eq!(quote(b"a\tb\x1b"), "'a b'");
    assert_eq!(quote(&[b'x'; 100]), format!("'{}...'", "x".repeat(40)));
}

#[test]
fn numbers_are_those_of_the_standard_library_wherever_they_end() {
    let mut known = KnownNumbers::default();
    let texts = "0 00.50 5. .5 7.000000000000000000 -0.25 1e3 9007199254740993 0.1 4.9e-324";
    let mut texts: Vec<String> = texts.split(' ').map(str::to_owned).collect();
    let mut random = fastrand::Rng::with_seed(5);
    for digits in (1..24).flat_map(|digits| [digits; 40]) {
        let mut text: String = (0..digits).map(|_| random.digit(10)).collect();
        match random.u8(0..3) {
            0 => text.insert(random.usize(0..=digits), '.'),
            1 => text += &format!("e-{}", random.u8(..99)),
            _ => {}
        }
        texts.push(text);
    }
    for text in &texts {
        let value: f64 = text.parse().unwrap();
        for behind in ["", " ", "\n", "\r\n7", " action of a long name\n", "\t0123456789012345678901234"] {
            let line = format!("{text}{behind}");
            for _ in 0..2 {
                let mut scanner = Scanner::new(line.as_bytes());
                assert_eq!(
                    scanner.known_number(&mut known).map(f64::to_bits),
                    Some(value.to_bits()),
                    "{line:?}"
                );
                assert_eq!(scanner.since(0), text.as_bytes(), "{line:?}");
            }
            let mut scanner = Scanner::new(line.as_bytes());
            let digits = text.bytes().take_while(u8::is_ascii_digit).count();
            let integer = text[..digits].parse().ok().filter(|_| digits <= 18);
            assert_eq!(scanner.unsigned(), integer, "{line:?}");
            assert_eq!(scanner.offset(), digits, "{line:?}");
        }
    }
    for none in ["1/0 ", "x", "1e999 ", "1e-999 ", "", " 1"] {
        assert_eq!(Scanner::new(none.as_bytes()).known_number(&mut known), None, "{none:?}");
    }
}

type ReadChain = fn(&Path) -> Result<ChainFile>;

/// Returns files that are read in several pieces. Each has a name, a text, a comment marker and a
/// reader.
fn long_chains() -> [(&'static str, String, &'static str, ReadChain); 7] {
    const STATES: u32 = 20_000;
    let to = |i: u32| (i * 7919 + 1) % STATES;
    let listed = |first: u32| -> String {
        let line = |i: u32| {
            format!(
                "{} {} 0.{i}3333333333333331\n{0} {} 2.5e-3\n",
                i + first,
                to(i) + first,
                (i + 1) % STATES + first
            )
        };
        (0..STATES).filter(|&i| to(i) != i && to(i) != (i + 1) % STATES).map(line).collect()
    };
    let of_states = |i: u32| format!("state {i} l{}\n\taction 0 [{i}]\n\t\t{} : 0.{i}1\n", i % 3, to(i));
    let (tra, mtx) = (listed(0), listed(1));
    let count = tra.lines().count();
    // Sorted by source and target.
    let mut lines: Vec<&str> = tra.lines().collect();
    let key = |line: &&str| {
        let mut fields = line.split(' ').map(|field| field.parse::<u32>().unwrap_or_default());
        (fields.next(), fields.next())
    };
    lines.sort_by_key(key);
    let sorted = lines.join("\n") + "\n";
    // Converts numbered rows back into a list.
    let numbered: ReadChain = |path| {
        let (file, rows) = tra::read_numbered(path)?;
        let transitions = rows.map_or(file.transitions, |rows| rows.list());
        Ok(ChainFile { transitions, ..file })
    };
    [
        ("o.tra", format!("{STATES} {count}\n{sorted}"), "#", numbered),
        ("p.tra", format!("ctmc\n{sorted}"), "#", numbered),
        ("q.tra", format!("ctmc\n{tra}"), "#", numbered),
        ("m.tra", format!("# c\n{STATES} {count}\n{tra}"), "#", tra::read),
        ("n.tra", format!("ctmc\n{tra}"), "#", tra::read),
        (
            "m.mtx",
            format!("%%MatrixMarket matrix coordinate real general\n{STATES} {STATES} {count}\n{mtx}"),
            "%",
            rate_matrix_kind::read_chain,
        ),
        (
            "m.drn",
            format!("@type: CTMC\n@nr_states: {STATES}\n@nr_choices: 1\n@reward_models\nr\n@model\n")
                + &(0..STATES).map(of_states).collect::<String>(),
            "//",
            drn::read,
        ),
    ]
}

/// Files with a byte order mark are read whole, others a piece at a time.
#[test]
fn chains_read_in_pieces_are_those_read_whole() {
    let folder = tempfile::tempdir().unwrap();
    for (name, text, comment, read) in &long_chains() {
        assert!(text.len() > 3 * CHUNK, "{name}: {} bytes are several pieces", text.len());
        let path = folder.path().join(name);
        let of = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            read(&path).map_err(|e| e.to_string())
        };
        let late = text.len() - text.len() / 7;
        let late = late + text[late..].find('\n').unwrap() + 1;
        let with = |line: &str| [&text[..late], line, "\n", &text[late..]].concat();
        let long = format!("{comment}{}", "x".repeat(2 * CHUNK));
        let mut refused = 0;
        for text in [
            text.clone(),
            text.replace('\n', "\r\n"),
            text.trim_end().to_owned(),
            with(&long),
            with(""),
            with("1 2 3 4 5"),
            with("0 1 -1"),
            with("1 3 1.5"),
            with(&format!("{comment} \0")),
            text[..late].to_owned(),
            text[..late - 3].to_owned(),
        ] {
            let pieces = of(text.as_bytes());
            refused += usize::from(pieces.is_err());
            let whole = of(&[MARK, text.as_bytes()].concat());
            // The mark shifts the offset in the message about a NUL byte.
            let nul = text.contains('\0') && pieces.is_err() && whole.is_err();
            assert!(nul || pieces == whole, "{name} of {} bytes", text.len());
            let members = [gzip(&text.as_bytes()[..late / 2]), gzip(&text.as_bytes()[late / 2..])].concat();
            assert!(pieces == of(&members), "{name} of {} bytes, packed", text.len());
            assert!(of(&members[..members.len() - 5]).unwrap_err().contains("truncated"), "{name}");
        }
        assert!((3..=6).contains(&refused), "{name}: {refused} refused");
        std::fs::write(&path, text).unwrap();
        let in_pieces = match *name {
            // Listed by source.
            "p.tra" => tra::read_numbered(&path).is_ok_and(|(_, rows)| rows.is_some()),
            "m.tra" => tra::by_pieces(&path).is_ok_and(|file| file.is_some()),
            "m.mtx" => mtx::by_pieces(&path).is_ok_and(|file| file.is_some()),
            "m.drn" => drn::by_pieces(&path).is_ok_and(|file| file.is_some()),
            _ => true,
        };
        assert!(in_pieces, "{name}");
    }
}

#[test]
fn vectors() {
    let path = Path::new("v.txt");
    assert_eq!(parse_vector(b"# probabilities\n0.5\r\n\n1/4\n2.5e-1", path).unwrap(), [0.5, 0.25, 0.25]);
    let error = parse_vector(b"0.5\nx\n", path).unwrap_err().to_string();
    assert_eq!(error, "v.txt:2: 'x' is not a finite number; write one number in each line");
    assert_eq!(parse_vector(b"0e-400\n", path).unwrap(), [0.0], "a zero is one however it is written");
}
