//! Counts what is read.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use icecore_domain::identity::Link;
use icecore_domain::ids::{Position, Scope, Tenant};
use icecore_domain::redact::RedactedText;

use crate::hooks::{Call, Hook};
use crate::*;

/// Calls of one operation, and rows answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReadCount {
    /// How often it was called.
    pub calls: u64,
    /// Rows in its answers: elements of a list, 1 for anything else that was there.
    pub rows: u64,
}

/// Counts reads, and the rows that they answered, by operation.
#[derive(Default)]
pub struct Counting(Mutex<BTreeMap<&'static str, ReadCount>>);

impl Counting {
    /// Counts from nothing.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Reads since the beginning or the last call of this, by operation.
    pub fn take_reads(&self) -> BTreeMap<&'static str, ReadCount> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Hook for Counting {
    fn answered(&self, call: Call<'_>, _: &dyn Any, answer: &mut dyn Any) {
        if !call.writes {
            let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let count = counts.entry(call.op).or_default();
            count.calls += 1;
            count.rows += rows(answer) as u64;
        }
    }
}

/// How many rows an answer has.
fn rows(answer: &dyn Any) -> usize {
    macro_rules! lists {
        ($($row:ty),*) => {$(
            if let Some(list) = answer.downcast_ref::<Vec<$row>>() {
                return list.len();
            }
            if let Some(row) = answer.downcast_ref::<Option<$row>>() {
                return usize::from(row.is_some());
            }
        )*};
    }
    lists!(
        TurnRow,
        SessionRecord,
        ChunkRecord,
        MicroBody,
        EntryRecord,
        EntryPlace,
        FactRecord,
        VerdictRecord,
        EventRecord,
        LinkedTurn,
        TurnPlace,
        HandoffRecord,
        DreamRecord,
        ArchiveRecord,
        BranchRecord,
        Position,
        (u64, ChunkRecord),
        (Link, RedactedText),
        RedactedText,
        ViewUsage,
        Undreamt,
        Selected,
        PackRecord,
        FileRecord,
        FileHead,
        CommitmentRecord,
        ScheduleRecord,
        TickRecord,
        RunRecord,
        RunEventRecord,
        Scope,
        Tenant,
        SecretRecord,
        Spending,
        DueBranch,
        StoredOutcome,
        ApiKeyRecord,
        String
    );
    if let Some((turns, bodies)) = answer.downcast_ref::<(Vec<TurnRow>, Vec<MicroBody>)>() {
        return turns.len() + bodies.len();
    }
    if let Some(watch) = answer.downcast_ref::<Watch>() {
        return watch.waiting.len();
    }
    if let Some(secrets) = answer.downcast_ref::<TenantSecrets>() {
        return secrets.secrets.len();
    }
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn reads_and_rows_are_counted_by_operation() {
        let counting = Counting::new();
        let store = Store::in_memory([1; 32]).hooked(counting.clone());
        for name in ["a", "b", "c"] {
            store.put_note(name, "x").await.unwrap();
        }
        for name in ["a", "nowhere"] {
            store.note(name).await.unwrap();
        }
        store.tenants().await.unwrap();
        let reads: Vec<_> = counting.take_reads().into_iter().collect();
        let count = |calls, rows| ReadCount { calls, rows };
        assert_eq!(reads, [("note", count(2, 1)), ("tenants", count(1, 0))]);
        assert!(counting.take_reads().is_empty());
    }
}
