//! What `reverb.aio` is made of: calls that run on the runtime of the process while an event loop does something else.
//!
//! A call that ends adds its number to the [`wakeups::Wakeups`] of its loop, which the loop watches like a socket. So no
//! thread of ours waits for the GIL, and a loop needs no thread for any number of calls.

pub mod call;
pub mod calls;
pub mod wakeups;
pub mod writer_calls;
