//! Properties in CSL.
