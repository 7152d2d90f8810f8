//! A process that writes and settles, killed again and again at any moment: every turn that
//! it acknowledged must be there once, in order.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use icecore::{Append, Memory, Principal, RawTurn, Scope, Seq, Tenant, TurnInput};
use icecore_domain::tokens::CharCounter;
use icecore_store::PostgresOptions;
use icecore_store::testing::postgres::own_server;
use indicatif::ProgressBar;

use crate::Result;

/// The one session that is written to.
const SESSION: &str = "talk";

/// The longest time between the first acknowledgement and the kill.
const LONGEST_LIFE: Duration = Duration::from_millis(15);

/// How often the whole session is read and compared while kills go on.
const LOOK_EVERY: u64 = 1_000;

const PAGE: usize = 10_000;

#[derive(clap::Args)]
pub struct Args {
    /// How often the writer is killed.
    #[arg(long, default_value_t = 10_000)]
    kills: u64,
    /// Over a PostgreSQL server of its own instead of SQLite.
    #[arg(long)]
    postgres: bool,
    /// Seed of the moments at which it is killed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Writes turns from this number on in the directory, and says which are durable.
    #[arg(long, hide = true, requires = "dir")]
    write_from: Option<u64>,
    #[arg(long, hide = true)]
    dir: Option<PathBuf>,
    #[arg(long, hide = true)]
    store: Option<String>,
}

pub async fn run(args: &Args) -> Result<bool> {
    if let (Some(from), Some(dir)) = (args.write_from, &args.dir) {
        write(from, dir, args.store.as_deref()).await?;
        return Ok(true);
    }
    let database = match args.postgres {
        true => Some(own_server().ok_or("there is no PostgreSQL")?.fresh_database()),
        false => None,
    };
    let store = database.as_ref().map(|database| database.url().to_owned());
    let place = Place { dir: tempfile::tempdir()?, store };
    let (begun, bar) = (Instant::now(), ProgressBar::new(args.kills));
    let (mut acknowledged, mut draw) = (0, args.seed);
    for kill in 1..=args.kills {
        acknowledged = place.live_and_die(acknowledged, &mut draw)?;
        bar.inc(1);
        if kill % LOOK_EVERY == 0 {
            place.compare(acknowledged).await?;
        }
    }
    bar.finish_and_clear();
    let findings = place.compare(acknowledged).await?;
    println!(
        "{} kills, {acknowledged} turns acknowledged, 0 lost, 0 doubled, 0 out of order, \
         {findings} findings of check, {:.0} s",
        args.kills,
        begun.elapsed().as_secs_f64()
    );
    Ok(findings == 0)
}

/// Where the store is.
struct Place {
    dir: tempfile::TempDir,
    store: Option<String>,
}

async fn open(dir: &Path, store: Option<&str>) -> Result<(Memory, Scope)> {
    let builder = Memory::builder().embedder(None).counter(Arc::new(CharCounter));
    let builder = match store {
        Some(url) => builder.postgres(url, PostgresOptions::default()),
        None => builder,
    };
    let memory = builder.open(dir).await?;
    let me = Principal::local_operator(Tenant::new("local")?);
    let scope = memory.scope(&me, "notes").await?;
    Ok((memory, scope))
}

// The writer

/// Appends turns one after the other, settles now and then, and prints the number of each
/// turn that is durable, until it is killed.
async fn write(from: u64, dir: &Path, store: Option<&str>) -> Result<()> {
    let (memory, scope) = open(dir, store).await?;
    let mut out = std::io::stdout().lock();
    for number in from.. {
        let mut turn = RawTurn::new("user", text_of(number));
        turn.id = Some(format!("id-{number}"));
        let turns = vec![TurnInput::from(turn)];
        let append = Append { session: SESSION.to_owned(), turns, insist: false, claim: None };
        memory.append(&scope, append).await?;
        writeln!(out, "{number}")?;
        out.flush()?;
        if number % 5 == 0 {
            memory.settle(|_, _| {}).await?;
        }
    }
    Ok(())
}

fn text_of(number: u64) -> String {
    format!("turn {number}")
}

// Who kills it

impl Place {
    /// Starts a writer after the last acknowledged turn and kills it; answers the last turn
    /// that it acknowledged.
    fn live_and_die(&self, last: u64, draw: &mut u64) -> Result<u64> {
        let mut writer = self.start(last + 1)?;
        let heard = listen(&mut writer)?;
        let mut acknowledged = last;
        // One in eight is killed while it opens the store.
        if !next(draw).is_multiple_of(8) {
            match heard.recv_timeout(Duration::from_secs(60)) {
                Ok(number) => acknowledged = number,
                Err(RecvTimeoutError::Timeout) => return Err("the writer writes nothing".into()),
                Err(RecvTimeoutError::Disconnected) => return Err("the writer ended".into()),
            }
        }
        std::thread::sleep(LONGEST_LIFE.mul_f64((next(draw) % 10_000) as f64 / 10_000.0));
        writer.kill()?;
        writer.wait()?;
        // What it had said before it died counts.
        Ok(heard.iter().last().unwrap_or(acknowledged).max(acknowledged))
    }

    fn start(&self, from: u64) -> Result<Child> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["kills", "--write-from", &from.to_string(), "--dir"]).arg(self.dir.path());
        if let Some(store) = &self.store {
            command.args(["--store", store]);
        }
        Ok(command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?)
    }
}

/// The numbers that the writer prints whole, as they come.
fn listen(writer: &mut Child) -> Result<Receiver<u64>> {
    let out = writer.stdout.take().ok_or("the writer has no output")?;
    let (tell, heard) = channel();
    std::thread::spawn(move || {
        let mut lines = BufReader::new(out);
        let mut line = String::new();
        while lines.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
            // A line that breaks off was not said.
            if let Some(Ok(number)) = line.strip_suffix('\n').map(str::parse) {
                let _ = tell.send(number);
            }
            line.clear();
        }
    });
    Ok(heard)
}

/// SplitMix64.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

// What must hold

impl Place {
    /// Reads the whole session: turns 1, 2, 3, … once each, up to the last acknowledged one or
    /// the one after it, whose answer may have been lost. Answers how much `check` finds.
    async fn compare(&self, acknowledged: u64) -> Result<usize> {
        let (memory, scope) = open(self.dir.path(), self.store.as_deref()).await?;
        let mut number = 0;
        let mut after = Seq(0);
        loop {
            let turns = memory.turns(&scope, SESSION, after, PAGE).await?;
            let Some(last) = turns.last() else { break };
            after = last.seq;
            for turn in &turns {
                number += 1;
                let fields = turn.turn.as_ref().ok_or("a turn has no body")?.fields();
                if turn.seq != Seq(number) || fields.content.text() != text_of(number) {
                    let found = fields.content.text();
                    return Err(format!("seq {} says `{found}` at place {number}", turn.seq).into());
                }
            }
        }
        if number != acknowledged && number != acknowledged + 1 {
            return Err(
                format!("{acknowledged} turns were acknowledged, {number} are there").into()
            );
        }
        Ok(memory.check(false, |_, _| {}).await?.problems.len())
    }
}
