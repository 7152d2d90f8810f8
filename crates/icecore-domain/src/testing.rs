//! What tests here and elsewhere measure the domain on.

pub mod corpus;
