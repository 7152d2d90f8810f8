//! Writes that fail, at every point.
