//! Objects in a real S3 server, over a line that fails.

use std::path::{Path, PathBuf};

use s3_testing::{BUCKET, Fault, KEY_ID, Line, REGION, S3Server, SECRET};
use zeroize::Zeroizing;

use super::tests::{get, keeps_objects, names};
use super::*;

/// A server, a line to it, and the settings for the line.
struct Bench {
    root: tempfile::TempDir,
    server: S3Server,
    line: Line,
    settings: ObjectSettings,
}

impl Bench {
    async fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let server = S3Server::start(&root.path().join("server")).await;
        let line = Line::to(server.address()).await;
        let settings = ObjectSettings {
            url: format!("s3://{BUCKET}/team/a"),
            endpoint: line.endpoint(),
            region: REGION.to_owned(),
            allow_http: true,
            retry_seconds: 60,
            multipart_bytes: PART as u64,
            part_bytes: PART as u64,
            ..ObjectSettings::default()
        };
        Self { root, server, line, settings }
    }

    /// As [`Bench::new`], with one try and one second for it.
    async fn impatient() -> Self {
        let mut bench = Self::new().await;
        bench.settings.retry_seconds = 0;
        bench.settings.request_seconds = 1;
        bench
    }

    fn data(&self) -> PathBuf {
        self.root.path().join("data")
    }

    fn both(&self) -> (Packs, Packs) {
        Packs::at(&self.settings, Some(&keys(SECRET)), &self.data()).unwrap()
    }

    fn packs(&self) -> Packs {
        self.both().0
    }

    /// The files of packs on the server's disk.
    fn lying(&self) -> PathBuf {
        self.root.path().join("server").join(BUCKET).join("team/a/packs")
    }

    fn cached(&self) -> PathBuf {
        self.data().join(CACHE_DIR)
    }

    /// How often each method was asked for since the last look.
    fn asked(&self, method: &str) -> usize {
        self.line.seen().iter().filter(|line| line.starts_with(method)).count()
    }
}

fn keys(secret: &str) -> ObjectKeys {
    let secret = Zeroizing::new(secret.to_owned());
    ObjectKeys { id: KEY_ID.to_owned(), secret, token: None }
}

fn count(dir: &Path) -> usize {
    dir.read_dir().map_or(0, Iterator::count)
}

/// The least that a server takes as a part, but for the last.
const PART: usize = 5 << 20;

/// A body of three parts, told by what it is made of.
fn large(of: u8) -> Bytes {
    Bytes::from(vec![of; 2 * PART + 1])
}

async fn get_large(packs: &Packs, name: &str, of: u8) -> Result<Bytes> {
    packs.get_lying(name, &Sha256::digest(large(of)).into()).await
}

#[tokio::test]
async fn objects_are_kept_in_s3() {
    let bench = Bench::new().await;
    let (packs, archives) = bench.both();
    keeps_objects(packs.clone()).await;
    keeps_objects(archives.clone()).await;
    packs.put("one", Bytes::from_static(b"pack")).await.unwrap();
    archives.put("one", Bytes::from_static(b"archive")).await.unwrap();
    assert_eq!(get(&packs, "one", "pack").await.unwrap(), "pack");
    assert_eq!(get(&archives, "one", "archive").await.unwrap(), "archive");
    packs.delete("one").await.unwrap();
    assert_eq!(get(&archives, "one", "archive").await.unwrap(), "archive");
    // Another store's prefix, and one that begins like ours, are other places.
    for other in ["team", "team/a2", "team/a/packs"] {
        let url = format!("s3://{BUCKET}/{other}");
        let settings = ObjectSettings { url, ..bench.settings.clone() };
        let (packs, archives) = Packs::at(&settings, Some(&keys(SECRET)), &bench.data()).unwrap();
        assert!(
            packs.list().await.unwrap().is_empty() && archives.list().await.unwrap().is_empty()
        );
    }
}

#[tokio::test]
async fn a_bucket_of_its_own_needs_no_prefix() {
    let bench = Bench::new().await;
    let settings = ObjectSettings { url: format!("s3://{BUCKET}"), ..bench.settings.clone() };
    let (packs, archives) = Packs::at(&settings, Some(&keys(SECRET)), &bench.data()).unwrap();
    keeps_objects(packs).await;
    keeps_objects(archives).await;
}

#[tokio::test]
async fn more_objects_than_a_page_are_listed() {
    let bench = Bench::new().await;
    let packs = bench.packs();
    packs.put("x", Bytes::from_static(b"x")).await.unwrap();
    for number in 0..1_100 {
        std::fs::write(bench.lying().join(format!("{number:04}{SUFFIX}")), b"y").unwrap();
    }
    std::fs::write(bench.lying().join("notes.txt"), b"mine").unwrap();
    assert_eq!(packs.list().await.unwrap().len(), 1_101);
}

#[tokio::test]
async fn one_of_two_writers_wins() {
    let bench = Bench::new().await;
    let (one, two) = (bench.packs(), bench.packs());
    for number in 0..8 {
        let name = format!("n{number}");
        let (a, b) = match number % 4 {
            0 => (large(b'a'), large(b'b')),
            _ => (Bytes::from_static(b"a"), Bytes::from_static(b"b")),
        };
        let (first, second) = tokio::join!(one.put(&name, a.clone()), two.put(&name, b.clone()));
        assert!(first.is_ok() != second.is_ok(), "{first:?} {second:?}");
        let (winner, loser) = if first.is_ok() { (&a, &b) } else { (&b, &a) };
        assert!(one.get(&name, &Sha256::digest(winner).into()).await.is_ok());
        let damaged = one.get(&name, &Sha256::digest(loser).into()).await;
        assert!(matches!(damaged, Err(StoreError::PackDamaged { .. })));
    }
    assert_eq!(bench.server.unfinished(), [""; 0]);
}

#[tokio::test]
async fn a_put_whose_answer_was_lost_is_done() {
    let bench = Bench::new().await;
    let packs = bench.packs();
    for (number, fault) in
        [Fault::LoseAnswer, Fault::StatusAfter(500), Fault::StatusAfter(503), Fault::Truncate(0)]
            .into_iter()
            .enumerate()
    {
        let name = format!("n{number}");
        bench.line.once("PUT", fault);
        packs.put(&name, Bytes::from_static(b"once")).await.unwrap();
        assert_eq!(get(&packs, &name, "once").await.unwrap(), "once");
    }
    // What lies there is another's.
    bench.line.once("PUT", Fault::Cut);
    let other = packs.put("n0", Bytes::from_static(b"other")).await.unwrap_err();
    assert!(matches!(other, StoreError::Objects { action: "write", .. }), "{other:?}");
    assert_eq!(get(&packs, "n0", "once").await.unwrap(), "once");
}

#[tokio::test]
async fn what_fails_for_a_while_is_tried_again() {
    let bench = Bench::new().await;
    let packs = bench.packs();
    let faults = [Fault::Cut, Fault::Status(500), Fault::Status(503), Fault::Status(429)];
    for fault in faults {
        for method in ["PUT", "GET", "DELETE"] {
            bench.line.once(method, fault.clone());
        }
        packs.put("x", Bytes::from_static(b"body")).await.unwrap();
        assert_eq!(get(&packs, "x", "body").await.unwrap(), "body");
        bench.line.once("GET", fault.clone());
        assert_eq!(names(&packs.list().await.unwrap()), ["x"]);
        packs.delete("x").await.unwrap();
        assert!(packs.list().await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn a_body_that_was_cut_short_is_fetched_again() {
    let bench = Bench::new().await;
    let packs = bench.packs();
    packs.put("x", Bytes::from_static(b"the whole body")).await.unwrap();
    for fault in [Fault::Truncate(4), Fault::Truncate(0), Fault::Shorten(4), Fault::Shorten(0)] {
        bench.line.once("GET", fault);
        let sum = Sha256::digest("the whole body").into();
        assert_eq!(packs.get_lying("x", &sum).await.unwrap(), "the whole body");
    }
    bench.line.always("GET", Fault::Shorten(4));
    let error = get(&packs, "x", "the whole body").await.unwrap_err();
    assert!(matches!(error, StoreError::PackDamaged { name, .. } if name == "x"));
    // What was damaged on the way is not kept as a copy.
    assert_eq!(count(&bench.cached()), 0);
    bench.line.always("GET", Fault::None);
    assert_eq!(get(&packs, "x", "the whole body").await.unwrap(), "the whole body");
}

/// Checks that every operation fails so, with something to do about it.
async fn check_failing(packs: &Packs, is_it: impl Fn(&StoreError) -> bool) {
    let sum = Sha256::digest("x").into();
    let failures = [
        packs.put("x", Bytes::from_static(b"x")).await.unwrap_err(),
        packs.put("x", large(b'a')).await.unwrap_err(),
        packs.get("x", &sum).await.unwrap_err(),
        packs.delete("x").await.unwrap_err(),
        packs.list().await.unwrap_err(),
        packs.remove_leftovers(Duration::ZERO).await.unwrap_err(),
    ];
    for failure in failures {
        assert!(is_it(&failure), "{failure:?}");
        assert!(failure.is_out_of_reach() && failure.hint().is_some(), "{failure:?}");
        assert!(failure.to_string().contains("s3://bucket/team/a"), "{failure}");
    }
}

#[tokio::test]
async fn a_server_that_is_gone_is_told_and_comes_back() {
    let mut bench = Bench::impatient().await;
    let packs = bench.packs();
    packs.put("kept", Bytes::from_static(b"kept")).await.unwrap();
    bench.server.stop().await;
    check_failing(&packs, |error| matches!(error, StoreError::ObjectsGone { .. })).await;
    bench.server.start_again().await;
    packs.put("x", Bytes::from_static(b"x")).await.unwrap();
    assert_eq!(names(&packs.list().await.unwrap()), ["kept", "x"]);
    assert_eq!(get(&packs, "kept", "kept").await.unwrap(), "kept");
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_given_up() {
    let bench = Bench::impatient().await;
    let packs = bench.packs();
    bench.line.always("", Fault::Hang);
    check_failing(&packs, |error| matches!(error, StoreError::ObjectsGone { .. })).await;
    bench.line.go_on();
}

#[tokio::test]
async fn a_server_that_fails_is_told() {
    let bench = Bench::impatient().await;
    let packs = bench.packs();
    bench.line.always("", Fault::Status(500));
    check_failing(&packs, |error| {
        let is_list = matches!(error, StoreError::ObjectsGone { .. });
        matches!(error, StoreError::ObjectsFailing { .. }) || is_list
    })
    .await;
}

#[tokio::test]
async fn a_wrong_key_and_a_missing_bucket_are_told() {
    let bench = Bench::impatient().await;
    let of = |settings: &ObjectSettings, secret: &str| {
        Packs::at(settings, Some(&keys(secret)), &bench.data()).unwrap().0
    };
    let stranger = of(&bench.settings, "another-key");
    let refused = stranger.put("x", Bytes::from_static(b"x")).await.unwrap_err();
    assert!(matches!(refused, StoreError::ObjectsForbidden { .. }), "{refused:?}");
    assert!(refused.hint().unwrap().contains("AWS_SECRET_ACCESS_KEY"));

    let url = "s3://elsewhere/team".to_owned();
    let nowhere = of(&ObjectSettings { url, ..bench.settings.clone() }, SECRET);
    let missing = nowhere.list().await.unwrap_err();
    assert!(matches!(missing, StoreError::NoBucket { .. }), "{missing:?}");

    let nobody = Packs::at(&bench.settings, None, &bench.data()).unwrap_err();
    assert!(matches!(nobody, StoreError::NoObjectKeys { .. }));
}

#[tokio::test]
async fn large_objects_are_uploaded_in_parts() {
    let bench = Bench::new().await;
    let packs = bench.packs();
    let most = Bytes::from(vec![b'x'; PART]);
    packs.put("small", most).await.unwrap();
    assert_eq!(bench.asked("POST"), 0);
    packs.put("large", large(b'a')).await.unwrap();
    let seen = bench.line.seen();
    let parts: Vec<_> = seen.iter().filter(|line| line.starts_with("PUT")).collect();
    assert_eq!(parts.len(), 3);
    assert!(parts.iter().all(|line| line.contains("partNumber=")), "{parts:?}");
    assert!(get_large(&packs, "large", b'a').await.is_ok());
    assert_eq!(bench.server.unfinished(), [""; 0]);

    packs.put("large", large(b'a')).await.expect("it is there with these very bytes");
    let other = packs.put("large", large(b'b')).await.unwrap_err();
    assert!(!other.is_out_of_reach(), "{other:?}");
    assert!(get_large(&packs, "large", b'a').await.is_ok(), "what is there stays");
    assert_eq!(bench.server.unfinished(), [""; 0]);
}

#[tokio::test]
async fn an_upload_survives_lost_parts_and_answers() {
    let bench = Bench::new().await;
    let packs = bench.packs();
    let faults = [
        ("PUT", Fault::Cut),
        ("PUT", Fault::LoseAnswer),
        ("PUT", Fault::StatusAfter(500)),
        ("POST", Fault::Cut),
        ("POST", Fault::Status(503)),
    ];
    for (number, (method, fault)) in faults.into_iter().enumerate() {
        let name = format!("n{number}");
        bench.line.once(method, fault);
        packs.put(&name, large(b'a')).await.unwrap();
        assert!(get_large(&packs, &name, b'a').await.is_ok());
    }
    // The last answer of all: it was put together, and nobody heard.
    for (number, fault) in [Fault::LoseAnswer, Fault::StatusAfter(500)].into_iter().enumerate() {
        let name = format!("m{number}");
        bench.line.once(&format!("POST /{BUCKET}/team/a/packs/{name}{SUFFIX}?uploadId"), fault);
        packs.put(&name, large(b'a')).await.unwrap();
        assert!(get_large(&packs, &name, b'a').await.is_ok());
    }
}

#[tokio::test]
async fn an_upload_that_is_given_up_leaves_no_parts() {
    let bench = Bench::impatient().await;
    let packs = bench.packs();
    bench.line.always("PUT", Fault::Status(500));
    let failed = packs.put("x", large(b'a')).await.unwrap_err();
    assert!(matches!(failed, StoreError::ObjectsFailing { .. }), "{failed:?}");
    assert_eq!(bench.server.unfinished(), [""; 0]);
    assert!(packs.list().await.unwrap().is_empty());

    // Whoever waited for it has gone.
    bench.line.always("PUT", Fault::Hang);
    let task = tokio::spawn(async move { packs.put("x", large(b'a')).await });
    bench.line.until_hanging().await;
    assert_eq!(bench.server.unfinished().len(), 1);
    task.abort();
    bench.server.until_unfinished(0).await;
}

#[tokio::test]
async fn uploads_that_nobody_goes_on_with_are_swept() {
    let bench = Bench::impatient().await;
    let (packs, archives) = bench.both();
    for objects in [&packs, &archives] {
        // Neither the part nor giving up gets through.
        bench.line.once("PUT", Fault::Cut);
        bench.line.once("DELETE", Fault::Cut);
        objects.put("x", large(b'a')).await.unwrap_err();
    }
    let left = || bench.server.unfinished().len();
    assert_eq!(left(), 2);
    let hour = Duration::from_secs(3600);
    assert_eq!(packs.remove_leftovers(hour).await.unwrap(), 0, "somebody may be at work on it");
    bench.server.age_uploads();
    assert_eq!(packs.remove_leftovers(hour).await.unwrap(), 1);
    assert_eq!(left(), 1, "that of an archive is none of a pack");
    assert_eq!(archives.remove_leftovers(hour).await.unwrap(), 1);
    assert_eq!(left(), 0);
    // A server that does not list them has none to sweep.
    bench.line.always("GET /bucket/?uploads", Fault::Status(501));
    assert_eq!(packs.remove_leftovers(hour).await.unwrap(), 0);
}

#[tokio::test]
async fn what_was_read_is_copied_to_this_disk() {
    let bench = Bench::new().await;
    let packs = bench.packs();
    packs.put("x", Bytes::from_static(b"body")).await.unwrap();
    assert_eq!(count(&bench.cached()), 0, "what is written is not read yet");
    let sum = Sha256::digest("body").into();
    packs.get_lying("x", &sum).await.unwrap();
    assert_eq!(count(&bench.cached()), 0);
    bench.line.seen();
    for _ in 0..3 {
        assert_eq!(packs.get("x", &sum).await.unwrap(), "body");
    }
    assert_eq!(bench.asked("GET"), 1);
    // After a restart too, and without the server.
    bench.line.always("", Fault::Cut);
    assert_eq!(bench.packs().get("x", &sum).await.unwrap(), "body");
    bench.line.always("", Fault::None);

    std::fs::write(bench.cached().join("x.icepack"), b"bady").unwrap();
    bench.line.seen();
    assert_eq!(packs.get("x", &sum).await.unwrap(), "body");
    assert_eq!(bench.asked("GET"), 1, "a damaged copy is fetched again");
    packs.get_lying("x", &sum).await.unwrap();
    assert_eq!(bench.asked("GET"), 1, "from where it lies");

    packs.delete("x").await.unwrap();
    assert_eq!((count(&bench.cached()), count(&bench.lying())), (0, 0));
}

#[tokio::test]
async fn a_copy_goes_though_the_server_is_gone_and_when_another_host_deletes() {
    let mut bench = Bench::impatient().await;
    let (packs, archives) = bench.both();
    for name in ["x", "y"] {
        packs.put(name, Bytes::from_static(b"body")).await.unwrap();
        get(&packs, name, "body").await.unwrap();
    }
    archives.put("z", Bytes::from_static(b"body")).await.unwrap();
    get(&archives, "z", "body").await.unwrap();
    bench.server.stop().await;
    packs.delete("x").await.unwrap_err();
    assert_eq!(count(&bench.cached()), 2);
    bench.server.start_again().await;

    let elsewhere = bench.root.path().join("other-host");
    let (other, _) = Packs::at(&bench.settings, Some(&keys(SECRET)), &elsewhere).unwrap();
    other.delete("y").await.unwrap();
    packs.remove_leftovers(Duration::ZERO).await.unwrap();
    assert_eq!(count(&bench.cached()), 1, "the archive's");
}

#[tokio::test]
async fn the_cache_keeps_to_its_bound() {
    let mut bench = Bench::new().await;
    bench.settings.cache_bytes = 100;
    let packs = bench.packs();
    for number in 0..5 {
        let body = vec![number; 30];
        let name = format!("n{number}");
        packs.put(&name, body.clone().into()).await.unwrap();
        packs.get(&name, &Sha256::digest(&body).into()).await.unwrap();
        let held: u64 = bench
            .cached()
            .read_dir()
            .unwrap()
            .map(|entry| entry.unwrap().metadata().unwrap().len())
            .sum();
        assert!(held <= 100, "{held}");
    }
    bench.settings.cache_bytes = 0;
    bench.line.seen();
    let sum = Sha256::digest([4; 30]).into();
    bench.packs().get("n4", &sum).await.unwrap();
    bench.packs().get("n4", &sum).await.unwrap();
    assert_eq!(bench.asked("GET"), 2);
}

#[tokio::test]
async fn a_place_belongs_to_one_store() {
    let bench = Bench::new().await;
    let files = tempfile::tempdir().unwrap();
    let url = format!("file://{}", files.path().display());
    let in_files = ObjectSettings { url, ..ObjectSettings::default() };
    for settings in [&bench.settings, &in_files] {
        let (packs, archives) = Packs::at(settings, Some(&keys(SECRET)), &bench.data()).unwrap();
        assert!(packs.is_shared() && archives.is_shared());
        for objects in [&packs, &archives] {
            objects.claim("mine").await.unwrap();
            objects.claim("mine").await.unwrap();
            let foreign = objects.claim("yours").await.unwrap_err();
            assert!(matches!(foreign, StoreError::ForeignObjects { .. }), "{foreign:?}");
            assert!(objects.list().await.unwrap().is_empty());
        }
    }
    // Nobody else is pointed at a store's own directory.
    let (beside, _) = Packs::at(&ObjectSettings::default(), None, &bench.data()).unwrap();
    assert!(!beside.is_shared());
    beside.claim("mine").await.unwrap();
    beside.claim("yours").await.unwrap();
}
