//! Makes tensors of another library from the columns of a batch, with the functions that the library offers to native
//! code.
//!
//! DLPack calls these functions its exchange API. A tensor made by it costs 0.25 µs, two fifths of a tensor made from
//! a NumPy array, and each batch has several. The tensors of a batch share one block for their metadata. Releases of
//! PyTorch without these functions get tensors of NumPy arrays. Passing DLPack capsules to a private function of
//! PyTorch was slower, and compiling against PyTorch would tie the wheel to one release. Layouts and names are those
//! of `dlpack.h`, version 1.3 (<https://github.com/dmlc/dlpack>).

use pyo3::ffi;
use pyo3::prelude::*;
use reverb_core::gather::BatchColumn;
use reverb_core::{Buffer, DType};
use std::cell::UnsafeCell;
use std::ffi::{CStr, c_int, c_void};
use std::sync::Arc;

/// The name of the capsule that holds a library's functions.
const EXCHANGE_API: &CStr = c"dlpack_exchange_api";

/// The version that the structures below belong to. Later minor versions only add to them.
const MAJOR_VERSION: u32 = 1;

/// DLPack's number for the memory of the CPU.
const CPU: i32 = 1;

/// `DLPackVersion`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Version {
    major: u32,
    minor: u32,
}

/// `DLTensor`.
#[repr(C)]
struct Tensor {
    data: *mut c_void,
    device_type: i32,
    device_id: i32,
    ndim: i32,
    kind: u8,
    bits: u8,
    lanes: u16,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

/// `DLManagedTensorVersioned`.
#[repr(C)]
struct ManagedTensor {
    version: Version,
    manager: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut ManagedTensor)>,
    flags: u64,
    tensor: Tensor,
}

/// `DLPackManagedTensorToPyObjectNoSync`: takes ownership of a tensor and makes an object of it. Returns 0, or -1 with
/// an exception set.
type ToObject = unsafe extern "C" fn(*mut ManagedTensor, *mut *mut c_void) -> c_int;

/// The part of `DLPackExchangeAPI` that is used here.
#[repr(C)]
struct ExchangeApi {
    version: Version,
    /// The table of an older version, for programs that do not know this one.
    previous: *const ExchangeApi,
    _allocator: Option<unsafe extern "C" fn()>,
    _from_object: Option<unsafe extern "C" fn()>,
    to_object: Option<ToObject>,
}

/// Makes tensors of a library.
#[pyclass(frozen, module = "reverb._rust")]
pub struct TensorMaker {
    to_object: ToObject,
}

#[pymethods]
impl TensorMaker {
    /// Takes the capsule that the library's tensor type has as `__dlpack_c_exchange_api__`. Returns None if its version
    /// is not known here.
    #[staticmethod]
    fn of(api: &Bound<'_, PyAny>) -> PyResult<Option<Self>> {
        let py = api.py();
        // SAFETY: a capsule of this name has a table of functions that lives as long as the process.
        unsafe {
            let mut api =
                ffi::PyCapsule_GetPointer(api.as_ptr(), EXCHANGE_API.as_ptr()).cast::<ExchangeApi>().cast_const();
            if api.is_null() {
                return Err(PyErr::fetch(py));
            }
            while !api.is_null() && (*api).version.major != MAJOR_VERSION {
                api = (*api).previous;
            }
            Ok(api.as_ref().and_then(|api| api.to_object).map(|to_object| Self { to_object }))
        }
    }
}

impl TensorMaker {
    /// The columns of the buffer as tensors, and whether all of them are tensors. `otherwise` makes an object of a
    /// column that is ragged, that holds strings, or whose type the library may not know.
    pub fn make<'py>(
        &self,
        py: Python<'py>,
        buffer: &Arc<Buffer>,
        columns: &[BatchColumn],
        otherwise: impl Fn(&BatchColumn) -> PyResult<Bound<'py, PyAny>>,
    ) -> PyResult<(Vec<Bound<'py, PyAny>>, bool)> {
        let tensors = Tensors::of(buffer.clone(), columns);
        let to_object = |(managed, column): (&Option<UnsafeCell<ManagedTensor>>, &BatchColumn)| {
            let Some(managed) = managed else { return otherwise(column) };
            let mut object = std::ptr::null_mut();
            // SAFETY: nobody else has this tensor yet. The library takes ownership of it together with a reference to
            // all tensors, whether it succeeds or not, and calls `delete` once when it no longer needs it. On success
            // it has written an object whose reference is ours.
            unsafe {
                (*managed.get()).manager = Arc::into_raw(tensors.clone()).cast_mut().cast();
                if (self.to_object)(managed.get(), &raw mut object) != 0 {
                    return Err(PyErr::fetch(py));
                }
                Bound::from_owned_ptr_or_err(py, object.cast())
            }
        };
        let objects = tensors.managed.iter().zip(columns).map(to_object).collect::<PyResult<_>>()?;
        Ok((objects, tensors.managed.iter().all(Option::is_some)))
    }
}

/// The tensors of a batch and the memory that they point to. Each tensor holds a reference to all of it; the buffer
/// returns to its pool when the last of them is gone.
struct Tensors {
    managed: Box<[Option<UnsafeCell<ManagedTensor>>]>,
    _shapes: Vec<i64>,
    _buffer: Arc<Buffer>,
}

// SAFETY: the memory behind the pointers belongs to this, and moves with it to the thread that drops the last tensor.
unsafe impl Send for Tensors {}
// SAFETY: each tensor is given to the library once, and from then on only the library touches it.
unsafe impl Sync for Tensors {}

impl Tensors {
    fn of(buffer: Arc<Buffer>, columns: &[BatchColumn]) -> Arc<Self> {
        // The shapes are complete before anything points to them.
        let mut shapes: Vec<i64> = Vec::with_capacity(columns.iter().map(|column| column.shape.len()).sum());
        shapes.extend(columns.iter().flat_map(|column| &column.shape).map(|&size| size as i64));
        let mut rest = &mut shapes[..];
        let to_tensor = |column: &BatchColumn| {
            let shape = rest.split_off_mut(..column.shape.len())?;
            let (kind, bits) = kind_and_bits(column.dtype).filter(|_| column.row_lengths.is_none())?;
            // SAFETY: the column lies inside the buffer.
            let data = unsafe { buffer.as_ptr().add(column.offset) };
            let tensor = Tensor {
                data: data.cast_mut().cast(),
                device_type: CPU,
                device_id: 0,
                ndim: shape.len() as i32,
                kind,
                bits,
                lanes: 1,
                shape: shape.as_mut_ptr(),
                // In version 1.0 null means C order. A library needs more time to find that out from strides.
                strides: std::ptr::null_mut(),
                byte_offset: 0,
            };
            let (version, manager) = (Version { major: MAJOR_VERSION, minor: 0 }, std::ptr::null_mut());
            Some(UnsafeCell::new(ManagedTensor { version, manager, deleter: Some(delete), flags: 0, tensor }))
        };
        let managed = columns.iter().map(to_tensor).collect();
        Arc::new(Self { managed, _shapes: shapes, _buffer: buffer })
    }
}

/// Called by the library, from any thread, when it no longer needs the tensor.
unsafe extern "C" fn delete(managed: *mut ManagedTensor) {
    // SAFETY: `TensorMaker::make` gave the tensor a reference of its own.
    drop(unsafe { Arc::from_raw((*managed).manager.cast::<Tensors>()) });
}

/// DLPack's number for the kind of an element, and the number of its bits. Libraries that offer the functions know all
/// of these.
fn kind_and_bits(dtype: DType) -> Option<(u8, u8)> {
    const INTEGER: u8 = 0;
    const UNSIGNED: u8 = 1;
    const FLOAT: u8 = 2;
    const BFLOAT: u8 = 4;
    const COMPLEX: u8 = 5;
    const BOOL: u8 = 6;
    let kind = match dtype {
        DType::Int8 | DType::Int16 | DType::Int32 | DType::Int64 => INTEGER,
        DType::UInt8 | DType::UInt16 | DType::UInt32 | DType::UInt64 => UNSIGNED,
        DType::Float16 | DType::Float32 | DType::Float64 => FLOAT,
        DType::BFloat16 => BFLOAT,
        DType::Complex64 | DType::Complex128 => COMPLEX,
        DType::Bool => BOOL,
        _ => return None,
    };
    Some((kind, 8 * dtype.size() as u8))
}
