use icecore_domain::embed::Embedder as _;

use super::*;
use crate::local::{LocalEmbedder, LocalModel};

/// All bytes, and the two pieces that frame a text.
fn tokenizer() -> String {
    let mut vocab = serde_json::Map::new();
    let itself = |byte: &u32| matches!(byte, 33..=126 | 161..=172 | 174..=255);
    let others = (0..=255).filter(|byte| !itself(byte)).zip(256..);
    for (byte, shown) in (0..=255).filter(itself).map(|byte| (byte, byte)).chain(others) {
        vocab.insert(char::from_u32(shown).unwrap().to_string(), byte.into());
    }
    vocab.insert("<s>".into(), 256.into());
    vocab.insert("</s>".into(), 257.into());
    serde_json::json!({"model": {"type": "BPE", "vocab": vocab, "merges": []}}).to_string()
}

/// A pack of one layer and four dimensions, its words in bytes with groups of two.
fn tiny_pack(change: impl Fn(&mut serde_json::Value)) -> Vec<u8> {
    let shapes: [(&str, &[usize]); 17] = [
        ("word_emb", &[258, 4]),
        ("pos_emb", &[10, 4]),
        ("type_emb", &[1, 4]),
        ("emb_ln.w", &[4]),
        ("emb_ln.b", &[4]),
        ("l0.qkv.w", &[12, 4]),
        ("l0.qkv.b", &[12]),
        ("l0.ao.w", &[4, 4]),
        ("l0.ao.b", &[4]),
        ("l0.aln.w", &[4]),
        ("l0.aln.b", &[4]),
        ("l0.f1.w", &[8, 4]),
        ("l0.f1.b", &[8]),
        ("l0.f2.w", &[4, 8]),
        ("l0.f2.b", &[4]),
        ("l0.fln.w", &[4]),
        ("l0.fln.b", &[4]),
    ];
    let mut data = Vec::new();
    let mut entries = Vec::new();
    for (name, shape) in shapes {
        let start = data.len();
        let count: usize = shape.iter().product();
        let in_bytes = name == "word_emb";
        if in_bytes {
            data.extend((0..count).map(|at| (at * 37 % 255) as u8));
        }
        let floats = if in_bytes { count / 2 } else { count };
        data.extend((0..floats).flat_map(|at| ((at * 7 % 11) as f32 / 11.0).to_le_bytes()));
        let (dtype, group) = if in_bytes { ("i8", 2) } else { ("f32", 0) };
        entries.push(serde_json::json!(
            {"name": name, "dtype": dtype, "shape": shape, "len": data.len() - start, "group": group}
        ));
    }
    let tokenizer = tokenizer();
    let mut header = serde_json::json!({
        "format": 1,
        "meta": {"model": "who/Tiny-Pack", "pooling": "cls", "max_length": 512},
        "arch": {"hidden": 4, "layers": 1, "heads": 2, "intermediate": 8, "vocab": 258,
            "max_positions": 10, "type_vocab": 1, "layer_norm_eps": 1e-12, "position_offset": 2},
        "tokenizer_len": tokenizer.len(),
        "tensors": entries,
    });
    change(&mut header);
    let header = header.to_string();
    let mut bytes = MAGIC.to_vec();
    bytes.extend((header.len() as u64).to_le_bytes());
    bytes.extend(header.bytes().chain(tokenizer.bytes()).chain(data));
    bytes
}

fn error_of(bytes: &[u8]) -> String {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tiny.hmsemb");
    std::fs::write(&path, bytes).unwrap();
    LocalModel::inspect(&path, None).unwrap_err().to_string()
}

#[test]
fn a_group_of_bytes_is_stretched_by_its_size() {
    let sizes = [0.5_f32, 2.0].iter().flat_map(|size| size.to_le_bytes());
    let bytes: Vec<u8> = [1, 255, 3, 128].into_iter().chain(sizes).collect();
    assert_eq!(stretched(&bytes, 4, 2), [0.5, -0.5, 6.0, -256.0]);
}

#[test]
fn a_pack_is_run_and_installed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("any.hmsemb");
    std::fs::write(&path, tiny_pack(|_| ())).unwrap();
    let models = dir.path().join("models");
    let model = LocalModel::install(&path, &models, None).unwrap();
    assert_eq!((model.id.name.as_str(), model.id.dims, model.max_tokens), ("tiny-pack", 4, 8));
    let installed = LocalEmbedder::open(&models, "tiny-pack", 2).unwrap();
    let texts = ["Hello", "Hello, and so on", ""];
    let vectors = installed.embed(&texts).unwrap();
    assert_eq!(vectors, LocalEmbedder::load(&path, 1).unwrap().embed(&texts).unwrap());
    assert!(!vectors[0].is_zero() && vectors[0] != vectors[1] && vectors[2].is_zero());
}

#[test]
fn what_cannot_be_run_is_refused_with_the_reason() {
    let with = |path: &str, value: serde_json::Value| {
        error_of(&tiny_pack(|header| *header.pointer_mut(path).unwrap() = value.clone()))
    };
    assert!(with("/format", 2.into()).contains("format 2"));
    assert!(with("/meta/pooling", "max".into()).contains("pooling by `max`"));
    assert!(with("/meta/pooling", 1.into()).contains("invalid type"));
    assert!(with("/arch/heads", 3.into()).contains("such sizes"));
    assert!(with("/arch/layers", 2.into()).contains("`l1.qkv.w` is missing"));
    assert!(with("/arch/vocab", 200.into()).contains("more pieces than there are rows"));
    assert!(
        with("/tensors/1/shape", serde_json::json!([4, 10])).contains("`pos_emb` has the shape")
    );
    assert!(with("/tensors/0/group", 0.into()).contains("`word_emb`"));
    assert!(with("/tensors/0/len", 4.into()).contains("`word_emb`"));
    let whole = tiny_pack(|_| ());
    for length in [0, 8, 12, 100, 3000, whole.len() - 1] {
        let error = error_of(&whole[..length]);
        assert!(error.starts_with("the model's weights are wrong"), "{length}: {error}");
    }
}
