//! The sorted order of a dict's keys. Programs pass dicts with the same few sets of keys again and again, so orders are
//! remembered.

use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyString;
use smallvec::SmallVec;
use std::borrow::Cow;

/// Number of orders that are remembered.
const KEPT_ORDERS: usize = 16;

/// The indices of keys in the order of the keys.
pub type KeyOrder = SmallVec<[u32; 8]>;

/// The keys of a dict, which are recognized by their identity, and their order.
struct Known {
    keys: SmallVec<[Py<PyString>; 8]>,
    order: KeyOrder,
}

static KNOWN: Mutex<[Option<Known>; KEPT_ORDERS]> = Mutex::new([const { None }; KEPT_ORDERS]);

/// Returns the sorted order of the keys of a dict, which are given with their values as the dict has them.
pub fn key_order<T>(children: &[(Bound<'_, PyString>, T)]) -> PyResult<KeyOrder> {
    let Some((first, _)) = children.first() else { return Ok(KeyOrder::new()) };
    // Objects are aligned to 16 bytes.
    let place = (first.as_ptr() as usize / 16 + children.len()) % KEPT_ORDERS;
    let is_same = |known: &&Known| {
        known.keys.len() == children.len()
            && known.keys.iter().zip(children).all(|(known, (key, _))| known.as_ptr() == key.as_ptr())
    };
    if let Some(known) = KNOWN.lock()[place].as_ref().filter(is_same) {
        return Ok(known.order.clone());
    }
    let order = sorted(children)?;
    let keys = children.iter().map(|(key, _)| key.clone().unbind()).collect();
    let replaced = KNOWN.lock()[place].replace(Known { keys, order: order.clone() });
    // The end of a key may run code of its class, which may walk another dict.
    drop(replaced);
    Ok(order)
}

fn sorted<T>(children: &[(Bound<'_, PyString>, T)]) -> PyResult<KeyOrder> {
    let mut order: SmallVec<[(Cow<'_, str>, u32); 8]> = SmallVec::new();
    for ((key, _), index) in children.iter().zip(0..) {
        order.push((key.to_cow()?, index));
    }
    // UTF-8 sorts in the order of code points, like strings in Python.
    order.sort_unstable();
    Ok(order.into_iter().map(|(_, index)| index).collect())
}
