//! What both protocols have in common: how messages are encoded and bounded, the memory of insert streams, codes
//! of errors, largest priorities, who makes a call, and helpers of services.

pub mod caller;
pub mod checked;
pub mod codec;
pub mod codes;
pub mod held_memory;
pub mod largest;
pub mod service;
