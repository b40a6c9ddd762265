//! What both protocols have in common.

pub mod table_info;
