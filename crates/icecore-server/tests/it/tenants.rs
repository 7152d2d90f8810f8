//! Two tenants at once, every route of the document, thousands of requests: not
//! one byte crosses.
//!
//! What a tenant writes carries its mark; names that both use, and ids that either
//! was told, do not. So a mark of the other in an answer is a leak, wherever it is.

use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use icecore_server::Role;
use serde_json::{Value, json};

use crate::client::{apart, connect, read_head, with_providers};

/// All requests, of both tenants.
const REQUESTS: usize = 10_000;

/// Connections of each tenant.
const CALLERS: usize = 4;

/// Names that both tenants use.
const SESSIONS: [&str; 4] = ["trip", "work", "a/b c", "日記"];
const MEMORIES: [&str; 4] = ["default", "notes", "mem://shared/ref", "conformance/agent-memory-x"];
const PATHS: [&str; 3] = ["plan.md", "notes/today.md", "a-b.txt"];

/// The same numbers on every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % sides as u64) as usize
    }

    fn of<'a, T: ?Sized>(&mut self, items: &[&'a T]) -> &'a T {
        items[self.roll(items.len())]
    }
}

/// What a route is, by the document.
#[derive(Debug, Clone)]
struct Route {
    method: String,
    path: String,
}

/// Every operation that takes a key.
fn routes(document: &Value) -> Vec<Route> {
    let paths = document["paths"].as_object().unwrap();
    let mut routes = Vec::new();
    for (path, operations) in paths {
        for (method, operation) in operations.as_object().unwrap() {
            let is_open = operation["security"] == json!([{}]);
            if !is_open && operation.get("responses").is_some() {
                routes.push(Route { method: method.to_uppercase(), path: path.clone() });
            }
        }
    }
    routes
}

/// One of the two, with what it may send.
struct Tenant {
    mark: &'static str,
    foreign: &'static str,
    key: String,
}

/// Ids that either tenant was told.
type Ids = Arc<Mutex<Vec<String>>>;

struct Caller {
    tenant: Arc<Tenant>,
    ids: Ids,
    dice: Dice,
    address: SocketAddr,
    line: Option<BufReader<TcpStream>>,
}

impl Caller {
    fn words(&mut self) -> String {
        let said = ["went to the harbour", "likes plum cake", "moved to Oslo", "fixed the boiler"];
        format!("{} {} {}", self.tenant.mark, self.dice.of(&said), self.dice.roll(1000))
    }

    /// An id that somebody was told, often the other tenant.
    fn id(&mut self) -> String {
        let ids = self.ids.lock().unwrap();
        match ids.is_empty() {
            true => "none".to_owned(),
            false => ids[self.dice.roll(ids.len())].clone(),
        }
    }

    fn memory(&mut self) -> String {
        let private = format!("{}-own", self.tenant.mark);
        let choices = [MEMORIES[0], MEMORIES[1], MEMORIES[2], MEMORIES[3], private.as_str()];
        self.dice.of(&choices).to_owned()
    }

    fn session(&mut self) -> String {
        let private = format!("{}-own", self.tenant.mark);
        let choices = [SESSIONS[0], SESSIONS[1], SESSIONS[2], SESSIONS[3], private.as_str()];
        self.dice.of(&choices).to_owned()
    }

    fn turn(&mut self) -> Value {
        let mut turn = json!({
            "role": self.dice.of(&["user", "assistant", "tool"]),
            "name": self.dice.of(&["Ana", "Ben"]),
            "content": self.words(),
        });
        if self.dice.roll(3) == 0 {
            turn["id"] = json!(format!("{}-{}", self.tenant.mark, self.dice.roll(500)));
        }
        turn
    }

    /// What to send to a route; none where it takes no body.
    fn body(&mut self, route: &Route) -> Option<Value> {
        if matches!(route.method.as_str(), "GET" | "DELETE") {
            return None;
        }
        let name = route.path.trim_start_matches("/v1/").trim_start_matches("host/");
        let mut body = match name {
            "icecore/sessions/{session}/turns" => {
                let turns: Vec<Value> = (0..=self.dice.roll(3)).map(|_| self.turn()).collect();
                json!({ "turns": turns })
            }
            "icecore/sessions/{session}/compact" => json!({}),
            "icecore/sessions/{session}/handoff" => {
                let version = 1 + self.dice.roll(2);
                json!({ "handoff": self.words(), "compactionId": self.id(), "version": version })
            }
            "icecore/context" => json!({ "query": "harbour cake Oslo", "budget": 400 }),
            "icecore/search" => json!({ "query": self.dice.of(&["cake", "Oslo", "boiler"]) }),
            "icecore/facts" => json!({ "text": format!("Ana {}", self.words()) }),
            "icecore/facts/{id}/confirm" | "icecore/facts/{id}/reject" => json!({}),
            "icecore/entries" => {
                let tags = json!([self.tenant.mark, "subject:Ana"]);
                json!({ "content": self.words(), "tags": tags })
            }
            "icecore/commitments" => {
                let tag = self.dice.of(&["subject:Ana", "never"]);
                json!({ "intention": self.words(), "when": { "tag": tag } })
            }
            "icecore/consolidate" => json!({}),
            "icecore/dreams" => match self.dice.roll(3) {
                0 => json!({ "dryRun": true }),
                1 => json!({ "budget": 1 + self.dice.roll(2_000) }),
                _ => json!({}),
            },
            "icecore/dreams/{id}/undo" => json!({}),
            "icecore/schedules" => json!({ "delayMs": 80_000_000 + self.dice.roll(1_000) }),
            "icecore/schedules/{id}/pause" | "icecore/schedules/{id}/resume" => json!({}),
            "runs" => {
                let workflow = self.dice.of(&["conformance-noop", "conformance-identity"]);
                json!({ "workflowId": workflow, "inputs": { "note": self.words() } })
            }
            "runs/{id}:fork" => json!({ "mode": "replay" }),
            "runs/{id}/cancel" => json!({}),
            "icecore/forget" => match self.dice.roll(20) {
                0 => json!({ "subject": "Ben" }),
                1 => json!({ "session": "work" }),
                2 => json!({ "entry": self.id() }),
                _ => json!({ "subject": "Ana", "dryRun": true }),
            },
            "icecore/keys" => json!({ "role": "reader", "name": self.tenant.mark }),
            "icecore/keys/{id}/rotate" => json!({}),
            "workspace/files/{path}" => json!({ "content": self.words() }),
            "/openai/v1/chat/completions"
            | "/anthropic/v1/messages"
            | "/anthropic/v1/messages/count_tokens" => {
                json!({ "model": "m", "messages": [{ "role": "user", "content": self.words() }] })
            }
            _ => panic!("{route:?} takes a body: say here what to send"),
        };
        if self.dice.roll(2) == 0 && name.starts_with("icecore/") {
            body["memoryRef"] = json!(self.memory());
        }
        if name == "icecore/context" && self.dice.roll(2) == 0 {
            body["session"] = json!(self.session());
        }
        Some(body)
    }

    /// The path with its variables and some parameters.
    fn target(&mut self, route: &Route) -> String {
        let mut path = route.path.clone();
        for (variable, value) in [
            ("{session}", self.session()),
            ("{id}", self.id()),
            ("{checksum}", self.id()),
            ("{path}", self.dice.of(&PATHS).to_owned()),
        ] {
            path = path.replace(variable, &encoded(&value));
        }
        assert!(!path.contains('{'), "{route:?} has a variable that is not filled");
        let mut query = Vec::new();
        if self.dice.roll(2) == 0 && route.method != "POST" {
            query.push(format!("memoryRef={}", encoded(&self.memory())));
        }
        if self.dice.roll(4) == 0 {
            // Nobody may ask for another tenant by name.
            query.push(format!("tenant={0}&tenantId={0}", self.dice.of(&["left", "right"])));
        }
        if route.path.ends_with("/events") && self.dice.roll(2) == 0 {
            query.push(format!("after={}", self.dice.roll(5000)));
        }
        if query.is_empty() { path } else { format!("{path}?{}", query.join("&")) }
    }

    /// Sends one request and answers whether our own mark came back.
    fn call(&mut self, route: &Route) -> bool {
        let (target, body) = (self.target(route), self.body(route));
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        let mut head = format!(
            "{} {target} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n",
            route.method, self.address, self.tenant.key
        );
        if !body.is_empty() {
            head +=
                &format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
        }
        if self.dice.roll(3) == 0 {
            // Both tenants draw from the same few keys.
            head += &format!("Idempotency-Key: shared-{}\r\n", self.dice.roll(200));
        }
        if self.dice.roll(4) == 0 {
            head += "X-Tenant: left\r\nX-Tenant-Id: right\r\n";
        }
        let (status, text) = self.exchange(&format!("{head}\r\n{body}"));
        assert!(status < 500, "{route:?} {target} {body}: {status} {text}");
        let foreign = self.tenant.foreign;
        assert!(!text.contains(foreign), "{route:?} {target} {body} tells `{foreign}`: {text}");
        self.learn(&text);
        text.contains(self.tenant.mark)
    }

    /// Head and body of the answer as one text.
    fn exchange(&mut self, request: &str) -> (u16, String) {
        let address = self.address;
        let line = self.line.get_or_insert_with(|| BufReader::new(connect(address)));
        line.get_mut().write_all(request.as_bytes()).unwrap();
        let head = read_head(line);
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap();
        let lower = head.to_ascii_lowercase();
        let length = lower.lines().find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.map_or(0, |length| length.trim().parse().unwrap())];
        line.read_exact(&mut body).unwrap();
        if lower.contains("connection: close") {
            self.line = None;
        }
        (status, head + &String::from_utf8(body).unwrap())
    }

    /// Keeps ids for both to try, unless they carry a mark.
    fn learn(&mut self, text: &str) {
        let Some((_, body)) = text.split_once("\r\n\r\n") else { return };
        let Ok(body) = serde_json::from_str::<Value>(body) else { return };
        // The keys that are listed are the callers' own too, and must stay valid.
        if body.get("keys").is_some() {
            return;
        }
        let mut found = Vec::new();
        gather(&body, &mut found);
        let mut ids = self.ids.lock().unwrap();
        for id in found {
            if ids.len() < 2_000 && !id.contains(self.tenant.mark) && !ids.contains(&id) {
                ids.push(id);
            }
        }
    }
}

/// Ids in an answer, of whatever kind.
fn gather(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (key, value) in members {
                match value {
                    // A key of the callers' own must stay valid.
                    Value::String(_) if key == "keyId" => {}
                    Value::String(id)
                        if key == "id" || key.ends_with("Id") || key.ends_with("hecksum") =>
                    {
                        found.push(id.clone());
                    }
                    Value::Array(ids) if key == "turnIds" || key == "children" => {
                        found.extend(ids.iter().filter_map(Value::as_str).map(str::to_owned));
                    }
                    other => gather(other, found),
                }
            }
        }
        Value::Array(items) => items.iter().take(5).for_each(|item| gather(item, found)),
        _ => {}
    }
}

fn encoded(text: &str) -> String {
    let keep = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes()
        .map(|byte| if keep(byte) { (byte as char).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn not_one_byte_crosses() {
    let (_dir, host, _providers) = with_providers().await;
    let document = host.raw(&host.request("GET", "/v1/openapi.json", &[], b"")).await.json();
    let routes = Arc::new(routes(&document));
    let ids = Ids::default();
    let tenants = [("left", "zqleftmark", "zqrightmark"), ("right", "zqrightmark", "zqleftmark")];
    let (own, address) = (Arc::new(AtomicUsize::new(0)), host.address);
    let mut callers = Vec::new();
    for (at, (name, mark, foreign)) in tenants.into_iter().enumerate() {
        let key = host.key_of(name, Role::Admin).await;
        let tenant = Arc::new(Tenant { mark, foreign, key });
        for number in 0..CALLERS {
            let dice = Dice((at * CALLERS + number) as u64);
            let tenant = Arc::clone(&tenant);
            let caller = Caller { tenant, ids: Arc::clone(&ids), dice, address, line: None };
            callers.push(tokio::spawn(run(caller, Arc::clone(&routes), Arc::clone(&own))));
        }
    }
    for caller in callers {
        caller.await.unwrap();
    }
    // A test in which nothing comes back proves nothing.
    let own = own.load(Ordering::Relaxed);
    assert!(own > REQUESTS / 5, "only {own} answers held what their caller wrote");
    host.stop().await;
}

async fn run(mut caller: Caller, routes: Arc<Vec<Route>>, own: Arc<AtomicUsize>) {
    apart(move || {
        for number in 0..REQUESTS / (2 * CALLERS) {
            // Each route in turn, so that none is left out by chance.
            let route = &routes[(number + caller.dice.roll(2)) % routes.len()];
            if caller.call(route) {
                own.fetch_add(1, Ordering::Relaxed);
            }
        }
    })
    .await;
}
