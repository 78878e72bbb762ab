//! Random mutations of texts: each is accepted or rejected without a panic.

use kolmo_model::{Options, PrismModel, Value};

use crate::{WORKSHOP, resolved};

const PROPERTIES: &str = "const double T = 3; label \"l\" = up1 & parts<2;\n\"a\": P>=0.5 [ !\"l\" U[1,T] \"down\" ];\n\
    filter(min, R{\"parts\"}=? [ C<=T ], parts=2) + 1; S=? [ \"a\" => up2 ? true : false ];";

/// Pieces with a `~` between them.
const PIECES: &str = "(~)~[~]~{~}~&~|~!~-~=~'~\"~?~:~;~<~..~->~0~1e999~99999999999999999999~-9223372036854775808~module~\
    endmodule~formula~rewards~init~system ~true~ parts ~up1~min(~pow(~mod(~P=? [ F ~filter(~\u{3b1}~broken~= broken +";

fn mutated(text: &str, random: &mut fastrand::Rng) -> String {
    let mut bytes = text.as_bytes().to_vec();
    let pieces: Vec<&str> = PIECES.split('~').collect();
    for _ in 0..random.usize(1..3) {
        let at = random.usize(..bytes.len().max(1)).min(bytes.len());
        let end = (at + random.usize(..12)).min(bytes.len());
        match random.u32(..4) {
            0 => drop(bytes.drain(at..end)),
            1 => {
                let copy = bytes[at..end].to_vec();
                let to = random.usize(..=bytes.len());
                bytes.splice(to..to, copy);
            }
            kind => {
                let end = if kind == 2 { at } else { end };
                bytes.splice(at..end, random.choice(&pieces).expect("pieces").bytes());
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn a_text_with_mistakes_is_read_or_refused() {
    let mut random = fastrand::Rng::with_seed(7);
    let workshop = PrismModel::parse("w", WORKSHOP).expect("a model");
    let given = [("N".to_owned(), Value::Int(2))];
    let (mut read, mut explored) = (0, 0);
    for _ in 0..3000 {
        let text = mutated(WORKSHOP, &mut random);
        match PrismModel::parse("m", &text) {
            Err(error) => assert!(!error.to_string().is_empty()),
            Ok(model) => {
                read += 1;
                let limit = Options { memory_limit: Some(1 << 22), ..Options::default() };
                let space = model.with_constants(&given).and_then(|instance| instance.explore(&limit));
                explored += u32::from(space.is_ok());
            }
        }
        let text = mutated(PROPERTIES, &mut random);
        let instance = workshop.with_constants(&given).expect("a constant");
        let found = resolved(&text, workshop.names(), Some(&instance), &[]);
        assert!(found.map_or_else(|error| !error.is_empty(), |_| true));
    }
    // Enough texts have to pass the parser.
    assert!(read > 100 && explored > 100, "{read} {explored}");
}
