//! Modules have arrows: none of a crate depends on another that depends on it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Crates whose modules still depend on each other in a circle, and how many are in the
/// largest. A number only becomes smaller; a crate that is not here has no circle.
const CIRCLES: &[(&str, usize)] = &[("icecore-cli", 4), ("icecore-server", 43)];

/// For each module of a crate (a folder or file right below `src`) those that it names.
type Graph = BTreeMap<String, BTreeSet<String>>;

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let is_test = ["test", "tests", "testing", "contract"]
            .contains(&name.trim_end_matches(".rs"))
            || name.ends_with("_tests.rs")
            || name.ends_with("_test.rs");
        match path.is_dir() {
            _ if is_test => {}
            true => sources(&path, found),
            false if name.ends_with(".rs") => found.push(path),
            false => {}
        }
    }
}

fn graph(src: &Path) -> Graph {
    let mut files = Vec::new();
    sources(src, &mut files);
    let module = |file: &Path| {
        let first = file.strip_prefix(src).unwrap().iter().next().unwrap().to_string_lossy();
        first.trim_end_matches(".rs").to_owned()
    };
    let modules: BTreeSet<String> = files
        .iter()
        .map(|file| module(file))
        .filter(|name| name != "lib" && name != "main")
        .collect();
    let mut graph = Graph::new();
    for file in &files {
        let here = module(file);
        if !modules.contains(&here) {
            continue;
        }
        let text = std::fs::read_to_string(file).unwrap();
        let code = text.split("\n#[cfg(test)]\nmod ").next().unwrap_or_default();
        let uses = graph.entry(here.clone()).or_default();
        for (at, _) in code.match_indices("crate::") {
            let is_path =
                code[..at].chars().next_back().is_none_or(|c| !c.is_alphanumeric() && c != '_');
            let rest = &code[at + "crate::".len()..];
            let names: Vec<&str> = match rest.strip_prefix('{') {
                Some(block) => block.split('}').next().unwrap_or_default().split(',').collect(),
                None => vec![rest],
            };
            for name in names.into_iter().filter(|_| is_path) {
                let end = |c: char| !c.is_alphanumeric() && c != '_';
                let name = name.trim().split(end).next().unwrap_or_default();
                if modules.contains(name) && name != here {
                    uses.insert(name.to_owned());
                }
            }
        }
    }
    graph
}

/// All that a module depends on, step by step.
fn reached(graph: &Graph, from: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut next = vec![from];
    while let Some(module) = next.pop() {
        for used in graph.get(module).into_iter().flatten() {
            if found.insert(used.clone()) {
                next.push(used);
            }
        }
    }
    found
}

/// The largest set of modules of which each depends on all others.
fn largest_circle(graph: &Graph) -> BTreeSet<String> {
    let reaches: BTreeMap<&String, BTreeSet<String>> =
        graph.keys().map(|module| (module, reached(graph, module))).collect();
    let circle_of = |module: &String| {
        let back =
            |other: &&String| reaches[module].contains(*other) && reaches[*other].contains(module);
        graph.keys().filter(back).cloned().collect::<BTreeSet<_>>()
    };
    graph.keys().map(circle_of).max_by_key(BTreeSet::len).unwrap_or_default()
}

#[test]
fn no_module_depends_on_one_that_depends_on_it() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    for entry in std::fs::read_dir(crates).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let circle = largest_circle(&graph(&path.join("src")));
        let known = CIRCLES.iter().find(|(of, _)| *of == name).map_or(0, |(_, most)| *most);
        assert!(circle.len() <= known, "{name}: {} modules in a circle: {circle:?}", circle.len());
    }
}
