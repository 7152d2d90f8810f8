use icecore_domain::redact::RedactedText;

fn main() {
    let _text = RedactedText("straight from a client".to_owned());
}
