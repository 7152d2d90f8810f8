//! A database without room.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::*;

/// A small file system of its own, if we may mount one.
struct Disk {
    dir: tempfile::TempDir,
    path: PathBuf,
}

impl Disk {
    /// For the user of that server.
    fn mounted(server: &TestServer, size: &str) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let path = dir.path().join("disk");
        std::fs::create_dir(&path).unwrap();
        let options = format!("size={size},mode=700");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(&path);
        if !is_root() || !mount.output().is_ok_and(|output| output.status.success()) {
            say_skipped("a small disk can only be mounted by root");
            return None;
        }
        let disk = Self { dir, path };
        give(&disk.path, server);
        Some(disk)
    }

    /// Leaves no more room than so many bytes.
    fn fill(&self, room: u64) {
        let mut file = std::fs::File::create(self.filler()).unwrap();
        let mut written = 0;
        for size in [1 << 16, 1 << 12] {
            while file.write_all(&vec![1; size]).is_ok() {
                written += size as u64;
            }
        }
        file.set_len(written.saturating_sub(room)).unwrap();
    }

    fn filler(&self) -> PathBuf {
        self.path.join("filler")
    }

    fn make_room(&self) {
        std::fs::remove_file(self.filler()).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // The server may not have ended yet.
        let _ = Command::new("umount").arg("-l").arg(&self.path).status();
        let _ = std::fs::remove_dir(&self.path);
        let _ = self.dir.path();
    }
}

fn give(path: &Path, server: &TestServer) {
    let owner = std::fs::metadata(server.data_directory().unwrap()).unwrap();
    std::os::unix::fs::chown(path, Some(owner.uid()), Some(owner.gid())).unwrap();
}

/// Appends until it is refused: how many turns were stored, and the refusal.
fn append_until_refused(door: &Door) -> (usize, u16, Value) {
    for stored in (0..100_000).step_by(20) {
        let (status, body) = door.add("s", &ids("t", stored..stored + 20)).unwrap();
        if status != 201 {
            return (stored, status, body);
        }
    }
    panic!("the disk was never full");
}

/// Sends what was refused until it is taken, and more.
fn go_on(door: &Door, stored: usize) -> usize {
    let begun = Instant::now();
    for from in (stored..stored + 100).step_by(20) {
        loop {
            let (status, body) = door.add("s", &ids("t", from..from + 20)).unwrap();
            match status {
                200 | 201 => break,
                _ => assert!(begun.elapsed() < PATIENCE, "{status} {body}"),
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    stored + 100
}

#[test]
fn a_database_without_room_refuses_and_goes_on_when_there_is_some() {
    let Some(server) = own_server() else { return };
    let Some(disk) = Disk::mounted(&server, "64m") else { return };
    let database = server.fresh_database();
    server.run(&format!("CREATE TABLESPACE small LOCATION '{}'", disk.path.display()));
    server.run(&format!("ALTER DATABASE {} SET TABLESPACE small", database.name()));
    let site = Site::new(database.url());
    let host = site.host();
    let door = Door::of(&host);
    disk.fill(2 << 20);
    let (stored, status, told) = append_until_refused(&door);
    assert_eq!((status, &told["error"]), (507, &"disk_full".into()), "{told}");
    let said = told["message"].as_str().unwrap();
    assert!(said.contains("disk of the database is full"), "{said}");
    assert!(said.contains("sent again"), "{said}");
    // What was acknowledged can be read meanwhile.
    let seen = door.get("/sessions/s/turns?limit=500");
    assert_eq!(seen["turns"].as_array().unwrap().len(), stored.min(500));
    // A person is told which disk it is, and what to do.
    let file = site.place.file("c.jsonl", conversation(4_000));
    let shown = site.shown(&["import", &file, "--session", "large"]);
    assert!(shown.starts_with("exit 1\n"), "{shown}");
    assert!(shown.contains("error: the database at `127.0.0.1:"), "{shown}");
    assert!(shown.contains("has no room left: could not extend file"), "{shown}");
    assert!(shown.contains("hint: free some space on the database's disk"), "{shown}");
    disk.make_room();
    let stored = go_on(&door, stored);
    door.settled();
    end(host);
    assert_eq!(site.ids("s"), ids("t", 0..stored));
    site.ok(&["import", &file, "--session", "large", "-q"]);
    assert_eq!(site.ids("large").len(), 4_000);
    site.is_whole();
}

#[test]
fn a_database_whose_log_has_no_room_is_away_until_it_has() {
    let Some(server) = own_server() else { return };
    let Some(disk) = Disk::mounted(&server, "128m") else { return };
    let database = server.fresh_database();
    let site = Site::new(database.url());
    let host = site.host();
    let door = Door::of(&host);
    server.stop(Stop::Fast);
    let (log, moved) = (server.data_directory().unwrap().join("pg_wal"), disk.path.join("pg_wal"));
    let copied = Command::new("cp").arg("-a").args([&log, &moved]).status().unwrap();
    assert!(copied.success());
    std::fs::remove_dir_all(&log).unwrap();
    std::os::unix::fs::symlink(&moved, &log).unwrap();
    server.start_again();
    // The next segment of the log finds no place.
    disk.fill(1 << 20);
    let (stored, status, told) = append_until_refused(&door);
    assert_eq!((status, &told["error"]), (503, &"store_unavailable".into()), "{told}");
    disk.make_room();
    // Whether it got up by itself depends on when there was room.
    if !is_up(&database) {
        server.start_again();
    }
    let stored = go_on(&door, stored);
    door.settled();
    end(host);
    assert_eq!(site.ids("s"), ids("t", 0..stored));
    site.is_whole();
}

/// Whether its server answers, or is about to.
fn is_up(database: &TestDatabase) -> bool {
    let data = database.server().data_directory().unwrap();
    let pid = std::fs::read_to_string(data.join("postmaster.pid")).unwrap_or_default();
    let pid = pid.lines().next().unwrap_or_default().to_owned();
    !pid.is_empty() && Path::new("/proc").join(pid).exists()
}
