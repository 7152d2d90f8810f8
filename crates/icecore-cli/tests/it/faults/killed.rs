//! Hosts that are killed.

use super::*;

#[test]
fn a_host_that_is_killed_while_it_appends_has_every_acknowledged_turn_once() {
    let Some(database) = prepared_database() else { return };
    let site = Site::new(database.url());
    let mut host = site.host();
    let door = Mutex::new(Door::of(&host));
    let ends = AtomicBool::new(false);
    let stored = std::thread::scope(|scope| {
        let write = |name| write_until(&ends, &door, name);
        let writers = ["a", "b", "c"].map(|name| (name, scope.spawn(move || write(name))));
        let mut state = 4_711;
        for _ in 0..kills() {
            std::thread::sleep(Duration::from_millis(150 + random(&mut state) % 500));
            host.child.kill().unwrap();
            host.child.wait().unwrap();
            host = site.host();
            *door.lock().unwrap() = Door::of(&host);
        }
        std::thread::sleep(Duration::from_millis(300));
        ends.store(true, Ordering::SeqCst);
        writers.map(|(name, writer)| (name, writer.join().unwrap()))
    });
    Door::of(&host).settled();
    end(host);
    for (name, stored) in stored {
        assert!(stored.len() > 30, "{name} wrote only {}", stored.len());
        assert_eq!(site.ids(name), stored);
    }
    site.is_whole();
}

/// The only tick of a schedule, once it has an end.
fn ended_tick(door: &Door, schedule: &str) -> Value {
    let begun = Instant::now();
    loop {
        let found = door.get(&format!("/schedules/{schedule}"));
        let ticks = found["ticks"].as_array().unwrap();
        assert!(ticks.len() <= 1, "{found}");
        match ticks.first() {
            Some(tick) if tick["outcome"] != "running" => return tick.clone(),
            _ => assert!(begun.elapsed() < PATIENCE, "{found}"),
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_dream_whose_host_is_killed_is_dreamt_once_by_another() {
    let Some(database) = prepared_database() else { return };
    let site = Site::new(database.url());
    let (mut state, mut dreamt, mut taken_over) = (815, Vec::new(), 0);
    for round in 0..kills() {
        let file = site.place.file("c.jsonl", conversation(300));
        site.ok(&["import", &file, "--session", &format!("r{round}"), "-q"]);
        let mut host = site.host();
        let made = Door::of(&host).post("/schedules", &json!({ "delayMs": 100, "budget": 4000 }));
        let id = made.1["id"].as_str().unwrap_or_else(|| panic!("{made:?}")).to_owned();
        // Once somebody dreams it, and at any point of that.
        while Door::of(&host).get(&format!("/schedules/{id}"))["ticks"]
            .as_array()
            .unwrap()
            .is_empty()
        {
            std::thread::sleep(Duration::from_millis(2));
        }
        std::thread::sleep(Duration::from_millis(random(&mut state) % 60));
        host.child.kill().unwrap();
        host.child.wait().unwrap();
        let other = site.host();
        let tick = ended_tick(&Door::of(&other), &id);
        assert_eq!(tick["outcome"], "ran", "round {round}: {tick}");
        taken_over += u64::from(tick["attempts"].as_u64() > Some(1));
        dreamt.push(tick["runId"].as_str().unwrap_or_else(|| panic!("{tick}")).to_owned());
        end(other);
    }
    eprintln!("{taken_over} of {} dreams were taken over", kills());
    let host = site.host();
    let listed = Door::of(&host).get("/dreams");
    let mut found: Vec<&str> = listed["dreams"]
        .as_array()
        .unwrap_or_else(|| panic!("{listed}"))
        .iter()
        .map(|dream| dream["runId"].as_str().unwrap())
        .collect();
    found.sort_unstable();
    let mut expected: Vec<&str> = dreamt.iter().map(String::as_str).collect();
    expected.sort_unstable();
    assert_eq!(found, expected);
    end(host);
    let events = site.lines(&["events", "--json"]);
    let compacted = events.iter().filter(|event| event["type"] == "memory.compacted").count();
    assert_eq!(compacted, dreamt.len());
    site.is_whole();
}
