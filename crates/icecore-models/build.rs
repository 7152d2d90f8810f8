//! Builds the hash table by which `src/o200k.rs` finds tokens, so that nothing has to be
//! read or built when the program runs.

use std::path::Path;

#[path = "src/o200k/table.rs"]
mod table;

fn main() {
    let tokens_path = "models/o200k.tokens";
    println!("cargo::rerun-if-changed={tokens_path}");
    println!("cargo::rerun-if-changed=src/o200k/table.rs");
    let tokens = std::fs::read(tokens_path).expect("the vocabulary is beside this script");
    let out = std::env::var("OUT_DIR").expect("cargo sets it");
    std::fs::write(Path::new(&out).join("o200k.table"), table::build(&tokens))
        .expect("cargo made the folder");
}
