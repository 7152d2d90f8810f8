//! Wallets and signing keys of ledgers.

use crate::redact::kind::{Edge, Kind, Proof};

#[rustfmt::skip]
pub(super) const KINDS: &[Kind] = &[
    Kind { id: "seed-phrase", keywords: &["seed phrase", "seed_phrase", "recovery phrase", "recovery_phrase", "secret phrase", "backup phrase", "mnemonic", "seed words", "recovery words"],
        pattern: r#"(?i)(?:(?:seed|recovery|secret|backup)[ _](?:phrase|words)|mnemonic)[\w ()-]{0,24}["'`\\]{0,2}\s{0,3}(?:=|:|is)\s{0,3}["'`\\]{0,2}((?:(?:[a-z]{3,8}[ ,]{1,2}){23}|(?:[a-z]{3,8}[ ,]{1,2}){20}|(?:[a-z]{3,8}[ ,]{1,2}){17}|(?:[a-z]{3,8}[ ,]{1,2}){14}|(?:[a-z]{3,8}[ ,]{1,2}){11})[a-z]{3,8})\b"#, allow: &[" the ", " and ", " for ", " are ", " was ", " not ", " from ", " your ", " have ", " with ", " which ", " should "], edge: Edge::Any,
        hides: "my seed phrase is: {5a} {6a} {4a} {7a} {5a} {3a} {6a} {8a} {4a} {5a} {6a} {7a}", keeps: "the seed phrase is a list of words that you should write down on paper and never share with anyone", ..Kind::TOKEN },
    Kind { id: "ethereum-private-key", keywords: &["private_key", "privatekey", "private key", "private-key", "eth_key", "deployer_key", "wallet_key", "signer_key"],
        pattern: named!("(?:private[_ -]?key|(?:eth|deployer|wallet|signer)_key)", "(?:0x)?[0-9a-f]{64}"),
        hides: "PRIVATE_KEY=0x{64h}", keeps: "public_key=0x{64h}", ..Kind::NAMED },
    Kind { id: "bitcoin-private-key", keywords: &["wif", "bitcoin", "btc"],
        pattern: named!("(?:wif|bitcoin|btc)", "(?-i:[5KLc9][1-9A-HJ-NP-Za-km-z]{50,51})"), proof: Proof::Random(3.0),
        hides: "WIF: Ka1{48s}", keeps: "btc_address = bc1q{38l}", ..Kind::NAMED },
    Kind { id: "bitcoin-key-command", keywords: &["importprivkey ", "private key "], pattern: r#"(?i)(?:importprivkey|private key(?: is)?:?) ["'`]?((?-i:[5KLc9][1-9A-HJ-NP-Za-km-z]{50,51}))\b"#, proof: Proof::Random(3.0),
        hides: "importprivkey Ka1{49s}", keeps: "importprivkey <wif>", ..Kind::TOKEN },
    Kind { id: "extended-private-key", keywords: &["xprv", "yprv", "zprv", "tprv"], pattern: r"[xyzt]prv[1-9A-HJ-NP-Za-km-z]{100,112}\b",
        hides: "xprv{107s}", keeps: "xpub{107s}", ..Kind::TOKEN },
    Kind { id: "nostr-secret-key", keywords: &["nsec1"], pattern: r"nsec1[ac-hj-np-z02-9]{58}\b",
        hides: "nsec1{58z}", keeps: "npub1{58z}", ..Kind::TOKEN },
    Kind { id: "tezos-secret-key", keywords: &["edsk", "spsk", "p2sk"],
        pattern: r"(?:edsk|spsk|p2sk)[1-9A-HJ-NP-Za-km-z]{50}(?:[1-9A-HJ-NP-Za-km-z]{44})?\b",
        hides: "edsk{50s}", keeps: "edpk{50s}", ..Kind::TOKEN },
    Kind { id: "cardano-signing-key", keywords: &["ed25519_sk1", "ed25519e_sk1", "root_xsk1", "addr_xsk1", "acct_xsk1"],
        pattern: r"(?:ed25519e?_sk|(?:root|addr|acct)_xsk)1[ac-hj-np-z02-9]{58,250}\b",
        hides: "ed25519_sk1{58z}", keeps: "ed25519_pk1{58z}", ..Kind::TOKEN },
    Kind { id: "stellar-seed", keywords: &["stellar"], pattern: keyed!("stellar", "(?-i:S[A-Z2-7]{55})"), proof: Proof::Random(3.0),
        hides: "STELLAR_SECRET_SEED=S{55B}", keeps: "stellar_account = G{55B}", ..Kind::NAMED },
    Kind { id: "solana-keypair", keywords: &["keypair", "secretkey", "secret_key"],
        pattern: r#"(?i)(?:keypair|secret_?key)[\w ]{0,16}["'\\]{0,2}\s{0,3}[=:]\s{0,3}(?:new Uint8Array\(|Uint8Array\.from\()?(\[\s{0,4}(?:\d{1,3},\s{0,4}){31,63}\d{1,3}\s{0,4}\])"#, edge: Edge::Any,
        hides: "keypair = [1{2d},{2d},{2d},{2d},{2d},{2d},{2d},{2d},{2d},{2d},{2d},{2d},{2d},{2d},{2d},{2d},{2d},{2d},{2d},{2d},{2d},{2d},{2d},{2d},{2d},{2d},{2d},{2d},{2d},{2d},{2d},{2d}]", keeps: "keypair = [1, 2, 3]", ..Kind::TOKEN },
    Kind { id: "solana-private-key", keywords: &["solana", "phantom_"],
        pattern: keyed!("(?:solana|phantom_)", "(?-i:[1-9A-HJ-NP-Za-km-z]{85,88})"), proof: Proof::Random(3.0),
        hides: "SOLANA_PRIVATE_KEY={88s}", keeps: "solana_cluster = devnet", ..Kind::NAMED },
];
