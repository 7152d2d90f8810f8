use std::collections::BTreeSet;
use std::path::PathBuf;

use icecore_domain::chunk::Level;
use icecore_domain::ids::{Branch, Ordinal, SessionNo};
use proptest::prelude::*;

use super::*;

fn member(id: &str, text: &str) -> PackMember {
    PackMember { id: ChunkId::parse(id).unwrap(), format: TextFormat::Ctf, text: text.into() }
}

fn key() -> PackKey {
    PackKey::from_bytes([7; 32])
}

fn small() -> Vec<PackMember> {
    let mut jsonl = member("micro-4.0.11-20", "{\"role\":\"user\"}\n");
    jsonl.format = TextFormat::Jsonl;
    vec![member("micro-4.0.1-10", "ten turns\n"), jsonl, member("micro-4.0.21-25", "")]
}

/// Members of several frames, whose texts do not compress to nothing.
fn large() -> Vec<PackMember> {
    let text = |n: u64| (0..4000).map(|i| format!("{} ", i * 7919 * n % 10007)).collect();
    let id = |n| ChunkId {
        session: SessionNo(1),
        branch: Branch(n as u32 % 2),
        level: Level::Micro,
        first: Ordinal(n * 10 + 1),
        last: Ordinal(n * 10 + 10),
    };
    (0..10).map(|n| PackMember { id: id(n), format: TextFormat::Ctf, text: text(n + 1) }).collect()
}

/// Everything a reader can be asked for.
fn read(bytes: &[u8], key: &PackKey) -> Result<Vec<PackMember>, StoreError> {
    let reader = PackReader::open("sample", bytes, key)?;
    let members = reader.members()?;
    for (id, member) in reader.ids().into_iter().zip(&members) {
        assert_eq!(&reader.member(id)?, member);
    }
    Ok(members)
}

fn reason(bytes: &[u8], key: &PackKey) -> String {
    match read(bytes, key) {
        Err(StoreError::PackDamaged { name, reason }) if name == "sample" => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn members_come_back() {
    for members in [vec![], small(), large()] {
        let bytes = build(&members, &key());
        assert_eq!(read(&bytes, &key()).unwrap(), members);
        let reader = PackReader::open("sample", &bytes, &key()).unwrap();
        assert_eq!(reader.identity(), identity(&members));
    }
    let frames = PackReader::open("sample", &build(&large(), &key()), &key()).unwrap().index.frames;
    assert!(frames.len() > 2);
}

#[test]
fn a_member_that_is_not_there_is_told() {
    let reader = PackReader::open("sample", &build(&small(), &key()), &key()).unwrap();
    let error = reader.member(ChunkId::parse("micro-4.1.1-10").unwrap()).unwrap_err();
    assert_eq!(error.to_string(), "pack `sample` is damaged: it does not hold micro-4.1.1-10");
}

#[test]
fn every_changed_byte_is_noticed() {
    let bytes = build(&small(), &key());
    let mut reasons = BTreeSet::new();
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut changed = bytes.clone();
            changed[at] ^= 1 << bit;
            reasons.insert(reason(&changed, &key()));
        }
    }
    for part in ["the mark", "version", "flags", "the key", "index is", "frame 0", "end is"] {
        assert!(reasons.iter().any(|reason| reason.contains(part)), "{part}: {reasons:?}");
    }
}

#[test]
fn every_cut_is_noticed_and_so_is_more() {
    let bytes = build(&small(), &key());
    for length in 0..bytes.len() {
        reason(&bytes[..length], &key());
        reason(&bytes[length + 1..], &key());
        reason(&[&bytes[..length], &bytes[length + 1..]].concat(), &key());
        reason(&[&bytes[..length], &[0], &bytes[length..]].concat(), &key());
    }
    reason(&[&bytes[..], &[0]].concat(), &key());
}

#[test]
fn damage_in_a_later_frame_leaves_the_earlier_ones_readable() {
    let members = large();
    let mut bytes = build(&members, &key());
    let first_frame =
        PackReader::open("sample", &bytes, &key()).unwrap().index.frames[0].sealed_bytes;
    bytes[HEADER_BYTES + first_frame + 20] ^= 1;
    let reader = PackReader::open("sample", &bytes, &key()).unwrap();
    assert_eq!(reader.member(members[0].id).unwrap(), members[0]);
    assert!(reason(&bytes, &key()).contains("frame 1"));
}

#[test]
fn frames_do_not_open_in_each_others_place() {
    let twin = |n: u64| member(&format!("micro-1.0.{n}-{n}"), &"same text\n".repeat(7000));
    let bytes = build(&[twin(1), twin(2)], &key());
    let frame = PackReader::open("sample", &bytes, &key()).unwrap().index.frames[0].sealed_bytes;
    let (one, two) = (HEADER_BYTES..HEADER_BYTES + frame, HEADER_BYTES + frame);
    let mut swapped = bytes.clone();
    swapped[one.clone()].copy_from_slice(&bytes[two..two + frame]);
    swapped[two..two + frame].copy_from_slice(&bytes[one]);
    assert!(reason(&swapped, &key()).contains("frame 0"));
}

#[test]
fn another_key_opens_nothing() {
    let bytes = build(&small(), &key());
    assert!(reason(&bytes, &PackKey::random()).contains("the key"));
}

#[test]
fn what_is_no_pack_or_a_newer_one_is_told() {
    assert!(reason(b"", &key()).contains("0 bytes"));
    assert!(reason(b"ICEP", &key()).contains("4 bytes"));
    assert!(reason(b"SQLite format 3", &key()).contains("the mark"));
    let mut newer = build(&small(), &key());
    newer[7] = 2;
    assert!(reason(&newer, &key()).contains("version 2"));
    assert!(reason(&newer[..HEADER_BYTES], &key()).contains("version 2"));
}

#[test]
fn a_key_used_twice_meets_no_nonce_twice() {
    let salt = |members: &[PackMember]| Header::parse(&build(members, &key())).unwrap().salt;
    assert_ne!(salt(&small()), salt(&small()[..2]));
    assert_eq!(build(&small(), &key()), build(&small(), &key()));
}

#[test]
fn the_identity_covers_ids_formats_and_the_borders_of_texts() {
    let whole = identity(&small());
    let mut changed = small();
    changed[0].format = TextFormat::Jsonl;
    assert_ne!(identity(&changed), whole);
    changed = small();
    changed[0].id.branch = Branch(1);
    assert_ne!(identity(&changed), whole);
    changed = small();
    let moved = changed[0].text.pop().unwrap();
    changed[1].text.insert(0, moved);
    assert_ne!(identity(&changed), whole);
}

/// A pack with a true key and a false index.
fn forged(frames: &[Frame], index: &[u8], members: usize) -> Vec<u8> {
    let header = Header::new(frames, index, members, &key());
    let sealer = Sealer::new(&header, &key());
    let mut pack = header.bytes.to_vec();
    for (number, frame) in frames.iter().enumerate() {
        pack.extend(sealer.seal(number, &[], &frame.compressed));
    }
    let trailer = trailer(index.len() + TAG_BYTES);
    pack.extend(sealer.seal(frames.len(), &trailer, index));
    pack.extend(trailer);
    pack
}

#[test]
fn a_frame_takes_no_more_memory_than_the_index_says() {
    let bomb = [member("micro-1.0.1-1", &"\0".repeat(1 << 20))];
    let says = |text_bytes| {
        let frames = [Frame::compress(&bomb)];
        let mut entry = MemberEntry::of(&bomb[0]);
        entry.text_bytes = text_bytes;
        let entries = vec![frames[0].entry()];
        let index = Index { identity: identity(&bomb), frames: entries, members: vec![entry] };
        forged(&frames, &index.encode(), 1)
    };
    assert_eq!(read(&says(1 << 20), &key()).unwrap(), bomb);
    assert!(reason(&says(1000), &key()).contains("does not decompress"));
    assert!(reason(&says((1 << 20) + 1), &key()).contains("instead of"));
    assert!(reason(&says(MAX_FRAME_BYTES + 1), &key()).contains("too much"));
}

#[test]
fn an_index_that_says_too_little_or_too_much_is_refused() {
    assert!(reason(&forged(&[], &[0; 31], 0), &key()).contains("cannot be read"));
    assert!(reason(&forged(&[], &[0; 32], u32::MAX as usize), &key()).contains("cannot be read"));
    assert!(reason(&forged(&[], &[0; 33], 0), &key()).contains("too many"));
    assert!(reason(&forged(&[], &[0; 32], 0), &key()).contains("not those it was made of"));
}

#[test]
fn a_small_pack_has_little_around_its_text() {
    let turns = |n: u64| format!("turn {n}: something that was said\n");
    let micro = |n: u64| {
        let text: String = (n * 10..n * 10 + 10).map(turns).collect();
        member(&format!("micro-4.0.{}-{}", n * 10 + 1, n * 10 + 10), &text)
    };
    let members: Vec<_> = (0..10).map(micro).collect();
    let bytes = build(&members, &key());
    let frames = PackReader::open("sample", &bytes, &key()).unwrap().index.frames;
    assert_eq!(frames.len(), 1);
    assert!(bytes.len() - frames[0].sealed_bytes < 180, "{}", bytes.len());
}

fn any_member() -> impl Strategy<Value = PackMember> {
    let number = || prop_oneof![0_u64..300, any::<u64>()];
    let level = prop::sample::select(Level::ALL.to_vec());
    (number(), any::<u32>(), level, number(), number(), any::<bool>(), ".{0,300}").prop_map(
        |(session, branch, level, first, last, ctf, text)| PackMember {
            id: ChunkId {
                session: SessionNo(session),
                branch: Branch(branch),
                level,
                first: Ordinal(first),
                last: Ordinal(last),
            },
            format: if ctf { TextFormat::Ctf } else { TextFormat::Jsonl },
            text,
        },
    )
}

proptest! {
    #[test]
    fn any_members_come_back(
        members in prop::collection::vec(any_member(), 0..8),
        key in any::<[u8; 32]>(),
    ) {
        let key = PackKey::from_bytes(key);
        let bytes = build(&members, &key);
        let reader = PackReader::open("sample", &bytes, &key).unwrap();
        prop_assert_eq!(reader.ids(), members.iter().map(|m| m.id).collect::<Vec<_>>());
        prop_assert_eq!(reader.members().unwrap(), members);
    }

    #[test]
    fn random_bytes_are_no_pack(
        mut bytes in prop::collection::vec(any::<u8>(), 0..300),
        begun in any::<bool>(),
    ) {
        if begun {
            let pack = build(&small(), &key());
            let kept = bytes.len().min(pack.len()).min(HEADER_BYTES + 3);
            bytes[..kept].copy_from_slice(&pack[..kept]);
        }
        prop_assert!(read(&bytes, &key()).is_err());
    }
}

// Samples of each version of the format, kept for ever.

fn samples_dir() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "..", "..", "testdata", "pack"].iter().collect()
}

/// The key of all samples: 32 letters that say what they are.
fn sample_key() -> PackKey {
    let text = std::fs::read(samples_dir().join("dummy-key.txt")).unwrap();
    PackKey::from_bytes(text.trim_ascii_end().try_into().unwrap())
}

/// What a sample should hold: a line a member, its text repeated `times`.
fn expected(name: &str) -> Vec<PackMember> {
    let text = std::fs::read_to_string(samples_dir().join(format!("{name}.jsonl"))).unwrap();
    let member = |line: &str| {
        let json: serde_json::Value = serde_json::from_str(line).unwrap();
        let text = json["text"].as_str().unwrap();
        let mut member = member(
            json["id"].as_str().unwrap(),
            &text.repeat(json["times"].as_u64().unwrap_or(1) as usize),
        );
        member.format = match json["format"].as_str().unwrap() {
            "ctf" => TextFormat::Ctf,
            "jsonl" => TextFormat::Jsonl,
            other => panic!("{other}"),
        };
        member
    };
    text.lines().map(member).collect()
}

fn sample_names() -> Vec<String> {
    let entries = samples_dir().read_dir().unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter_map(|name| Some(name.strip_suffix(".icepack")?.to_owned())).collect()
}

#[test]
fn every_sample_opens() {
    let names = sample_names();
    assert!(names.len() >= 2, "{names:?}");
    for name in names {
        let bytes = std::fs::read(samples_dir().join(format!("{name}.icepack"))).unwrap();
        let reader = PackReader::open(&name, &bytes, &sample_key()).unwrap();
        assert_eq!(reader.members().unwrap(), expected(&name), "{name}");
        assert!(name.starts_with(&format!("v{}-", bytes[7])), "{name}");
    }
}

/// The nth block of hexadecimal digits in the specification, comments left out.
fn specified(nth: usize) -> Vec<u8> {
    let block = SPECIFICATION.split("```hex\n").nth(nth + 1).unwrap().split("```").next().unwrap();
    let digits: String = block
        .lines()
        .filter_map(|line| line.split('#').next())
        .flat_map(|line| line.chars().filter(|c| !c.is_whitespace()))
        .collect();
    hex::decode(digits).unwrap()
}

const SPECIFICATION: &str = include_str!("../../../../docs/format-pack.md");

#[test]
fn the_specification_shows_the_small_sample() {
    let pack = specified(0);
    assert_eq!(pack, std::fs::read(samples_dir().join("v1-small.icepack")).unwrap());
    let key = String::from_utf8(sample_key().as_bytes().to_vec()).unwrap();
    assert!(SPECIFICATION.contains(&key));

    let identity = identity(&expected("v1-small"));
    assert!(SPECIFICATION.contains(&hex::encode(identity)));
    let reader = PackReader::open("sample", &pack, &sample_key()).unwrap();
    assert_eq!(reader.index.encode(), [&identity[..], &specified(1)].concat());
}
