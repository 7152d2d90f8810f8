//! Schedules at the door: what is refused, what is told, and who sees it.

use serde_json::{Value, json};

use crate::client::{Answer, Host, fresh, in_conformance};

async fn add(host: &Host, body: Value) -> Answer {
    host.post("/schedules", &body.to_string()).await
}

async fn added(host: &Host, body: Value) -> Value {
    let made = add(host, body).await;
    assert_eq!(made.status, 201, "{made:?}");
    made.json()
}

fn id(made: &Value) -> String {
    made["id"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schedule_is_made_read_paused_and_removed() {
    let (_dir, host) = fresh().await;
    let body = json!({"cron": "30 3 * * *", "timezone": "europe/berlin", "budget": 4000,
        "jitterMs": 500, "catchUp": "skip", "memoryRef": "diary"});
    let made = added(&host, body).await;
    let told = ["memoryRef", "task", "cron", "timezone", "budget", "catchUp", "jitterMs", "state"];
    let told: Vec<&Value> = told.iter().map(|name| &made[*name]).collect();
    let expected =
        json!(["diary", "dream", "30 3 * * *", "Europe/Berlin", 4000, "skip", 500, "active"]);
    assert_eq!(json!(told), expected);
    assert!(made["nextFireAt"].as_str().unwrap().contains('T'));
    let id = id(&made);
    let one = host.get(&format!("/schedules/{id}")).await.json();
    assert_eq!(one["next"].as_array().unwrap().len(), 10);
    assert_eq!(one["ticks"], json!([]));
    let other = added(&host, json!({"delayMs": 80_000_000, "task": "consolidate"})).await;
    assert_eq!((&other["state"], other.get("cron")), (&json!("active"), None));
    let list = host.get("/schedules").await.json();
    assert_eq!(list["schedules"].as_array().unwrap().len(), 2);
    let list = host.get("/schedules?memoryRef=diary").await.json();
    assert_eq!(list["schedules"][0]["id"], id.as_str());
    for (what, state) in [("pause", "paused"), ("pause", "paused"), ("resume", "active")] {
        let answer = host.post(&format!("/schedules/{id}/{what}"), "{}").await;
        assert_eq!((answer.status, &answer.json()["state"]), (200, &json!(state)));
    }
    let gone = host.ask("DELETE", &format!("/v1/host/icecore/schedules/{id}"), &[], "").await;
    assert_eq!((gone.status, gone.json()), (200, json!({"id": id, "removed": true})));
    assert_eq!(host.get(&format!("/schedules/{id}")).await.status, 404);
    assert_eq!(host.post(&format!("/schedules/{id}/pause"), "{}").await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_schedule_is_refused_with_its_place() {
    let (_dir, host) = fresh().await;
    let refused = async |body: Value| {
        let answer = add(&host, body.clone()).await;
        assert_eq!(answer.status, 400, "{body}: {answer:?}");
        answer.json()
    };
    let wrong = refused(json!({"cron": "5 99 * * *"})).await;
    assert_eq!(wrong["error"], "validation_error");
    assert_eq!(wrong["details"], json!({"field": "hour", "start": 2, "end": 4}));
    assert!(wrong["message"].as_str().unwrap().contains("0-23"), "{wrong}");
    for body in [
        json!({}),
        json!({"cron": "99 99 * * *"}),
        json!({"cron": "0 0 30 2 *"}),
        json!({"cron": ""}),
        json!({"cron": "@reboot"}),
        json!({"cron": 5}),
        json!({"cron": "@daily", "timezone": "Mars/Olympus"}),
        json!({"cron": "@daily", "delayMs": 5}),
        json!({"delayMs": 0}),
        json!({"delayMs": -5}),
        json!({"delayMs": 5, "timezone": "UTC"}),
        json!({"cron": "@daily", "budget": 0}),
        json!({"cron": "@daily", "budget": -1}),
        json!({"cron": "@daily", "task": "sing"}),
        json!({"cron": "@daily", "catchUp": "always"}),
        json!({"cron": "@daily", "jitterMs": 99_999_999_999_u64}),
    ] {
        assert_eq!(refused(body.clone()).await["error"], "validation_error", "{body}");
    }
    let far = refused(json!({"delayMs": 91_u64 * 86_400_000})).await;
    assert_eq!(far["error"], "schedule_horizon_exceeded");
    assert_eq!(far["details"], json!({"maxFutureHorizon": "P90D"}));
    assert_eq!(host.get("/schedules").await.json(), json!({"schedules": []}));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_key_makes_one_schedule() {
    let (_dir, host) = fresh().await;
    let body = json!({"cron": "30 3 * * *"}).to_string();
    let post = async |body: &str| {
        let path = "/v1/host/icecore/schedules";
        host.ask("POST", path, &[("Idempotency-Key", "k")], body).await
    };
    let (first, again) = (post(&body).await, post(&body).await);
    assert_eq!((first.status, again.status), (201, 201));
    assert_eq!(first.json(), again.json());
    assert_eq!(again.header("openwop-idempotent-replay"), Some("true"));
    assert_eq!(post(r#"{"cron":"31 3 * * *"}"#).await.status, 409);
    assert_eq!(host.get("/schedules").await.json()["schedules"].as_array().unwrap().len(), 1);
    // Whatever becomes of it, the answer stays what it was.
    let id = id(&first.json());
    host.post(&format!("/schedules/{id}/pause"), "{}").await;
    assert_eq!(post(&body).await.text, first.text);
    host.ask("DELETE", &format!("/v1/host/icecore/schedules/{id}"), &[], "").await;
    let again = post(&body).await;
    assert_eq!((again.status, &again.text), (201, &first.text));
    assert_eq!(again.header("openwop-idempotent-replay"), Some("true"));
    assert_eq!(host.get("/schedules").await.json(), json!({"schedules": []}));
    // All that a schedule can have, and a delay.
    for body in [
        json!({"cron": " 30  3 * * * ", "timezone": "europe/berlin", "budget": 4000,
            "jitterMs": 500, "catchUp": "skip", "memoryRef": "diary"}),
        json!({"delayMs": 80_000_000, "task": "consolidate", "jitterMs": 900}),
    ] {
        let post = async || {
            let key = [("Idempotency-Key", body["memoryRef"].as_str().unwrap_or("delay"))];
            host.ask("POST", "/v1/host/icecore/schedules", &key, &body.to_string()).await
        };
        let (first, again) = (post().await, post().await);
        assert_eq!((first.status, &again.text), (201, &first.text));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_seam_fires_once_whatever_was_missed() {
    let (_dir, host) = in_conformance().await;
    let tick = async |body: Value| {
        let path = "/v1/host/sample/scheduling/tick";
        host.ask("POST", path, &[], &body.to_string()).await
    };
    let single = tick(json!({"scenario": "single-tick"})).await;
    assert_eq!((single.status, single.json()), (200, json!({"runsFired": 1, "ticksRecorded": 1})));
    for missed in [1, 5, 1_000] {
        let body = json!({"scenario": "missed-window", "missedTicks": missed});
        let expected = json!({"runsFired": 1, "ticksRecorded": missed});
        assert_eq!(tick(body).await.json(), expected);
    }
    assert_eq!(tick(json!({"scenario": "else"})).await.status, 400);
    assert_eq!(host.get("/schedules").await.json(), json!({"schedules": []}), "nothing stays");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schedule_survives_a_restart() {
    let (dir, host) = fresh().await;
    let made = added(&host, json!({"cron": "15 4 * * *", "budget": 4000})).await;
    host.stop().await;
    let host = Host::start(dir.path()).await;
    let listed = host.get("/schedules").await.json();
    assert_eq!(listed, json!({ "schedules": [made] }));
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_due_fires_while_the_host_runs() {
    let (_dir, host) = fresh().await;
    let made = added(&host, json!({"cron": "* * * * * *", "task": "consolidate"})).await;
    let path = format!("/schedules/{}", id(&made));
    loop {
        let ticks = host.get(&path).await.json()["ticks"].clone();
        let ended = ticks.as_array().unwrap().iter().filter(|tick| tick["outcome"] != "running");
        if ended.count() >= 2 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
}
