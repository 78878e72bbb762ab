//! Errors on several lanes are reported, before the work where possible.

use serde_json::Value;

use crate::support::Place;

#[test]
fn a_dry_run_prints_needed_and_free_memory() {
    let place = Place::new();
    let line = "transient wlan:5,4 --time 1,2 --device cpu,cpu --dry-run -o p.npy --report r.json";

    let parts = ["wlan:5,4", "memory   cpu", "free", "plan     cpu", "multiplications of"];
    assert_eq!(place.kolmo(line).ends(0, &parts).stdout, "");
    assert_eq!(place.names(), ["r.json"], "a dry run writes no result");
    let report = place.json("r.json");
    assert_eq!((&report["dry_run"], &report["fits"]), (&Value::from(true), &Value::from(true)));
    let rows: u64 = report["lanes"].as_array().unwrap().iter().map(|l| l["rows"].as_u64().unwrap()).sum();
    assert_eq!(rows, report["n"].as_u64().unwrap());
    // A real run needs at most the predicted number of products.
    place.kolmo("transient wlan:5,4 --time 1,2 --device cpu,cpu -o p.npy --report real.json");
    let (said, real) = (report["terms"].as_u64().unwrap(), place.json("real.json"));
    assert!(real["terms"].as_u64().unwrap() <= said);
    assert_eq!(real["nnz"], report["nnz"]);
}

#[test]
fn a_dry_run_beyond_memory_fails_like_the_run() {
    let place = Place::new();
    let line = "transient wlan:5,4 --time 1,inf --device cpu,cpu --matrix-format packed --memory-limit 250kB --dry-run --report r.json";

    place.kolmo(line).ends(2, &["does NOT fit", "244.1 KiB are free", "--device"]);
    assert_eq!(place.json("r.json")["fits"], false);
    assert_eq!(place.json("r.json")["terms"], Value::Null, "the steady state is met when it is met");
    place.kolmo(&line.replace("--dry-run", "")).ends(2, &[]);
    // The host computes a limit alone.
    for line in [line.replace("1,inf", "inf"), line.replace("1,inf", "inf").replace("--dry-run", "")] {
        place.kolmo(&line).ends(0, &[]);
    }
}

#[cfg(feature = "cuda")]
#[test]
fn devices_without_peer_access_copy_through_the_host() {
    let place = Place::new();
    let line = "transient wlan:3,2 --time 3 --device cuda:0,cuda:0 --verbose";
    let near = place.kolmo(&format!("{line} -o near.npy"));
    if near.code == 2 && near.stderr.contains("cuda:0:") {
        return crate::devices::skip("cuda:0", near.stderr);
    }
    assert!(near.stderr.contains("each other's memory, after every step"), "{}", near.stderr);

    for halo_depth in ["1", "3"] {
        let far = format!("{line} --halo-depth {halo_depth} -o far.npy --report r.json");
        place.kolmo_with(&far, &[("KOLMO_NO_PEER", "1")]).ends(0, &["do not reach each other's memory"]);
        assert_eq!(place.json("r.json")["halo_depth"].to_string(), halo_depth);
        assert!(place.get("far.npy") == place.get("near.npy"), "the same bits by another way");
    }
}
