//! `icecore archive`: what dreams came to, and the packs that cold bodies lie in.

use icecore::MemoryError;
use icecore::dreams::{Archive, ArchiveRecord, Checksum};
use icecore::maintenance::PackReport;
use icecore_server::wire;
use serde_json::{Value, json};

use crate::app::App;
use crate::args::{ArchiveAction, ArchiveArgs, ShowArgs};
use crate::commands::{dream, show};
use crate::draw::{bytes, count, harmless, number, table};
use crate::failure::{Failure, Outcome, Status};
use crate::json;
use crate::printer::Tone;
use crate::progress::Bar;

/// Hex digits of an address that are shown, and enough to name one.
const SHORT: usize = 12;

/// Lists, shows or verifies.
pub async fn run(args: ArchiveArgs, app: &App) -> Outcome<Status> {
    match args.action {
        ArchiveAction::List => list(app).await,
        ArchiveAction::Show { id } => show(id.as_deref(), app).await,
        ArchiveAction::Verify { id } => verify(id.as_deref(), app).await,
    }
}

async fn archives(app: &App) -> Outcome<Vec<ArchiveRecord>> {
    Ok(app.memory.archives(app.scope.tenant(), app.named_memory()).await?)
}

async fn list(app: &App) -> Outcome<Status> {
    let archives = archives(app).await?;
    let mut packs = app.memory.packs(Some(app.scope.tenant())).await?;
    packs.retain(|report| is_mine(report, app));
    if app.printer.is_json() {
        let packs: Vec<_> = packs.iter().map(json::pack).collect();
        let mut body = json!(wire::Archives::of(&archives));
        body["packs"] = json!(packs);
        app.printer.json(&body)?;
        return Ok(Status::Done);
    }
    if archives.is_empty() {
        app.printer.talk("No archives yet: `icecore dream` writes the first.");
    } else {
        let head = ["archive", "state", "bytes", "written", "dream", "memory"];
        print_table(&head, archives.iter().map(archive_row), app)?;
    }
    if packs.is_empty() {
        app.printer
            .talk("No packs yet: a macro is packed once all its turns have left the hot tier.");
        return Ok(Status::Done);
    }
    if !archives.is_empty() {
        app.printer.line("")?;
    }
    let head = ["pack", "holds", "bytes", "written", "memory"];
    print_table(&head, packs.iter().map(row), app)?;
    Ok(Status::Done)
}

fn print_table(head: &[&str], rows: impl Iterator<Item = Vec<String>>, app: &App) -> Outcome<()> {
    let head = head.iter().map(|&name| name.to_owned()).collect();
    let rows: Vec<Vec<String>> = [head].into_iter().chain(rows).collect();
    for (at, line) in table(&rows, &[2]).iter().enumerate() {
        let line = if at == 0 { app.printer.paint(Tone::Dim, line) } else { line.clone() };
        app.printer.line(&line)?;
    }
    Ok(())
}

async fn show(id: Option<&str>, app: &App) -> Outcome<Status> {
    let known = archives(app).await?;
    let Some(id) = id else {
        let newest = known.iter().find(|archive| archive.key.is_some());
        let none = || Failure::refused("there is no archive yet", "`icecore dream` writes one");
        return print(newest.ok_or_else(none)?.checksum, app).await;
    };
    if let Some(archive) = named(&known, id)? {
        return print(archive.checksum, app).await;
    }
    let packs = app.memory.packs(Some(app.scope.tenant())).await?;
    match packs.iter().find(|report| is_mine(report, app) && is_named(report, id)) {
        Some(report) => {
            let id = report.pack.id.to_string();
            show::run(ShowArgs { id, ctf: false }, app).await
        }
        None => Err(unknown(id)),
    }
}

/// Prints an archive: what it says, or with `--json` its bytes as they are.
pub async fn print(checksum: Checksum, app: &App) -> Outcome<Status> {
    let bytes = app.memory.archive(app.scope.tenant(), app.named_memory(), checksum).await?;
    let printer = &app.printer;
    if printer.is_json() {
        printer.raw(&String::from_utf8_lossy(&bytes))?;
        return Ok(Status::Done);
    }
    let archive = Archive::parse(&bytes).map_err(|error| MemoryError::ArchiveDamaged {
        checksum: checksum.to_string(),
        reason: error.to_string(),
    })?;
    printer.line(&printer.paint(Tone::Title, &format!("archive {checksum}")))?;
    let about = format!(
        "{} of {}, by {} within {} tokens",
        count(archive.distillate.lines.len() as u64, "line"),
        count(archive.sources.len() as u64, "source"),
        archive.distiller,
        number(archive.budget)
    );
    printer.line(&printer.paint(Tone::Dim, &about))?;
    printer.line("")?;
    dream::print_distillate(&archive.distillate.text(), printer)?;
    Ok(Status::Done)
}

/// The archive of an address, or of its beginning.
fn named<'a>(known: &'a [ArchiveRecord], id: &str) -> Outcome<Option<&'a ArchiveRecord>> {
    let is_address = id.len() >= SHORT / 2 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    let id = id.to_ascii_lowercase();
    let mut found: Vec<&ArchiveRecord> = known
        .iter()
        .filter(|archive| is_address && archive.checksum.to_string().starts_with(&id))
        .collect();
    found.dedup_by_key(|archive| archive.checksum);
    match found[..] {
        [] => Ok(None),
        [one] => Ok(Some(one)),
        _ => Err(Failure::refused(
            "more than one archive begins like that",
            "give more of its address",
        )),
    }
}

/// How an archive was found.
struct Verified<'a> {
    archive: &'a ArchiveRecord,
    problem: Option<String>,
}

impl Verified<'_> {
    fn to_json(&self) -> Value {
        json!({
            "checksum": self.archive.checksum.to_string(),
            "runId": self.archive.run,
            "memoryRef": self.archive.scope.memory(),
            "createdAt": self.archive.created_at.to_rfc3339(),
            "bytes": self.archive.bytes,
            "state": state(self.archive),
            "problem": self.problem,
        })
    }
}

async fn verify(id: Option<&str>, app: &App) -> Outcome<Status> {
    let mut known = archives(app).await?;
    let one = match id {
        Some(id) => named(&known, id)?.map(|archive| archive.checksum),
        None => None,
    };
    let bar = Bar::new(&app.printer, "verifying");
    let tell = |done, total| bar.at(done, total);
    let report = app.memory.verify_archives(Some(app.scope.tenant()), tell).await?;
    let mut packs = app.memory.verify_packs(Some(app.scope.tenant()), tell).await?;
    drop(bar);
    packs.retain(|report| is_mine(report, app) && id.is_none_or(|id| is_named(report, id)));
    if id.is_some() {
        known.retain(|archive| Some(archive.checksum) == one);
    }
    if let Some(id) = id.filter(|_| packs.is_empty() && known.is_empty()) {
        return Err(unknown(id));
    }
    let of = |archive: &ArchiveRecord| {
        let found = report.damaged.iter().find(|(checksum, _)| *checksum == archive.checksum);
        found.map(|(checksum, reason)| format!("archive {checksum}: {reason}"))
    };
    let verified: Vec<Verified<'_>> =
        known.iter().map(|archive| Verified { archive, problem: of(archive) }).collect();
    let of_archives = verified.iter().filter_map(|verified| verified.problem.clone());
    let of_packs = packs.iter().filter_map(|report| report.problem.clone());
    let problems: Vec<String> = of_archives.chain(of_packs).collect();
    if app.printer.is_json() {
        app.printer.json(&json!({
            "ok": problems.is_empty(),
            "archives": verified.iter().map(Verified::to_json).collect::<Vec<_>>(),
            "packs": packs.iter().map(json::pack).collect::<Vec<_>>(),
            "orphans": report.orphans,
            "problems": problems,
        }))?;
    } else {
        tell_person(&verified, packs.len() as u64, report.orphans, &problems, app)?;
    }
    Ok(if problems.is_empty() { Status::Done } else { Status::Refused })
}

fn tell_person(
    archives: &[Verified<'_>],
    packs: u64,
    orphans: u64,
    problems: &[String],
    app: &App,
) -> Outcome<()> {
    let printer = &app.printer;
    for verified in archives {
        let archive = verified.archive;
        if archive.key.is_none() {
            let line = format!("{} {}", state(archive), archive.checksum);
            printer.line(&printer.paint(Tone::Dim, &line))?;
        }
    }
    if orphans > 0 {
        printer.talk(&format!(
            "note: {} that nothing points to, left by a crash and harmless; `icecore check --repair` removes them",
            count(orphans, "archive body")
        ));
    }
    if problems.is_empty() {
        let readable = archives.iter().filter(|verified| verified.archive.key.is_some()).count();
        return printer.line(&format!(
            "{} {} and {} read, re-hashed and decoded",
            printer.paint(Tone::Good, "ok:"),
            count(readable as u64, "archive"),
            count(packs, "pack")
        ));
    }
    for problem in problems {
        printer.line(&format!("{} {problem}", printer.paint(Tone::Bad, "damaged:")))?;
    }
    printer.hint("restore the file from a backup; the others are whole");
    Ok(())
}

fn unknown(id: &str) -> Failure {
    Failure::refused(
        format!("there is no archive and no pack `{}`", harmless(id)),
        "`icecore archive list` shows them",
    )
}

/// Whether an archive can be read, and why not.
fn state(archive: &ArchiveRecord) -> &'static str {
    match (archive.erased_at, archive.expired_at, &archive.key) {
        (Some(_), _, _) => "erased",
        (None, Some(_), _) => "expired",
        (None, None, Some(_)) => "readable",
        (None, None, None) => "gone",
    }
}

fn archive_row(archive: &ArchiveRecord) -> Vec<String> {
    vec![
        archive.checksum.to_string()[..SHORT].to_owned(),
        state(archive).to_owned(),
        bytes(archive.bytes),
        archive.created_at.to_minute(),
        archive.run.clone(),
        harmless(archive.scope.memory()),
    ]
}

fn is_mine(report: &PackReport, app: &App) -> bool {
    app.named_memory().is_none_or(|memory| report.pack.scope.memory() == memory)
}

fn is_named(report: &PackReport, id: &str) -> bool {
    report.pack.name == id || report.pack.id.to_string() == id
}

fn row(report: &PackReport) -> Vec<String> {
    let pack = &report.pack;
    vec![
        pack.name.clone(),
        pack.id.to_string(),
        bytes(pack.bytes),
        pack.created_at.to_minute(),
        pack.scope.memory().to_owned(),
    ]
}
