//! What both protocols have in common: how messages are encoded and bounded, codes of errors, and helpers of services.

pub mod checked;
pub mod codec;
pub mod codes;
pub mod service;
pub mod table_info;
