//! The database, the objects and the hosts.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use icecore_store::testing::postgres::{TestServer, own_server};
use serde_json::Value;

use super::Args;
use crate::Result;
use crate::host::client::Door;

/// All hosts have the same.
const MASTER_KEY: &str = "7c7c7c7c7c7c7c7c7c7c7c7c7c7c7c7c7c7c7c7c7c7c7c7c7c7c7c7c7c7c7c7c";

/// What runs, until it is dropped.
pub struct Place {
    bin: PathBuf,
    store: String,
    dir: tempfile::TempDir,
    cores_each: Option<f64>,
    hosts: Vec<Child>,
    pub doors: Doors,
    /// One for each tenant.
    pub keys: Vec<String>,
    _server: Option<Arc<TestServer>>,
}

/// Where hosts are now; one that was killed answers nobody until it is back.
#[derive(Clone)]
pub struct Doors(Arc<Mutex<Vec<SocketAddr>>>);

impl Doors {
    /// The host of that number, counted round.
    pub fn at(&self, number: usize, key: &str) -> Door {
        let addresses = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Door { address: addresses[number % addresses.len()], key: key.to_owned() }
    }
}

impl Place {
    pub fn new(args: &Args) -> Result<Self> {
        let (server, store) = match &args.store {
            Some(url) => (None, url.clone()),
            None => {
                let server = own_server().ok_or("there is no PostgreSQL to start")?;
                let store = server.url().to_owned();
                (Some(server), store)
            }
        };
        let mut place = Self {
            bin: args.bin.clone(),
            store,
            dir: tempfile::tempdir()?,
            cores_each: args.cores_each,
            hosts: Vec::new(),
            doors: Doors(Arc::default()),
            keys: Vec::new(),
            _server: server,
        };
        for number in 0..args.hosts {
            let (host, address) = place.start(number)?;
            place.hosts.push(host);
            place.doors.0.lock().unwrap_or_else(PoisonError::into_inner).push(address);
        }
        for tenant in 0..args.tenants {
            let key = place.key(&tenant_name(tenant))?;
            place.keys.push(key);
        }
        Ok(place)
    }

    /// A command of host number `number`, over the store that all share.
    fn command(&self, number: usize, args: &[&str]) -> Command {
        let mut command = Command::new(&self.bin);
        let objects = format!("file://{}", self.dir.path().join("objects").display());
        command.args(args).arg("--data").arg(self.dir.path().join(number.to_string()));
        command.env("ICECORE_STORE", &self.store).env("ICECORE_OBJECTS", objects);
        command.env("ICECORE_MASTER_KEY", MASTER_KEY);
        command
    }

    fn start(&self, number: usize) -> Result<(Child, SocketAddr)> {
        let args = ["serve", "--listen", "127.0.0.1:0", "--json", "--quiet"];
        let mut host = self.command(number, &args).stdout(Stdio::piped()).spawn()?;
        if let Some(cores) = self.cores_each {
            hold_to(&host, number, cores)
                .map_err(|error| format!("a host cannot be held to {cores} cores: {error}"))?;
        }
        let stdout = host.stdout.take().ok_or("the host has no output")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        let first: Value = serde_json::from_str(&line)?;
        let address = first["listening"].as_str().ok_or("the host does not say where it is")?;
        Ok((host, address.trim_start_matches("http://").parse()?))
    }

    /// Kills a host as it stands, and starts another over its directory.
    pub fn replace(&mut self, number: usize) -> Result<()> {
        self.hosts[number].kill()?;
        self.hosts[number].wait()?;
        let (host, address) = self.start(number)?;
        self.hosts[number] = host;
        self.doors.0.lock().unwrap_or_else(PoisonError::into_inner)[number] = address;
        Ok(())
    }

    fn key(&self, tenant: &str) -> Result<String> {
        let args = ["key", "create", "--tenant", tenant, "--role", "writer", "--json"];
        let output = self.command(0, &args).stderr(Stdio::inherit()).output()?;
        let told: Value = serde_json::from_slice(&output.stdout)?;
        Ok(told["key"].as_str().ok_or("`key create` printed no key")?.to_owned())
    }

    /// What `check` finds wrong.
    pub fn check(&self) -> Result<Vec<String>> {
        let output = self.command(0, &["check", "--quiet"]).output()?;
        match output.status.success() {
            true => Ok(Vec::new()),
            false => {
                let told = [output.stdout, output.stderr].concat();
                Ok(String::from_utf8_lossy(&told).lines().map(str::to_owned).collect())
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for host in &mut self.hosts {
            let _ = host.kill();
            let _ = host.wait();
        }
        if self.cores_each.is_some() {
            (0..self.hosts.len()).for_each(|number| {
                let _ = std::fs::remove_dir(group_of(number));
            });
        }
    }
}

/// Where control groups of cores are, where each resource has a tree.
const OLD_TREE: &str = "/sys/fs/cgroup/cpu";

fn group_of(number: usize) -> PathBuf {
    let tree = if Path::new(OLD_TREE).is_dir() { OLD_TREE } else { "/sys/fs/cgroup" };
    Path::new(tree).join(format!("icecore-evals-{number}"))
}

/// Puts a host into a control group that has no more than a share of the cores.
fn hold_to(host: &Child, number: usize, cores: f64) -> std::io::Result<()> {
    const PERIOD: u64 = 100_000;
    let quota = (PERIOD as f64 * cores) as u64;
    let limits = match Path::new(OLD_TREE).is_dir() {
        true => {
            vec![("cpu.cfs_period_us", PERIOD.to_string()), ("cpu.cfs_quota_us", quota.to_string())]
        }
        false => vec![("cpu.max", format!("{quota} {PERIOD}"))],
    };
    let group = group_of(number);
    std::fs::create_dir_all(&group)?;
    for (name, value) in limits {
        std::fs::write(group.join(name), value)?;
    }
    std::fs::write(group.join("cgroup.procs"), host.id().to_string())
}

pub fn tenant_name(number: usize) -> String {
    format!("tenant-{number}")
}
