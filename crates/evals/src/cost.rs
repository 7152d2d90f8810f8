//! What work costs the machine: time of cores, bytes, syncs.

use std::path::Path;
use std::time::Duration;

use icecore_store::testing::postgres::TestDatabase;

use crate::Result;
use crate::engine::bytes_under;

/// Clock ticks of a second, as Linux counts the time of processes for programs.
const TICKS: f64 = 100.0;

/// After so long the server has counted what its processes did.
const COUNTED: Duration = Duration::from_millis(1_500);

/// What was used until now.
#[derive(Debug, Clone, Copy, Default)]
pub struct Used {
    /// Seconds of a core, of this process.
    ours: f64,
    /// Those of the database's processes.
    database: f64,
    /// What lies on disk.
    bytes: f64,
    /// What was written to the database's log, or by this process.
    written: f64,
    /// Syncs of the database's log.
    syncs: f64,
}

impl Used {
    /// By this process over `dir`, and by a database's server if there is one.
    pub async fn now(dir: &Path, database: Option<&TestDatabase>) -> Result<Self> {
        let mut used = Self { ours: seconds("self")?, ..Self::default() };
        used.bytes = bytes_under(dir)? as f64;
        let Some(database) = database else {
            used.written = written_by_us()?;
            return Ok(used);
        };
        tokio::time::sleep(COUNTED).await;
        let asked = "SELECT pg_database_size(current_database()), pg_current_wal_lsn() - '0/0',
            (SELECT wal_sync FROM pg_stat_wal)";
        let row = database.rows(asked).into_iter().next().ok_or("the server tells nothing")?;
        let number = |at: usize| -> Result<f64> {
            Ok(row[at].as_deref().ok_or("the server does not tell")?.parse()?)
        };
        used.bytes += number(0)?;
        (used.written, used.syncs) = (number(1)?, number(2)?);
        let data = database.server().data_directory().ok_or("the server is not ours")?;
        let file = std::fs::read_to_string(data.join("postmaster.pid"))?;
        used.database = seconds_of_family(file.lines().next().unwrap_or_default())?;
        Ok(used)
    }

    /// What one of `count` cost, since `before`: cells of a table.
    pub fn each(&self, before: &Self, count: usize) -> Vec<String> {
        let each = |now: f64, then: f64| (now - then) / count as f64;
        let micros = |now: f64, then: f64| format!("{:.0}", each(now, then) * 1e6);
        let whole = |now: f64, then: f64| format!("{:.0}", each(now, then));
        vec![
            micros(self.ours, before.ours),
            micros(self.database, before.database),
            whole(self.bytes, before.bytes),
            whole(self.written, before.written),
            format!("{:.3}", each(self.syncs, before.syncs)),
        ]
    }
}

/// The heads of [`Used::each`].
pub const HEADS: [&str; 5] = ["µs here", "µs database", "bytes kept", "bytes written", "syncs"];

/// Seconds of a core that a process and those of its children that ended have used.
fn seconds(process: &str) -> Result<f64> {
    let (_, fields) = status(process)?;
    Ok(fields[11..15].iter().filter_map(|field| field.parse::<f64>().ok()).sum::<f64>() / TICKS)
}

/// The parent of a process, and what is told of it from its state on.
fn status(process: &str) -> Result<(String, Vec<String>)> {
    let told = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    // Its name may hold anything, and ends with the last bracket.
    let (_, told) = told.rsplit_once(')').ok_or("a process without a name")?;
    let fields: Vec<String> = told.split_whitespace().map(str::to_owned).collect();
    if fields.len() < 15 {
        return Err("a process that tells too little".into());
    }
    Ok((fields[1].clone(), fields))
}

/// As [`seconds`], with the children that go on.
fn seconds_of_family(parent: &str) -> Result<f64> {
    let mut sum = seconds(parent)?;
    for entry in std::fs::read_dir("/proc")?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_child = |told: &(String, Vec<String>)| told.0 == parent;
        if name.bytes().all(|byte| byte.is_ascii_digit())
            && status(&name).is_ok_and(|s| is_child(&s))
        {
            sum += seconds(&name).unwrap_or(0.0);
        }
    }
    Ok(sum)
}

/// Bytes that this process has had written to disks.
fn written_by_us() -> Result<f64> {
    let told = std::fs::read_to_string("/proc/self/io")?;
    let bytes = told.lines().find_map(|line| line.strip_prefix("write_bytes: "));
    Ok(bytes.ok_or("the machine does not tell what was written")?.parse()?)
}
