//! Import and export of device arrays by DLPack, version 1 and unversioned.
//!
//! The interface is at <https://dmlc.github.io/dlpack/latest/c_api.html>.

#![expect(unsafe_code, reason = "a foreign interface")]

use crate::prelude::*;
use std::ffi::{CStr, c_void};

use kolmo::lane::Buffer;
use pyo3::exceptions::{PyAttributeError, PyBufferError, PyTypeError};
use pyo3::ffi;
use pyo3::types::PyCapsule;

/// `DLDevice`: kind and number of a device.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DlDevice {
    pub(crate) kind: i32,
    pub(crate) number: i32,
}

/// `DLDataType`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct DataType {
    code: u8,
    bits: u8,
    lanes: u16,
}

/// `kDLCUDA`, and `kDLCUDAManaged`, which all CUDA devices can read.
const CUDA: i32 = 2;
const CUDA_MANAGED: i32 = 13;

/// `kDLFloat` with 64 bits.
const DOUBLE: DataType = DataType { code: 2, bits: 64, lanes: 1 };

/// `DLTensor`.
#[repr(C)]
struct Tensor {
    data: *mut c_void,
    device: DlDevice,
    dimensions: i32,
    data_type: DataType,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

/// Function that frees a tensor, given the address of the struct that holds it.
type Deleter = Option<unsafe extern "C" fn(*mut c_void)>;

/// `DLManagedTensor`.
#[repr(C)]
struct Managed {
    tensor: Tensor,
    context: *mut c_void,
    deleter: Deleter,
}

/// `DLManagedTensorVersioned`.
#[repr(C)]
struct Versioned {
    version: [u32; 2],
    context: *mut c_void,
    deleter: Deleter,
    flags: u64,
    tensor: Tensor,
}

/// Names of an unversioned capsule, before and after its tensor is taken.
const PLAIN: [&CStr; 2] = [c"dltensor", c"used_dltensor"];
const VERSIONED: [&CStr; 2] = [c"dltensor_versioned", c"used_dltensor_versioned"];

/// Tensor taken out of a capsule. Dropping it calls the producer's deleter.
struct Taken {
    tensor: *const Tensor,
    /// Major version of DLPack, 0 if unversioned. Only version 1 is known.
    version: u32,
    managed: *mut c_void,
    deleter: Deleter,
}

// SAFETY: the tensor is not written. Its deleter may be called in any thread that holds the GIL,
// and a thread that drops a Python object holds it.
unsafe impl Send for Taken {}
// SAFETY: as for `Send`.
unsafe impl Sync for Taken {}

impl Taken {
    /// Takes the tensor out of a capsule.
    fn out_of(capsule: &Bound<'_, PyCapsule>) -> PyResult<Self> {
        let raw = capsule.as_ptr();
        let pointer = |[name, used]: [&'static CStr; 2]| {
            // SAFETY: `raw` is a capsule, and the names are static. No other consumer uses its
            // pointer under the new name.
            unsafe {
                if ffi::PyCapsule_IsValid(raw, name.as_ptr()) == 0 {
                    return None;
                }
                let pointer = ffi::PyCapsule_GetPointer(raw, name.as_ptr());
                (ffi::PyCapsule_SetName(raw, used.as_ptr()) == 0).then_some(pointer)
            }
        };
        // SAFETY: a valid capsule of this name has a pointer to this type, which is not null.
        let plain = |managed: *mut c_void| unsafe {
            let of = managed.cast::<Managed>();
            Self { tensor: &raw const (*of).tensor, version: 0, managed, deleter: (*of).deleter }
        };
        // SAFETY: as above. All versions have the first three fields in these places.
        let versioned = |managed: *mut c_void| unsafe {
            let of = managed.cast::<Versioned>();
            let [version, _] = (*of).version;
            Self { tensor: &raw const (*of).tensor, version, managed, deleter: (*of).deleter }
        };
        let found = pointer(PLAIN).map(plain).or_else(|| pointer(VERSIONED).map(versioned));
        found.ok_or_else(|| {
            PyBufferError::new_err("the capsule holds no tensor of DLPack, or one that was taken out already")
        })
    }

    fn tensor(&self) -> &Tensor {
        // SAFETY: the producer keeps the tensor unchanged until its deleter is called in `drop`.
        unsafe { &*self.tensor }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if let Some(deleter) = self.deleter {
            // SAFETY: the deleter is called once, with the tensor to which it belongs.
            unsafe { deleter(self.managed) };
        }
    }
}

/// Owner of the memory of a borrowed array.
enum ArrayOwner {
    Tensor(#[expect(dead_code, reason = "it is given back when this is dropped")] Taken),
    Object(#[expect(dead_code, reason = "it lives as long as this")] Py<PyAny>),
}

/// Array of float64 of another library, kept alive as long as this object.
#[pyclass(frozen, module = "kolmo._kolmo")]
pub(crate) struct Borrowed {
    pub(crate) address: u64,
    pub(crate) device: DlDevice,
    #[pyo3(get)]
    pub(crate) shape: Vec<usize>,
    /// Strides in elements.
    #[pyo3(get)]
    pub(crate) strides: Vec<isize>,
    /// Stream to wait for before the array is read.
    pub(crate) stream: Option<u64>,
    _owner: ArrayOwner,
}

/// Strides of a contiguous array in row-major order.
pub(crate) fn compact(shape: &[usize]) -> Vec<isize> {
    let mut strides = vec![1; shape.len()];
    for k in (1..shape.len()).rev() {
        strides[k - 1] = strides[k] * shape[k].max(1) as isize;
    }
    strides
}

#[pymethods]
impl Borrowed {
    /// Takes a tensor out of a capsule.
    #[new]
    fn new(name: &str, capsule: &Bound<'_, PyCapsule>) -> PyResult<Self> {
        let taken = Taken::out_of(capsule)?;
        if taken.version > 1 {
            let told = format!("{name} comes by DLPack {}; versions to 1 are known", taken.version);
            return Err(PyBufferError::new_err(told));
        }
        let tensor = taken.tensor();
        if tensor.data_type != DOUBLE {
            let DataType { code, bits, lanes } = tensor.data_type;
            let told = format!(
                "{name} holds numbers of DLPack's type {code} with {bits} bits and {lanes} lanes; arrays on a device hold float64"
            );
            return Err(PyBufferError::new_err(told));
        }
        let count = tensor.dimensions.max(0) as usize;
        let numbers = |of: *mut i64| {
            if of.is_null() || count == 0 {
                return &[][..];
            }
            // SAFETY: `of` points to `count` numbers. It is not null: a null pointer means no
            // dimensions, or a contiguous tensor for strides.
            unsafe { std::slice::from_raw_parts(of.cast_const(), count) }
        };
        let shape: Vec<usize> = numbers(tensor.shape).iter().map(|&n| n.max(0) as usize).collect();
        let strides = match tensor.strides.is_null() {
            true => compact(&shape),
            false => numbers(tensor.strides).iter().map(|&n| n as isize).collect(),
        };
        let address = tensor.data.expose_provenance() as u64 + tensor.byte_offset;
        let device = match tensor.device {
            DlDevice { kind: CUDA_MANAGED, number } => DlDevice { kind: CUDA, number },
            other => other,
        };
        Ok(Self { address, device, shape, strides, stream: None, _owner: ArrayOwner::Tensor(taken) })
    }

    /// One column of a matrix.
    fn column(slf: &Bound<'_, Self>, number: usize) -> Self {
        let matrix = slf.get();
        let at = (number as isize * matrix.strides[1] * size_of::<f64>() as isize) as u64;
        let Self { device, stream, .. } = *matrix;
        let _owner = ArrayOwner::Object(slf.clone().into_any().unbind());
        let (shape, strides) = (matrix.shape[..1].to_vec(), matrix.strides[..1].to_vec());
        Self { address: matrix.address.wrapping_add(at), device, shape, strides, stream, _owner }
    }

    /// Array described by `__cuda_array_interface__`.
    #[staticmethod]
    fn of_interface(
        owner: Py<PyAny>,
        device: (i32, i32),
        address: u64,
        shape: Vec<usize>,
        strides: Option<Vec<isize>>,
        stream: Option<u64>,
    ) -> Self {
        let strides = strides.unwrap_or_else(|| compact(&shape));
        let device = DlDevice { kind: device.0, number: device.1 };
        Self { address, device, shape, strides, stream, _owner: ArrayOwner::Object(owner) }
    }
}

/// Array of float64 on a device, lent by DLPack and ``__cuda_array_interface__``.
#[pyclass(frozen, module = "kolmo._kolmo", name = "DeviceArray")]
pub(crate) struct Lent {
    memory: Arc<Buffer<f64>>,
    address: u64,
    device: DlDevice,
    shape: Vec<usize>,
    strides: Vec<isize>,
}

/// Memory, shape and strides of an exported tensor.
struct ExportedTensor {
    _memory: Arc<Buffer<f64>>,
    shape: Vec<i64>,
    strides: Vec<i64>,
}

unsafe extern "C" fn give_back(managed: *mut c_void) {
    // SAFETY: this module made `managed` with `Lent::tensor`, and it is given back once.
    unsafe {
        let managed = Box::from_raw(managed.cast::<Managed>());
        drop(Box::from_raw(managed.context.cast::<ExportedTensor>()));
    }
}

unsafe extern "C" fn give_back_versioned(managed: *mut c_void) {
    // SAFETY: as in `give_back`.
    unsafe {
        let managed = Box::from_raw(managed.cast::<Versioned>());
        drop(Box::from_raw(managed.context.cast::<ExportedTensor>()));
    }
}

/// Frees a tensor that no consumer took out of its capsule.
unsafe extern "C" fn close(capsule: *mut ffi::PyObject) {
    // SAFETY: this module made the capsule. Under its first name it has the pointer that it was
    // made with.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, PLAIN[0].as_ptr()) == 1 {
            give_back(ffi::PyCapsule_GetPointer(capsule, PLAIN[0].as_ptr()));
        } else if ffi::PyCapsule_IsValid(capsule, VERSIONED[0].as_ptr()) == 1 {
            give_back_versioned(ffi::PyCapsule_GetPointer(capsule, VERSIONED[0].as_ptr()));
        }
    }
}

impl Lent {
    /// Wraps a lane's memory at this address, with strides in elements.
    pub(crate) fn new(
        memory: Buffer<f64>,
        address: u64,
        device: DlDevice,
        shape: Vec<usize>,
        strides: Vec<isize>,
    ) -> Self {
        Self { memory: Arc::new(memory), address, device, shape, strides }
    }

    fn tensor(&self) -> (Tensor, *mut c_void) {
        let mut kept = Box::new(ExportedTensor {
            _memory: self.memory.clone(),
            shape: self.shape.iter().map(|&n| n as i64).collect(),
            strides: self.strides.iter().map(|&n| n as i64).collect(),
        });
        let tensor = Tensor {
            data: std::ptr::with_exposed_provenance_mut(self.address as usize),
            device: self.device,
            dimensions: self.shape.len() as i32,
            data_type: DOUBLE,
            shape: kept.shape.as_mut_ptr(),
            strides: kept.strides.as_mut_ptr(),
            byte_offset: 0,
        };
        (tensor, Box::into_raw(kept).cast())
    }
}

#[pymethods]
impl Lent {
    fn __repr__(&self) -> String {
        format!("DeviceArray(shape={:?}, device={:?})", self.shape, (self.device.kind, self.device.number))
    }

    /// Raises an error: device memory belongs to one process.
    fn __reduce__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err(format!(
            "{} is memory of a device, which neither pickles nor copies; take it over with from_dlpack of CuPy, \
             Torch or JAX, and copy that",
            self.__repr__()
        )))
    }

    /// Shape of the array.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.shape)
    }

    /// Kind and number of the device in DLPack's numbering.
    fn __dlpack_device__(&self) -> (i32, i32) {
        (self.device.kind, self.device.number)
    }

    /// Capsule with the array. The array is complete, so that no stream has to wait.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__(
        &self,
        py: Python<'_>,
        stream: Option<&Bound<'_, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Py<PyAny>> {
        let _ = stream;
        if dl_device.is_some_and(|device| device != self.__dlpack_device__()) || copy == Some(true) {
            return Err(PyBufferError::new_err(format!(
                "{} is exported without a copy; copy it with the library that imports it",
                self.__repr__()
            )));
        }
        let (tensor, context) = self.tensor();
        // SAFETY: the capsule or its consumer frees the box once, and the name is static.
        let capsule = unsafe {
            if max_version.is_some_and(|(major, _)| major >= 1) {
                let (version, deleter) = ([1, 0], Some(give_back_versioned as _));
                let held = Box::new(Versioned { version, context, deleter, flags: 0, tensor });
                ffi::PyCapsule_New(Box::into_raw(held).cast(), VERSIONED[0].as_ptr(), Some(close))
            } else {
                let held = Box::new(Managed { tensor, context, deleter: Some(give_back as _) });
                ffi::PyCapsule_New(Box::into_raw(held).cast(), PLAIN[0].as_ptr(), Some(close))
            }
        };
        // SAFETY: a new reference, or null with an exception set.
        unsafe { Bound::from_owned_ptr_or_err(py, capsule) }.map(Bound::unbind)
    }

    /// Description of the array for libraries that support CUDA alone.
    #[getter]
    fn __cuda_array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        if self.device.kind != CUDA {
            return Err(PyAttributeError::new_err(format!("{} is not on a CUDA device", self.__repr__())));
        }
        let bytes = self.strides.iter().map(|&apart| apart * size_of::<f64>() as isize);
        let told = PyDict::new(py);
        told.set_item("shape", PyTuple::new(py, &self.shape)?)?;
        told.set_item("typestr", "<f8")?;
        told.set_item("data", (self.address, false))?;
        told.set_item("strides", PyTuple::new(py, bytes.collect::<Vec<_>>())?)?;
        told.set_item("version", 3)?;
        // The array is complete: no stream has to wait.
        told.set_item("stream", py.None())?;
        Ok(told)
    }
}
