//! What is told of an agent, and what it has to do without here.

use std::collections::BTreeSet;

use icecore::privacy::Redactor;
use serde::Serialize;
use utoipa::ToSchema;

use super::manifest::Manifest;
use super::{Agents, Installed};
use crate::capabilities::{Capabilities, Dimension};

/// One agent of the inventory.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentEntry {
    /// What it is asked for by.
    pub agent_id: String,
    /// The part that it plays.
    pub persona: String,
    /// What people call it.
    pub label: String,
    /// What it is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The kind of model that it needs.
    pub model_class: String,
    /// What it came with.
    pub pack_name: String,
    /// Which version of that.
    pub pack_version: String,
    /// The tools that it may use.
    pub tool_allowlist: Vec<String>,
    /// Whether what it is handed and hands back is checked.
    pub has_handoff_schemas: bool,
    /// The memory that it asks for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_shape: Option<MemoryShape>,
    /// How sure it must be to decide by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confidence_threshold: Option<f64>,
    /// Capabilities that it requires and this host has not.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub degraded: Vec<String>,
    /// `true` where memory that it asks for is not all here.
    #[serde(skip_serializing_if = "is_false")]
    pub memory_degraded: bool,
    /// The dimensions of memory in which it is not.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub degraded_memory_dimensions: Vec<&'static str>,
}

/// The memory that an agent asks for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemoryShape {
    /// For what it is doing now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scratchpad: Option<bool>,
    /// For what is said to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conversation: Option<bool>,
    /// For later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub long_term: Option<bool>,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

impl MemoryShape {
    /// The dimensions that it needs.
    fn needs(self) -> &'static [Dimension] {
        use Dimension::{LongTermDurability, Read, Write};
        match self {
            Self { long_term: Some(true), .. } => &[Read, Write, LongTermDurability],
            Self { scratchpad: Some(true), .. } | Self { conversation: Some(true), .. } => {
                &[Read, Write]
            }
            _ => &[],
        }
    }
}

impl Agents {
    /// Every agent by id, as a host that can do so much tells of it. Secrets that the
    /// redactor knows are hidden.
    pub fn inventory(&self, able: &Capabilities, redactor: &Redactor) -> Vec<AgentEntry> {
        let installed = self.installed.values();
        installed.map(|agent| entry(&agent.manifest, able, redactor)).collect()
    }

    /// One of them.
    pub fn find(&self, id: &str, able: &Capabilities, redactor: &Redactor) -> Option<AgentEntry> {
        self.installed.get(id).map(|agent| entry(&agent.manifest, able, redactor))
    }

    /// A sentence on each agent that has to do without something. Those of a
    /// conformance run are meant to.
    pub fn warnings(&self, able: &Capabilities) -> Vec<String> {
        let redactor = Redactor::standard();
        let own = self.installed.values().filter(|agent| !agent.is_fixture);
        own.filter_map(|agent| warning(agent, able, &redactor)).collect()
    }
}

fn entry(manifest: &Manifest, able: &Capabilities, redactor: &Redactor) -> AgentEntry {
    let shown = |text: &String| redactor.text(text).into_string();
    let dimensions = unmet_dimensions(manifest, able);
    AgentEntry {
        agent_id: shown(&manifest.agent_id),
        persona: shown(&manifest.persona),
        label: shown(&manifest.label),
        description: manifest.description.as_ref().map(shown),
        model_class: shown(&manifest.model_class),
        pack_name: shown(&manifest.pack_name),
        pack_version: shown(&manifest.pack_version),
        tool_allowlist: manifest.tool_allowlist.iter().map(shown).collect(),
        has_handoff_schemas: manifest.has_handoff_schemas,
        memory_shape: manifest.memory_shape,
        confidence_threshold: manifest.confidence_threshold,
        // Two that are hidden may read the same.
        degraded: unmet(manifest, able).map(shown).collect::<BTreeSet<_>>().into_iter().collect(),
        memory_degraded: !dimensions.is_empty(),
        degraded_memory_dimensions: dimensions.into_iter().map(Dimension::as_str).collect(),
    }
}

/// The capabilities that are required and not here, as they are written.
fn unmet<'a>(manifest: &'a Manifest, able: &'a Capabilities) -> impl Iterator<Item = &'a String> {
    manifest.requires_capabilities.iter().filter(|capability| !able.has(capability))
}

/// The dimensions of memory that are asked for, by shape or by name, and not here.
fn unmet_dimensions(manifest: &Manifest, able: &Capabilities) -> BTreeSet<Dimension> {
    let needed = manifest.memory_shape.unwrap_or_default().needs().iter().copied();
    let by_shape = needed.filter(|dimension| !able.met(*dimension));
    let by_name = unmet(manifest, able).filter_map(|name| Dimension::of_capability(name));
    by_shape.chain(by_name).collect()
}

fn warning(agent: &Installed, able: &Capabilities, redactor: &Redactor) -> Option<String> {
    let AgentEntry { agent_id, mut degraded, degraded_memory_dimensions, .. } =
        entry(&agent.manifest, able, redactor);
    for dimension in degraded_memory_dimensions {
        let name = format!("memory.{dimension}");
        if !degraded.contains(&name) {
            degraded.push(name);
        }
    }
    (!degraded.is_empty()).then(|| {
        let lacks = degraded.join("`, `");
        format!("the agent `{agent_id}` is listed as degraded: this host does not have `{lacks}`")
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::capabilities::Means;
    use crate::capabilities::tests::all_on;

    fn agents(manifests: &[Value]) -> Agents {
        let mut agents = Agents::default();
        for (n, more) in manifests.iter().enumerate() {
            let mut manifest = json!({
                "agentId": format!("agent.{n}"), "persona": "p", "label": "L",
                "modelClass": "general", "packName": "pack", "packVersion": "1",
            });
            for (key, value) in more.as_object().unwrap() {
                manifest[key] = value.clone();
            }
            let text = manifest.to_string();
            agents.install(format!("{n}.json"), text.as_bytes(), false).unwrap();
        }
        agents
    }

    fn told(agents: &Agents, means: &Means) -> Value {
        json!(agents.inventory(&Capabilities::of(means), &Redactor::standard()))
    }

    /// The two lists and the flag of one agent.
    fn check(manifest: Value, means: &Means, expected: [Value; 3]) {
        let entry = &told(&agents(std::slice::from_ref(&manifest)), means)[0];
        let fields = ["degraded", "memoryDegraded", "degradedMemoryDimensions"];
        let found = fields.map(|field| entry.get(field).cloned().unwrap_or(json!("absent")));
        assert_eq!(found, expected, "{manifest}");
    }

    fn absent() -> Value {
        json!("absent")
    }

    #[test]
    fn an_entry_has_what_the_protocol_lists_and_nothing_else() {
        let all = agents(&[json!({
            "agentId": "harbour.pilot",
            "description": "Brings ships in.",
            "toolAllowlist": ["tide.read"],
            "handoff": {"taskSchema": {"type": "object"}},
            "memoryShape": {"longTerm": true, "scratchpad": false},
            "confidenceThreshold": 0.25,
            "requiresCapabilities": ["memory.search"],
            "systemPrompt": "You bring ships in.",
        })]);
        let expected = json!([{
            "agentId": "harbour.pilot",
            "persona": "p",
            "label": "L",
            "description": "Brings ships in.",
            "modelClass": "general",
            "packName": "pack",
            "packVersion": "1",
            "toolAllowlist": ["tide.read"],
            "hasHandoffSchemas": true,
            "memoryShape": {"longTerm": true, "scratchpad": false},
            "confidenceThreshold": 0.25,
        }]);
        assert_eq!(told(&all, &all_on()), expected);
    }

    #[test]
    fn a_memory_that_is_asked_for_and_not_here_is_told() {
        let long_term = json!({"memoryShape": {"longTerm": true}});
        let chatty = json!({"memoryShape": {"conversation": true}});
        let content = json!({"memoryShape": {"longTerm": false}});
        let read_only = Means { writable: false, ..all_on() };
        check(long_term.clone(), &all_on(), [absent(), absent(), absent()]);
        check(long_term, &read_only, [absent(), json!(true), json!(["write"])]);
        check(chatty, &read_only, [absent(), json!(true), json!(["write"])]);
        check(content, &read_only, [absent(), absent(), absent()]);
        check(json!({}), &read_only, [absent(), absent(), absent()]);
    }

    #[test]
    fn what_is_required_and_not_here_is_told_as_it_is_written() {
        let requires = |names: &[&str]| json!({"requiresCapabilities": names});
        check(
            requires(&["workspace", "tools.browser", "scheduling.calendar", "tools.browser"]),
            &all_on(),
            [json!(["scheduling.calendar", "tools.browser"]), absent(), absent()],
        );
        check(
            requires(&["multiAgent.executionModel", "memory.replay-snapshot"]),
            &all_on(),
            [
                json!(["memory.replay-snapshot", "multiAgent.executionModel"]),
                json!(true),
                json!(["replay-snapshot"]),
            ],
        );
        let plain = Means { semantic: false, ..all_on() };
        check(requires(&["memory.search"]), &plain, [absent(), absent(), absent()]);
        check(
            requires(&["capabilities.memory.search.semantic"]),
            &plain,
            [json!(["capabilities.memory.search.semantic"]), json!(true), json!(["search"])],
        );
    }

    #[test]
    fn of_the_fixtures_one_has_all_it_asks_for_and_one_has_not() {
        let agents = Agents::default().with_fixtures().unwrap();
        let told = told(&agents, &all_on());
        let expected = json!(["icecore.conformance.keeper", "icecore.conformance.rehearser"]);
        assert_eq!(json!([told[0]["agentId"], told[1]["agentId"]]), expected);
        assert_eq!((told[0].get("degraded"), told[0].get("memoryDegraded")), (None, None));
        let lacks = json!(["memory.replay-snapshot", "multiAgent.executionModel"]);
        assert_eq!(told[1]["degraded"], lacks);
        assert_eq!(told[1]["degradedMemoryDimensions"], json!(["replay-snapshot"]));
        assert!(agents.warnings(&Capabilities::of(&all_on())).is_empty());
    }

    #[test]
    fn who_starts_the_host_is_warned() {
        let all = agents(&[
            json!({"memoryShape": {"longTerm": true}}),
            json!({"memoryShape": {"longTerm": true}, "requiresCapabilities": ["memory.write", "x"]}),
            json!({}),
        ]);
        assert_eq!(
            all.warnings(&Capabilities::of(&Means { writable: false, ..all_on() })),
            [
                "the agent `agent.0` is listed as degraded: this host does not have `memory.write`",
                "the agent `agent.1` is listed as degraded: this host does not have `memory.write`, `x`",
            ]
        );
    }

    #[test]
    fn secrets_in_manifests_are_hidden() {
        let kind = Redactor::kinds().iter().find(|kind| kind.id == "github-token").unwrap();
        let token = kind.sample(4711);
        let all = agents(&[json!({
            "persona": token, "label": token, "description": token, "modelClass": token,
            "packName": token, "packVersion": token, "toolAllowlist": [token],
            "requiresCapabilities": [token, format!("x {token}")],
        })]);
        let told = told(&all, &all_on()).to_string();
        assert!(!told.contains(&token) && told.contains("[REDACTED:github-token"), "{told}");
        let warned = all.warnings(&Capabilities::of(&all_on())).concat();
        assert!(!warned.contains(&token) && warned.contains("[REDACTED:"), "{warned}");
    }
}
