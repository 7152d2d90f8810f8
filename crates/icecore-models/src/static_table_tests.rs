use sha2::{Digest as _, Sha256};

use super::*;

const PIECES: &str = "[UNK]\nred\nblue\n##ish\n.";

/// A model of five pieces and three dimensions, with its header changed by `change`.
fn small_model(change: impl Fn(&str) -> String) -> Vec<u8> {
    let header = change(
        r#"{"dims":3,"kind":"static","lowercase":true,"maxTokens":4,"maxWordChars":100,"name":"small","note":"for tests","unknown":"[UNK]","vocab":5,"vocabBytes":22}"#,
    );
    let mut bytes = b"ICEMODEL".to_vec();
    bytes.extend(1_u32.to_le_bytes());
    bytes.extend((header.len() as u32).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(PIECES.as_bytes());
    bytes.extend([0_u16, 15_000, 30_000, 10, 1].iter().flat_map(|weight| weight.to_le_bytes()));
    let rows = [[0, 0, 0], [127, 0, -3], [0, 127, -3], [0, 0, 127], [-128, 5, 6]];
    bytes.extend(rows.iter().flatten().map(|component: &i8| component.cast_unsigned()));
    sealed(bytes)
}

fn sealed(mut body: Vec<u8>) -> Vec<u8> {
    let digest = Sha256::digest(&body);
    body.extend(digest);
    body
}

fn unchanged(header: &str) -> String {
    header.to_owned()
}

fn error_of(bytes: Vec<u8>) -> String {
    StaticEmbedder::from_bytes(bytes).err().map_or("none".to_owned(), |error| error.to_string())
}

#[test]
fn a_text_is_the_weighted_sum_of_its_pieces() {
    let model = StaticEmbedder::from_bytes(small_model(unchanged)).unwrap();
    assert_eq!(model.model().to_string().split('@').next(), Some("small"));
    assert_eq!(model.tokenize("Red, blueish."), [1, 2, 3, 4]);
    // 15,000 and 30,000 of 127 each; the third is -135,000 + 1,270 + 6.
    assert_eq!(model.embed_one("red blueish.").components(), [63, 127, -4]);
    assert_eq!(model.embed_one("red").components(), [127, 0, -3]);
    assert!(model.embed_one("green 東京 👍").is_zero());
    assert!(model.embed_one("").is_zero());
}

#[test]
fn only_so_many_pieces_count() {
    let model = StaticEmbedder::from_bytes(small_model(unchanged)).unwrap();
    let long = "red ".repeat(10_000) + "blue";
    assert_eq!(model.embed_one(&long), model.embed_one("red"));
    assert_eq!(model.tokenize(&long).len(), 4);
}

#[test]
fn a_token_has_a_weight_and_a_row() {
    let model = StaticEmbedder::from_bytes(small_model(unchanged)).unwrap();
    let token = model.token_vector(4).unwrap();
    assert_eq!((token.weight, token.components().collect::<Vec<_>>()), (1, vec![-128, 5, 6]));
    assert_eq!(model.token_vector(5), None);
}

#[test]
fn halves_round_away_from_zero() {
    assert_eq!(to_int8(&[254, 1, -1, 3, -3]), [127, 1, -1, 2, -2]);
    assert_eq!(to_int8(&[i64::from(i32::MIN), 0]), [-127, 0]);
    assert_eq!(to_int8(&[]), [0_i8; 0]);
}

#[test]
fn many_heavy_pieces_do_not_overflow() {
    let header = |header: &str| header.replace("\"maxTokens\":4", "\"maxTokens\":100000");
    let mut model = small_model(header);
    let weights = model.len() - DIGEST - 15 - 10;
    model.truncate(model.len() - DIGEST);
    model[weights + 2..weights + 4].copy_from_slice(&32_767_u16.to_le_bytes());
    let rows = weights + 10;
    model[rows + 3..rows + 6].copy_from_slice(&[128, 127, 64]);
    let model = StaticEmbedder::from_bytes(sealed(model)).unwrap();
    assert_eq!(model.embed_one(&"red ".repeat(99_999)).components(), [-127, 126, 64]);
}

const DIGEST: usize = 32;

#[test]
fn whatever_is_cut_off_is_missed() {
    let whole = small_model(unchanged);
    for length in 0..whole.len() {
        let error = StaticEmbedder::from_bytes(whole[..length].to_vec()).unwrap_err();
        let expected = if length < 8 { "Foreign" } else { "Truncated" };
        assert!(format!("{error:?}").starts_with(expected), "{length}: {error:?}");
    }
}

#[test]
fn whatever_is_changed_is_noticed() {
    let whole = small_model(unchanged);
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        assert!(StaticEmbedder::from_bytes(bytes).is_err(), "byte {at}");
    }
    let mut longer = whole.clone();
    longer.push(0);
    assert_eq!(error_of(longer), "the model file is damaged: its checksum does not match");
}

#[test]
fn files_of_others_and_of_the_future_are_told_apart() {
    assert_eq!(error_of(b"PK\x03\x04 and so on".to_vec()), "this is not a model file");
    let mut later = small_model(unchanged);
    later[8] = 2;
    assert_eq!(error_of(later), "the model file has format 2, this reads 1");
}

#[test]
fn a_header_that_does_not_fit_is_refused() {
    let cases = [
        ("\"dims\":3", "\"dims\":0", "`dims` is out of range"),
        ("\"dims\":3", "\"dims\":9999999", "`dims` is out of range"),
        ("\"dims\":3", "\"dims\":4", "cut short"),
        ("\"dims\":3", "\"dims\":2", "damaged"),
        ("\"vocab\":5", "\"vocab\":0", "a size is zero"),
        ("\"vocab\":5", "\"vocab\":18446744073709551615", "out of range"),
        ("\"vocabBytes\":22", "\"vocabBytes\":17", "damaged"),
        ("static", "bert", "`kind`"),
        ("\"lowercase\":true", "\"lowercase\":false", "`lowercase`"),
        ("small", "", "`name`"),
        ("\"dims\":3,", "", "missing field"),
    ];
    for (from, to, expected) in cases {
        let error = error_of(small_model(|header| header.replace(from, to)));
        assert!(error.contains(expected), "{to}: {error}");
    }
}

#[test]
fn a_missing_file_is_named() {
    let error = StaticEmbedder::open(Path::new("no/such.icemodel")).unwrap_err();
    assert_eq!(error.to_string(), "cannot read the model file no/such.icemodel");
}

#[test]
fn the_bundled_model_is_whole() {
    let model = StaticEmbedder::bundled();
    model.file.verify().unwrap();
    assert_eq!((model.model().name.as_str(), model.model().dims), (BUNDLED_MODEL, 256));
}

#[test]
fn a_weight_beyond_the_format_is_refused() {
    let mut model = small_model(unchanged);
    let weights = model.len() - DIGEST - 15 - 10;
    model.truncate(model.len() - DIGEST);
    model[weights..weights + 2].copy_from_slice(&32_768_u16.to_le_bytes());
    assert_eq!(error_of(sealed(model)), "the model file has a weight over 32767");
}

#[derive(serde::Deserialize)]
struct Reference {
    identity: String,
    cases: Vec<Case>,
}

#[derive(serde::Deserialize)]
struct Case {
    text: String,
    ids: Vec<u32>,
    head: Vec<i8>,
    sha256: String,
}

fn hex(bytes: impl AsRef<[u8]>) -> String {
    bytes.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What the reference in `training/` answered, to the bit.
#[test]
fn the_bundled_model_answers_as_the_reference_does() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/model/reference.json");
    let reference: Reference = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let model = StaticEmbedder::bundled();
    assert_eq!(hex(model.model().hash), reference.identity);
    assert!(!reference.cases.is_empty());
    for case in &reference.cases {
        assert_eq!(model.tokenize(&case.text), case.ids, "{:?}", case.text);
        let vector = model.embed_one(&case.text);
        assert_eq!(vector.components()[..case.head.len()], case.head, "{:?}", case.text);
        let bytes: Vec<u8> = vector.components().iter().map(|byte| byte.cast_unsigned()).collect();
        assert_eq!(hex(Sha256::digest(bytes)), case.sha256, "{:?}", case.text);
    }
}
