//! An S3 server in the test's own process, and a line to it that can fail.
//!
//! The server is `s3s-fs`, which keeps objects as files and checks signatures and
//! `If-None-Match: *`, on one object and at the end of an upload in parts. Two things that
//! S3 has and it lacks are added in `server.rs`: a conditional write is one step, and
//! unfinished uploads are listed.

mod line;
mod server;

pub use line::{Fault, Line};
pub use server::{BUCKET, KEY_ID, REGION, S3Server, SECRET};
