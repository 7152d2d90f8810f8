//! Restoring a backup: the whole file is verified, then objects are put, then all rows are
//! written in one transaction, so all of it is restored or nothing is. A restore that fails may
//! leave objects that nothing names, which is harmless.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use icecore_domain::ids::Scope;
use icecore_domain::time::Millis;

use super::file::{End, Header, Mark, Piece, Reader, bad};
use super::page::{OneMemory, Whose, insert};
use super::row::Values;
use super::{BackupReport, Doing, Objects, Progress, Tell, backup, object_of};
use crate::engine::tx::{Isolation, Tx};
use crate::engine::{Kind, Owned, column, notes, params, tuple};
use crate::error::{Result, StoreError};
use crate::keys::{MasterKey, TenantKey};
use crate::log::LogKind;
use crate::packs::off_thread;
use crate::store::Store;
use crate::tables::Table;
use crate::{log, scopes, usage};

/// A backup that was verified.
#[derive(Clone)]
pub struct Backup {
    path: PathBuf,
    header: Header,
    end: End,
    /// The key that its tenants' keys are sealed with.
    master: MasterKey,
    /// Where its rows end and its objects begin.
    rows_end: Mark,
    bytes: u64,
}

impl Backup {
    /// Reads the file at `path` to its end. It must be a whole backup, sealed with one of
    /// `keys`.
    pub async fn open(path: &Path, keys: Vec<MasterKey>, tell: &Tell) -> Result<Self> {
        let (path, tell) = (path.to_owned(), tell.clone());
        off_thread(move || verify(path, &keys, &tell)).await
    }

    pub fn report(&self) -> BackupReport {
        backup::report(self.header.clone(), self.end.clone(), self.bytes)
    }

    fn bad(&self, reason: &str) -> StoreError {
        bad(&self.path, reason)
    }
}

fn verify(path: PathBuf, keys: &[MasterKey], tell: &Tell) -> Result<Backup> {
    let (mut reader, header) = Reader::open(&path)?;
    let check = hex::decode(&header.key_check).unwrap_or_default();
    let master = keys.iter().find(|key| key.matches(&check)).cloned();
    let master = master.ok_or_else(|| StoreError::WrongBackupKey { path: path.clone() })?;
    let length = path.metadata().map_or(0, |metadata| metadata.len());
    let mut progress = Progress::of(tell, Doing::Verifying, length);
    let mut counted = End::default();
    let mut named = BTreeSet::new();
    let mut rows_end = None;
    let (end, rows_end) = loop {
        let before = reader.mark();
        match reader.next()? {
            Piece::Rows(table, rows) if rows_end.is_none() => {
                *counted.rows.entry(table.name.to_owned()).or_default() += rows.len() as u64;
                named.extend(rows.iter().filter_map(|row| object_of(&table, row)));
            }
            Piece::Rows(..) => return Err(bad(&path, "its blocks are out of order")),
            Piece::Object(object, _) => {
                rows_end.get_or_insert(before);
                if !named.remove(&object) {
                    return Err(bad(&path, "it has an object that no row names"));
                }
                counted.objects += 1;
                counted.object_bytes += object.bytes;
            }
            Piece::End(end) => break (end, rows_end.unwrap_or(before)),
        }
        progress.add(reader.mark().0 - progress.moved.done)?;
    };
    if !named.is_empty() {
        return Err(bad(&path, "an object is missing that a row names"));
    }
    counted.sha256.clone_from(&end.sha256);
    if counted != end {
        return Err(bad(&path, "its counts are wrong"));
    }
    let bytes = reader.finish(&master)?;
    Ok(Backup { path, header, end, master, rows_end, bytes })
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restored {
    pub backup: BackupReport,
    pub scopes: Vec<Scope>,
}

/// Writes a backup into a store that has nothing of it. Once this resolves all of it is there;
/// if it fails, nothing is.
pub async fn restore(
    store: &Store,
    objects: &Objects,
    backup: &Backup,
    now: Millis,
    tell: &Tell,
) -> Result<Restored> {
    let looked = backup.clone();
    // Refuses what is in the way before anything is written.
    let look = move |tx: &Tx<'_>| {
        let restoring = Restoring::new(tx, &looked);
        looked.header.tenants.iter().try_for_each(|t| restoring.find(&t.name).map(drop))
    };
    store.read(Isolation::Global, "transfer", look).await?;
    put_objects(objects, backup, tell).await?;
    let (applied, telling) = (backup.clone(), tell.clone());
    let apply = move |tx: &Tx<'_>| Restoring::new(tx, &applied).apply(now, &telling);
    let scopes = store.write(Isolation::Global, "transfer", apply).await?;
    // A host that sweeps may have deleted them while no row named them.
    let quiet: Tell = Arc::new(|_| true);
    put_objects(objects, backup, &quiet).await?;
    Ok(Restored { backup: backup.report(), scopes })
}

async fn put_objects(objects: &Objects, backup: &Backup, tell: &Tell) -> Result<()> {
    let mut progress = Progress::of(tell, Doing::Objects, backup.end.objects);
    let mut reader = Reader::open_at(&backup.path, backup.rows_end.0)?;
    for _ in 0..backup.end.objects {
        let piece;
        (piece, reader) = off_thread(move || Ok((reader.next()?, reader))).await?;
        let Piece::Object(object, bytes) = piece else {
            return Err(backup.bad("it has changed"));
        };
        objects.put(&object, Bytes::from(bytes)).await?;
        progress.add(1)?;
    }
    Ok(())
}

/// A backup on its way into the tables.
struct Restoring<'a> {
    tx: &'a Tx<'a>,
    backup: &'a Backup,
    /// The number that each tenant has here, by its number in the file.
    tenants: BTreeMap<i64, i64>,
    policies: BTreeMap<i64, i64>,
}

/// What the store has of a tenant.
enum Found {
    Nothing,
    /// It has a number and nothing else.
    Empty(i64),
    /// It has other memories than the one that is restored.
    Beside(i64, TenantKey),
}

impl<'a> Restoring<'a> {
    fn new(tx: &'a Tx<'a>, backup: &'a Backup) -> Self {
        Self { tx, backup, tenants: BTreeMap::new(), policies: BTreeMap::new() }
    }

    /// Writes all rows, and to the log that they were restored.
    fn apply(mut self, now: Millis, tell: &Tell) -> Result<Vec<Scope>> {
        let Self { tx, backup, .. } = self;
        let changed = || backup.bad("it has changed");
        let (mut reader, header) = Reader::open(&backup.path)?;
        if header != backup.header {
            return Err(changed());
        }
        let mut progress = Progress::of(tell, Doing::Rows, backup.end.rows.values().sum());
        while reader.mark().0 < backup.rows_end.0 {
            let Piece::Rows(table, rows) = reader.next()? else { return Err(changed()) };
            let count = rows.len() as u64;
            self.rows(&table, rows)?;
            progress.add(count)?;
        }
        if reader.mark() != backup.rows_end {
            return Err(changed());
        }
        let was_derived_otherwise = derived(&backup::notes(tx)?) != derived(&header.notes);
        let mut scopes = Vec::new();
        for tenant in &header.tenants {
            let missing = || backup.bad("a tenant is missing");
            let number = *self.tenants.get(&tenant.number).ok_or_else(missing)?;
            if was_derived_otherwise {
                tx.run("UPDATE branches SET unsettled = 1 WHERE tenant = ?1", [number])?;
            }
            scopes.extend(self.finish_tenant(number, &tenant.name, tenant.position, now)?);
        }
        Ok(scopes)
    }

    fn rows(&mut self, table: &Table, mut rows: Vec<Values>) -> Result<()> {
        match table.name {
            "policies" => return rows.iter().try_for_each(|row| self.policy(table, row)),
            "tenants" => return rows.into_iter().try_for_each(|row| self.tenant(table, row)),
            _ => {}
        }
        for (column, numbers) in [("tenant", &self.tenants), ("policy", &self.policies)] {
            let is_number = |at: &usize| table.columns[*at].kind == Kind::Integer;
            let Some(at) = table.at(column).filter(is_number) else { continue };
            for row in &mut rows {
                let number = numbers.get(&integer(table, row, column)).copied();
                row[at] = number.ok_or_else(|| self.backup.bad("a row belongs to nobody"))?.into();
            }
        }
        match insert(self.tx, table, &rows)? {
            inserted if inserted == rows.len() => Ok(()),
            _ => Err(StoreError::Collides { table: table.name }),
        }
    }

    /// Finds the policy of the same sizes, or adds one.
    fn policy(&mut self, table: &Table, row: &Values) -> Result<()> {
        let sizes = ["micro", "mini", "macro", "max_tokens"].map(|size| integer(table, row, size));
        let find = "SELECT policy FROM policies
                    WHERE micro = ?1 AND mini = ?2 AND macro = ?3 AND max_tokens = ?4";
        let add = "INSERT INTO policies (policy, micro, mini, macro, max_tokens)
                   SELECT coalesce(max(policy), 0) + 1, ?1, ?2, ?3, ?4 FROM policies
                   RETURNING policy";
        let number = match self.tx.first(find, sizes, column)? {
            Some(known) => known,
            None => self.tx.one(add, sizes, column)?,
        };
        self.policies.insert(integer(table, row, "policy"), number);
        Ok(())
    }

    /// Inserts a tenant under its number in the file if that is free, or else under a new one.
    /// A tenant that is there already keeps its row.
    fn tenant(&mut self, table: &Table, mut row: Values) -> Result<()> {
        let Self { tx, backup, .. } = *self;
        let (name, sealed) = match (table.value(&row, "name"), table.value(&row, "sealed_key")) {
            (Some(Owned::Text(name)), Some(Owned::Blob(sealed))) => (name.clone(), sealed.clone()),
            _ => return Err(backup.bad("a tenant has no name or no key")),
        };
        let in_file = integer(table, &row, "tenant");
        let listed = backup.header.tenants.iter();
        let listed = listed.clone().find(|known| known.number == in_file && known.name == name);
        let listed = listed.ok_or_else(|| backup.bad("it has a tenant that it hides"))?;
        let key = backup.master.open(&sealed);
        let key = key.ok_or_else(|| backup.bad("the key of a tenant does not open"))?;
        tx.hold_master_key()?;
        if !tx.keys().master(tx).is_ok_and(|master| master.same_as(&backup.master)) {
            table.set(&mut row, "sealed_key", tx.keys().seal(tx, &key)?.into());
        }
        let number = match self.find(&name)? {
            Found::Beside(number, known) => {
                if !known.same_as(&key) {
                    return Err(StoreError::OtherTenantKey { tenant: name });
                }
                self.make_way(number, integer(table, &row, "sessions"), listed.position)?;
                self.tenants.insert(in_file, number);
                return Ok(());
            }
            Found::Empty(number) => {
                tx.run("DELETE FROM scopes WHERE tenant = ?1", [number])?;
                tx.run("DELETE FROM tenants WHERE tenant = ?1", [number])?;
                number
            }
            Found::Nothing if tx.finds("SELECT 1 FROM tenants WHERE tenant = ?1", [in_file])? => {
                tx.new_tenant_number()?
            }
            Found::Nothing => in_file,
        };
        table.set(&mut row, "tenant", number.into());
        insert(tx, table, &[row])?;
        self.tenants.insert(in_file, number);
        Ok(())
    }

    /// What the store has of a tenant; an error if that is in the way.
    fn find(&self, name: &str) -> Result<Found> {
        let tx = self.tx;
        let found: Option<(i64, Vec<u8>)> =
            tx.first("SELECT tenant, sealed_key FROM tenants WHERE name = ?1", [name], tuple)?;
        // API keys may be there before their tenant is; no tenant has the number 0.
        let number = found.as_ref().map_or(0, |(number, _)| *number);
        let mut whose = Whose::tenant(number, name.to_owned());
        let is_empty = !whose.has_content(tx)?;
        let not_empty = |what| Err(StoreError::NotEmpty { what });
        match (found, &self.backup.header.memory) {
            (None, _) if is_empty => Ok(Found::Nothing),
            (Some(_), _) if is_empty => Ok(Found::Empty(number)),
            (Some((_, sealed)), Some(memory)) => {
                let find = "SELECT scope FROM scopes WHERE tenant = ?1 AND memory = ?2";
                if let Some(scope) = tx.first(find, params![number, memory], column)? {
                    whose.memory = Some(OneMemory { scope, sessions: Vec::new() });
                    if whose.has_content(tx)? {
                        return not_empty(format!("memory `{memory}` of tenant `{name}`"));
                    }
                }
                let key = tx.keys().master(tx)?.open(&sealed);
                let damaged = || tx.damaged("the sealed key of a tenant does not open");
                Ok(Found::Beside(number, key.ok_or_else(damaged)?))
            }
            _ => not_empty(format!("tenant `{name}`")),
        }
    }

    /// Deletes the empty memory whose place is needed, and raises the counters of its tenant to
    /// those of the backup. What is restored may contain what has been registered as a secret
    /// since; with another version of the secrets, hosts hide it from readers until a rescan.
    fn make_way(&self, tenant: i64, sessions: i64, position: i64) -> Result<()> {
        let delete = "DELETE FROM scopes WHERE tenant = ?1 AND memory = ?2";
        if let Some(memory) = &self.backup.header.memory {
            self.tx.run(delete, params![tenant, memory])?;
        }
        let raise = "UPDATE tenants SET
                       position = CASE WHEN position < ?2 THEN ?2 ELSE position END,
                       sessions = CASE WHEN sessions < ?3 THEN ?3 ELSE sessions END,
                       secrets_version = secrets_version + 1
                     WHERE tenant = ?1";
        self.tx.run(raise, [tenant, position, sessions])?;
        Ok(())
    }

    /// Mends what is the tenant's own, and records the restore. Returns the memories that came.
    fn finish_tenant(
        &self,
        tenant: i64,
        name: &str,
        position: i64,
        now: Millis,
    ) -> Result<Vec<Scope>> {
        let Self { tx, backup, .. } = self;
        let memory = backup.header.memory.as_deref();
        refuse_overlap(tx, tenant, name)?;
        let listed = "SELECT scope, memory FROM scopes WHERE tenant = ?1 ORDER BY memory";
        let mut found: Vec<(i64, String)> = tx.all(listed, [tenant], tuple)?;
        found.retain(|(_, found)| memory.is_none_or(|memory| memory == found));
        let one = memory.and(found.first()).map(|(scope, _)| *scope);
        if one.is_some() {
            // The index file is the tenant's, and does not come with one memory.
            let lost = "UPDATE tenants SET index_lost = 1 WHERE tenant = ?1 AND EXISTS
                        (SELECT 1 FROM dreams d WHERE d.tenant = ?1 AND d.state = 'in-force')";
            tx.run(lost, [tenant])?;
        }
        // With what version of its secrets all of the tenant was rescanned, if that is known.
        let note = backup::note_of_tenant(name);
        match backup.header.notes.get(&note) {
            Some(value) => notes::put_note(tx, &note, value)?,
            None => drop(tx.run("DELETE FROM notes WHERE name = ?1", [note.as_str()])?),
        }
        count_kept(tx, tenant)?;
        let payload = serde_json::json!({
            "memoryRef": backup.header.memory,
            "position": position,
            "takenAt": Millis(backup.header.created_at).to_string(),
        });
        let kind = LogKind::Restored.as_str();
        log::record(tx, tenant, one, kind, &payload.to_string(), now)?;
        found.into_iter().map(|(scope, _)| scopes::scope_of(tx, tenant, scope)).collect()
    }
}

/// The notes that say how a store was derived.
fn derived(notes: &BTreeMap<String, String>) -> Vec<(&String, &String)> {
    notes.iter().filter(|(name, _)| backup::is_of_derived(name)).collect()
}

/// The number in a column, or 0 if the row has none.
fn integer(table: &Table, row: &[Owned], column: &str) -> i64 {
    match table.value(row, column) {
        Some(Owned::Integer(number)) => *number,
        _ => 0,
    }
}

/// Counts what a tenant keeps: the backup of one memory, or of an older version, does not say.
pub(super) fn count_kept(tx: &Tx<'_>, tenant: i64) -> Result<()> {
    let (turns, bytes) = (usage::KEPT_TURNS, usage::KEPT_BYTES);
    let sql = format!(
        "UPDATE tenants AS n SET kept_turns = {turns}, kept_bytes = {bytes} WHERE n.tenant = ?1"
    );
    tx.run(&sql, [tenant])?;
    Ok(())
}

/// Fails if two events of a tenant have one position.
fn refuse_overlap(tx: &Tx<'_>, tenant: i64, name: &str) -> Result<()> {
    let overlaps = "SELECT 1 FROM
          (SELECT first, lag(first + count) OVER (ORDER BY first) AS ended FROM
             (SELECT first, count FROM runs WHERE tenant = ?1
              UNION ALL SELECT position, 1 FROM log WHERE tenant = ?1) AS happened) AS ordered
        WHERE ended > first LIMIT 1";
    if tx.finds(overlaps, [tenant])? {
        return Err(StoreError::PositionsTaken { tenant: name.to_owned() });
    }
    Ok(())
}
