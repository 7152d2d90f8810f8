use icecore_domain::redact::RedactedTurn;
use icecore_domain::turn::RawTurn;

fn store(_turn: &RedactedTurn) {}

fn main() {
    store(&RawTurn::default());
}
