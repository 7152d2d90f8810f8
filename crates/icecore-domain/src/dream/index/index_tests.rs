use proptest::prelude::*;

use super::super::Line;
use super::*;

fn archive(n: u8) -> IndexedArchive {
    let day = |n: i64| Millis(1_700_000_000_000 + n * 86_400_000);
    IndexedArchive {
        checksum: Checksum([n; 32]),
        sources: 412,
        lines: 30,
        tokens: 900,
        between: (!n.is_multiple_of(3)).then(|| (day(0), day(n.into()))),
    }
}

fn section(memory: &str, archives: u8, topics: u32) -> MemorySection {
    let topic = |n| Topic { name: format!("topic {n}"), lines: vec![n, n + 1] };
    MemorySection {
        memory: memory.to_owned(),
        output: format!("entry-{memory}"),
        archives: (1..=archives).map(archive).collect(),
        topics: (0..topics).map(topic).collect(),
    }
}

fn index(sections: &[MemorySection]) -> MemoryIndex {
    let mut index = MemoryIndex::default();
    sections.iter().for_each(|section| index.set(&section.memory.clone(), Some(section.clone())));
    index
}

#[test]
fn the_file_says_where_each_memory_is() {
    let text = index(&[section("b", 1, 1), section("a", 0, 0)]).to_text(10_000);
    let digits = "01".repeat(32);
    let rest = format!(
        r#""format":"icecore-memory-index/1","memories":{{"a":{{"archives":[],"output":"entry-a","topics":[]}},"b":{{"archives":[{{"checksum":"{digits}","from":"2023-11-14T22:13:20Z","lines":30,"sources":412,"through":"2023-11-15T22:13:20Z","tokens":900}}],"output":"entry-b","topics":[{{"lines":[0,1],"topic":"topic 0"}}]}}}}}}"#
    );
    let checksum = Checksum::of(format!("{{{rest}").as_bytes());
    assert_eq!(text, format!("{{\"checksum\":\"{checksum}\",{rest}"));
}

#[test]
fn people_can_read_it_too() {
    let told = index(&[section("default", 1, 2)]).to_markdown(10_000);
    let digits = "01".repeat(32);
    assert_eq!(
        told,
        format!(
            "# Memory index\n\n## default\n\n- archive `{digits}`: 30 lines of 412 sources, 900 tokens, 2023-11-14 to 2023-11-15\n- topics: topic 0, topic 1\n"
        )
    );
    assert_eq!(index(&[section("default", 1, 2)]).to_markdown(3), "");
}

#[test]
fn what_is_not_ours_counts_as_empty() {
    let ours = index(&[section("a", 2, 3), section("b", 1, 0)]);
    let text = ours.to_text(10_000);
    assert_eq!(MemoryIndex::parse(&text), ours);
    for at in 0..text.len() {
        let mut bytes = text.clone().into_bytes();
        bytes[at] ^= 1;
        let Ok(changed) = String::from_utf8(bytes) else { continue };
        assert_eq!(MemoryIndex::parse(&changed), MemoryIndex::default(), "byte {at}");
        assert_eq!(MemoryIndex::parse(&text[..at]), MemoryIndex::default(), "cut at {at}");
    }
    for hostile in ["", "{}", "null", "[[[[", "# My notes", "{\"memories\":{}}"] {
        assert_eq!(MemoryIndex::parse(hostile), MemoryIndex::default());
    }
    assert_eq!(MemoryIndex::parse(&"[".repeat(1 << 20)), MemoryIndex::default());
}

#[test]
fn topics_go_first_then_older_archives_then_sections() {
    let all = index(&[section("a", 16, 32), section("b", 16, 32)]);
    let whole = all.to_text(usize::MAX).len();
    let mut seen = Vec::new();
    for most in (0..=whole).rev().step_by(29) {
        let text = all.to_text(most);
        assert!(text.len() <= most);
        let left = MemoryIndex::parse(&text);
        let (topics, archives) = left
            .memories
            .first()
            .map_or((0, 0), |section| (section.topics.len(), section.archives.len()));
        seen.push((left.memories.len(), archives, topics));
    }
    seen.dedup();
    let expected = [
        (2, 16, 32),
        (2, 16, 16),
        (2, 16, 8),
        (2, 16, 4),
        (2, 16, 2),
        (2, 16, 1),
        (2, 16, 0),
        (2, 8, 0),
        (2, 4, 0),
        (2, 2, 0),
        (2, 1, 0),
        (1, 1, 0),
        (0, 0, 0),
    ];
    assert_eq!(seen, expected);
}

#[test]
fn topics_name_what_lines_are_about_and_where() {
    let line = |section, text: &str| Line {
        section,
        text: text.to_owned(),
        at: None,
        before: None,
        sources: vec![0],
    };
    let distillate = Distillate {
        lines: vec![
            line(Section::Timeline, "The database migration failed in May."),
            line(Section::Now, "A database migration needs a backup."),
            line(Section::Decisions, "The backup is taken before lunch."),
        ],
    };
    let topics = topics(&distillate);
    // By section: now, decisions, timeline.
    assert_eq!(topics[0], Topic { name: "database migration".to_owned(), lines: vec![0, 2] });
    assert_eq!(topics[1], Topic { name: "backup".to_owned(), lines: vec![0, 1] });
    assert!(topics.iter().all(|topic| topic.name.split(' ').count() <= 3));
    assert_eq!(super::topics(&Distillate::default()), []);
}

fn any_section() -> impl Strategy<Value = MemorySection> {
    (any::<String>(), any::<String>(), 0..20_u8, proptest::collection::vec(any::<String>(), 0..40))
        .prop_map(|(memory, output, archives, topics)| MemorySection {
            memory,
            output,
            archives: (0..archives).map(archive).collect(),
            topics: topics.into_iter().map(|name| Topic { name, lines: vec![1, 2] }).collect(),
        })
}

proptest! {
    #[test]
    fn it_is_never_too_large(
        sections in proptest::collection::vec(any_section(), 0..6),
        most in 0..4000_usize,
    ) {
        let index = index(&sections);
        let text = index.to_text(most);
        prop_assert!(text.len() <= most);
        let read = MemoryIndex::parse(&text);
        // What is left is some of what was given, and nothing else.
        for section in &read.memories {
            let whole = index.memories.iter().find(|known| known.memory == section.memory);
            let whole = whole.expect("it was given");
            prop_assert!(whole.archives.starts_with(&section.archives));
            prop_assert!(whole.topics.starts_with(&section.topics));
            prop_assert_eq!(&whole.output, &section.output);
        }
        prop_assert!(index.to_markdown(most).len() <= most);
        prop_assert_eq!(MemoryIndex::parse(&index.to_text(usize::MAX)), index);
    }

    #[test]
    fn sections_do_not_touch_each_other(
        sections in proptest::collection::vec(any_section(), 1..6),
        new in any_section(),
    ) {
        let before = index(&sections);
        let mut after = before.clone();
        after.set(&new.memory.clone(), Some(new.clone()));
        let others = |index: &MemoryIndex| -> Vec<MemorySection> {
            index.memories.iter().filter(|known| known.memory != new.memory).cloned().collect()
        };
        prop_assert_eq!(others(&before), others(&after));
        prop_assert!(after.memories.contains(&new));
        prop_assert!(after.memories.is_sorted_by_key(|section| section.memory.clone()));
        after.set(&new.memory, None);
        prop_assert_eq!(others(&before), after.memories);
        let json = new.to_json();
        prop_assert_eq!(MemorySection::from_json(&new.memory.clone(), &json), Some(new));
    }
}
