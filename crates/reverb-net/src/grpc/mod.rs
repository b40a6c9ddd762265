//! What both protocols have in common.
