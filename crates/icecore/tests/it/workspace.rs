//! The workspace keeps to what ARCHITECTURE.md says, and to the licences.

use std::collections::{BTreeMap, BTreeSet};

fn metadata() -> serde_json::Value {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let output = std::process::Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--all-features", "--locked"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The table of crates in ARCHITECTURE.md: who uses whom.
fn documented() -> BTreeMap<String, BTreeSet<String>> {
    let page = include_str!("../../../../ARCHITECTURE.md");
    let names = |cell: &str| {
        cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<BTreeSet<String>>()
    };
    page.lines()
        .skip_while(|line| !line.starts_with("| crate | uses |"))
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .map(|line| {
            let cells: Vec<&str> = line.split('|').collect();
            (names(cells[1]).pop_first().unwrap(), names(cells[2]))
        })
        .collect()
}

#[test]
fn dependencies_go_the_way_the_architecture_says() {
    let metadata = metadata();
    let packages = metadata["packages"].as_array().unwrap();
    let ours: BTreeSet<&str> = packages
        .iter()
        .filter(|p| p["source"].is_null())
        .filter_map(|p| p["name"].as_str())
        .collect();
    let mut found = BTreeMap::new();
    for package in packages.iter().filter(|p| p["source"].is_null()) {
        let uses: BTreeSet<String> = package["dependencies"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|dependency| dependency["kind"].is_null())
            .filter_map(|dependency| dependency["name"].as_str())
            .filter(|name| ours.contains(name))
            .map(str::to_owned)
            .collect();
        found.insert(package["name"].as_str().unwrap().to_owned(), uses);
    }
    assert_eq!(found, documented());
}

/// One alternative of a licence expression must be made of these alone.
const LICENCES: [&str; 9] = [
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-1-Clause",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Zlib",
];

/// Packages that may have one more. The first is a list of certificates under a licence
/// for data that asks for nothing but its text; it comes with reqwest and is compiled on
/// none of our platforms, which have lists of their own.
const EXCEPTIONS: [(&str, &str); 1] = [("webpki-root-certs", "CDLA-Permissive-2.0")];

fn is_allowed(expression: &str) -> bool {
    let plain = expression.replace(['(', ')'], " ").replace('/', " OR ");
    plain
        .split(" OR ")
        .any(|way| way.split(" AND ").all(|licence| LICENCES.contains(&licence.trim())))
}

#[test]
fn every_dependency_has_a_licence_that_we_may_use() {
    let metadata = metadata();
    let refused: Vec<String> = metadata["packages"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|package| {
            let licence = package["license"].as_str().unwrap_or_default();
            let is_excepted =
                |(name, one): &(&str, &str)| package["name"] == *name && licence == *one;
            !is_allowed(licence) && !EXCEPTIONS.iter().any(is_excepted)
        })
        .map(|package| {
            format!("{} {}: {}", package["name"], package["version"], package["license"])
        })
        .collect();
    assert_eq!(refused, Vec::<String>::new());
}
