//! The one binary: reads what was typed, decides the settings, runs a command.
//!
//! It decides and prints; how memory behaves is the library's business.

mod app;
mod args;
mod chat;
mod commands;
mod draw;
mod failure;
mod hush;
mod json;
mod lifetime;
mod models;
mod picture;
mod printer;
mod progress;
mod secret_value;
mod settings;
mod telemetry;
mod turns;

use std::borrow::Cow;
use std::io::Write;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use icecore_models::ApiKey;

use crate::app::{App, Needs, Talk};
use crate::args::{Cli, Command, Global, LogFormat, RedactArgs};
use crate::failure::{Failure, Outcome, Status};
use crate::printer::Printer;
use crate::settings::{Env, ModelSettings, Settings};
use crate::telemetry::Telemetry;

fn main() -> ExitCode {
    let env = Env::read();
    hush::start();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return misused(&error),
    };
    let global = &cli.global;
    let printer = Printer::new(global.json, global.quiet, global.no_color, &env);
    let status = match run(cli, &env, &printer) {
        Ok(status) => status,
        Err(failure) => failure.tell(&printer),
    };
    status.into()
}

/// Tells how it is used. What was typed may be a secret, and is repeated there.
fn misused(error: &clap::Error) -> ExitCode {
    let text = error.to_string();
    match hush::said(&text) {
        Cow::Owned(clean) if error.use_stderr() => {
            let _ = std::io::stderr().write_all(clean.as_bytes());
        }
        _ => {
            let _ = error.print();
        }
    }
    ExitCode::from(error.exit_code() as u8)
}

fn run(cli: Cli, env: &Env, printer: &Printer) -> Outcome<Status> {
    let Cli { global, command } = cli;
    let format = log_format(&global, env)?;
    if let Command::Proxy(args) = &command {
        commands::proxy::check(args)?;
    }
    if let Command::Serve(args) = &command {
        let settings = decide(global, &given_by(&command), env)?;
        return serve(args, settings, env, format, *printer);
    }
    hush::log(env, format, None);
    match command {
        Command::Completions { shell } => {
            commands::completions::run(shell, &mut Cli::command(), printer)
        }
        Command::Config(args::ConfigArgs { action: args::ConfigAction::Example }) => {
            commands::config::example(printer)
        }
        Command::Demo => runtime()?.block_on(commands::demo::run(printer)),
        command => {
            let settings = decide(global, &given_by(&command), env)?;
            match command {
                Command::Health(args) => commands::health::run(&args, &settings, printer),
                Command::Config(_) => commands::config::show(&settings, printer),
                Command::Model(args) => commands::model::run(args, &settings, printer),
                Command::Key(args) => {
                    runtime()?.block_on(commands::key::run(args, &settings, printer))
                }
                Command::Secret(args) => {
                    runtime()?.block_on(commands::secret::run(args, &settings, printer))
                }
                Command::Backup(args) => {
                    runtime()?.block_on(commands::backup::run(args, &settings, printer))
                }
                Command::Migrate(args) => {
                    runtime()?.block_on(commands::migrate::run(args, &settings, printer))
                }
                Command::Restore(args) => {
                    runtime()?.block_on(commands::restore::run(args, &settings, printer))
                }
                Command::Proxy(args) => {
                    runtime()?.block_on(commands::proxy::run(args, settings, *printer))
                }
                command => runtime()?.block_on(with_memory(command, settings, *printer)),
            }
        }
    }
}

/// Serves, with traces where a collector is named.
fn serve(
    args: &args::ServeArgs,
    settings: Settings,
    env: &Env,
    format: LogFormat,
    printer: Printer,
) -> Outcome<Status> {
    let telemetry = Telemetry::start(&settings)?;
    hush::log(env, format, telemetry.as_ref());
    let served = runtime()?.block_on(commands::serve::run(args, settings, printer));
    if let Some(telemetry) = telemetry {
        telemetry.finish();
    }
    served
}

fn log_format(global: &Global, env: &Env) -> Outcome<LogFormat> {
    match (global.log_format, env.log_format.as_deref()) {
        (Some(format), _) => Ok(format),
        (None, None | Some("text")) => Ok(LogFormat::Text),
        (None, Some("json")) => Ok(LogFormat::Json),
        (None, Some(_)) => Err(Failure::refused(
            "ICECORE_LOG_FORMAT names no format of logs",
            "set it to text or json",
        )),
    }
}

/// The flags of a command that give a setting of the file.
fn given_by(command: &Command) -> Vec<(&'static str, String)> {
    let number = |key, number: Option<u64>| number.map(|number| (key, number.to_string()));
    match command {
        Command::Serve(args) => {
            args.listen.clone().map(|listen| ("serve.listen", listen)).into_iter().collect()
        }
        Command::Proxy(args) => {
            let given =
                [number("proxy.window", args.window), number("proxy.reserve", args.reserve)];
            given.into_iter().flatten().collect()
        }
        _ => Vec::new(),
    }
}

fn decide(global: Global, typed: &[(&str, String)], env: &Env) -> Outcome<Settings> {
    let file = settings::read_file(&global, env)?;
    let mut settings = settings::resolve(global, typed, env, file.as_deref())?;
    // The file names the variables, so they cannot be read with the others.
    settings.embedding_key = Env::named(&settings.file.embedding.key_env).map(ApiKey::new);
    let key = |table: &ModelSettings| {
        Some((table.name.clone(), ApiKey::new(Env::named(&table.key_env)?)))
    };
    settings.model_keys = settings.file.models.tables.values().filter_map(key).collect();
    let find = |name: &str| Env::named(name).map(ApiKey::new);
    settings.missing_upstream_key = settings.file.server.proxy.find_keys(find).err();
    Ok(settings)
}

async fn with_memory(command: Command, settings: Settings, printer: Printer) -> Outcome<Status> {
    let verifies = matches!(command, Command::Check(_) | Command::Archive(_));
    let needs = Needs { vectors: needs_model(&command), talk: needs_talk(&command) };
    let done = match App::open(settings, printer, needs).await {
        Ok(app) => {
            let done = dispatch(command, &app).await;
            app.host.bounds.write().await;
            done
        }
        Err(failure) => Err(failure),
    };
    match done {
        // Who asks whether all is well wants that answer in any case.
        Err(failure @ Failure::Memory(_)) if verifies && printer.is_json() => {
            let problems = [hush::said(&failure.message()).into_owned()];
            printer.json(&serde_json::json!({ "ok": false, "problems": problems }))?;
            Err(failure)
        }
        done => done,
    }
}

/// Whether a command makes vectors. A large model or a far server is not waited
/// for where nothing is asked of it.
fn needs_model(command: &Command) -> bool {
    !matches!(
        command,
        Command::Export(_)
            | Command::Show(_)
            | Command::Sessions
            | Command::Stats(_)
            | Command::View(_)
            | Command::Events(_)
            | Command::Archive(_)
            | Command::Check(_)
            | Command::Redact(RedactArgs { rescan: false, .. } | RedactArgs { dry_run: true, .. })
    )
}

/// Whether a command may have something written by a model that talks.
fn needs_talk(command: &Command) -> Talk {
    match command {
        command if !needs_model(command) => Talk::No,
        Command::Search(_) | Command::Context(_) => Talk::No,
        Command::Forget(_) | Command::Redact(_) => Talk::IfPossible,
        _ => Talk::Yes,
    }
}

async fn dispatch(command: Command, app: &App) -> Outcome<Status> {
    use commands::*;
    match command {
        Command::Add(args) => add::run(args, app).await,
        Command::Import(args) => import::run(args, app).await,
        Command::Export(args) => export::run(args, app).await,
        Command::Context(args) => context::run(args, app).await,
        Command::Learn(args) => learn::run(args, app).await,
        Command::Search(args) => search::run(args, app).await,
        Command::Show(args) => show::run(args, app).await,
        Command::Sessions => sessions::run(app).await,
        Command::Stats(args) => stats::run(args, app).await,
        Command::View(args) => view::run(args, app).await,
        Command::Compact(args) => compact::run(args, app).await,
        Command::Chat(args) => chat::run(args, app).await,
        Command::Events(args) => events::run(args, app).await,
        Command::Forget(args) => forget::run(args, app).await,
        Command::Dream(args) => dream::run(args, app).await,
        Command::Archive(args) => archive::run(args, app).await,
        Command::Schedule(args) => schedule::run(args, app).await,
        Command::Check(args) => check::run(args, app).await,
        Command::Reindex => reindex::run(app).await,
        Command::Redact(args) => redact::run(args, app).await,
        Command::Serve(_)
        | Command::Proxy(_)
        | Command::Config(_)
        | Command::Health(_)
        | Command::Model(_)
        | Command::Key(_)
        | Command::Secret(_)
        | Command::Backup(_)
        | Command::Restore(_)
        | Command::Migrate(_)
        | Command::Completions { .. }
        | Command::Demo => Err(Failure::Broken("this command opens no memory".to_owned())),
    }
}

fn runtime() -> Outcome<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::Broken(format!("cannot start the runtime: {error}")))
}
