//! What must hold for tables that a distributed PostgreSQL spreads over nodes by tenant: every
//! unique and foreign key holds the tenant, and every statement of a tenant's transaction reads
//! each table by it. `docs/scale.md` says what follows.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use serde_json::Value as Json;
use tokio_postgres::types::Type;

use super::*;
use crate::engine::postgres::walls::Role;

/// Tables that are not spread: few rows, or one for each tenant.
const GLOBAL: [&str; 7] =
    ["api_keys", "commits", "leases", "migrations", "notes", "policies", "tenants"];

/// Statements by the database and the role that they were run as.
static RECORDED: Mutex<BTreeSet<(String, &str, String, String)>> = Mutex::new(BTreeSet::new());

pub(in super::super) fn record(server: &str, role: Role, sql: &str, types: &[Type]) {
    let types: Vec<&str> = types.iter().map(Type::name).collect();
    let recorded = (server.to_owned(), role.name(), sql.to_owned(), types.join(", "));
    RECORDED.lock().unwrap_or_else(PoisonError::into_inner).insert(recorded);
}

#[test]
fn keys_hold_the_tenant() {
    let Some((_store, database)) = fresh_store() else { return };
    let without_tenant = database.rows(
        "SELECT i.indrelid::regclass::text FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid
         WHERE c.relnamespace = 'icecore'::regnamespace AND i.indisunique AND NOT EXISTS (
             SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'tenant'
                 AND a.atttypid = 'bigint'::regtype AND a.attnum = ANY (i.indkey::int2[]))
         UNION ALL
         SELECT f.conrelid::regclass::text FROM pg_constraint f
         WHERE f.connamespace = 'icecore'::regnamespace AND f.contype = 'f' AND NOT EXISTS (
             SELECT FROM unnest(f.conkey, f.confkey) AS k (own, other)
             JOIN pg_attribute a ON a.attrelid = f.conrelid AND a.attnum = k.own
             JOIN pg_attribute b ON b.attrelid = f.confrelid AND b.attnum = k.other
             WHERE a.attname = 'tenant' AND b.attname = 'tenant')",
    );
    let tables: BTreeSet<String> =
        without_tenant.into_iter().map(|mut row| row.remove(0).unwrap()).collect();
    let global: BTreeSet<String> = GLOBAL.map(|table| format!("icecore.{table}")).into();
    assert_eq!(tables, global);
}

/// Statements that read a table without naming its tenant, by how they begin. None of them joins
/// rows of two tenants.
const NOT_BY_TENANT: [&str; 7] = [
    // Of one tenant, which they find by its name in `tenants`.
    "SELECT t.tenant, s.scope FROM tenants t JOIN scopes s",
    "SELECT p.epoch, p.summaries, p.facts, (SELECT r.first",
    "SELECT t.name, s.memory, t.sealed_key, p.sealed_key",
    "SELECT count(*) FROM branches b JOIN sessions o",
    "SELECT t.name, (SELECT memory FROM scopes s",
    // Sweeps that look twice over one table.
    "SELECT tenant, scope FROM entries WHERE expires_at <= $1 UNION",
    "UPDATE ticks SET holder = $1, heartbeat = $2, attempts",
];

/// Asks the planner about every statement that was run in a database. Its owner is a superuser
/// here, so that row-level security adds no condition.
pub(super) fn check_statements(database: &TestDatabase) {
    let of_database = format!("/{}", database.name());
    let mut recorded = RECORDED.lock().unwrap_or_else(PoisonError::into_inner).clone();
    recorded.retain(|(server, ..)| server.ends_with(&of_database));
    let (mut found, mut listed) = (Vec::new(), BTreeSet::new());
    for (_, role, sql, types) in recorded.iter().filter(|(_, _, sql, _)| is_about_tables(sql)) {
        let words: Vec<&str> = sql.split_whitespace().collect();
        let words = words.join(" ");
        if let Some(at) = NOT_BY_TENANT.iter().position(|begins| words.starts_with(begins)) {
            listed.insert(at);
            continue;
        }
        let mut unbound = Vec::new();
        find_unbound(&plan(database, sql, types), false, &mut unbound);
        // A sweep goes over one table, and reads others by the tenant that it found.
        let allowed = usize::from(*role == Role::Sweeper.name());
        if unbound.len() > allowed {
            found.push(format!("{role} reads {unbound:?} without a tenant: {words}"));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
    assert_eq!(listed.len(), NOT_BY_TENANT.len(), "some are never run: {listed:?}");
}

fn is_about_tables(sql: &str) -> bool {
    const BEGIN: [&str; 5] = ["SELECT", "INSERT", "UPDATE", "DELETE", "WITH"];
    BEGIN.iter().any(|word| sql.trim_start().starts_with(word)) && !sql.contains("pg_")
}

fn plan(database: &TestDatabase, sql: &str, types: &str) -> Json {
    let count = types.split(", ").filter(|name| !name.is_empty()).count();
    let in_parentheses = |listed: &str| match count {
        0 => String::new(),
        _ => format!("({listed})"),
    };
    let rows = database.rows(&format!(
        "SET search_path = icecore; SET plan_cache_mode = force_generic_plan;
         SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off;
         PREPARE asked {} AS {sql}; EXPLAIN (FORMAT JSON) EXECUTE asked {}",
        in_parentheses(types),
        in_parentheses(&vec!["NULL"; count].join(", ")),
    ));
    let lines: Vec<String> = rows.into_iter().flatten().flatten().collect();
    let mut plans: Json = serde_json::from_str(&lines.join("\n")).unwrap();
    plans[0]["Plan"].take()
}

/// The tables that a plan reads without a condition on their tenant. The inner side of a join is
/// bound by the join's condition, too.
fn find_unbound(node: &Json, is_bound: bool, found: &mut Vec<String>) {
    let says_tenant =
        |name: &str| node[name].as_str().is_some_and(|said| said.contains("tenant = "));
    let own = ["Index Cond", "Recheck Cond", "Filter"].into_iter().any(says_tenant);
    if let Some(table) = node["Relation Name"].as_str()
        && node["Node Type"] != "ModifyTable"
        && !GLOBAL.contains(&table)
        && !(own || is_bound)
    {
        found.push(table.to_owned());
    }
    for child in node["Plans"].as_array().into_iter().flatten() {
        let is_inner = child["Parent Relationship"] == "Inner";
        find_unbound(child, is_inner && says_tenant("Join Filter"), found);
    }
}
