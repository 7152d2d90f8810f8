//! What a run does next, by what has happened in it.
//!
//! Nothing else is remembered of a run: whoever takes it up, the one who began it or
//! another after a crash, comes to the same next step.

use std::collections::BTreeSet;

use icecore::{Millis, Principal};
use icecore_store::{EntryRef, NewRunEvent, RunEventRecord, RunRecord};
use serde::Deserialize;
use serde_json::{Value, json};

use super::fixtures;
use super::workflow::{Behaviour, MemoryAction, Node, Workflow};

/// What has happened in a run so far.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Progress {
    /// When it was begun.
    began_at: Option<Millis>,
    completed: BTreeSet<String>,
    written: Vec<Written>,
}

/// An entry that a run put.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Written {
    /// By which node.
    pub(crate) node: String,
    /// The entry.
    pub(crate) entry: EntryRef,
    /// When.
    pub(crate) at: Millis,
}

/// What a run does next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Next<'w> {
    /// Nothing: it has ended.
    Nothing,
    /// It begins.
    Begin,
    /// A node that needs nothing to be done is done.
    Pass(&'w Node),
    /// What it was given becomes its variables.
    PassOn(&'w Node),
    /// A node puts its entries.
    Write(&'w Node, &'w MemoryAction),
    /// A node waits.
    Wait(Millis),
    /// A node looks for what it put.
    Read(&'w Node, &'w MemoryAction),
    /// A node dreams, and the run ends with that.
    Dream(&'w Node),
    /// It took too long, at this node if at one.
    TimeOut(Option<&'w Node>),
    /// All is done: it sums itself up and ends.
    Finish,
}

impl Progress {
    /// What events tell.
    pub(crate) fn of(events: &[RunEventRecord]) -> Self {
        let mut progress = Progress::default();
        for event in events {
            let node = event.node.clone();
            match event.kind.as_str() {
                "run.started" => progress.began_at = Some(event.at),
                "node.completed" => progress.completed.extend(node),
                "memory.written" => {
                    let named = serde_json::from_str::<WrittenPayload>(&event.payload).ok();
                    let entry = named.map(|WrittenPayload { memory_ref, memory_id }| EntryRef {
                        memory_ref,
                        memory_id,
                    });
                    let written = node.zip(entry);
                    let at = event.at;
                    progress.written.extend(written.map(|(node, entry)| Written {
                        node,
                        entry,
                        at,
                    }));
                }
                _ => {}
            }
        }
        progress
    }

    /// The ids of all entries that it put, which it sees although they are new.
    pub(crate) fn own(&self) -> Vec<String> {
        self.written.iter().map(|written| written.entry.memory_id.clone()).collect()
    }

    /// What a node put, in order.
    pub(crate) fn written_by<'a>(&'a self, node: &'a Node) -> impl Iterator<Item = &'a Written> {
        self.written.iter().filter(|written| written.node == node.id)
    }

    /// How many entries it put.
    pub(crate) fn writes(&self) -> usize {
        self.written.len()
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenPayload {
    memory_ref: String,
    memory_id: String,
}

/// What a run does next, on a host that looks after it since a moment: time in which
/// nobody did is no time that the run took.
pub(crate) fn next<'w>(
    workflow: &'w Workflow,
    run: &RunRecord,
    progress: &Progress,
    since: Millis,
    now: Millis,
) -> Next<'w> {
    if run.status.is_terminal() {
        return Next::Nothing;
    }
    let Some(began_at) = progress.began_at else { return Next::Begin };
    let node = workflow.nodes.iter().find(|node| !progress.completed.contains(&node.id));
    if is_late(workflow, began_at.max(since), now) {
        return Next::TimeOut(node);
    }
    let Some(node) = node else { return Next::Finish };
    let action = match &node.behaviour {
        Behaviour::Nothing => return Next::Pass(node),
        Behaviour::PassOn => return Next::PassOn(node),
        Behaviour::Dream => return Next::Dream(node),
        Behaviour::Memory(action) => action,
    };
    match progress.written_by(node).last() {
        None => Next::Write(node, action),
        Some(last) => match fixtures::ready_at(action, last.at) {
            Some(ready_at) if now < ready_at => Next::Wait(ready_at),
            _ => Next::Read(node, action),
        },
    }
}

/// Whether a run that was begun at a moment took longer than its workflow allows.
pub(crate) fn is_late(workflow: &Workflow, began_at: Millis, now: Millis) -> bool {
    let timeout = i64::try_from(workflow.timeout.as_millis()).unwrap_or(i64::MAX);
    now.0.saturating_sub(began_at.0) >= timeout
}

/// Something that happens in a run.
pub(crate) fn event(kind: &'static str, node: Option<&str>, payload: Value) -> NewRunEvent {
    NewRunEvent { kind, node: node.map(str::to_owned), payload: payload.to_string() }
}

/// A run begins, with its first node.
pub(crate) fn begun(
    workflow: &Workflow,
    principal: &Principal,
    run: &RunRecord,
) -> Vec<NewRunEvent> {
    let tenant = principal.tenant().as_str();
    let owner = json!({"tenant": tenant, "workspace": run.workspace, "principal": run.principal});
    let payload = json!({"workflowId": workflow.id, "owner": owner});
    let mut events = vec![event("run.started", None, payload)];
    events.extend(workflow.nodes.first().map(started));
    events
}

/// A node is done, and the next begins.
pub(crate) fn completed(workflow: &Workflow, node: &Node) -> Vec<NewRunEvent> {
    let mut events = vec![event("node.completed", Some(&node.id), json!({}))];
    let after = workflow.nodes.iter().skip_while(|other| other.id != node.id).nth(1);
    events.extend(after.map(started));
    events
}

fn started(node: &Node) -> NewRunEvent {
    event("node.started", Some(&node.id), json!({"typeId": node.type_id}))
}

/// Variables were set. A name that the workflow does not know was made up by whoever
/// gave the inputs, and is not repeated.
pub(crate) fn changed<'a>(
    workflow: &Workflow,
    node: &Node,
    names: impl Iterator<Item = &'a str>,
) -> Vec<NewRunEvent> {
    let (known, others): (Vec<&str>, Vec<&str>) =
        names.partition(|name| workflow.variables.contains(*name));
    let changed = |payload| event("variable.changed", Some(&node.id), payload);
    let mut events: Vec<NewRunEvent> =
        known.into_iter().map(|name| changed(json!({"name": name}))).collect();
    if !others.is_empty() {
        events.push(changed(json!({"unnamed": others.len()})));
    }
    events
}

#[cfg(test)]
mod tests {
    use icecore::formats::json::JsonText;
    use icecore::ids::Position;
    use icecore::privacy::Redactor;
    use icecore_store::RunStatus;

    use super::super::workflow::tests::definition;
    use super::*;

    fn run(status: RunStatus) -> RunRecord {
        let inputs = JsonText::parse("{}").unwrap();
        RunRecord {
            id: "r".to_owned(),
            workspace: "default".to_owned(),
            principal: "p".to_owned(),
            workflow: "w".to_owned(),
            status,
            position: Position(0),
            created_at: Millis(0),
            ended_at: None,
            expired_at: None,
            events: 0,
            fork: None,
            error: None,
            inputs: Redactor::standard().redacted_json(&inputs),
            files: Vec::new(),
            variables: Vec::new(),
        }
    }

    fn told(at: i64, kind: &str, node: Option<&str>) -> RunEventRecord {
        let payload = r#"{"memoryRef":"m","memoryId":"e"}"#.to_owned();
        let (kind, node) = (kind.to_owned(), node.map(str::to_owned));
        RunEventRecord { sequence: 0, at: Millis(at), kind, node, cause: None, payload }
    }

    #[test]
    fn a_run_goes_on_where_its_events_end() {
        let nodes = ["a", "b: core.identity ttl-probe", "c: core.identity"];
        let workflow = Workflow::parse(&definition(&nodes, &[]).to_string()).unwrap();
        let [a, b, c] = &workflow.nodes[..] else { panic!("three nodes") };
        let mut events = Vec::new();
        let mut check = |event: Option<RunEventRecord>, now: i64, expected: Next<'_>| {
            events.extend(event);
            let progress = Progress::of(&events);
            let found =
                next(&workflow, &run(RunStatus::Running), &progress, Millis(0), Millis(now));
            assert_eq!(found, expected, "{events:?}");
        };
        check(None, 5_000, Next::Begin);
        check(Some(told(100, "run.started", None)), 100, Next::Pass(a));
        check(None, 1_100, Next::TimeOut(Some(a)));
        let action = &MemoryAction::TtlProbe;
        check(Some(told(100, "node.completed", Some("a"))), 100, Next::Write(b, action));
        let ready = fixtures::ready_at(action, Millis(200)).unwrap();
        check(Some(told(200, "memory.written", Some("b"))), 200, Next::Wait(ready));
        check(None, ready.0, Next::Read(b, action));
        check(Some(told(500, "node.completed", Some("b"))), 500, Next::PassOn(c));
        check(Some(told(500, "node.completed", Some("c"))), 500, Next::Finish);
        check(None, 9_999, Next::TimeOut(None));
        let progress = Progress::of(&events);
        let after_a_rest =
            |now| next(&workflow, &run(RunStatus::Running), &progress, Millis(9_000), Millis(now));
        assert_eq!(
            (after_a_rest(9_999), after_a_rest(10_000)),
            (Next::Finish, Next::TimeOut(None))
        );
        for ended in [RunStatus::Completed, RunStatus::Failed, RunStatus::Cancelled] {
            let found = next(&workflow, &run(ended), &Progress::default(), Millis(0), Millis(0));
            assert_eq!(found, Next::Nothing);
        }
    }

    #[test]
    fn names_that_a_caller_made_up_are_not_told() {
        let mut known = definition(&["a"], &[]);
        known["variables"] = json!([{"name": "value"}]);
        let workflow = Workflow::parse(&known.to_string()).unwrap();
        let names = ["made up", "value", "another"];
        let events = changed(&workflow, &workflow.nodes[0], names.into_iter());
        let payloads: Vec<&str> = events.iter().map(|event| event.payload.as_str()).collect();
        assert_eq!(payloads, [r#"{"name":"value"}"#, r#"{"unnamed":2}"#]);
    }
}
