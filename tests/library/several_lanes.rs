//! One chain on several lanes: every partitioning gives the bits of one lane.

use crate::support::{chain, machine, model, ragged, run};
use kolmo::kernel::Precision::{self, F32, F64};
use kolmo::transient::{Initial, Options, Partitioning, Solution, Transitions};

/// Chains that are partitioned in different ways.
///
/// Banded in two sizes, one block only, disconnected with unreachable states, one dense row and
/// column, and rows of very different lengths.
fn chains() -> Vec<(&'static str, Box<dyn Transitions>)> {
    let mut split: Vec<(u32, u32, f64)> = (0..255).map(|i| (i, i + 1, 0.5 + f64::from(i) / 300.0)).collect();
    split.extend((300..1100).map(|i| (i, 300 + (i * 7 + 1) % 800, 0.125)).filter(|t| t.0 != t.1));
    let mut dense: Vec<(u32, u32, f64)> = (0..1499).map(|i| (i, i + 1, 0.75)).collect();
    dense.extend((0..1500).filter(|i| ![9, 10].contains(i)).map(|i| (i, 10, 0.01)));
    dense.extend((0..1500).filter(|i| ![10, 900, 901].contains(i)).map(|i| (900, i, 0.002)));
    vec![
        ("wlan:4,3", model("wlan:4,3")),
        ("birth-death:1025", model("birth-death:1025,0.8,0.7")),
        ("one block", model("birth-death:250,0.8,0.7")),
        ("unconnected", Box::new(chain(1300, &split))),
        ("dense", Box::new(chain(1500, &dense))),
        ("ragged", Box::new(ragged(1024))),
    ]
}

/// Compares π on the lanes of `spec` with one lane, for every chain and halo depth.
fn bits_of_one_lane(spec: &str, one: &str, precision: Precision, halo_depth: &[Option<usize>]) {
    let (Some(many), Some(one)) = (machine(spec, precision), machine(one, precision)) else {
        return;
    };
    for (name, chain) in chains() {
        let initial = Initial::Uniform(vec![0, 201]);
        let with = |halo_depth| Options::default().split(Partitioning::default().halo_depth(halo_depth));
        let ask = |machine, halo_depth| run(machine, &*chain, &initial, &[0.2, 0.8], &with(halo_depth));
        let (wanted, _) = ask(&one, None);
        for &halo_depth in halo_depth {
            let (got, solution): (_, Solution) = ask(&many, halo_depth);

            let said = &solution.matrix;
            assert!(said.parts > 1 || chain.states() <= 256, "{name}: {} parts", said.parts);
            if let Some(halo_depth) = halo_depth {
                assert_eq!(said.halo_depth, halo_depth, "{name}");
            }
            assert!(got == wanted, "{name} on {spec} in {precision}, {} steps an exchange", said.halo_depth);
        }
    }
}

const HOPS: [Option<usize>; 5] = [None, Some(1), Some(2), Some(3), Some(7)];

#[test]
fn cpu_lanes_give_the_bits_of_one() {
    bits_of_one_lane("cpu,cpu", "cpu", F32, &[None, Some(2)]);
    bits_of_one_lane("cpu,cpu,cpu", "cpu", F64, &HOPS);
    bits_of_one_lane("cpu,cpu,cpu,cpu,cpu,cpu,cpu", "cpu", F64, &[Some(1), Some(4)]);
    bits_of_one_lane("cpu,cpu,cpu,cpu,cpu,cpu,cpu", "cpu", F32, &[None]);
}

#[cfg(feature = "wgpu")]
#[test]
#[ignore = "slow: as on CPU lanes"]
fn wgpu_lanes_give_the_bits_of_one() {
    bits_of_one_lane("wgpu:0,wgpu:0", "wgpu:0", F64, &[None, Some(1), Some(3)]);
    bits_of_one_lane("wgpu:0,wgpu:0,wgpu:0", "wgpu:0", F32, &[Some(2)]);
}

#[cfg(feature = "wgpu")]
#[test]
fn two_wgpu_devices_give_the_bits_of_one() {
    bits_of_one_lane("wgpu:0,wgpu:1", "wgpu:0", F64, &HOPS);
}

#[cfg(feature = "cuda")]
#[test]
fn cuda_lanes_give_the_bits_of_one() {
    for precision in [F64, F32] {
        bits_of_one_lane("cuda:0,cuda:0,cuda:0", "cuda:0", precision, &[None]);
        bits_of_one_lane("cuda:0,cuda:1", "cuda:0", precision, &[None]);
    }
}
