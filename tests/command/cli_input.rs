//! Input that is unusual or cannot be used: permissions, counts, times, forms of a matrix.

use crate::support::{Place, THREE, THREE_GENERATOR};

#[cfg(unix)]
#[test]
fn a_directory_without_permission_is_reported() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    let locked = place.path().join("locked");
    std::fs::create_dir(&locked).unwrap();
    let permissions =
        |mode| std::fs::set_permissions(&locked, std::fs::Permissions::from_mode(mode)).unwrap();
    permissions(0o555);
    // Root may write anywhere.
    if std::fs::write(locked.join("probe"), "").is_err() {
        place.refuses("transient tandem:5 --time 1 -o locked/p.csv", &["locked/p.csv"]);
    }
    permissions(0o755);
}

#[test]
fn more_transitions_than_promised_are_read_with_a_warning() {
    let place = Place::new();
    place.put("exact.tra", THREE).put("less.tra", THREE.replacen("3 4", "3 2", 1));
    let less = place.transient("less.tra --time 1");
    assert_eq!(less.stdout, place.transient("exact.tra --time 1").stdout);
    less.ends(0, &["warning: less.tra: line 1 says 2 transitions, but the file has 4; all 4 are used"]);
}

#[test]
fn probably_mistyped_times_get_a_note() {
    let place = Place::new();
    place.put("m.tra", THREE);
    let said = |options: &str| place.transient(&format!("m.tra {options}")).stderr;
    assert!(said("--times 0:10:1").contains("note: --times 0:10:1 is time 0 alone"), "the order");
    assert!(said("--time 0,5").contains("two times, 0 and 5"), "the comma");
    for sound in ["--times 0:1:1", "--times 1:5:1", "--time 0,5,10", "--time 1,5", "--time 0.5"] {
        assert!(!said(sound).contains("note: --time"), "{sound}");
    }
    assert!(!said("--times 0:10:1 -q").contains("note"), "quiet");
}

/// Dense matrices, and numbers in the notation of Fortran and SciPy.
#[test]
fn other_forms_of_the_same_matrix_are_the_same_chain() {
    let place = Place::new();
    place.put("sparse.mtx", THREE_GENERATOR);
    place.put("plus.mtx", THREE_GENERATOR.replace("1 2 3\n", "+1 +2 +3.0D+0\n").replace("0.5", "5d-1"));
    let head = "%%MatrixMarket matrix array real";
    place.put("dense.mtx", format!("{head} general\n3 3\n-3\n1.5\n1\n3\n-2\n0\n0\n0.5\n-1\n"));
    let run = |name: &str| place.transient(&format!("{name} --time 1 -q")).stdout;
    for name in ["plus.mtx", "dense.mtx"] {
        assert_eq!(run(name), run("sparse.mtx"), "{name}");
    }
    // A symmetric matrix lists only its lower triangle.
    place.put("full.mtx", "%%MatrixMarket matrix array real general\n2 2\n4\n-1\n-1\n3\n");
    place.put("half.mtx", "%%MatrixMarket matrix array real symmetric\n2 2\n4\n-1\n3\n");
    let walk = |name: &str| place.ok(&format!("walk {name} --component 0,1 -q")).stdout;
    assert_eq!(walk("full.mtx"), walk("half.mtx"));
}
