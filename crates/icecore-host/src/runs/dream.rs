//! Runs that are dreams: what they are given, and what they leave behind.

use icecore::dreams::{DREAM_WORKFLOW, Dream, DreamRequest};
use icecore::formats::json::JsonText;
use icecore::{Memory, MemoryError, Principal};
use icecore_store::RunRecord;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::step::NewValue;
use super::{RunRequest, RunsError, fixtures};

/// The option of a run that bounds its dream (RFC 0062).
pub(crate) const BUDGET_OPTION: &str = "distillation.tokenBudget";

/// The variable that tells of a dream.
const VARIABLE: &str = "dream";

/// The memory that a run means when it names none.
const DEFAULT_MEMORY: &str = "default";

/// While another dream of the memory is under way it is looked again this often.
pub(crate) const AGAIN_MILLIS: i64 = 500;

/// What a run that dreams is given, as it is kept.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Inputs {
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_ref: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token_budget: Option<u64>,
}

/// What a run is given, with the options that concern it. Only a dream has any.
pub(crate) fn inputs(request: &RunRequest) -> Result<JsonText, RunsError> {
    let budget = match &request.configurable {
        Some(options) => budget(options)?,
        None => None,
    };
    if request.workflow_id != DREAM_WORKFLOW {
        return Ok(request.inputs.clone());
    }
    let given: Map<String, Value> =
        serde_json::from_str(request.inputs.as_str()).map_err(|_| RunsError::BadInputs)?;
    let wrong = |reason: &str| RunsError::BadOption { reason: reason.to_owned() };
    if given.keys().any(|name| name != "memoryRef") {
        return Err(wrong("a dream is given `inputs.memoryRef` and nothing else"));
    }
    let memory_ref = match given.get("memoryRef") {
        None | Some(Value::Null) => None,
        Some(Value::String(name)) if is_name(name) => Some(name.clone()),
        Some(_) => return Err(wrong("field `inputs.memoryRef` must name a memory")),
    };
    let kept = json!(Inputs { memory_ref, token_budget: budget }).to_string();
    JsonText::parse(&kept).map_err(|_| RunsError::BadInputs)
}

fn is_name(name: &str) -> bool {
    (1..=icecore::ids::MAX_NAME_BYTES).contains(&name.len()) && !name.chars().any(char::is_control)
}

/// The budget among the options of a run.
fn budget(options: &JsonText) -> Result<Option<u64>, RunsError> {
    let options: Map<String, Value> = serde_json::from_str(options.as_str()).unwrap_or_default();
    match options.get(BUDGET_OPTION) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_u64().filter(|budget| *budget > 0) {
            Some(budget) => Ok(Some(budget)),
            None => {
                let reason = format!(
                    "field `configurable` has a `{BUDGET_OPTION}`, which must be an integer from 1 on"
                );
                Err(RunsError::BadOption { reason })
            }
        },
    }
}

/// Dreams for a run.
pub(crate) async fn dream(
    memory: &Memory,
    principal: &Principal,
    run: &RunRecord,
) -> Result<Dream, MemoryError> {
    let Inputs { memory_ref, token_budget } =
        serde_json::from_str(run.inputs.json().as_str()).unwrap_or_default();
    let scope = memory.scope(principal, memory_ref.as_deref().unwrap_or(DEFAULT_MEMORY)).await?;
    let request = DreamRequest {
        run: Some(run.id.clone()),
        principal: run.principal.clone(),
        ..DreamRequest::manual(token_budget)
    };
    memory.dream(&scope, request, |_| {}).await
}

/// What a run says of the dream that stands.
pub(crate) fn told(dream: &Dream) -> (String, NewValue) {
    let told = json!({
        "runId": dream.record.run,
        "archiveChecksum": dream.record.archive.to_string(),
        "outputId": dream.record.output,
        "unchanged": dream.unchanged,
    });
    (VARIABLE.to_owned(), fixtures::value(told))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(inputs: &str, configurable: &str) -> RunRequest {
        RunRequest {
            id: "r".to_owned(),
            workflow_id: DREAM_WORKFLOW.to_owned(),
            inputs: JsonText::parse(inputs).unwrap(),
            configurable: Some(JsonText::parse(configurable).unwrap()),
            principal_id: "p".to_owned(),
            claim: None,
        }
    }

    #[test]
    fn a_dream_is_given_a_memory_and_a_budget() {
        let check = |given: &str, options: &str, expected: &str| {
            assert_eq!(inputs(&request(given, options)).unwrap().as_str(), expected);
        };
        check("{}", "{}", "{}");
        check(r#"{"memoryRef":"m"}"#, r#"{"other":{}}"#, r#"{"memoryRef":"m"}"#);
        check(
            r#"{"memoryRef":null}"#,
            r#"{"distillation.tokenBudget":8000}"#,
            r#"{"tokenBudget":8000}"#,
        );
    }

    #[test]
    fn what_cannot_be_dreamt_is_refused() {
        let check = |given: &str, options: &str, names: &str| {
            let refused = inputs(&request(given, options)).unwrap_err().to_string();
            assert!(refused.contains(names), "{refused}");
        };
        for budget in ["0", "-1", "1.5", "\"8000\"", "{}", "true"] {
            let options = format!(r#"{{"distillation.tokenBudget":{budget}}}"#);
            check("{}", &options, "distillation.tokenBudget");
        }
        for memory in ["7", "\"\"", "\"a\\nb\"", "[]"] {
            check(&format!(r#"{{"memoryRef":{memory}}}"#), "{}", "inputs.memoryRef");
        }
        check(r#"{"memory":"m"}"#, "{}", "inputs.memoryRef");
    }
}
