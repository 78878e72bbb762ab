//! One chain on several lanes: every partitioning and format gives the bits of HYB on one lane.

use crate::formats::irregular;
use crate::support::{answer, chain, machine, model, problem, ragged};
use kolmo::kernel::Precision::{self, F32, F64};
use kolmo::sparse::MatrixFormat::{self, Auto, Hyb};
use kolmo::transient::{Initial, Options, Partitioning, Transitions};
use kolmo::{Error, Invalid};

/// Chains that are partitioned in different ways.
///
/// Banded in two sizes, one block only, disconnected with unreachable states, one dense row and
/// column, and rows of very different lengths. The parts of six equal components have no halo. In
/// the last chain no two rows are equal.
fn chains() -> Vec<(&'static str, Box<dyn Transitions>)> {
    let mut split: Vec<(u32, u32, f64)> = (0..255).map(|i| (i, i + 1, 0.5 + f64::from(i) / 300.0)).collect();
    split.extend((300..1100).map(|i| (i, 300 + (i * 7 + 1) % 800, 0.125)).filter(|t| t.0 != t.1));
    let mut dense: Vec<(u32, u32, f64)> = (0..1499).map(|i| (i, i + 1, 0.75)).collect();
    dense.extend((0..1500).filter(|i| ![9, 10].contains(i)).map(|i| (i, 10, 0.01)));
    dense.extend((0..1500).filter(|i| ![10, 900, 901].contains(i)).map(|i| (900, i, 0.002)));
    let six = (0..1535).filter(|i| i % 256 < 255);
    let six: Vec<(u32, u32, f64)> = six.flat_map(|i| [(i, i + 1, 0.75), (i + 1, i, 0.5)]).collect();
    vec![
        ("six components", Box::new(chain(1536, &six))),
        ("wlan:4,3", model("wlan:4,3")),
        ("birth-death:1025", model("birth-death:1025,0.8,0.7")),
        ("one block", model("birth-death:250,0.8,0.7")),
        ("unconnected", Box::new(chain(1300, &split))),
        ("dense", Box::new(chain(1500, &dense))),
        ("ragged", Box::new(ragged(1024))),
        ("irregular", Box::new(irregular(5000, 7))),
    ]
}

/// Compares π on the lanes of `spec` with one lane, for every chain, format and halo depth.
///
/// Different devices get shares by measured bandwidth, and subnormal numbers differ between them.
/// Their results are compared with each other, up to such numbers. A device measured as slow, on a
/// busy machine, may get no part of a small chain.
fn bits_of_one_lane(spec: &str, precision: Precision, formats: &[MatrixFormat], depths: &[Option<usize>]) {
    let first = spec.split(',').next().expect("a device");
    let mixed = first != "cpu" && spec.ends_with("cpu");
    let one = if mixed { spec } else { first };
    let (Some(many), Some(one)) = (machine(spec, precision), machine(one, precision)) else { return };
    for (name, chain) in chains() {
        let initial = Initial::Uniform(vec![0, 201, chain.states() as u32 - 1]);
        let ask = |machine, format, halo_depth| {
            let split = Partitioning::default().halo_depth(halo_depth);
            let options = Options::default().format(format).split(split);
            answer(machine, &problem(&*chain, &initial, &[0.2, 0.8]), &options)
        };
        let (wanted, _) = ask(&one, Hyb, None).expect("HYB stores any chain");
        for (&format, &halo_depth) in formats.iter().flat_map(|f| depths.iter().map(move |depth| (f, depth)))
        {
            let (got, solution) = match ask(&many, format, halo_depth) {
                // All formats store the built-in chains.
                Err(Error::Invalid(Invalid::Argument("matrix_format"), why)) if !name.contains(':') => {
                    assert!(why.contains(format.name()) && why.contains("more than"), "{why}");
                    continue;
                }
                found => found.expect("a sound problem"),
            };
            let said = &solution.matrix;
            let whole = mixed || !spec.contains(',') || chain.states() <= 256;
            assert!(said.parts > 1 || whole, "{name}: {} parts", said.parts);
            assert!(halo_depth.is_none_or(|depth| depth == said.halo_depth), "{name}: {}", said.halo_depth);
            assert!(format == Auto || said.format == format.name(), "{name}: {}", said.format);
            let near = |(a, b): (&f64, &f64)| if mixed { (a - b).abs() <= 1e-15 } else { a == b };
            let same = got.iter().flatten().zip(wanted.iter().flatten()).all(near);
            let depth = said.halo_depth;
            assert!(same, "{name} on {spec} in {precision} and {format}, {depth} steps an exchange");
        }
    }
}

const HOPS: [Option<usize>; 5] = [None, Some(1), Some(2), Some(3), Some(7)];

#[test]
fn cpu_formats_give_the_bits_of_one_lane() {
    bits_of_one_lane("cpu", F32, &MatrixFormat::STORED, &[None]);
    bits_of_one_lane("cpu", F64, &MatrixFormat::STORED, &[None]);
    bits_of_one_lane("cpu,cpu", F64, &MatrixFormat::STORED, &[Some(2)]);
}

#[test]
fn cpu_lanes_give_the_bits_of_one() {
    bits_of_one_lane("cpu,cpu", F32, &[Auto], &[None, Some(2)]);
    bits_of_one_lane("cpu,cpu", F64, &MatrixFormat::STORED, &[Some(3)]);
    bits_of_one_lane("cpu,cpu,cpu", F64, &[Auto], &HOPS);
    bits_of_one_lane("cpu,cpu,cpu", F64, &MatrixFormat::STORED, &[Some(2)]);
    bits_of_one_lane("cpu,cpu,cpu,cpu,cpu,cpu,cpu", F64, &[Auto], &[Some(1), Some(4)]);
    bits_of_one_lane("cpu,cpu,cpu,cpu,cpu,cpu,cpu", F32, &[Auto], &[None]);
}

#[cfg(feature = "wgpu")]
#[test]
#[ignore = "slow: as on CPU lanes"]
fn wgpu_lanes_give_the_bits_of_one() {
    bits_of_one_lane("wgpu:0,wgpu:0", F64, &[Auto], &[None, Some(1)]);
    bits_of_one_lane("wgpu:0,wgpu:0", F64, &MatrixFormat::STORED, &[Some(3)]);
    bits_of_one_lane("wgpu:0,wgpu:0,wgpu:0", F32, &[Auto], &[Some(2)]);
    bits_of_one_lane("wgpu:0,wgpu:0,wgpu:0", F64, &MatrixFormat::STORED, &[Some(2)]);
    bits_of_one_lane("wgpu:0,cpu", F64, &MatrixFormat::STORED, &[Some(2)]);
}

#[cfg(feature = "wgpu")]
#[test]
fn wgpu_formats_and_two_and_four_devices_give_the_bits_of_one() {
    bits_of_one_lane("wgpu:0", F64, &MatrixFormat::STORED, &[None]);
    bits_of_one_lane("wgpu:0,wgpu:1", F64, &[Auto], &HOPS);
    bits_of_one_lane("wgpu:0,wgpu:1,wgpu:2,wgpu:3", F64, &MatrixFormat::STORED, &[None, Some(2)]);
}

#[cfg(feature = "cuda")]
#[test]
fn cuda_lanes_give_the_bits_of_one() {
    for precision in [F64, F32] {
        bits_of_one_lane("cuda:0", precision, &MatrixFormat::STORED, &[None]);
        bits_of_one_lane("cuda:0,cuda:0,cuda:0", precision, &[Auto], &[None]);
        bits_of_one_lane("cuda:0,cuda:1", precision, &[Auto], &[None]);
        bits_of_one_lane("cuda:0,cuda:1,cuda:2,cuda:3", precision, &[Auto], &[None]);
    }
    bits_of_one_lane("cuda:0,cpu", F64, &MatrixFormat::STORED, &[Some(2), Some(3)]);
}
