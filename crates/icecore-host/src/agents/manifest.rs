//! One manifest, read field by field. What is wrong is named by its field and never
//! repeated: it may be a prompt, or a key that was pasted into the wrong place.

use icecore::privacy::Redactor;
use serde_json::{Map, Value};

use super::{AgentsError, MemoryShape};

/// The most characters of a name or id.
const MAX_NAME_CHARS: usize = 256;

/// The most characters of what is written for people.
const MAX_TEXT_CHARS: usize = 4_096;

/// What is kept of a manifest.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Manifest {
    pub(super) agent_id: String,
    pub(super) persona: String,
    pub(super) label: String,
    pub(super) description: Option<String>,
    pub(super) model_class: String,
    pub(super) pack_name: String,
    pub(super) pack_version: String,
    pub(super) tool_allowlist: Vec<String>,
    pub(super) memory_shape: Option<MemoryShape>,
    pub(super) confidence_threshold: Option<f64>,
    pub(super) has_handoff_schemas: bool,
    /// As they are written.
    pub(super) requires_capabilities: Vec<String>,
}

impl Manifest {
    pub(super) fn parse(file: &str, text: &[u8]) -> Result<Self, AgentsError> {
        let document = serde_json::from_slice(text).map_err(|error| AgentsError::Syntax {
            file: file.to_owned(),
            problem: error.to_string(),
        })?;
        Self::of(&document).map_err(|problem| AgentsError::Field { file: file.to_owned(), problem })
    }

    fn of(document: &Value) -> Result<Self, String> {
        let fields = Fields(document.as_object().ok_or("there is no JSON object")?);
        Ok(Self {
            agent_id: fields.id("agentId")?,
            persona: fields.required("persona", as_text)?,
            label: fields.required("label", as_name)?,
            description: fields.optional("description", as_text)?,
            model_class: fields.required("modelClass", as_name)?,
            pack_name: fields.required("packName", as_name)?,
            pack_version: fields.required("packVersion", as_name)?,
            tool_allowlist: fields.optional("toolAllowlist", as_names)?.unwrap_or_default(),
            memory_shape: fields.optional("memoryShape", as_shape)?,
            confidence_threshold: fields.optional("confidenceThreshold", as_share)?,
            has_handoff_schemas: fields.optional("handoff", as_schemas)?.unwrap_or_default(),
            requires_capabilities: fields
                .optional("requiresCapabilities", as_names)?
                .unwrap_or_default(),
        })
    }
}

/// Reads a value, or says what it must be.
type As<T> = fn(&Value) -> Result<T, String>;

struct Fields<'a>(&'a Map<String, Value>);

impl Fields<'_> {
    fn required<T>(&self, name: &str, read: As<T>) -> Result<T, String> {
        self.optional(name, read)?.ok_or_else(|| format!("`{name}` is missing"))
    }

    fn optional<T>(&self, name: &str, read: As<T>) -> Result<Option<T>, String> {
        let found = self.0.get(name).map(read).transpose();
        found.map_err(|expected| format!("`{name}` must be {expected}"))
    }

    /// Everybody may ask for an agent by its id, so the id cannot be hidden.
    fn id(&self, name: &str) -> Result<String, String> {
        let id = self.required(name, as_name)?;
        match Redactor::standard().text(&id).as_str() == id {
            true => Ok(id),
            false => Err(format!("`{name}` holds a secret")),
        }
    }
}

fn as_name(value: &Value) -> Result<String, String> {
    let fits = |name: &&str| {
        let chars = name.chars().count();
        (1..=MAX_NAME_CHARS).contains(&chars) && !name.contains(char::is_control)
    };
    value.as_str().filter(fits).map(str::to_owned).ok_or_else(|| {
        format!("a string of 1 to {MAX_NAME_CHARS} characters, none of them a control character")
    })
}

fn as_text(value: &Value) -> Result<String, String> {
    let is_odd = |one: char| one.is_control() && one != '\n' && one != '\t';
    let fits = |text: &&str| {
        (1..=MAX_TEXT_CHARS).contains(&text.chars().count()) && !text.contains(is_odd)
    };
    value.as_str().filter(fits).map(str::to_owned).ok_or_else(|| {
        format!("a text of 1 to {MAX_TEXT_CHARS} characters, without control characters")
    })
}

fn as_names(value: &Value) -> Result<Vec<String>, String> {
    let names = value.as_array().ok_or("a list of strings")?.iter().map(as_name);
    names.collect::<Result<_, _>>().map_err(|expected| format!("a list, each of it {expected}"))
}

fn as_share(value: &Value) -> Result<f64, String> {
    let share = value.as_f64().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "a number from 0 to 1".to_owned())
}

/// Another kind of memory would be one that nobody could say is here.
fn as_shape(value: &Value) -> Result<MemoryShape, String> {
    let expected =
        || "an object of `scratchpad`, `conversation` and `longTerm`, each true or false";
    let mut shape = MemoryShape::default();
    for (name, value) in value.as_object().ok_or_else(expected)? {
        let wanted = match name.as_str() {
            "scratchpad" => &mut shape.scratchpad,
            "conversation" => &mut shape.conversation,
            "longTerm" => &mut shape.long_term,
            _ => return Err(expected().to_owned()),
        };
        *wanted = Some(value.as_bool().ok_or_else(expected)?);
    }
    Ok(shape)
}

/// Whether there are any; what they are is nobody's business here.
fn as_schemas(value: &Value) -> Result<bool, String> {
    let handoff = value.as_object().ok_or("an object")?;
    Ok(handoff.values().any(|schema| !schema.is_null()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn whole() -> Value {
        json!({
            "agentId": "harbour.pilot",
            "persona": "pilot",
            "label": "Harbour pilot",
            "modelClass": "general",
            "packName": "harbour",
            "packVersion": "1.2.0",
        })
    }

    fn with(field: &str, value: Value) -> Value {
        let mut manifest = whole();
        manifest[field] = value;
        manifest
    }

    #[test]
    fn what_is_not_known_is_left_to_others() {
        let mut manifest = whole();
        manifest["systemPrompt"] = json!("You are a pilot.");
        manifest["x-vendor"] = json!({"anything": [1, null]});
        assert_eq!(Manifest::of(&manifest), Manifest::of(&whole()));
        let read = Manifest::of(&with("handoff", json!({"taskSchemaRef": "t.json"}))).unwrap();
        assert!(read.has_handoff_schemas);
        let none = Manifest::of(&with("handoff", json!({"taskSchemaRef": null}))).unwrap();
        assert!(!none.has_handoff_schemas);
    }

    #[test]
    fn what_must_be_there_is_asked_for() {
        for field in whole().as_object().unwrap().keys() {
            let mut manifest = whole();
            manifest.as_object_mut().unwrap().remove(field);
            assert_eq!(Manifest::of(&manifest), Err(format!("`{field}` is missing")));
        }
    }

    #[test]
    fn what_is_wrong_is_named_and_not_repeated() {
        let check = |field: &str, value: Value, expected: &str| {
            let problem = Manifest::of(&with(field, value)).unwrap_err();
            assert_eq!(problem, format!("`{field}` {expected}"));
        };
        let name = "must be a string of 1 to 256 characters, none of them a control character";
        for wrong in [
            json!(7),
            json!(null),
            json!(""),
            json!("a\nb"),
            json!("a\u{0}"),
            json!("x".repeat(257)),
        ] {
            check("agentId", wrong.clone(), name);
            check("label", wrong.clone(), name);
            check("modelClass", wrong, name);
        }
        let token = Redactor::kinds().iter().find(|kind| kind.id == "github-token").unwrap();
        check("agentId", json!(token.sample(7)), "holds a secret");
        let text = "must be a text of 1 to 4096 characters, without control characters";
        check("persona", json!("\u{7}"), text);
        check("description", json!({}), text);
        let share = "must be a number from 0 to 1";
        for wrong in [json!(1.01), json!(-0.1), json!("0.5"), json!(true)] {
            check("confidenceThreshold", wrong, share);
        }
        check("toolAllowlist", json!("all"), "must be a list of strings");
        check(
            "requiresCapabilities",
            json!([7]),
            &format!("must be a list, each of it {}", &name[8..]),
        );
        let shape =
            "must be an object of `scratchpad`, `conversation` and `longTerm`, each true or false";
        for wrong in [json!(true), json!({"longTerm": "yes"}), json!({"eidetic": true})] {
            check("memoryShape", wrong, shape);
        }
        check("handoff", json!("schema"), "must be an object");
    }

    #[test]
    fn numbers_at_the_edge_are_fine() {
        for edge in [json!(0), json!(1), json!(0.5)] {
            let read = Manifest::of(&with("confidenceThreshold", edge.clone())).unwrap();
            assert_eq!(read.confidence_threshold, edge.as_f64());
        }
    }
}
