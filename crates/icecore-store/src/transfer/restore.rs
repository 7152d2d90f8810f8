//! Restoring a backup: the file is verified whole, then objects are put, then all rows
//! are written in one transaction. So it is all there or nothing is; objects of a restore
//! that was cut off are left over, and are harmless.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufReader, ErrorKind, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use icecore_domain::ids::Scope;
use icecore_domain::time::Millis;
use sha2::{Digest, Sha256};

use super::file::{End, Flaw, Header, Looked, Object, Piece, Reader, bad};
use super::insert::Inserter;
use super::page::{OneMemory, Whose};
use super::row::Values;
use super::{
    BackupReport, Doing, Moved, Objects, Tell, backup, flawed, object_of, off_thread, told,
};
use crate::engine::tx::{Isolation, Tx};
use crate::engine::{OptionalExtension, Owned, notes, params};
use crate::error::{Result, StoreError};
use crate::keys::{MasterKey, TenantKey};
use crate::log::LogKind;
use crate::store::Store;
use crate::tables::{Owner, TABLES, Table, Within};
use crate::{log, scopes, usage};

/// A backup that was read through and is whole.
#[derive(Clone)]
pub struct Backup {
    path: PathBuf,
    header: Header,
    end: End,
    /// The key that its tenants' keys are sealed with.
    master: MasterKey,
    /// Where its objects begin, and the checksum of what lies before.
    objects_at: u64,
    rows_sha256: [u8; 32],
    bytes: u64,
}

impl Backup {
    /// Reads the file at `path` to its end. It must be a whole backup that was sealed with
    /// one of `keys`.
    pub async fn open(path: &Path, keys: Vec<MasterKey>, tell: &Tell) -> Result<Self> {
        let (path, tell) = (path.to_owned(), tell.clone());
        off_thread(move || {
            let opened = open_file(&path)?;
            verify(opened, &path, &keys, &tell)
        })
        .await
    }

    /// What it holds.
    pub fn report(&self) -> BackupReport {
        let End { rows, objects, object_bytes, .. } = self.end.clone();
        backup::report(self.header.clone(), rows, objects, object_bytes, self.bytes)
    }
}

fn open_file(path: &Path) -> Result<File> {
    File::open(path).map_err(|source| match source.kind() {
        ErrorKind::NotFound => flawed(path, bad("there is no such file")),
        _ => StoreError::Io { action: "open", path: path.to_owned(), source },
    })
}

fn verify(file: File, path: &Path, keys: &[MasterKey], tell: &Tell) -> Result<Backup> {
    let total = file.metadata().map_or(0, |metadata| metadata.len());
    let (mut reader, header) =
        Reader::begin(BufReader::new(file)).map_err(|flaw| flawed(path, flaw))?;
    let check = hex::decode(&header.key_check).unwrap_or_default();
    let fits = keys.iter().find(|key| key.matches(&check));
    let wrong = || StoreError::WrongBackupKey { path: path.to_owned() };
    let master = fits.ok_or_else(wrong)?.clone();
    let mut seen = Seen::default();
    let end = loop {
        let at = (reader.bytes(), reader.sha256());
        match reader.next().and_then(|piece| seen.take(piece, at)) {
            Ok(Some(end)) => break end,
            Ok(None) => {
                told(tell, Moved { doing: Doing::Verifying, done: reader.bytes(), total })?;
            }
            Err(flaw) => return Err(flawed(path, flaw)),
        }
    };
    let (bytes, _) = reader.seal(&master).map_err(|flaw| flawed(path, flaw))?;
    let (objects_at, rows_sha256) = seen.objects_at.unwrap_or_default();
    let path = path.to_owned();
    Ok(Backup { path, header, end, master, objects_at, rows_sha256, bytes })
}

/// What was read so far.
#[derive(Default)]
struct Seen {
    rows: BTreeMap<String, u64>,
    /// Objects that rows name and that have not come yet.
    named: BTreeSet<Object>,
    objects: u64,
    object_bytes: u64,
    /// One whose bytes are not all there yet.
    open: Option<Incoming>,
    /// Where the first that is no row begins.
    objects_at: Option<(u64, [u8; 32])>,
}

/// An object whose bytes are coming.
struct Incoming {
    object: Object,
    bytes: Vec<u8>,
}

impl Incoming {
    fn is_whole(&self) -> bool {
        self.bytes.len() as u64 >= self.object.bytes
    }
}

impl Seen {
    /// Looks at a piece that begins there; answers the end when that comes.
    fn take(&mut self, piece: Piece, at: (u64, [u8; 32])) -> Looked<Option<End>> {
        if !matches!(piece, Piece::Rows(..)) {
            self.objects_at.get_or_insert(at);
        }
        match piece {
            Piece::Rows(table, _, found) if self.objects_at.is_none() => {
                *self.rows.entry(table.name.to_owned()).or_default() += found.len() as u64;
                self.named.extend(found.iter().filter_map(|row| object_of(table, row)));
            }
            Piece::Object(object) if self.open.is_none() => {
                if !self.named.remove(&object) {
                    return Err(bad("it has an object that no row names"));
                }
                self.objects += 1;
                self.object_bytes += object.bytes;
                self.open = Some(Incoming { object, bytes: Vec::new() });
                self.close()?;
            }
            Piece::Data(bytes) if let Some(open) = &mut self.open => {
                open.bytes.extend(bytes);
                self.close()?;
            }
            Piece::End(end) if self.open.is_none() => return self.finish(*end).map(Some),
            _ => return Err(bad("its blocks are out of order")),
        }
        Ok(None)
    }

    /// Lets go of an object that is whole.
    fn close(&mut self) -> Looked<()> {
        match self.open.take_if(|open| open.is_whole()) {
            Some(open) if !is_sound(&open) => Err(bad("an object has another checksum")),
            _ => Ok(()),
        }
    }

    fn finish(&mut self, end: End) -> Looked<End> {
        if !self.named.is_empty() {
            return Err(bad("an object is missing that a row names"));
        }
        let counted = (&self.rows, self.objects, self.object_bytes);
        match counted == (&end.rows, end.objects, end.object_bytes) {
            true => Ok(end),
            false => Err(bad("its counts are wrong")),
        }
    }
}

fn is_sound(open: &Incoming) -> bool {
    open.bytes.len() as u64 == open.object.bytes
        && hex::encode(Sha256::digest(&open.bytes)) == open.object.sha256
}

/// What a restore did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restored {
    /// What is there now.
    pub backup: BackupReport,
    /// The memories that are there now.
    pub scopes: Vec<Scope>,
}

/// Writes what a backup holds into a store that has nothing of it. All of it is there when
/// this resolves, and else nothing.
pub async fn restore(
    store: &Store,
    objects: &Objects,
    backup: &Backup,
    now: Millis,
    tell: &Tell,
) -> Result<Restored> {
    let looked = backup.clone();
    store.read(Isolation::Global, "transfer", move |tx| look(tx, &looked)).await?;
    put_objects(objects, backup, Some(tell)).await?;
    let (applied, telling) = (backup.clone(), tell.clone());
    let scopes = store
        .write(Isolation::Global, "transfer", move |tx| apply(tx, &applied, now, &telling))
        .await?;
    // A host that sweeps may have taken them for left over while nothing named them yet.
    put_objects(objects, backup, None).await?;
    Ok(Restored { backup: backup.report(), scopes })
}

/// Refuses where something is in the way, before anything is written.
fn look(tx: &Tx<'_>, backup: &Backup) -> Result<()> {
    let seating = Seating { tx, backup };
    backup.header.tenants.iter().try_for_each(|tenant| seating.find(&tenant.name).map(drop))
}

async fn put_objects(objects: &Objects, backup: &Backup, tell: Option<&Tell>) -> Result<()> {
    let flaw = |flaw| flawed(&backup.path, flaw);
    let mut file = open_file(&backup.path)?;
    file.seek(SeekFrom::Start(backup.objects_at)).map_err(|error| flaw(Flaw::Io(error)))?;
    let mut reader = Some(Reader::resume(BufReader::new(file)));
    let (mut done, mut open) = (0, None::<Incoming>);
    while done < backup.end.objects {
        let (piece, back) = off_thread({
            let path = backup.path.clone();
            let taken = reader.take();
            move || {
                let mut reader = taken.ok_or(StoreError::Closed)?;
                let piece = reader.next().map_err(|flaw| flawed(&path, flaw))?;
                Ok((piece, reader))
            }
        })
        .await?;
        reader = Some(back);
        match (piece, &mut open) {
            (Piece::Object(object), None) => open = Some(Incoming { object, bytes: Vec::new() }),
            (Piece::Data(bytes), Some(open)) => open.bytes.extend(bytes),
            _ => return Err(flaw(bad("it has changed"))),
        }
        if let Some(whole) = open.take_if(|open| open.is_whole()) {
            if !is_sound(&whole) {
                return Err(flaw(bad("it has changed")));
            }
            objects.put(&whole.object, Bytes::from(whole.bytes)).await?;
            done += 1;
            if let Some(tell) = tell {
                told(tell, Moved { doing: Doing::Objects, done, total: backup.end.objects })?;
            }
        }
    }
    Ok(())
}

/// Writes all rows, and that they were restored.
fn apply(tx: &Tx<'_>, backup: &Backup, now: Millis, tell: &Tell) -> Result<Vec<Scope>> {
    let flaw = |flaw| flawed(&backup.path, flaw);
    let file = open_file(&backup.path)?;
    let (mut reader, header) = Reader::begin(BufReader::new(file)).map_err(flaw)?;
    if header != backup.header {
        return Err(flaw(bad("it has changed")));
    }
    let mut coming = Coming {
        seating: Seating { tx, backup },
        places: BTreeMap::new(),
        policies: BTreeMap::new(),
    };
    let (mut done, total) = (0, backup.end.rows.values().sum());
    while reader.bytes() < backup.objects_at {
        let Piece::Rows(table, columns, found) = reader.next().map_err(flaw)? else {
            return Err(flaw(bad("it has changed")));
        };
        let columns: Vec<&'static str> = columns.iter().map(|column| column.name).collect();
        done += found.len() as u64;
        coming.take(table, &columns, found)?;
        told(tell, Moved { doing: Doing::Rows, done, total })?;
    }
    if reader.sha256() != backup.rows_sha256 {
        return Err(flaw(bad("it has changed")));
    }
    coming.finish(now)
}

/// Rows on their way into the store.
struct Coming<'a> {
    seating: Seating<'a>,
    /// The number that a tenant has here, by the one that it has in the file.
    places: BTreeMap<i64, i64>,
    /// The same of policies.
    policies: BTreeMap<i64, i64>,
}

impl Coming<'_> {
    fn take(&mut self, table: &Table, columns: &[&'static str], found: Vec<Values>) -> Result<()> {
        let at = |name: &str| columns.iter().position(|column| *column == name);
        match table.name {
            "policies" => found.iter().try_for_each(|row| self.policy(columns, row)),
            "tenants" => found.into_iter().try_for_each(|row| self.tenant(columns, row)),
            _ => {
                let (tenant, policy) = (at("tenant"), at("policy"));
                let of_number = table.owner == Owner::Number;
                let mut moved = found;
                for row in &mut moved {
                    if let Some(at) = tenant.filter(|_| of_number) {
                        renumber(&mut row[at], &self.places, self.seating.backup)?;
                    }
                    if let Some(at) = policy {
                        renumber(&mut row[at], &self.policies, self.seating.backup)?;
                    }
                }
                let inserter = Inserter::new(table, columns);
                let Seating { tx, .. } = self.seating;
                match inserter.insert(tx, &moved)? {
                    added if added == moved.len() => Ok(()),
                    _ => Err(StoreError::Collides { table: table.name }),
                }
            }
        }
    }

    /// The policy of the same sizes, or a new one.
    fn policy(&mut self, columns: &[&'static str], row: &Values) -> Result<()> {
        let Seating { tx, .. } = self.seating;
        let number = |name: &str| integer(columns, row, name);
        let sizes = ["micro", "mini", "macro", "max_tokens"].map(number);
        let find = "SELECT policy FROM policies
                    WHERE micro = ?1 AND mini = ?2 AND macro = ?3 AND max_tokens = ?4";
        let add = "INSERT INTO policies (policy, micro, mini, macro, max_tokens)
                   SELECT coalesce(max(policy), 0) + 1, ?1, ?2, ?3, ?4 FROM policies
                   RETURNING policy";
        let known = tx.prepare_cached(find).and_then(|mut q| {
            let known: Option<i64> = q.query_row(sizes, |row| row.get(0)).optional()?;
            match known {
                Some(known) => Ok(known),
                None => tx.prepare_cached(add)?.query_row(sizes, |row| row.get(0)),
            }
        });
        self.policies.insert(number("policy"), known?);
        Ok(())
    }

    /// Makes room for a tenant, or finds it.
    fn tenant(&mut self, columns: &[&'static str], row: Values) -> Result<()> {
        let name = match columns.iter().position(|column| *column == "name").map(|at| &row[at]) {
            Some(Owned::Text(name)) => name.clone(),
            _ => return Err(flawed(&self.seating.backup.path, bad("a tenant has no name"))),
        };
        let number = integer(columns, &row, "tenant");
        let listed = self.seating.backup.header.tenants.iter();
        if !listed.clone().any(|tenant| tenant.number == number && tenant.name == name) {
            return Err(flawed(&self.seating.backup.path, bad("it has a tenant that it hides")));
        }
        let place = self.seating.seat(columns, row, &name, number)?;
        self.places.insert(number, place);
        Ok(())
    }

    /// What all that the tenant has was looked through with, as it was. Of one memory that
    /// is not known.
    fn note(&self, tenant: &str) -> Result<()> {
        let Seating { tx, backup } = self.seating;
        let name = backup::note_of_tenant(tenant);
        match backup.header.notes.get(&name) {
            Some(value) => notes::put_note(tx, &name, value),
            None => tx.execute("DELETE FROM notes WHERE name = ?1", [name.as_str()]).map(drop),
        }
    }

    /// What holds once all rows are there.
    fn finish(self, now: Millis) -> Result<Vec<Scope>> {
        let Seating { tx, backup } = self.seating;
        let was_derived_otherwise = derived(&backup::notes(tx)?) != derived(&backup.header.notes);
        let mut scopes = Vec::new();
        for tenant in &backup.header.tenants {
            let missing = || flawed(&backup.path, bad("a tenant is missing"));
            let place = *self.places.get(&tenant.number).ok_or_else(missing)?;
            refuse_overlap(tx, place, &tenant.name)?;
            let (number, found) = restored_scopes(tx, place, backup)?;
            if was_derived_otherwise {
                let unsettle = "UPDATE branches SET unsettled = 1 WHERE tenant = ?1";
                tx.execute(unsettle, [place])?;
            }
            if number.is_some() {
                mend_index(tx, place)?;
            }
            self.note(&tenant.name)?;
            count_kept(tx, place)?;
            let payload = serde_json::json!({
                "memoryRef": backup.header.memory,
                "position": tenant.position,
                "takenAt": Millis(backup.header.created_at).to_string(),
            });
            let kind = LogKind::Restored.as_str();
            log::record(tx, place, number, kind, &payload.to_string(), now)?;
            scopes.extend(found);
        }
        Ok(scopes)
    }
}

/// The notes that say how a store was derived.
fn derived(notes: &BTreeMap<String, String>) -> Vec<(&String, &String)> {
    notes.iter().filter(|(name, _)| backup::is_of_derived(name)).collect()
}

/// The number that stands here for one in the file.
fn renumber(value: &mut Owned, places: &BTreeMap<i64, i64>, backup: &Backup) -> Result<()> {
    let place = match value {
        Owned::Integer(number) => places.get(number),
        _ => None,
    };
    match place {
        Some(place) => {
            *value = Owned::Integer(*place);
            Ok(())
        }
        None => Err(flawed(&backup.path, bad("a row belongs to nobody"))),
    }
}

fn integer(columns: &[&'static str], row: &[Owned], name: &str) -> i64 {
    match columns.iter().position(|column| *column == name).map(|at| &row[at]) {
        Some(Owned::Integer(number)) => *number,
        _ => 0,
    }
}

/// The memories that were restored, and the number of the one where it was one alone.
fn restored_scopes(tx: &Tx<'_>, tenant: i64, backup: &Backup) -> Result<(Option<i64>, Vec<Scope>)> {
    let found: Vec<(i64, String)> = tx
        .prepare("SELECT scope, memory FROM scopes WHERE tenant = ?1 ORDER BY memory")
        .and_then(|mut q| q.query_map([tenant], |row| Ok((row.get(0)?, row.get(1)?)))?.collect())?;
    let is_mine = |memory: &str| backup.header.memory.as_deref().is_none_or(|one| one == memory);
    let mine: Vec<i64> =
        found.into_iter().filter(|(_, memory)| is_mine(memory)).map(|(scope, _)| scope).collect();
    let one = backup.header.memory.as_ref().and(mine.first().copied());
    let scopes = mine.into_iter().map(|scope| scopes::scope_of(tx, tenant, scope));
    Ok((one, scopes.collect::<Result<_>>()?))
}

/// Counts what a tenant keeps, of which a backup of one memory or of an earlier version says
/// nothing.
pub(super) fn count_kept(tx: &Tx<'_>, tenant: i64) -> Result<()> {
    let (turns, bytes) = (usage::KEPT_TURNS, usage::KEPT_BYTES);
    let sql = format!(
        "UPDATE tenants AS n SET kept_turns = {turns}, kept_bytes = {bytes} WHERE n.tenant = ?1"
    );
    tx.execute(&sql, [tenant]).map(drop)
}

/// The index file is the tenant's, and does not come with one memory: it is written anew
/// if that has dreamt.
fn mend_index(tx: &Tx<'_>, tenant: i64) -> Result<()> {
    let lost = "UPDATE tenants SET index_lost = 1 WHERE tenant = ?1
                AND EXISTS (SELECT 1 FROM dreams d WHERE d.tenant = ?1 AND d.state = 'in-force')";
    tx.execute(lost, [tenant]).map(drop)
}

/// No two things happened at one position.
fn refuse_overlap(tx: &Tx<'_>, tenant: i64, name: &str) -> Result<()> {
    let twice: bool = tx
        .prepare(
            "SELECT count(*) FROM
               (SELECT first, lag(first + count) OVER (ORDER BY first) AS ended FROM
                  (SELECT first, count FROM runs WHERE tenant = ?1
                   UNION ALL SELECT position, 1 FROM log WHERE tenant = ?1) AS happened) AS ordered
             WHERE ended > first",
        )
        .and_then(|mut q| q.query_row([tenant], |row| row.get(0)))?;
    match twice {
        true => Err(StoreError::PositionsTaken { tenant: name.to_owned() }),
        false => Ok(()),
    }
}

/// Where the tenants of a backup find their place.
#[derive(Clone, Copy)]
struct Seating<'a> {
    tx: &'a Tx<'a>,
    backup: &'a Backup,
}

/// What there is of a tenant.
enum Found {
    Nothing,
    /// It has a number and nothing else.
    Empty(i64),
    /// It is there, with other memories than the one that comes.
    Beside(i64, TenantKey),
}

impl Seating<'_> {
    /// What there is of a tenant, which must not be in the way.
    fn find(&self, name: &str) -> Result<Found> {
        let Seating { tx, backup } = *self;
        let found: Option<(i64, Vec<u8>)> =
            tx.prepare_cached("SELECT tenant, sealed_key FROM tenants WHERE name = ?1").and_then(
                |mut q| q.query_row([name], |row| Ok((row.get(0)?, row.get(1)?))).optional(),
            )?;
        let whose = |tenant| Whose { tenant, name: name.to_owned(), memory: None };
        let Some((tenant, sealed)) = found else {
            // Keys that were made for it would be its own.
            let keys = TABLES.iter().filter(|table| table.owner == Owner::Name);
            let has_key = keys.map(|table| whose(0).has(tx, table)).collect::<Result<Vec<_>>>()?;
            return match has_key.contains(&true) {
                true => Err(not_empty(name)),
                false => Ok(Found::Nothing),
            };
        };
        let mut holds = TABLES.iter().filter(|table| holds(table));
        let is_empty = !holds.try_fold(false, |any, table| {
            Ok::<_, StoreError>(any || whose(tenant).has(tx, table)?)
        })?;
        if is_empty {
            return Ok(Found::Empty(tenant));
        }
        let Some(memory) = &backup.header.memory else { return Err(not_empty(name)) };
        self.refuse_taken_memory(tenant, name, memory)?;
        let key = tx.keys().master(tx)?.open(&sealed);
        let key = key.ok_or_else(|| tx.damaged("the sealed key of a tenant does not open"))?;
        Ok(Found::Beside(tenant, key))
    }

    /// A memory of that name must have nothing in it.
    fn refuse_taken_memory(&self, tenant: i64, name: &str, memory: &str) -> Result<()> {
        let Seating { tx, .. } = *self;
        let scope: Option<i64> = tx
            .prepare_cached("SELECT scope FROM scopes WHERE tenant = ?1 AND memory = ?2")
            .and_then(|mut q| q.query_row(params![tenant, memory], |row| row.get(0)).optional())?;
        let Some(scope) = scope else { return Ok(()) };
        let memory_of = OneMemory { scope, sessions: Vec::new() };
        let whose = Whose { tenant, name: name.to_owned(), memory: Some(memory_of) };
        for table in TABLES.iter().filter(|table| matches!(table.within, Within::Where(_))) {
            if holds(table) && whose.has(tx, table)? {
                let what = format!("memory `{memory}` of tenant `{name}`");
                return Err(StoreError::NotEmpty { what });
            }
        }
        Ok(())
    }

    /// Gives a tenant its place, and answers its number there.
    fn seat(
        &self,
        columns: &[&'static str],
        mut row: Values,
        name: &str,
        number: i64,
    ) -> Result<i64> {
        let Seating { tx, backup } = *self;
        let path = &backup.path;
        let at = columns.iter().position(|column| *column == "sealed_key");
        let sealed = match at.map(|at| &row[at]) {
            Some(Owned::Blob(sealed)) => sealed.clone(),
            _ => return Err(flawed(path, bad("a tenant has no key"))),
        };
        let broken = || flawed(path, bad("the key of a tenant does not open"));
        let key = backup.master.open(&sealed).ok_or_else(broken)?;
        tx.hold_master_key()?;
        if let Some(at) =
            at.filter(|_| !tx.keys().master(tx).is_ok_and(|m| m.same_as(&backup.master)))
        {
            row[at] = Owned::Blob(tx.keys().seal(tx, &key)?);
        }
        let place = match self.find(name)? {
            Found::Beside(tenant, known) => {
                if !known.same_as(&key) {
                    return Err(StoreError::OtherTenantKey { tenant: name.to_owned() });
                }
                self.clear_scope(tenant)?;
                return self.raise(
                    tenant,
                    integer(columns, &row, "sessions"),
                    backup.position(name),
                );
            }
            Found::Empty(tenant) => {
                tx.execute("DELETE FROM scopes WHERE tenant = ?1", [tenant])
                    .and_then(|_| tx.execute("DELETE FROM tenants WHERE tenant = ?1", [tenant]))?;
                tenant
            }
            Found::Nothing => self.free_number(number)?,
        };
        if let Some(at) = columns.iter().position(|column| *column == "tenant") {
            row[at] = Owned::Integer(place);
        }
        let table = TABLES.iter().find(|table| table.name == "tenants");
        let table = table.ok_or(StoreError::Closed)?;
        Inserter::new(table, columns).insert(tx, &[row])?;
        Ok(place)
    }

    /// The number that it has in the file, unless that is another's here.
    fn free_number(&self, number: i64) -> Result<i64> {
        let Seating { tx, .. } = *self;
        let free = || -> Result<_> {
            let taken =
                tx.prepare_cached("SELECT 1 FROM tenants WHERE tenant = ?1")?.exists([number])?;
            if taken { tx.new_tenant_number() } else { Ok(number) }
        };
        free()
    }

    /// Takes away the empty memory whose place is needed.
    fn clear_scope(&self, tenant: i64) -> Result<()> {
        let Seating { tx, backup } = *self;
        let Some(memory) = &backup.header.memory else { return Ok(()) };
        tx.execute("DELETE FROM scopes WHERE tenant = ?1 AND memory = ?2", params![tenant, memory])
            .map(drop)
    }

    /// Raises the counters of a tenant to what the backup needs at least. What comes may
    /// hold what has been registered as a secret since: with another version of the secrets
    /// every host hides it from readers until a rescan.
    fn raise(&self, tenant: i64, sessions: i64, position: i64) -> Result<i64> {
        let Seating { tx, .. } = *self;
        tx.execute(
            "UPDATE tenants SET
               position = CASE WHEN position < ?2 THEN ?2 ELSE position END,
               sessions = CASE WHEN sessions < ?3 THEN ?3 ELSE sessions END,
               secrets_version = secrets_version + 1
             WHERE tenant = ?1",
            params![tenant, position, sessions],
        )
        .map(|_| tenant)
    }
}

impl Backup {
    fn position(&self, tenant: &str) -> i64 {
        let found = self.header.tenants.iter().find(|known| known.name == tenant);
        found.map_or(0, |known| known.position)
    }
}

/// Whether its rows are what somebody gave us, and not only room for it.
pub(super) fn holds(table: &Table) -> bool {
    table.owner != Owner::Everyone && !["tenants", "scopes"].contains(&table.name)
}

fn not_empty(tenant: &str) -> StoreError {
    StoreError::NotEmpty { what: format!("tenant `{tenant}`") }
}
