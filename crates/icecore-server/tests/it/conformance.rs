//! What the contract asks of a memory host, asked of ours in Rust.
//!
//! [`COVERED`] names every check of the contract's checker that applies to what we
//! claim, and the tests that make its assertions: one in here under the check's own
//! name, or one that was there before. `docs/conformance.md` tells the same to
//! people; the tests below hold the two against each other and against the code.

mod agents;
mod attribution;
mod commitments;
mod compaction;
mod discovery;
mod distillation;
mod errors;
mod isolation;
mod memory;
mod redaction;
mod runs;
mod seams;
mod shape;
mod suite;
mod workspace;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The whole document of a host in a conformance run, member by member.
const DOCUMENT: &str = "discovery::a_conformance_run_is_told_of_agents_workflows_and_replay";
const OPEN: &str = "discovery::the_document_is_open_and_the_same_for_all";
const KEPT: &str = "discovery::who_has_it_is_not_sent_it_again";
const FILE: &str = "workspace::a_file_comes_back_as_it_was_put";
const VERSIONS: &str = "workspace::versions_are_kept_and_a_deleted_file_is_gone";
const FILE_LIMITS: &str = "workspace::limits_are_named";
const ENTRY_LIMITS: &str = "entries::what_cannot_be_kept_is_refused_by_name";

/// Each check, and the tests of this folder that make its assertions.
const COVERED: [(&str, &[&str]); 128] = [
    ("discovery/required-fields", &[DOCUMENT]),
    ("discovery/cache-control", &[OPEN]),
    ("discovery/etag-304", &[KEPT]),
    ("discovery/capabilities-etag", &[KEPT]),
    ("discovery/limits", &[DOCUMENT]),
    ("discovery/fixtures", &[DOCUMENT]),
    ("discovery/openapi", &["conformance::discovery::discovery_openapi"]),
    ("redaction/advertised-shapes", &[DOCUMENT]),
    (
        "redaction/bearer-jwt-not-echoed",
        &["conformance::redaction::redaction_bearer_jwt_not_echoed"],
    ),
    (
        "redaction/bearer-credential-not-echoed",
        &["conformance::redaction::redaction_bearer_credential_not_echoed"],
    ),
    (
        "redaction/bearer-marker-not-echoed",
        &["conformance::redaction::redaction_bearer_marker_not_echoed"],
    ),
    (
        "redaction/credential-ref-not-in-events",
        &["conformance::redaction::redaction_credential_ref_not_in_events"],
    ),
    (
        "redactionAdversarial/input-key-not-in-events",
        &["conformance::redaction::redaction_adversarial_input_key_not_in_events"],
    ),
    (
        "redactionAdversarial/embedded-key-not-in-events",
        &["conformance::redaction::redaction_adversarial_embedded_key_not_in_events"],
    ),
    (
        "redactionAdversarial/unknown-workflow-not-echoed",
        &["conformance::redaction::redaction_adversarial_unknown_workflow_not_echoed"],
    ),
    ("test-seam-unauthenticated", &["conformance::seams::test_seam_unauthenticated"]),
    ("agentMemoryRoundTrip", &["conformance::memory::agent_memory_round_trip"]),
    ("agentMemoryRedactionContract", &["conformance::memory::agent_memory_redaction_contract"]),
    ("agentMemoryTtlExpiry", &["conformance::memory::agent_memory_ttl_expiry"]),
    (
        "agentMemoryCrossTenantIsolation",
        &["conformance::memory::agent_memory_cross_tenant_isolation"],
    ),
    (
        "memory-compaction-event-emitted",
        &["conformance::compaction::memory_compaction_event_emitted"],
    ),
    (
        "memory-compaction-provenance-tag",
        &["conformance::compaction::memory_compaction_provenance_tag"],
    ),
    (
        "memory-compaction-sr1-carry-forward",
        &["conformance::compaction::memory_compaction_sr1_carry_forward"],
    ),
    ("replay-retention-expiry/shape", &[DOCUMENT]),
    (
        "cross-workspace-isolation/owner",
        &["conformance::isolation::cross_workspace_isolation_owner"],
    ),
    (
        "cross-workspace-isolation/refused",
        &["conformance::isolation::cross_workspace_isolation_refused"],
    ),
    ("memory-attribution-shape", &[DOCUMENT]),
    (
        "memory-attribution-emits-on-write",
        &["conformance::attribution::memory_attribution_emits_on_write"],
    ),
    ("memory-attribution-no-content", &["conformance::attribution::memory_attribution_no_content"]),
    (
        "memory-attribution-tenant-scoped",
        &["conformance::attribution::memory_attribution_tenant_scoped"],
    ),
    (
        "memory-attribution-replay-stable",
        &["conformance::attribution::memory_attribution_replay_stable"],
    ),
    ("workspace-capability-shape/supported", &[DOCUMENT]),
    ("workspace-capability-shape/limits", &[DOCUMENT]),
    ("workspace-behavior/crud", &["conformance::workspace::workspace_behavior_crud"]),
    ("workspace-behavior/if-match", &["conformance::workspace::workspace_if_match_rules"]),
    ("workspace-behavior/size-ceiling", &[FILE_LIMITS]),
    (
        "workspace-behavior/run-snapshot",
        &["conformance::workspace::workspace_behavior_run_snapshot"],
    ),
    (
        "workspace-cross-tenant-isolation",
        &["conformance::workspace::workspace_cross_tenant_isolation"],
    ),
    (
        "workspace-cross-tenant-isolation-blackbox",
        &["workspace::readers_read_and_tenants_are_apart"],
    ),
    ("scheduling-capability-shape/supported", &[DOCUMENT]),
    ("scheduling-capability-shape/kinds", &[DOCUMENT]),
    ("scheduling-capability-shape/horizon", &[DOCUMENT]),
    (
        "scheduling-cron-fires-once/single-tick",
        &["schedules::the_seam_fires_once_whatever_was_missed"],
    ),
    (
        "scheduling-cron-fires-once/missed-window",
        &["schedules::the_seam_fires_once_whatever_was_missed"],
    ),
    ("distillation-shape", &[DOCUMENT]),
    ("distillation-token-budget", &["conformance::distillation::distillation_token_budget"]),
    ("distillation-stable-archive", &["conformance::distillation::distillation_stable_archive"]),
    ("distillation-index-roundtrip", &["conformance::distillation::distillation_index_roundtrip"]),
    (
        "distillation-secret-carryforward",
        &["conformance::distillation::distillation_secret_carryforward"],
    ),
    (
        "memory-consolidation-idempotent",
        &["conformance::compaction::memory_consolidation_idempotent"],
    ),
    ("commitment-fired", &["conformance::commitments::commitment_fired"]),
    ("agent-manifest-runtime", &["conformance::agents::agent_manifest_runtime"]),
    ("memory-degraded-projection", &["conformance::agents::memory_degraded_projection"]),
    (
        "agent-capability-degraded-projection",
        &["conformance::agents::agent_capability_degraded_projection"],
    ),
    ("memory-injection-budget/bounded", &["conformance::memory::memory_injection_budget_bounded"]),
    (
        "memory-injection-budget/relevance",
        &["conformance::memory::memory_injection_budget_relevance"],
    ),
    ("discovery-closed-shapes", &["conformance::discovery::discovery_closed_shapes"]),
    ("discovery-mirror-agrees", &["conformance::discovery::discovery_mirror_agrees"]),
    ("discovery-same-with-key", &[OPEN]),
    ("discovery-memory-profile", &["conformance::discovery::discovery_memory_profile"]),
    ("errors-401-without-key", &["conformance::errors::errors_401_without_key"]),
    ("errors-401-bad-key-not-echoed", &["conformance::errors::errors_401_bad_key_not_echoed"]),
    ("errors-401-malformed-header", &["conformance::errors::errors_401_malformed_header"]),
    ("errors-403-reader-cannot-write", &["conformance::errors::errors_403_reader_cannot_write"]),
    ("errors-400-malformed-body", &["conformance::errors::errors_400_malformed_body"]),
    ("errors-400-wrong-types", &["conformance::errors::errors_400_wrong_types"]),
    ("errors-404-flat", &["conformance::errors::errors_404_flat"]),
    ("errors-405-flat", &["conformance::errors::errors_405_flat"]),
    ("errors-413-file-too-large", &[FILE_LIMITS]),
    ("errors-413-request-too-large", &["conformance::errors::errors_413_request_too_large"]),
    ("errors-415-flat", &["conformance::errors::errors_415_flat"]),
    ("errors-422-flat", &["conformance::distillation::errors_422_flat"]),
    ("runs-unknown-id-404", &["conformance::runs::runs_unknown_id_404"]),
    ("runs-answer-shape", &["conformance::runs::runs_answer_shape"]),
    ("runs-events-shape", &["conformance::runs::runs_events_shape"]),
    ("runs-events-as-sse", &["conformance::runs::runs_events_as_sse"]),
    ("runs-fork-rules", &["conformance::runs::runs_fork_rules"]),
    ("runs-idempotency", &["conformance::runs::runs_idempotency"]),
    ("turns-idempotency", &["idempotency::the_same_request_gets_the_same_answer"]),
    (
        "runs-hide-part-of-a-key",
        &["conformance::redaction::redaction_adversarial_embedded_key_not_in_events"],
    ),
    ("runs-not-visible-to-other-tenant", &["conformance::runs::runs_not_visible_to_other_tenant"]),
    (
        "cross-tenant-fixture-completes",
        &["conformance::memory::agent_memory_cross_tenant_isolation"],
    ),
    ("attribution-not-vacuous", &["conformance::attribution::attribution_not_vacuous"]),
    ("entries-round-trip", &["conformance::memory::entries_round_trip"]),
    (
        "entries-list-options",
        &[
            "entries::lists_have_options_and_refuse_others",
            "conformance::memory::entries_round_trip",
        ],
    ),
    ("entries-token-budget", &["conformance::memory::entries_token_budget"]),
    ("entries-past-expiry-refused", &[ENTRY_LIMITS]),
    ("entries-oversize-refused", &[ENTRY_LIMITS]),
    ("entries-ttl", &["conformance::memory::entries_ttl"]),
    ("entries-redacted", &["conformance::redaction::entries_redacted"]),
    ("malformed-refs-give-nothing", &["conformance::memory::malformed_refs_give_nothing"]),
    ("forget-stays-in-the-tenant", &["conformance::memory::forget_stays_in_the_tenant"]),
    ("tenants-get-and-list", &["conformance::isolation::tenants_get_and_list"]),
    ("tenants-search", &["conformance::isolation::tenants_search"]),
    ("tenants-context", &["conformance::isolation::tenants_context"]),
    ("tenants-sessions", &["conformance::isolation::tenants_sessions"]),
    ("tenants-events", &["conformance::isolation::tenants_events"]),
    ("tenants-archives", &["conformance::distillation::tenants_archives"]),
    ("distillation-reads-entries", &["conformance::distillation::distillation_reads_entries"]),
    (
        "distillation-checksum-follows-entries",
        &["conformance::distillation::distillation_checksum_follows_entries"],
    ),
    (
        "distillation-archive-retrievable",
        &["conformance::distillation::distillation_archive_retrievable"],
    ),
    (
        "distillation-index-retrievable",
        &["conformance::distillation::distillation_index_retrievable"],
    ),
    (
        "distillation-events-observable",
        &["conformance::distillation::distillation_events_observable"],
    ),
    (
        "distillation-failure-is-atomic",
        &["conformance::distillation::distillation_failure_is_atomic"],
    ),
    (
        "distillation-budget-is-capped",
        &["conformance::distillation::distillation_budget_is_capped"],
    ),
    (
        "distillation-redacts-its-sources",
        &["conformance::distillation::distillation_redacts_its_sources"],
    ),
    ("dreams-own-route", &["conformance::distillation::dreams_own_route"]),
    ("compaction-names-its-sources", &["conformance::compaction::compaction_names_its_sources"]),
    ("compaction-output-is-tagged", &["conformance::compaction::memory_compaction_provenance_tag"]),
    (
        "compaction-of-one-entry-is-204",
        &["conformance::compaction::compaction_of_one_entry_is_204"],
    ),
    ("compaction-observable", &["conformance::compaction::compaction_observable"]),
    (
        "consolidation-merges-duplicates",
        &["conformance::compaction::consolidation_merges_duplicates"],
    ),
    ("commitment-event-shape", &["conformance::commitments::commitment_event_shape"]),
    ("agents-inventory-shape", &["conformance::agents::agents_inventory_shape"]),
    ("workspace-file-shape", &["conformance::workspace::workspace_file_shape", FILE]),
    ("workspace-path-traversal-refused", &["workspace::paths_do_not_lead_out"]),
    ("workspace-if-match-rules", &["conformance::workspace::workspace_if_match_rules"]),
    ("workspace-versions", &[VERSIONS]),
    (
        "workspace-run-snapshot-is-fixed",
        &["conformance::workspace::workspace_run_snapshot_is_fixed"],
    ),
    ("workspace-redacted", &["conformance::redaction::workspace_redacted"]),
    ("workspace-events-observable", &[VERSIONS]),
    (
        "schedule-beyond-horizon",
        &[
            "schedules::a_bad_schedule_is_refused_with_its_place",
            "icecore-host/schedules::what_cannot_be_a_schedule_is_refused",
        ],
    ),
    ("schedule-delay-beyond-horizon", &["schedules::a_bad_schedule_is_refused_with_its_place"]),
    ("schedule-kept-and-removed", &["schedules::a_schedule_is_made_read_paused_and_removed"]),
    ("restart-keeps-everything", &["schedules::a_schedule_survives_a_restart"]),
    ("seams-need-a-key", &["conformance::seams::seams_need_a_key"]),
    ("seams-absent-without-conformance", &["conformance::seams::seams_absent_without_conformance"]),
    (
        "registered-secret-redacted",
        &[
            "conformance::redaction::registered_secret_redacted",
            "icecore-cli/secrets::a_running_host_hides_what_was_just_registered",
        ],
    ),
];

/// The folder of the whole workspace.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn page(name: &str) -> String {
    let path = root().join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|_| panic!("there is no {name}"))
}

/// What a page sets in code.
fn spans(page: &str) -> BTreeSet<&str> {
    let lines = page.lines().filter(|line| !line.starts_with("```"));
    lines.flat_map(|line| line.split('`').skip(1).step_by(2)).collect()
}

/// Whether something set in code names a test: `module::name`, in `crate/` where the
/// crate is another.
fn names_a_test(span: &str) -> bool {
    let may_stand = |char: char| char.is_ascii_lowercase() || char.is_ascii_digit();
    span.contains("::") && span.chars().all(|char| may_stand(char) || "_:/-".contains(char))
}

/// Whether there is such a test.
fn is_there(test: &str) -> bool {
    let (crate_name, test) = test.split_once('/').unwrap_or(("icecore-server", test));
    let Some((modules, name)) = test.rsplit_once("::") else { return false };
    let file = format!("crates/{crate_name}/tests/it/{}.rs", modules.replace("::", "/"));
    let Ok(text) = std::fs::read_to_string(root().join(file)) else { return false };
    let mut before = "";
    text.lines().any(|line| {
        let is_it = line.contains(&format!("fn {name}()")) && before.contains("test");
        before = line;
        is_it
    })
}

#[test]
fn every_check_has_its_tests() {
    let names: BTreeSet<&str> = COVERED.iter().map(|(check, _)| *check).collect();
    assert_eq!(names.len(), COVERED.len());
    for (check, tests) in COVERED {
        assert!(!tests.is_empty(), "{check}");
        for test in tests {
            assert!(is_there(test), "{check}: there is no test {test}");
        }
    }
    assert!(!is_there("conformance::memory::agent_memory") && !is_there("suite::begin"));
}

/// Each check is a row of the page, with its tests, and each row is a check.
#[test]
fn the_page_has_every_check_and_no_other() {
    let page = page("docs/conformance.md");
    let (_, rest) = page.split_once("\n## Checks\n").unwrap();
    let table = rest.split("\n## ").next().unwrap();
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `"));
    let told: Vec<&str> = rows.filter_map(|row| row.split('`').next()).collect();
    let checks: Vec<&str> = COVERED.iter().map(|(check, _)| *check).collect();
    assert_eq!(told, checks);
    for (check, tests) in COVERED {
        let tests: Vec<String> = tests.iter().map(|test| format!("`{test}`")).collect();
        let row = format!("| `{check}` | {} |", tests.join(", "));
        assert!(table.lines().any(|line| line == row), "the row of {check} is not\n{row}");
    }
}

/// What the pages point to is there.
#[test]
fn the_pages_name_tests_and_files_that_exist() {
    for name in ["docs/conformance.md", "SECURITY.md"] {
        let page = page(name);
        let spans = spans(&page);
        let tests: Vec<&&str> = spans.iter().filter(|span| names_a_test(span)).collect();
        assert!(tests.len() > 8, "{name}: {tests:?}");
        for test in tests {
            assert!(is_there(test), "{name} names {test}");
        }
        for file in spans.iter().filter(|span| span.starts_with("crates/")) {
            assert!(root().join(file).exists(), "{name} names {file}");
        }
    }
}

/// Each block that the host advertises has a row that says what keeps it.
#[tokio::test(flavor = "multi_thread")]
async fn the_page_tells_of_all_that_is_advertised() {
    let suite = suite::Suite::begin().await;
    let document = suite.document().await;
    let page = page("docs/conformance.md");
    let spans = spans(&page);
    let mut seen = 0;
    for (family, block) in document["capabilities"].as_object().unwrap() {
        for member in block.as_object().unwrap().keys() {
            let name = format!("{family}.{member}");
            assert!(spans.contains(name.as_str()), "no word of {name}");
            seen += 1;
        }
    }
    assert!(seen > 20, "{seen}");
    for fixture in document["fixtures"].as_array().unwrap() {
        assert!(spans.contains(fixture.as_str().unwrap()), "no word of {fixture}");
    }
    suite.end().await;
}
