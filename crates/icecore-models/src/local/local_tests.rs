use super::*;

const PIECES: &str = "[PAD]\n[UNK]\n[CLS]\n[SEP]\nred\nblue\nsky\n##ish\n.\ngreen\nthe\na\n";
const CONFIG: &str = r#"{"model_type":"bert","hidden_size":8,"intermediate_size":16,
    "num_hidden_layers":2,"num_attention_heads":2,"vocab_size":12,"max_position_embeddings":16,
    "type_vocab_size":2,"layer_norm_eps":1e-12,"hidden_act":"gelu","_name_or_path":"who/Tiny"}"#;

/// Names and shapes in the order that seeds their numbers.
fn shapes() -> Vec<(String, Vec<usize>)> {
    let mut shapes: Vec<(String, Vec<usize>)> = vec![
        ("embeddings.word_embeddings.weight".into(), vec![12, 8]),
        ("embeddings.position_embeddings.weight".into(), vec![16, 8]),
        ("embeddings.token_type_embeddings.weight".into(), vec![2, 8]),
        ("embeddings.LayerNorm.weight".into(), vec![8]),
        ("embeddings.LayerNorm.bias".into(), vec![8]),
    ];
    let parts = [
        ("attention.self.query", vec![8, 8]),
        ("attention.self.key", vec![8, 8]),
        ("attention.self.value", vec![8, 8]),
        ("attention.output.dense", vec![8, 8]),
        ("attention.output.LayerNorm", vec![8]),
        ("intermediate.dense", vec![16, 8]),
        ("output.dense", vec![8, 16]),
        ("output.LayerNorm", vec![8]),
    ];
    for layer in 0..2 {
        for (part, shape) in &parts {
            let name = format!("encoder.layer.{layer}.{part}");
            shapes.push((format!("{name}.weight"), shape.clone()));
            shapes.push((format!("{name}.bias"), vec![shape[0]]));
        }
    }
    shapes
}

/// A tiny encoder whose numbers follow a formula, as a folder of files.
fn tiny_model() -> tempfile::TempDir {
    let mut header = serde_json::Map::new();
    let mut data: Vec<u8> = Vec::new();
    for (seed, (name, shape)) in shapes().into_iter().enumerate() {
        let start = data.len();
        let size = if name.ends_with("LayerNorm.bias") { 10_000.0 } else { 1000.0 };
        for i in 0..shape.iter().product::<usize>() {
            let number = (i * 7919 + seed * 104_729 + i * i * 31) % 2001;
            data.extend(((number as f32 - 1000.0) / size).to_le_bytes());
        }
        let entry = serde_json::json!(
            {"dtype": "F32", "shape": shape, "data_offsets": [start, data.len()]}
        );
        header.insert(name, entry);
    }
    let header = serde_json::to_vec(&header).unwrap();
    let mut weights = (header.len() as u64).to_le_bytes().to_vec();
    weights.extend(header);
    weights.extend(data);

    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join(WEIGHTS), weights).unwrap();
    std::fs::write(dir.path().join(VOCABULARY), PIECES).unwrap();
    std::fs::write(dir.path().join("config.json"), CONFIG).unwrap();
    dir
}

fn change(dir: &Path, file: &str, from: &str, to: &str) {
    let path = dir.join(file);
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(path, text.replace(from, to)).unwrap();
}

fn inspect_error(dir: &Path) -> String {
    LocalModel::inspect(dir, None).unwrap_err().to_string()
}

const TEXTS: [&str; 4] = ["Blue sky", "blueish. GREEN zzz", "red", ""];

/// Computed apart, with double precision.
const MEANS: [[i8; 8]; 3] = [
    [-108, 6, -19, -23, 127, -17, -7, 3],
    [-112, 8, -20, -23, 127, -17, -7, 1],
    [-107, 9, -14, -23, 127, -19, -7, 9],
];

#[test]
fn vectors_are_those_of_another_implementation() {
    let dir = tiny_model();
    let vectors = LocalEmbedder::load(dir.path(), 1).unwrap().embed(&TEXTS).unwrap();
    for (vector, expected) in vectors.iter().zip(MEANS) {
        assert_eq!(vector.components(), expected);
    }
    assert!(vectors[3].is_zero());
}

#[test]
fn pooling_by_the_first_state_is_known_too() {
    let dir = tiny_model();
    std::fs::create_dir(dir.path().join("1_Pooling")).unwrap();
    let pooling = r#"{"pooling_mode_cls_token":true}"#;
    std::fs::write(dir.path().join("1_Pooling/config.json"), pooling).unwrap();
    let vectors = LocalEmbedder::load(dir.path(), 1).unwrap().embed(&TEXTS).unwrap();
    assert_eq!(vectors[0].components(), [-107, 9, -20, -21, 127, -15, -5, 3]);
}

#[test]
fn neither_company_nor_threads_change_a_vector() {
    let dir = tiny_model();
    let model = LocalEmbedder::load(dir.path(), 3).unwrap();
    let many: Vec<&str> = TEXTS.iter().copied().cycle().take(400).collect();
    let together = model.embed(&many).unwrap();
    for (text, vector) in many.iter().zip(&together) {
        assert_eq!(&model.embed(&[text]).unwrap()[0], vector, "{text}");
    }
    assert!(model.embed(&[]).unwrap().is_empty());
}

#[test]
fn a_long_text_is_cut() {
    let dir = tiny_model();
    let model = LocalEmbedder::load(dir.path(), 1).unwrap();
    let cut = model.embed(&[&"red ".repeat(14), &"red ".repeat(100_000)]).unwrap();
    assert_eq!(cut[0], cut[1]);
}

#[test]
fn an_installed_model_is_the_same_and_damage_is_noticed() {
    let (dir, models) = (tiny_model(), tempfile::tempdir().unwrap());
    let models = models.path();
    assert!(LocalModel::list(models).is_empty());
    let model = LocalModel::install(dir.path(), models, Some("Tiny")).unwrap();
    assert_eq!((model.id.name.as_str(), model.id.dims, model.layers), ("tiny", 8, 2));
    assert_eq!(LocalModel::install(dir.path(), models, Some("tiny")).unwrap(), model);
    assert_eq!(LocalModel::list(models), std::slice::from_ref(&model));
    let loaded = LocalEmbedder::open(models, "tiny", 1).unwrap();
    assert_eq!(loaded.model(), &model.id);
    assert_eq!(loaded.embed(&TEXTS).unwrap()[0].components(), MEANS[0]);

    change(dir.path(), VOCABULARY, "sky", "sea");
    let other = LocalModel::inspect(dir.path(), Some("tiny")).unwrap();
    assert_ne!(other.id.hash, model.id.hash);
    let error = LocalModel::install(dir.path(), models, Some("tiny")).unwrap_err();
    assert_eq!(error.to_string(), "there is another model `tiny` already");
    change(&models.join("tiny"), VOCABULARY, "sky", "sea");
    let error = LocalEmbedder::open(models, "tiny", 1).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the model `tiny` is damaged: vocab.txt is not what was installed"
    );
}

#[test]
fn a_vocabulary_may_come_from_the_tokenizer() {
    let dir = tiny_model();
    let before = LocalModel::inspect(dir.path(), None).unwrap();
    let numbers: serde_json::Map<String, serde_json::Value> = PIECES
        .trim_end()
        .split('\n')
        .zip(0..)
        .map(|(piece, at)| (piece.into(), at.into()))
        .collect();
    let tokenizer = serde_json::json!({"model": {"type": "WordPiece", "vocab": numbers}});
    std::fs::write(dir.path().join("tokenizer.json"), tokenizer.to_string()).unwrap();
    std::fs::remove_file(dir.path().join(VOCABULARY)).unwrap();
    let after = LocalEmbedder::load(&dir.path().join(WEIGHTS), 1).unwrap();
    assert_eq!(after.model().name, before.id.name);
    assert_eq!(after.embed(&TEXTS).unwrap()[0].components(), MEANS[0]);
}

#[test]
fn what_cannot_be_run_is_refused_with_the_reason() {
    let cases = [
        ("config.json", "\"bert\"", "\"t5\"", "type `t5`"),
        ("config.json", "\"gelu\"", "\"relu\"", "activation `relu`"),
        ("config.json", "heads\":2", "heads\":3", "such sizes"),
        ("config.json", "heads\":2", "heads\":0", "such sizes"),
        ("config.json", "hidden_size\":8", "hidden_size\":16", "`embeddings."),
        (
            "config.json",
            "layers\":2",
            "layers\":3",
            "`encoder.layer.2.attention.self.query.weight` is",
        ),
        ("config.json", "{", "", "config.json is not as expected"),
        (VOCABULARY, "[SEP]", "[END]", "it has no [SEP]"),
        (VOCABULARY, "sky", "s\nk\ny", "14 pieces for 12 rows"),
    ];
    for (file, from, to, expected) in cases {
        let dir = tiny_model();
        change(dir.path(), file, from, to);
        let error = inspect_error(dir.path());
        assert!(error.contains(expected), "{to}: {error}");
    }
}

#[test]
fn what_is_missing_or_cut_short_is_named() {
    for file in [WEIGHTS, VOCABULARY, "config.json"] {
        let dir = tiny_model();
        std::fs::remove_file(dir.path().join(file)).unwrap();
        assert!(inspect_error(dir.path()).starts_with("cannot read"), "{file}");
    }
    let dir = tiny_model();
    let weights = std::fs::read(dir.path().join(WEIGHTS)).unwrap();
    for length in [0, 7, 100, weights.len() - 1] {
        std::fs::write(dir.path().join(WEIGHTS), &weights[..length]).unwrap();
        assert!(inspect_error(dir.path()).starts_with("the model's weights are wrong"), "{length}");
    }
}

#[test]
fn installed_models_are_found_by_name() {
    use crate::registry::open;
    let (dir, models) = (tiny_model(), tempfile::tempdir().unwrap());
    let models = models.path();
    LocalModel::install(dir.path(), models, Some("tiny")).unwrap();
    assert_eq!(open("tiny", models, 1).unwrap().model().name, "tiny");
    assert_eq!(open(BUNDLED_MODEL, models, 1).unwrap().model().dims, 256);
    let expected = "there is no embedding model `../tiny`; there is icecore-static-1, tiny";
    assert_eq!(open("../tiny", models, 1).err().unwrap().to_string(), expected);
    std::fs::write(models.join("tiny").join(WEIGHTS), "").unwrap();
    let error = open("tiny", models, 1).err().unwrap();
    assert_eq!(error.to_string(), "cannot load the embedding model `tiny`");
}

#[test]
fn the_bundled_name_cannot_be_taken_and_leftovers_are_no_models() {
    let (dir, models) = (tiny_model(), tempfile::tempdir().unwrap());
    let error = LocalModel::install(dir.path(), models.path(), Some(BUNDLED_MODEL)).unwrap_err();
    assert!(matches!(error, LocalModelError::Taken { .. }), "{error:?}");
    LocalModel::install(dir.path(), models.path(), Some("tiny")).unwrap();
    std::fs::rename(models.path().join("tiny"), models.path().join(".tiny.1")).unwrap();
    assert!(LocalModel::list(models.path()).is_empty());
}
