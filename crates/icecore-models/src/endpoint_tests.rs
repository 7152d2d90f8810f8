use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use super::*;

const KEY: &str = "a-key-for-tests";

/// What the server does with the next request.
#[derive(Clone)]
enum Act {
    Answer(u16, &'static str),
    /// Says nothing until the client gives up.
    Silence,
    /// Closes the connection instead of answering.
    HangUp,
    /// A status with `retry-after`.
    Later(u16, &'static str),
}

/// A server on this machine that follows a script; beyond its end the last
/// line is repeated.
struct Server {
    base_url: String,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn start(script: &[Act]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let base_url = format!("http://{}/v1/", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (script, seen) = (script.to_vec(), requests.clone());
        thread::spawn(move || {
            for stream in listener.incoming() {
                let count = seen.lock().unwrap().len();
                let act = script[count.min(script.len() - 1)].clone();
                serve(stream.unwrap(), act, &seen);
            }
        });
        Self { base_url, requests }
    }

    fn config(&self) -> EndpointConfig {
        let mut config = EndpointConfig::new(&self.base_url, "test-model");
        config.api_key = Some(ApiKey::new(KEY));
        config.dims = Some(2);
        config.retry_pause = Duration::from_millis(1);
        config
    }

    fn embedder(&self) -> EndpointEmbedder {
        EndpointEmbedder::connect(self.config()).unwrap()
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

fn serve(mut stream: TcpStream, act: Act, seen: &Mutex<Vec<String>>) {
    let request = read_request(&stream);
    seen.lock().unwrap().push(request);
    let (status, extra, body) = match act {
        Act::Answer(status, body) => (status, String::new(), body),
        Act::Later(status, seconds) => (status, format!("retry-after: {seconds}\r\n"), "{}"),
        Act::HangUp => return,
        Act::Silence => {
            let _ = stream.read(&mut [0]);
            return;
        }
    };
    let length = body.len();
    let head = format!("HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: {length}\r\n");
    let _ = stream.write_all(format!("{head}{extra}\r\n{body}").as_bytes());
}

fn read_request(stream: &TcpStream) -> String {
    let mut reader = BufReader::new(stream);
    let mut request = String::new();
    while reader.read_line(&mut request).unwrap() > 2 {}
    let length = request
        .lines()
        .find_map(|line| line.to_lowercase().strip_prefix("content-length:")?.trim().parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body).unwrap();
    request + &String::from_utf8(body).unwrap()
}

const ONE: &str = r#"{"data":[{"index":0,"embedding":[1.0,-0.5]}]}"#;
const TWO: &str =
    r#"{"data":[{"index":1,"embedding":[0,2]},{"index":0,"embedding":[4,-4]}],"usage":{}}"#;

fn error_of(script: &[Act], texts: &[&str]) -> String {
    Server::start(script).embedder().embed(texts).unwrap_err().to_string()
}

#[test]
fn vectors_come_back_in_the_order_of_the_texts() {
    let server = Server::start(&[Act::Answer(200, TWO)]);
    let vectors = server.embedder().embed(&["a", "b"]).unwrap();
    assert_eq!(vectors[0].components(), [127, -127]);
    assert_eq!(vectors[1].components(), [0, 127]);
    let request = &server.requests()[0];
    assert!(request.starts_with("POST /v1/embeddings HTTP/1.1\r\n"), "{request}");
    assert!(request.to_lowercase().contains(&format!("authorization: bearer {KEY}\r\n")));
    let body = r#"{"model":"test-model","input":["a","b"],"encoding_format":"float"}"#;
    assert!(request.ends_with(body), "{request}");
}

#[test]
fn batches_are_bounded_and_empty_texts_stay_here() {
    let server = Server::start(&[Act::Answer(200, TWO), Act::Answer(200, ONE)]);
    let mut config = server.config();
    (config.batch_texts, config.text_chars) = (2, 3);
    let embedder = EndpointEmbedder::connect(config).unwrap();
    let vectors = embedder.embed(&["", "éèêë", "b", " \n", "c"]).unwrap();
    assert_eq!(vectors.len(), 5);
    assert!(vectors[0].is_zero() && vectors[3].is_zero());
    assert_eq!(vectors[4].components(), [127, -64]);
    assert_eq!(server.requests().len(), 2);
    assert!(server.requests()[0].contains(r#""input":["éèê","b"]"#));
    assert!(embedder.embed(&[]).unwrap().is_empty());
}

#[test]
fn dimensions_are_asked_for_when_not_declared() {
    let server = Server::start(&[Act::Answer(200, ONE)]);
    let mut config = server.config();
    config.dims = None;
    let embedder = EndpointEmbedder::connect(config).unwrap();
    assert_eq!(embedder.model().dims, 2);
    assert_eq!(embedder.model(), server.embedder().model());
}

#[test]
fn models_elsewhere_have_another_identity() {
    let hash = |base_url: &str, model: &str, dims: usize| {
        let mut config = EndpointConfig::new(base_url, model);
        config.dims = Some(dims);
        EndpointEmbedder::connect(config).unwrap().model().hash
    };
    let first = hash("http://127.0.0.1:1/v1", "m", 2);
    assert_eq!(first, hash("http://127.0.0.1:1/v1/", "m", 2));
    assert_ne!(first, hash("http://127.0.0.1:2/v1", "m", 2));
    assert_ne!(first, hash("http://127.0.0.1:1/v1", "n", 2));
    assert_ne!(first, hash("http://127.0.0.1:1/v1", "m", 3));
}

#[test]
fn a_server_that_is_down_is_unavailable() {
    // Bound and dropped at once: a port where nobody listens.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut config = EndpointConfig::new(format!("http://127.0.0.1:{port}"), "m");
    let error = EndpointEmbedder::connect(config.clone()).unwrap_err();
    assert!(matches!(error, EndpointError::Probe(EmbedError::Unavailable { .. })), "{error:?}");
    config.dims = Some(2);
    let error = EndpointEmbedder::connect(config).unwrap().embed(&["a"]).unwrap_err();
    assert!(matches!(error, EmbedError::Unavailable { .. }), "{error:?}");
}

#[test]
fn a_silent_server_is_given_up() {
    let server = Server::start(&[Act::Silence]);
    let mut config = server.config();
    config.timeout = Duration::from_millis(50);
    let error = EndpointEmbedder::connect(config).unwrap().embed(&["a"]).unwrap_err();
    let expected = "the embedding model `test-model` does not answer: no answer in time";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn a_busy_server_is_asked_again_but_not_for_ever() {
    let server = Server::start(&[
        Act::Later(429, "0"),
        Act::HangUp,
        Act::Answer(503, "{}"),
        Act::Answer(200, ONE),
    ]);
    assert_eq!(server.embedder().embed(&["a"]).unwrap().len(), 1);
    assert_eq!(server.requests().len(), 4);

    let server = Server::start(&[Act::Answer(500, r#"{"error":"overloaded"}"#)]);
    let error = server.embedder().embed(&["a"]).unwrap_err().to_string();
    assert!(error.ends_with("does not answer: status 500: overloaded"), "{error}");
    assert_eq!(server.requests().len(), TRIES as usize);
}

#[test]
fn a_server_that_wants_a_long_rest_is_not_waited_for() {
    let server = Server::start(&[Act::Later(429, "3600")]);
    assert!(server.embedder().embed(&["a"]).unwrap_err().to_string().contains("status 429"));
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn wrong_answers_are_named_and_not_asked_for_again() {
    let cases = [
        (200, r#"{"data":[]}"#, "0 vectors for 1 texts"),
        (200, TWO, "2 vectors for 1 texts"),
        (200, r#"{"data":[{"index":7,"embedding":[1,2]}]}"#, "indexes that fit no text"),
        (200, r#"{"data":[{"embedding":[1,2,3]}]}"#, "3 dimensions instead of 2"),
        (200, r#"{"data":[{"embedding":[]}]}"#, "0 dimensions instead of 2"),
        (200, r#"{"data":[{"embedding":[1,NaN]}]}"#, "no list of vectors"),
        (200, r#"{"data":[{"embedding":[1,null]}]}"#, "no list of vectors"),
        (200, r#"{"data":[{"embedding":[1,1e300]}]}"#, "number out of range"),
        (200, "<html>hello</html>", "no list of vectors"),
        (200, "", "no list of vectors"),
        (200, r#"{"error":{"message":"no such\nmodel"}}"#, "gave a wrong answer: no such model"),
        (404, "not here", "status 404"),
        (302, "", "status 302"),
        (400, r#"{"detail":"input too long"}"#, "status 400: input too long"),
    ];
    for (status, body, expected) in cases {
        let server = Server::start(&[Act::Answer(status, body)]);
        let error = server.embedder().embed(&["a"]).unwrap_err();
        assert!(matches!(error, EmbedError::Wrong { .. }), "{body}: {error:?}");
        assert!(error.to_string().contains(expected), "{body}: {error}");
        assert_eq!(server.requests().len(), 1);
    }
}

#[test]
fn equal_indexes_are_wrong() {
    let twice = r#"{"data":[{"index":0,"embedding":[1,2]},{"index":0,"embedding":[1,2]}]}"#;
    let error = error_of(&[Act::Answer(200, twice)], &["a", "b"]);
    assert!(error.contains("indexes that fit no text"), "{error}");
}

#[test]
fn a_vector_of_zeros_points_nowhere() {
    let zeros = r#"{"data":[{"embedding":[0,0]}]}"#;
    assert!(
        Server::start(&[Act::Answer(200, zeros)]).embedder().embed(&["a"]).unwrap()[0].is_zero()
    );
}

#[test]
fn the_key_is_shown_to_nobody() {
    let echo = r#"{"error":{"message":"wrong key a-key-for-tests given"}}"#;
    let server = Server::start(&[Act::Answer(401, echo)]);
    let embedder = server.embedder();
    let error = embedder.embed(&["a"]).unwrap_err();
    assert!(error.to_string().ends_with("status 401: wrong key … given"), "{error}");
    let shown = format!("{embedder:?} {error:?} {:?}", server.config());
    assert!(!shown.contains(KEY), "{shown}");
}

#[test]
fn settings_that_cannot_work_are_refused_at_once() {
    let refused = |change: &dyn Fn(&mut EndpointConfig)| {
        let mut config = EndpointConfig::new("http://127.0.0.1:1", "m");
        config.dims = Some(2);
        change(&mut config);
        EndpointEmbedder::connect(config).unwrap_err().to_string()
    };
    assert!(refused(&|config| config.batch_texts = 0).contains("`batch_texts`"));
    assert!(refused(&|config| config.dims = Some(0)).contains("`dims`"));
    assert!(refused(&|config| config.base_url = "localhost".to_owned()).contains("`localhost`"));
    let secret = refused(&|config| config.base_url = "http://me:hunter2@host/v1".to_owned());
    assert!(secret.contains("credentials") && !secret.contains("hunter2"), "{secret}");
    let key = refused(&|config| config.api_key = Some(ApiKey::new("two\nlines")));
    assert!(!key.contains("lines"), "{key}");
}
