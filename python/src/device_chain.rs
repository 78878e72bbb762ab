//! Chains of one structure on a device, for `kolmo.torch` and `kolmo.jax`.

use crate::prelude::*;
use std::sync::{Mutex, PoisonError};

use kolmo::lane::{Buffer, Lane};
use kolmo::transient::gradient::adjoint::Functional;
use kolmo::transient::gradient::device_chain::{DeviceChain as Fixed, Rates};
use kolmo::transient::{Initial, Options};
use numpy::{PyArray2, PyArrayMethods, PyReadonlyArray2};

use crate::dlpack::{DlDevice, Lent};
use crate::machine::Held;
use crate::resident::{ArrayArg, CopySource, DeviceLane};
use crate::transient::FloatArray;

/// Chain with fixed transitions on a device. One call is computed at a time.
#[pyclass(frozen, name = "DeviceChain", module = "kolmo._kolmo")]
pub(crate) struct PyDeviceChain {
    // Dropped before the machine.
    chain: Mutex<Fixed>,
    device: DlDevice,
    transitions: usize,
    held: Held,
}

/// Derivatives by the rates, on the device or in an array.
type ByRates<'py> = Bound<'py, PyAny>;

#[pymethods]
impl PyDeviceChain {
    /// Prepares the chain of `n` states with transitions from `sources` to `targets`.
    #[new]
    fn new(
        py: Python<'_>,
        lane: &DeviceLane,
        n: usize,
        sources: PyReadonlyArray1<'_, u32>,
        targets: PyReadonlyArray1<'_, u32>,
    ) -> PyResult<Self> {
        expect_own_process().map_err(|error| exception(py, &error))?;
        let (sources, targets, held) = (sources.as_slice()?, targets.as_slice()?, lane.held.clone());
        let made = watched(py, None, &Stop::default(), |_| {
            held.ended(Fixed::new(held.machine(), n, sources, targets))
        })?;
        Ok(Self { device: lane.device, transitions: sources.len(), chain: Mutex::new(made), held })
    }

    /// Computes probabilities: a row for each time, the bounds, and whether these are met.
    fn transient<'py>(
        &self,
        py: Python<'py>,
        rates: ArrayArg<'py>,
        begin: PyReadonlyArray1<'py, f64>,
        times: PyReadonlyArray1<'py, f64>,
        epsilon: f64,
    ) -> PyResult<(Bound<'py, PyArray2<f64>>, FloatArray<'py>, bool)> {
        let (initial, times) = (Initial::Distribution(begin.as_slice()?.to_vec()), times.as_slice()?);
        let (n, options) = (begin.as_slice()?.len(), Options::default().epsilon(epsilon));
        let p = PyArray2::<f64>::zeros(py, [times.len(), n], false);
        let mut room = p.try_readwrite()?;
        let values = room.as_slice_mut()?;
        let solution = self.with(py, &rates, |chain, rates, told| {
            let rows = |index: usize, probabilities: &[f64]| {
                values[index * n..][..n].copy_from_slice(probabilities);
                Ok(())
            };
            chain.transient(rates, &initial, times, &options, &mut (told, rows))
        })?;
        drop(room);
        let bounds = PyArray1::from_iter(py, solution.times.iter().map(|time| time.bound.total()));
        Ok((p, bounds, solution.status == Status::Met))
    }

    /// Computes the derivatives of Σ values · p by the rates and by the initial probabilities.
    ///
    /// Those by the rates are where the rates are. Also returns the bounds of both.
    fn adjoint<'py>(
        &self,
        py: Python<'py>,
        rates: ArrayArg<'py>,
        begin: PyReadonlyArray1<'py, f64>,
        times: PyReadonlyArray1<'py, f64>,
        values: PyReadonlyArray2<'py, f64>,
        epsilon: f64,
    ) -> PyResult<(ByRates<'py>, FloatArray<'py>, [f64; 2])> {
        let (initial, times) = (Initial::Distribution(begin.as_slice()?.to_vec()), times.as_slice()?);
        let (values, options) = (values.as_slice()?, Options::default().epsilon(epsilon));
        let rows = times.iter().zip(values.chunks(begin.as_slice()?.len().max(1)));
        let functionals: Vec<_> =
            rows.map(|(&time, values)| Functional { time, values, accumulated: false }).collect();
        let there = matches!(rates, ArrayArg::There(_));
        let (found, by_rates, values) = self.with(py, &rates, |chain, rates, told| {
            let (found, by_rates) = chain.adjoint(rates, &initial, &functionals, &options, None, told)?;
            let mut values = vec![0.0; if there { 0 } else { by_rates.len() }];
            self.lane().download(&by_rates, 0, &mut values)?;
            // Arrays are lent when they are complete.
            self.lane().finish()?;
            Ok((found, by_rates, values))
        })?;
        let by_rates = match there {
            true => {
                let address = self.lane().address(&by_rates);
                let address = address.expect("a lane that reads others' memory has addresses");
                let (shape, strides) = (vec![by_rates.len()], vec![1]);
                Bound::new(py, Lent::new(by_rates, address, self.device, shape, strides))?.into_any()
            }
            false => PyArray1::from_vec(py, values).into_any(),
        };
        let initial = PyArray1::from_vec(py, found.initial.values);
        Ok((by_rates, initial, [found.rates.bound, found.initial.bound]))
    }
}

impl PyDeviceChain {
    fn lane(&self) -> &Lane {
        &self.held.machine().lanes[0]
    }

    /// Runs `work` with the rates, after a copy to the lane if they are on its device.
    fn with<R: Send>(
        &self,
        py: Python<'_>,
        rates: &ArrayArg<'_>,
        work: impl FnOnce(&mut Fixed, Rates<'_>, &mut dyn Progress) -> Result<R> + Send,
    ) -> PyResult<R> {
        expect_own_process().map_err(|error| exception(py, &error))?;
        let (lane, source) = (self.lane(), rates.source("rates", self.device, self.lane())?);
        let count = match rates {
            ArrayArg::There(borrowed) => borrowed.get().shape.iter().product(),
            ArrayArg::Here(numbers) => numbers.as_slice()?.len(),
        };
        if count != self.transitions {
            let error = Error::invalid(format!("rates has {count} numbers; give {}", self.transitions));
            return Err(exception(py, &error));
        }
        watched(py, None, &Stop::default(), |told| {
            let mut chain = self.chain.lock().unwrap_or_else(PoisonError::into_inner);
            self.held.ended(match source {
                CopySource::Here(rates) => work(&mut chain, Rates::Host(rates), told),
                there @ CopySource::There { .. } => {
                    let rates: Buffer<f64> = lane.alloc_unset("rates", self.transitions)?;
                    there.copy(lane, &rates, self.transitions, false)?;
                    work(&mut chain, Rates::Device(&rates), told)
                }
            })
        })
    }
}
