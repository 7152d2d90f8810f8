//! Whether a value fits a schema: as much of JSON Schema as our document uses.
//!
//! Stricter in one thing: a member that the schema does not name is an error
//! unless it says that there may be others, so that no answer outgrows it.

use serde_json::{Map, Value};

/// Every way in which `value` does not fit, by place.
pub(crate) fn misfits(document: &Value, schema: &Value, value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    Checker { document }.check(schema, value, "$", &mut found);
    found
}

struct Checker<'a> {
    document: &'a Value,
}

impl Checker<'_> {
    fn check(&self, schema: &Value, value: &Value, at: &str, found: &mut Vec<String>) {
        if let Some(to) = schema["$ref"].as_str() {
            let target = self.document.pointer(&to[1..]).unwrap_or_else(|| panic!("no {to}"));
            return self.check(target, value, at, found);
        }
        if let Some(branches) = schema["oneOf"].as_array().or(schema["anyOf"].as_array()) {
            let fits = |branch: &&Value| {
                let mut found = Vec::new();
                self.check(branch, value, at, &mut found);
                found.is_empty()
            };
            if !branches.iter().any(|branch| fits(&branch)) {
                found.push(format!("{at}: fits none of {} choices", branches.len()));
            }
        }
        if !has_type(&schema["type"], value) {
            return found.push(format!("{at}: {value} is not of type {}", schema["type"]));
        }
        if schema["enum"].as_array().is_some_and(|words| !words.contains(value)) {
            found.push(format!("{at}: {value} is not one of {}", schema["enum"]));
        }
        self.check_number(schema, value, at, found);
        if let Some(members) = value.as_object() {
            self.check_members(schema, members, at, found);
        }
        if let (Some(items), Some(one)) = (value.as_array(), schema.get("items")) {
            for (index, item) in items.iter().enumerate() {
                self.check(one, item, &format!("{at}[{index}]"), found);
            }
        }
    }

    fn check_number(&self, schema: &Value, value: &Value, at: &str, found: &mut Vec<String>) {
        let Some(number) = value.as_f64() else { return };
        if schema["minimum"].as_f64().is_some_and(|least| number < least) {
            found.push(format!("{at}: {number} is below {}", schema["minimum"]));
        }
        if schema["maximum"].as_f64().is_some_and(|most| number > most) {
            found.push(format!("{at}: {number} is above {}", schema["maximum"]));
        }
    }

    fn check_members(
        &self,
        schema: &Value,
        members: &Map<String, Value>,
        at: &str,
        found: &mut Vec<String>,
    ) {
        let required = schema["required"].as_array().into_iter().flatten();
        for name in required.filter_map(Value::as_str) {
            if !members.contains_key(name) {
                found.push(format!("{at}: `{name}` is missing"));
            }
        }
        for (name, value) in members {
            let at = format!("{at}.{name}");
            match (schema["properties"].get(name), schema.get("additionalProperties")) {
                (Some(property), _) => self.check(property, value, &at, found),
                (None, Some(Value::Bool(true))) => {}
                (None, Some(others @ Value::Object(_))) => self.check(others, value, &at, found),
                // An object of which nothing is said may hold anything.
                (None, None) if schema.get("properties").is_none() => {}
                (None, _) => found.push(format!("{at}: is not in the schema")),
            }
        }
    }
}

fn has_type(kind: &Value, value: &Value) -> bool {
    match kind {
        Value::Null => true,
        Value::Array(kinds) => kinds.iter().any(|kind| has_type(kind, value)),
        kind => match kind.as_str().unwrap_or_default() {
            "null" => value.is_null(),
            "boolean" => value.is_boolean(),
            "integer" => value.is_i64() || value.is_u64(),
            "number" => value.is_number(),
            "string" => value.is_string(),
            "array" => value.is_array(),
            "object" => value.is_object(),
            other => panic!("an unknown type `{other}`"),
        },
    }
}

#[test]
fn the_checker_sees_what_is_wrong() {
    use serde_json::json;
    let schema = json!({"type": "object", "required": ["a"], "properties": {
        "a": {"type": "integer", "maximum": 3},
        "b": {"type": ["string", "null"]},
        "c": {"type": "array", "items": {"enum": ["x"]}},
    }});
    let check = |value: Value, wrong: usize| {
        assert_eq!(misfits(&json!({}), &schema, &value).len(), wrong, "{value}");
    };
    check(json!({"a": 3, "b": null, "c": ["x"]}), 0);
    check(json!({}), 1);
    check(json!({"a": 4}), 1);
    check(json!({"a": 1.5, "b": 1, "c": ["y", "x"]}), 3);
    check(json!({"a": 1, "d": 1}), 1);
    check(json!([]), 1);
}
