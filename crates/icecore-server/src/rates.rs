//! How often a key may ask, and how often a host may guess one.
//!
//! Buckets are pure: the time comes in. A bucket that is full again is the same as
//! none, so only those in use are kept, and no more than [`MOST_BUCKETS`].

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::http::request::Parts;

use crate::error::ApiError;
use crate::limits::Limits;
use crate::line::{Line, Peer};

/// So many events a second on average, and so many at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Rate {
    per_second: u32,
    burst: u32,
}

impl Rate {
    /// Nanoseconds for which one event takes up its share.
    fn share(self) -> u64 {
        (1_000_000_000 / u64::from(self.per_second.max(1))).max(1)
    }
}

/// What was taken of a rate: the bucket is full again at `full_at` nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Bucket {
    full_at: u64,
}

impl Bucket {
    /// Takes one, or tells how many nanoseconds to wait for it.
    fn take(&mut self, rate: Rate, now: u64) -> Result<(), u64> {
        let share = rate.share();
        let full_at = self.full_at.max(now) + share;
        let room = share.saturating_mul(u64::from(rate.burst.max(1)));
        match (full_at - now).saturating_sub(room) {
            0 => {
                self.full_at = full_at;
                Ok(())
            }
            wait => Err(wait),
        }
    }
}

/// More callers than this are not told apart for long.
const MOST_BUCKETS: usize = 4_096;

/// A bucket for each of a bounded number of callers.
struct Buckets<K> {
    rate: Rate,
    in_use: Mutex<BTreeMap<K, Bucket>>,
}

impl<K: Ord + Clone> Buckets<K> {
    fn new(per_second: u32, burst: u32) -> Self {
        Self { rate: Rate { per_second, burst }, in_use: Mutex::default() }
    }

    fn take(&self, who: K, now: u64) -> Result<(), u64> {
        if self.rate.per_second == 0 {
            return Ok(());
        }
        let mut in_use = self.in_use.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if in_use.len() >= MOST_BUCKETS && !in_use.contains_key(&who) {
            in_use.retain(|_, bucket| bucket.full_at > now);
            let fullest = in_use.iter().min_by_key(|(_, bucket)| bucket.full_at);
            let fullest = fullest.map(|(who, _)| who.clone());
            if let Some(fullest) = fullest.filter(|_| in_use.len() >= MOST_BUCKETS) {
                in_use.remove(&fullest);
            }
        }
        in_use.entry(who).or_default().take(self.rate, now)
    }
}

/// The rates of the door.
pub(crate) struct Rates {
    began: Instant,
    keys: Buckets<[u8; 32]>,
    denied: Buckets<Peer>,
}

impl Rates {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            began: Instant::now(),
            keys: Buckets::new(limits.rate_per_second, limits.rate_burst),
            denied: Buckets::new(limits.rate_denied_per_second, limits.rate_denied_burst),
        }
    }

    fn now(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    /// Counts a request of a caller whose key is good, by the hash of that key.
    pub(crate) fn admit(&self, key: [u8; 32]) -> Result<(), ApiError> {
        self.keys.take(key, self.now()).map_err(|wait| {
            let most = self.keys.rate.per_second;
            let message = format!("this key may ask {most} times a second (`rate_per_second`)");
            ApiError::too_often("key", "rate_per_second", Duration::from_nanos(wait), message)
        })
    }

    /// Counts a caller whose key is not good, and answers how to refuse it. Good
    /// keys never come here, so nobody can shut out others of the same host.
    pub(crate) fn denied(&self, parts: &Parts, refusal: ApiError) -> ApiError {
        let line = parts.extensions.get::<Arc<Line>>();
        let peer = line.map_or(Peer::Local, |line| network(line.peer()));
        let most = self.denied.rate.per_second;
        match self.denied.take(peer, self.now()) {
            Ok(()) => refusal,
            Err(wait) => ApiError::too_often(
                "host",
                "rate_denied_per_second",
                Duration::from_nanos(wait),
                format!("a host may be refused {most} times a second (`rate_denied_per_second`)"),
            ),
        }
    }
}

/// Whoever has one address of the sixth version has 2⁶⁴ of them.
fn network(peer: Peer) -> Peer {
    match peer {
        Peer::Address(IpAddr::V6(address)) => match address.to_ipv4_mapped() {
            Some(mapped) => Peer::Address(mapped.into()),
            None => {
                let prefix = address.to_bits() >> 64 << 64;
                Peer::Address(Ipv6Addr::from_bits(prefix).into())
            }
        },
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// In no span of time more than the burst and the span's share come through,
        /// what is refused comes through after exactly the wait, and an unhurried
        /// caller is never refused.
        #[test]
        fn a_bucket_keeps_its_rate(
            per_second in 1_u32..2_000_000,
            burst in 1_u32..50,
            gaps in prop::collection::vec(0_u64..400_000, 1..300),
        ) {
            let rate = Rate { per_second, burst };
            let (mut bucket, mut now, mut passed) = (Bucket::default(), 1_000_000_u64, Vec::new());
            for gap in gaps {
                now += gap;
                let before = bucket;
                match bucket.take(rate, now) {
                    Ok(()) => passed.push(now),
                    Err(wait) => {
                        prop_assert_eq!(bucket, before, "a refusal costs nothing");
                        prop_assert!(before.clone().take(rate, now + wait).is_ok());
                        prop_assert!(before.clone().take(rate, now + wait - 1).is_err());
                    }
                }
            }
            for (i, start) in passed.iter().enumerate() {
                for (j, end) in passed.iter().enumerate().skip(i) {
                    let most = u64::from(burst) + (end - start) / rate.share();
                    prop_assert!((j - i + 1) as u64 <= most);
                }
            }
            let mut calm = Bucket::default();
            for turn in 0..100 {
                prop_assert!(calm.take(rate, turn * rate.share()).is_ok());
            }
        }
    }

    #[test]
    fn buckets_are_told_apart_and_bounded() {
        let buckets = Buckets::new(1, 2);
        let pass = |who: u64, now: u64| buckets.take(who, now).is_ok();
        assert!(pass(0, 0) && pass(0, 0) && !pass(0, 0));
        assert!(pass(1, 0));
        for who in 2..3 * MOST_BUCKETS as u64 {
            assert!(pass(who, 0) && pass(who, 0));
        }
        assert!(buckets.in_use.lock().unwrap().len() <= MOST_BUCKETS);
        assert!(pass(9_999_999, 10_000_000_000));
        assert_eq!(buckets.in_use.lock().unwrap().len(), 1, "full ones are forgotten");
        let off = Buckets::new(0, 0);
        assert!((0..10_000).all(|_| off.take(1, 0).is_ok()));
    }

    #[test]
    fn a_network_of_the_sixth_version_is_one_host() {
        let peer = |text: &str| network(Peer::Address(text.parse().unwrap()));
        assert_eq!(peer("2001:db8::1"), peer("2001:db8::ffff:1"));
        assert_ne!(peer("2001:db8::1"), peer("2001:db8:0:1::1"));
        assert_eq!(peer("::ffff:10.0.0.1"), peer("10.0.0.1"));
        assert_ne!(peer("10.0.0.1"), peer("10.0.0.2"));
    }
}
