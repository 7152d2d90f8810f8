//! Hashes of passwords, which a guesser can turn back.

use crate::redact::kind::{Edge, Kind};

#[rustfmt::skip]
pub(super) const KINDS: &[Kind] = &[
    Kind { id: "bcrypt-hash", keywords: &["$2a$", "$2b$", "$2x$", "$2y$"], pattern: r"\$2[abxy]\$\d\d\$[./A-Za-z0-9]{53}", edge: Edge::Any,
        hides: "$2b$12${53w}", keeps: "$2b$12${9w}", ..Kind::TOKEN },
    Kind { id: "argon2-hash", keywords: &["$argon2"],
        pattern: r"\$argon2(?:id|i|d)\$(?:v=\d{1,3}\$)?m=\d{1,9},t=\d{1,4},p=\d{1,4}\$[A-Za-z0-9+/]{8,100}\$[A-Za-z0-9+/]{16,200}", edge: Edge::Any,
        hides: "$argon2id$v=19$m=65536,t=3,p=4${22w}${43w}", keeps: "$argon2id$v=19$m=65536,t=3,p=4", ..Kind::TOKEN },
    Kind { id: "crypt-hash", keywords: &["$1$", "$5$", "$6$", "$apr1$", "$y$", "$gy$", "$7$"],
        pattern: r"\$(?:(?:1|5|6|apr1)\$(?:rounds=\d{1,9}\$)?[./A-Za-z0-9]{1,16}\$[./A-Za-z0-9]{22,86}|(?:y|gy|7)\$[./A-Za-z0-9]{1,24}\$[./A-Za-z0-9]{4,64}\$[./A-Za-z0-9]{43})", edge: Edge::Any,
        hides: "bo:$6${16w}${86w}:19000:0:99999:7:::", keeps: "bo:$6$:19000:0:99999:7:::", ..Kind::TOKEN },
    Kind { id: "pbkdf2-hash", keywords: &["pbkdf2"],
        pattern: r#"pbkdf2[_:-]sha(?:1|224|256|384|512)[$:](?:i=)?\d{1,9}[$:,][^\s$:"']{4,100}[$:][A-Za-z0-9+/=_.-]{20,200}"#, edge: Edge::Any,
        hides: "pbkdf2_sha256$600000${22w}${43w}=", keeps: "pbkdf2_sha256$600000", ..Kind::TOKEN },
    Kind { id: "scrypt-hash", keywords: &["scrypt:", "$scrypt$", "$s0$"],
        pattern: r"(?:scrypt:\d{1,9}:\d{1,4}:\d{1,4}\$[^\s$]{4,60}\$[0-9a-f]{64,128}|\$scrypt\$ln=\d{1,2},r=\d{1,3},p=\d{1,3}\$[A-Za-z0-9+/]{8,60}\$[A-Za-z0-9+/]{20,100}|\$s0\$[0-9a-f]{1,8}\$[A-Za-z0-9+/=]{8,60}\$[A-Za-z0-9+/=]{20,100})", edge: Edge::Any,
        hides: "scrypt:32768:8:1${16w}${128h}", keeps: "scrypt:32768:8:1", ..Kind::TOKEN },
    Kind { id: "ldap-hash", keywords: &["{sha}", "{ssha", "{sha512", "{sha256", "{smd5}"],
        pattern: r"(?i)\{(?:s?sha(?:256|384|512)?|smd5)\}([a-z0-9+/]{24,140}={0,2})", edge: Edge::Any,
        hides: "userPassword: {SSHA}{32w}==", keeps: "userPassword: {SSHA}{6w}", ..Kind::TOKEN },
    Kind { id: "ntlm-hash", keywords: &[":::"], pattern: r"\b([0-9a-fA-F]{32}:[0-9a-fA-F]{32}):::", lead: 65, reach: 4,
        hides: "bo:1001:{32h}:{32h}:::", keeps: "bo:1001:::", ..Kind::TOKEN },
    Kind { id: "mysql-hash", keywords: &["password '*", "password \"*", "as '*"],
        pattern: r#"(?i)(?:password|as) ['"](\*[0-9A-F]{40})['"]"#, edge: Edge::Any,
        hides: "IDENTIFIED BY PASSWORD '*{40H}'", keeps: "IDENTIFIED BY PASSWORD '*'", ..Kind::TOKEN },
];
