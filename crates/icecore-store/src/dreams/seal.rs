//! The body of an archive: its canonical JSON, compressed and encrypted under a key of
//! its own. `docs/format-archive.md` specifies the bytes.

use chacha20poly1305::aead::{Aead, Payload};
use chacha20poly1305::{KeyInit, XChaCha20Poly1305};
use icecore_domain::dream::Checksum;

use crate::pack::PackKey;

/// The longest plaintext. What we write comes nowhere near it; a body that claims more is
/// refused before memory is allocated.
pub const MAX_ARCHIVE_BYTES: usize = 64 << 20;

/// Magic bytes and version.
const MARK: &[u8; 8] = b"ICEARCH\x01";
const NONCE_BYTES: usize = 24;
const ZSTD_LEVEL: i32 = 8;
const NONCE_LABEL: &[u8] = b"icecore archive v1 nonce";

/// Compresses and encrypts an archive of at most [`MAX_ARCHIVE_BYTES`]. Equal plaintexts
/// and keys give equal bytes.
pub fn seal_archive(plain: &[u8], checksum: Checksum, key: &PackKey) -> Result<Vec<u8>, String> {
    if plain.len() > MAX_ARCHIVE_BYTES {
        return Err(format!("it has {} bytes, and at most {MAX_ARCHIVE_BYTES} fit", plain.len()));
    }
    let compressed = zstd::bulk::compress(plain, ZSTD_LEVEL).map_err(|error| error.to_string())?;
    // Derived from everything that is encrypted: even a key that is used twice has another
    // nonce for another text.
    let nonce: [u8; NONCE_BYTES] = key.keyed(NONCE_LABEL, |mac| {
        hmac::Mac::update(mac, &checksum.0);
        hmac::Mac::update(mac, &compressed);
    });
    let payload = Payload { msg: &compressed, aad: &bound(checksum) };
    let sealed = cipher(key)
        .encrypt(&nonce.into(), payload)
        .map_err(|_| "it does not fit the cipher".to_owned())?;
    Ok([&MARK[..], &nonce, &sealed].concat())
}

/// Decrypts a body and checks that its plaintext has the address. The error says what is
/// wrong with the body.
pub fn open_archive(body: &[u8], checksum: Checksum, key: &PackKey) -> Result<Vec<u8>, String> {
    let too_short = || format!("it has {} bytes, less than a body begins with", body.len());
    let (mark, rest) = body.split_first_chunk::<8>().ok_or_else(too_short)?;
    if mark[..7] != MARK[..7] {
        return Err("it does not begin with the mark of an archive".to_owned());
    }
    if mark[7] != MARK[7] {
        return Err(format!("it has version {}, and this program knows {}", mark[7], MARK[7]));
    }
    let (nonce, sealed) = rest.split_first_chunk::<NONCE_BYTES>().ok_or_else(too_short)?;
    let payload = Payload { msg: sealed, aad: &bound(checksum) };
    let compressed = cipher(key)
        .decrypt(nonce.into(), payload)
        .map_err(|_| "it was changed, or its key is another's".to_owned())?;
    let plain = decompress(&compressed)?;
    if Checksum::of(&plain) != checksum {
        return Err("its content does not have its address".to_owned());
    }
    Ok(plain)
}

/// The associated data: the mark and the address.
fn bound(checksum: Checksum) -> Vec<u8> {
    [&MARK[..], &checksum.0].concat()
}

fn cipher(key: &PackKey) -> XChaCha20Poly1305 {
    XChaCha20Poly1305::new(key.as_bytes().into())
}

fn decompress(compressed: &[u8]) -> Result<Vec<u8>, String> {
    let length = zstd::zstd_safe::get_frame_content_size(compressed).ok().flatten();
    let length = length
        .and_then(|length| usize::try_from(length).ok())
        .filter(|length| *length <= MAX_ARCHIVE_BYTES)
        .ok_or("it does not say how long its content is, or too long")?;
    zstd::bulk::decompress(compressed, length)
        .map_err(|_| "its content does not decompress".to_owned())
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::*;

    fn key() -> PackKey {
        PackKey::from_bytes(*b"dummy key of sample packs, 32 by")
    }

    fn samples() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/dream")
    }

    #[test]
    fn bodies_come_back_and_equal_ones_are_equal() {
        for plain in [&b""[..], b"{}", &b"abc".repeat(100_000)] {
            let checksum = Checksum::of(plain);
            let body = seal_archive(plain, checksum, &key()).unwrap();
            assert_eq!(open_archive(&body, checksum, &key()).unwrap(), plain);
            assert_eq!(body, seal_archive(plain, checksum, &key()).unwrap());
            let other = seal_archive(plain, checksum, &PackKey::random()).unwrap();
            assert_ne!(body, other);
        }
        let large = vec![0; MAX_ARCHIVE_BYTES + 1];
        let refused = seal_archive(&large, Checksum([0; 32]), &key()).unwrap_err();
        assert!(refused.contains("at most"), "{refused}");
    }

    #[test]
    fn the_sample_is_reproduced_and_opened() {
        let plain = std::fs::read(samples().join("v1.json")).unwrap();
        let body = std::fs::read(samples().join("v1.icearchive")).unwrap();
        let checksum = Checksum::of(&plain);
        assert_eq!(open_archive(&body, checksum, &key()).unwrap(), plain);
        assert_eq!(seal_archive(&plain, checksum, &key()).unwrap(), body);
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let plain = b"{\"format\":\"icecore-archive/1\"}";
        let checksum = Checksum::of(plain);
        let body = seal_archive(plain, checksum, &key()).unwrap();
        for at in 0..body.len() {
            for bit in 0..8 {
                let mut changed = body.clone();
                changed[at] ^= 1 << bit;
                assert!(open_archive(&changed, checksum, &key()).is_err(), "{at}.{bit}");
            }
            assert!(open_archive(&body[..at], checksum, &key()).is_err(), "cut at {at}");
        }
        assert!(open_archive(&[&body[..], &[0]].concat(), checksum, &key()).is_err());
    }

    #[test]
    fn another_key_or_address_opens_nothing() {
        let plain = b"{}";
        let checksum = Checksum::of(plain);
        let body = seal_archive(plain, checksum, &key()).unwrap();
        assert!(open_archive(&body, checksum, &PackKey::random()).is_err());
        assert!(open_archive(&body, Checksum([1; 32]), &key()).is_err());
        // One that was sealed under an address that is not its own.
        let body = seal_archive(plain, Checksum([1; 32]), &key()).unwrap();
        let told = open_archive(&body, Checksum([1; 32]), &key()).unwrap_err();
        assert!(told.contains("address"), "{told}");
    }

    #[test]
    fn what_is_no_body_or_a_newer_one_is_told() {
        let told = |body: &[u8]| open_archive(body, Checksum([0; 32]), &key()).unwrap_err();
        assert!(told(b"").contains("0 bytes"));
        assert!(told(b"SQLite format 3").contains("the mark"));
        assert!(told(b"ICEARCH\x02 and more").contains("version 2"));
        assert!(told(b"ICEARCH\x01 and more").contains("bytes"));
    }
}
