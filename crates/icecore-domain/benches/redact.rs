//! How fast the redactor reads text that holds no secret, and text that does.
//!
//! `cargo bench -p icecore-domain --bench redact` prints MB/s on one core; words
//! after `--` choose among the lines. With
//! ICECORE_EVAL_DATA set to a folder of `.jsonl` or `.txt` files those are read too.

#![expect(clippy::print_stdout, reason = "a bench prints its figures")]

use std::time::Instant;

use icecore_domain::redact::Redactor;

const PROSE: &[&str] = &[
    "We walked along the river until the light went, and talked about the house.\n",
    "Did you ask them whether the meeting on Thursday could be moved to the morning?\n",
    "I think the second draft reads better, though the ending still feels a little rushed.\n",
    "Mum called: the train is late again, so she will take a taxi from the station.\n",
    "What I remember best is the garden, with the lemon tree and the old stone bench.\n",
];

const CODE: &[&str] = &[
    "    let mut total = 0_u64;\n    for (index, item) in items.iter().enumerate() {\n",
    "        total += item.price_cents * u64::from(item.quantity); // before tax\n    }\n",
    "fn next_token(&mut self) -> Option<Token> { self.tokens.pop_front() }\n",
    "if (user.isActive && request.headers['content-type'] === 'application/json') {\n",
    "const response = await fetch(`${base}/v1/items/${id}`, { method: 'GET' });\n",
    "def load(path: str, api_key: str | None = None) -> dict[str, list[int]]:\n",
    "  sha256: 3f786850e387550fdab836ed7e6dc881de23001b2b6f4d1c9a0e7f5d8c4b3a29\n",
];

fn main() {
    let start = Instant::now();
    let redactor = Redactor::standard();
    println!("{:<24} {:>8.2} ms", "build", start.elapsed().as_secs_f64() * 1e3);

    let secrets: Vec<String> = Redactor::kinds().iter().map(|kind| kind.sample(1) + "\n").collect();
    let secrets: Vec<&str> = secrets.iter().map(String::as_str).collect();
    measure(&redactor, "prose, 1 MB texts", &repeated(PROSE, 1 << 20), 40);
    measure(&redactor, "prose, one turn", &repeated(PROSE, 300), 40_000);
    measure(&redactor, "code, 1 MB texts", &repeated(CODE, 1 << 20), 20);
    measure(&redactor, "every kind of secret", &repeated(&secrets, 1 << 20), 2);
    for hostile in ["password=", "-----BEGIN PRIVATE KEY-----", "eyJ", "://a:", "[BYOK:", "=", "a"]
    {
        measure(
            &redactor,
            &format!("hostile {hostile}"),
            &hostile.repeat((10 << 20) / hostile.len()),
            1,
        );
    }
    for (name, text) in data() {
        measure(&redactor, &name, &text, 10);
    }
}

fn repeated(lines: &[&str], bytes: usize) -> String {
    lines
        .iter()
        .cycle()
        .scan(0, |length, line| {
            let fits = *length < bytes;
            *length += line.len();
            fits.then_some(*line)
        })
        .collect()
}

fn measure(redactor: &Redactor, name: &str, text: &str, rounds: u32) {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    if !wanted.is_empty() && !wanted.iter().any(|wanted| name.contains(wanted.as_str())) {
        return;
    }
    let start = Instant::now();
    for _ in 0..rounds {
        std::hint::black_box(redactor.text(std::hint::black_box(text)));
    }
    let seconds = start.elapsed().as_secs_f64();
    let megabytes = text.len() as f64 * f64::from(rounds) / 1e6;
    println!("{name:<24} {:>8.0} MB/s", megabytes / seconds);
}

fn data() -> Vec<(String, String)> {
    let Some(folder) = std::env::var_os("ICECORE_EVAL_DATA") else { return Vec::new() };
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut texts: Vec<_> = entries
        .filter_map(|entry| {
            let text = std::fs::read_to_string(entry.path()).ok()?;
            Some((entry.file_name().to_string_lossy().into_owned(), text))
        })
        .collect();
    texts.sort();
    texts
}
