//! The memory as a program uses it.

mod layers;
