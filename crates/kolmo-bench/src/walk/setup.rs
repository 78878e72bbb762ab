//! Preparation time of walks, compared with reading the matrix.

use super::*;
use kolmo::walk::{PILOT, default_epsilon};

/// Measures the preparation of `kolmo walk`: splitting, sweeps, row order and chain table.
///
/// It runs on the host threads of the first lane, each time after a read of the matrix. `sweeps`
/// replaces the default control variate. The time of the certificate is reported separately.
pub fn setup(machine: &Machine, system: &System, sweeps: ControlVariate, repeat: usize) -> Result<Record> {
    let matrix = &system.matrix;
    let (mut taken, mut certificate_seconds) = (0, 0.0);
    let mut once = || -> Result<f64> {
        let at = Instant::now();
        let split = Split::new(matrix, Splitting::Auto)?;
        let (f, _) = split.scaled_constant(&system.rhs)?;
        let before = Instant::now();
        let certificate = certify(&split, Splitting::Auto, &machine.lanes[0], &mut |_| Ok(true))?;
        // The certificate's time is separate.
        certificate_seconds = if certificate.products > 0 { before.elapsed().as_secs_f64() } else { 0.0 };
        let error = 0.5 * default_epsilon(&f, &certificate);
        let chains = PILOT * u64::from(Options::default().replicates);
        let goal = Goal { error, chains: chains as f64 };
        let asked = Request { components: &[0], functionals: &[], goal };
        let krylov = &mut Krylov::new(&machine.lanes[0]);
        let control = Control::new(&split, &certificate, &f, &asked, sweeps, krylov, &mut |_| Ok(true))?;
        let order = control.values(&split);
        let table = Table::build(&split, &certificate, &[&control.r], Some(&order), &[])?;
        let seconds = at.elapsed().as_secs_f64() - certificate_seconds;
        taken = control.sweeps;
        std::hint::black_box(&table.words[0]);
        Ok(seconds)
    };
    let mut both = || {
        let at = Instant::now();
        std::hint::black_box(kolmo::internals::read_through(matrix));
        let read = at.elapsed().as_secs_f64();
        once().map(|setup| (read, setup))
    };
    // The first measurement touches new memory and does not count.
    let measured = (0..=repeat).map(|_| both()).collect::<Result<Vec<_>>>()?;
    let of = |value: &dyn Fn(&(f64, f64)) -> f64| Spread::of(measured[1..].iter().map(value).collect());
    let (reads, setups) = (of(&|m| m.0), of(&|m| m.1));
    let bytes = 12 * matrix.nnz() + 8 * matrix.starts().len();
    let more = json!({
        "read_seconds": reads.median, "read_gb_per_s": bytes as f64 / reads.median / 1e9,
        "reads": setups.median / reads.median, "certificate_seconds": certificate_seconds, "sweeps": taken,
    });
    let case = format!("{} setup", system.name);
    Ok(Record { bytes: bytes as u64, repetitions: repeat, ..record(machine, system, case, setups, more) })
}
