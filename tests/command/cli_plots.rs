//! `--plot`, `--dry-run`, `completions` and `manual`.

use crate::devices::skip;
use crate::support::{Place, TWO, float};
use roxmltree::Document;

/// Texts of a picture, and the centres of its circles by colour.
pub(crate) struct Picture {
    pub(crate) texts: Vec<String>,
    pub(crate) circles: Vec<(String, f64, f64)>,
}

pub(crate) fn picture(place: &Place, name: &str) -> Picture {
    let svg = place.text(name);
    let document = Document::parse(&svg).expect("well-formed");
    assert!(document.root_element().has_tag_name(("http://www.w3.org/2000/svg", "svg")));
    let all = |tag: &'static str| {
        let found = document.descendants().filter(move |n| n.tag_name().name() == tag);
        found.collect::<Vec<_>>()
    };
    let title = all("title").iter().map(|t| t.text().unwrap_or("").to_owned()).next();
    assert!(title.is_some_and(|title| !title.is_empty()), "{name} has no title");
    assert!(svg.contains("@media (prefers-color-scheme:dark)"), "{name} has no dark colours");
    let texts = all("text").iter().map(|t| t.text().unwrap_or("").trim().to_owned()).collect();
    // Excludes the markers of the legend.
    let marker =
        |c: &&roxmltree::Node<'_, '_>| c.parent().and_then(|p| p.attribute("class")) != Some("legend");
    let circle = |c: &roxmltree::Node<'_, '_>| {
        let number = |name| c.attribute(name).and_then(|v| v.parse().ok()).expect("a number");
        (c.attribute("fill").unwrap_or("").to_owned(), number("cx"), number("cy"))
    };
    Picture { texts, circles: all("circle").iter().filter(marker).map(circle).collect() }
}

#[test]
fn labels_are_drawn_over_all_finite_times() {
    let place = Place::new();
    place.put("two.tra", TWO).put("two.lab", "0=\"init\" 1=\"down\"\n0: 0\n1: 1\n");

    let run = place.transient("two.tra --time inf,0,0.1,0.2,0.4 --label down --label init --plot p.svg");

    assert_eq!(run.rows().len(), 11);
    let Picture { texts, circles } = picture(&place, "p.svg");
    for text in ["down", "init", "time (1 / unit of the rates)", "probability", "two.tra: labels"] {
        assert!(texts.iter().any(|t| t == text), "{text} is not in {texts:?}");
    }
    // Four times each. One curve is low where the other is high, and the heights are those of 3/5
    // (1 − e^{−5t}).
    let of = |color: &str| circles.iter().filter(|c| c.0 == color).collect::<Vec<_>>();
    let (down, init) = (of("#0072B2"), of("#D55E00"));
    assert_eq!((down.len(), init.len()), (4, 4));
    let (low, high) = (down[0].2, init[0].2);
    for (t, mark) in [0.0, 0.1, 0.2, 0.4].iter().zip(&down) {
        let exact = 0.6 * (1.0 - (-5.0f64 * t).exp());
        // Coordinates have two decimals.
        approx::assert_abs_diff_eq!(mark.2, (low + exact * (high - low)), epsilon = 0.02);
    }
}

#[test]
fn without_names_the_most_likely_states_are_drawn() {
    let place = Place::new();

    place.transient("birth-death:50,1,2 --times 0:0.5:3 --plot p.svg -o p.npy");

    let Picture { texts, circles } = picture(&place, "p.svg");
    assert!(texts.iter().any(|t| t == "birth-death:50,1,2: the most likely states"), "{texts:?}");
    for state in 0..5 {
        assert!(texts.iter().any(|t| *t == format!("state {state}")), "{texts:?}");
    }
    assert_eq!(circles.len(), 5 * 7);
}

#[test]
fn walks_draw_a_half_width_for_every_round() {
    let place = Place::new();

    let line = "walk random-dominant:500,8,0.8,positive --component 3,7 --epsilon 1e-3 --sweeps 0";
    place.ok(&format!("{line} --plot w.svg --report r.json"));
    let report = place.json("r.json");
    let rounds = report["rounds"].as_array().expect("rounds");
    assert!(rounds.len() > 2, "{rounds:?}");
    for component in report["components"].as_array().expect("components") {
        let own: Vec<_> = rounds.iter().filter(|r| r["component"] == component["component"]).collect();
        // The last round is the result, and each round has more chains than the one before.
        assert_eq!(own.last(), Some(&component));
        assert!(own.windows(2).all(|w| w[0]["chains"].as_u64() < w[1]["chains"].as_u64()));
    }
    let Picture { texts, circles } = picture(&place, "w.svg");
    assert_eq!(circles.len(), rounds.len());
    for text in ["x_3", "x_7", "chains", "half-width"] {
        assert!(texts.iter().any(|t| t == text), "{text} is not in {texts:?}");
    }
}

#[test]
fn a_dry_run_of_walk_predicts_memory_and_time() {
    let place = Place::new();
    let line = "walk random-dominant:2000,8,0.9,positive --component 1,2 --epsilon 1e-3";
    let run =
        place.ok(&format!("{line} --dry-run -o x.csv --report r.json")).ends(0, &["memory", "pilot", "time"]);
    assert!(run.stdout.is_empty(), "{}", run.stdout);
    let report = place.json("r.json");
    assert_eq!(report["dry_run"], true);
    let (needed, seconds) = (float(&report["memory"][0], "needed"), float(&report, "seconds.total"));
    assert!(needed >= 1.0 && seconds > 0.0, "{report:#}");
    assert_eq!(place.names(), ["r.json"]);
}

#[test]
fn shells_get_their_completions() {
    let place = Place::new();
    for (shell, words, option) in [
        ("bash", "complete", "--epsilon"),
        ("zsh", "#compdef kolmo", "--epsilon"),
        ("fish", "complete -c kolmo", "-l epsilon"),
    ] {
        let run = place.ok(&format!("completions {shell}"));
        for word in [words, "tridiagonal", option] {
            assert!(run.stdout.contains(word), "{shell} has no {word}");
        }
    }
}

#[test]
fn every_command_has_a_manual_page() {
    let place = Place::new();
    std::fs::create_dir(place.path().join("man")).expect("a folder");

    place.ok("manual man");

    for command in ["", "-transient", "-walk", "-tridiagonal", "-bench", "-bench-spmv"] {
        let page = format!("kolmo{command}");
        let text = place.text(&format!("man/{page}.1"));
        assert!(text.contains(&format!(".TH {} 1 ", page.to_uppercase())), "{page}: {text}");
        for section in ["SYNOPSIS", "EXIT STATUS", "ENVIRONMENT", "FILES", "EXAMPLES", "SEE ALSO"] {
            assert!(text.contains(section), "{page} has no {section}: {text}");
        }
    }
    let pages: Vec<String> = std::fs::read_dir(place.path().join("man"))
        .expect("pages")
        .map(|page| page.expect("a page").path().to_string_lossy().into_owned())
        .collect();
    match std::process::Command::new("mandoc").arg("-Tlint").args(&pages).output() {
        Ok(lint) => {
            // The referenced pages are not installed.
            let said = String::from_utf8_lossy(&lint.stdout);
            let wrong: Vec<&str> =
                said.lines().filter(|line| !line.contains("referenced manual not found")).collect();
            assert!(wrong.is_empty(), "{wrong:#?}");
        }
        Err(e) => skip("mandoc", e),
    }
}
