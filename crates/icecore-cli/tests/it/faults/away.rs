//! A database that stops, is killed, or has no room for another connection.

use super::*;
use icecore_store::testing::postgres::Crowd;

#[test]
fn a_database_that_is_stopped_and_killed_costs_time_and_nothing_else() {
    let Some(server) = own_server() else { return };
    let database = server.fresh_database();
    let site = Site::new(database.url());
    let host = site.host();
    let (door, ends) = (Mutex::new(Door::of(&host)), AtomicBool::new(false));
    let stored = std::thread::scope(|scope| {
        let write = |name| write_until(&ends, &door, name);
        let writers = ["a", "b", "c"].map(|name| (name, scope.spawn(move || write(name))));
        for how in [Stop::Fast, Stop::Immediate, Stop::Immediate] {
            std::thread::sleep(Duration::from_millis(400));
            server.stop(how);
            is_refused_for_now(&Door::of(&host), || ());
            server.start_again();
        }
        std::thread::sleep(Duration::from_millis(400));
        ends.store(true, Ordering::SeqCst);
        writers.map(|(name, writer)| (name, writer.join().unwrap()))
    });
    // Without a hand: the same host goes on, and what it derives comes about.
    Door::of(&host).settled();
    end(host);
    for (name, stored) in stored {
        assert!(stored.len() > 10, "{name} wrote only {}", stored.len());
        assert_eq!(site.ids(name), stored);
    }
    site.is_whole();
}

/// Whoever asks is told to ask again, and not that it is his fault or ours, once no work
/// that was under way holds a connection.
fn is_refused_for_now(door: &Door, meanwhile: impl Fn()) {
    let begun = Instant::now();
    loop {
        meanwhile();
        let (status, head, told) = door.asked("GET", "/sessions", "", PATIENCE).unwrap();
        if status != 200 {
            assert_eq!((status, &told["error"]), (503, &"store_unavailable".into()), "{told}");
            assert!(head.contains("\r\nretry-after: "), "{head}");
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "it was never refused");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_database_without_room_for_connections_is_told_and_waited_for() {
    let Some(server) = own_server() else { return };
    server.run("CREATE ROLE plain LOGIN");
    let database = server.fresh_database();
    let mut site = Site::new(database.url());
    site.ok(&["stats", "--json"]);
    server.run("GRANT icecore_tenant, icecore_sweeper TO plain");
    server.stop(Stop::Fast);
    server.set_max_connections(10);
    server.start_again();
    site.url = database.url().replace("icecore_test@", "plain@");
    let host = site.host();
    let door = Door::of(&host);
    assert_eq!(door.add("s", &ids("t", 0..3)).unwrap().0, 201);
    let crowd = Crowd::gather(&site.url);
    // Sooner or later they have the places of the host's own connections, too.
    is_refused_for_now(&door, || {
        server.run(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
             WHERE application_name = 'icecore'",
        );
    });
    let refused = door.add("s", &ids("t", 3..6)).unwrap();
    assert_eq!((refused.0, &refused.1["error"]), (503, &"store_unavailable".into()), "{refused:?}");
    assert!(crowd.count() > 3);
    drop(crowd);
    add_until_taken(&door, &ids("t", 3..6));
    door.settled();
    end(host);
    assert_eq!(site.ids("s"), ids("t", 0..6));
    site.is_whole();
}
