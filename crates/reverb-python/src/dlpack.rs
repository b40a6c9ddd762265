//! Columns of a batch as tensors of another library, by the functions that it offers to native code.
//!
//! DLPack calls them its exchange API. A tensor costs two fifths of one that is made of a NumPy array, and there are several
//! in each batch. Layouts and names are those of `dlpack.h`, version 1.3 (<https://github.com/dmlc/dlpack>).

use pyo3::ffi;
use pyo3::prelude::*;
use reverb_core::gather::BatchColumn;
use reverb_core::{Buffer, DType};
use std::cell::UnsafeCell;
use std::ffi::{CStr, c_int, c_void};
use std::sync::Arc;

/// What the capsule of a library's functions is called.
const EXCHANGE_API: &CStr = c"dlpack_exchange_api";

/// What the structures below belong to. Later minor versions only add to it.
const MAJOR_VERSION: u32 = 1;

/// DLPack's number of the processor's own memory.
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

/// `DLPackManagedTensorToPyObjectNoSync`: takes a tensor over and makes an object of it. 0, or -1 with an exception set.
type ToObject = unsafe extern "C" fn(*mut ManagedTensor, *mut *mut c_void) -> c_int;

/// `DLPackExchangeAPI`, as far as it is of use here.
#[repr(C)]
struct ExchangeApi {
    version: Version,
    /// An older one, for who does not know this one.
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
    /// By the capsule that the library's tensor type has as `__dlpack_c_exchange_api__`; None if it is of a version that
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
    /// The columns of the buffer as tensors, and whether all are; `otherwise` makes those that are ragged, or of strings or
    /// a type that the library may not know.
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
            // SAFETY: nobody else has this tensor yet. The library takes it over with a reference to all of them, whatever
            // comes of it, and calls `delete` once when it is done with it. On success it has written an object, of which
            // the reference is ours.
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

/// The tensors of a batch and what they point to, in one place: each of them holds a reference to all. The buffer returns to
/// its pool with the last.
struct Tensors {
    managed: Box<[Option<UnsafeCell<ManagedTensor>>]>,
    _shapes: Vec<i64>,
    _buffer: Arc<Buffer>,
}

// SAFETY: what the pointers point to lies in here, and goes with it to whichever thread drops the last tensor.
unsafe impl Send for Tensors {}
// SAFETY: each tensor is given to the library once, which then is the only one that touches it.
unsafe impl Sync for Tensors {}

impl Tensors {
    fn of(buffer: Arc<Buffer>, columns: &[BatchColumn]) -> Arc<Self> {
        // All of it is there before anything points to it.
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
                // Version 1.0 takes that for rows one after another, which costs a library less than to see that they are.
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

/// The library is done with the tensor. It may call from any thread.
unsafe extern "C" fn delete(managed: *mut ManagedTensor) {
    // SAFETY: `TensorMaker::make` gave the tensor a reference of its own.
    drop(unsafe { Arc::from_raw((*managed).manager.cast::<Tensors>()) });
}

/// DLPack's number of a kind of elements, and bits of one. Who offers the functions knows all of these.
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
