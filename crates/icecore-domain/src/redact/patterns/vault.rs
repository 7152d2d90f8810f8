//! Identity and keepers of secrets.

use crate::redact::kind::{Kind, Proof};

#[rustfmt::skip]
pub(super) const KINDS: &[Kind] = &[
    // Our own host's keys, also where the end of one was cut off.
    Kind { id: "icecore-key", keywords: &["ice_"], pattern: r"(?i)ice_[0-9a-f]{20,}",
        hides: "ice_{64h}", keeps: "ice_{16h}", ..Kind::TOKEN },
    Kind { id: "vault-token", keywords: &["hvs.", "hvb.", "hvr."], pattern: r"hv[sbr]\.[\w-]{24,300}",
        hides: "hvs.{90U}", keeps: "hvs.{6w}", ..Kind::TOKEN },
    Kind { id: "doppler-token", keywords: &["dp.pt.", "dp.st.", "dp.ct.", "dp.sa.", "dp.scim.", "dp.audit."],
        pattern: r"dp\.(?:pt|st|ct|sa|scim|audit)\.(?:[\w-]{2,35}\.)?[A-Za-z0-9]{40,44}\b",
        hides: "dp.pt.{43w}", keeps: "dp.pt.{9w}", ..Kind::TOKEN },
    Kind { id: "onepassword-token", keywords: &["ops_ey"], pattern: r"ops_ey[\w+/=-]{100,}", reach: 4096,
        hides: "ops_ey{200w}", keeps: "ops_ey{9w}", ..Kind::TOKEN },
    Kind { id: "onepassword-secret-key", keywords: &["a3-"], pattern: r"A3-[A-Z0-9]{6}-(?:[A-Z0-9]{11}|[A-Z0-9]{6}-[A-Z0-9]{5})-[A-Z0-9]{5}-[A-Z0-9]{5}-[A-Z0-9]{5}\b",
        hides: "A3-{6u}-{6u}-{5u}-{5u}-{5u}-{5u}", keeps: "A3-{6u}", ..Kind::TOKEN },
    Kind { id: "okta-token", keywords: &["okta", "ssws "],
        pattern: concat!(r#"(?i)(?:okta[\w .-]{0,30}["'\\]{0,2}\s{0,3}[=:]\s{0,3}["'\\]{0,2}|ssws )"#, r"(00[\w-]{40})(?:[^\w-]|\z)"),
        hides: "Authorization: SSWS 00{40U}", keeps: "okta_domain: acme.okta.com", ..Kind::NAMED },
    Kind { id: "vault-legacy-token", keywords: &["vault"], pattern: keyed!("vault", r"[sbr]\.[a-z0-9]{24,120}"),
        hides: "X-Vault-Token: s.{24w}", keeps: "vault_path = secret/data", ..Kind::NAMED },
    Kind { id: "auth0-secret", keywords: &["auth0"], pattern: keyed!("auth0", "[a-z0-9_-]{64}"), proof: Proof::Random(3.0),
        hides: "AUTH0_CLIENT_SECRET={64w}", keeps: "auth0_domain = acme.eu.auth0.com", ..Kind::NAMED },
    Kind { id: "identity-provider-secret", keywords: &["onelogin", "jumpcloud", "fusionauth", "keycloak", "pingidentity", "cognito", "duo_", "workos", "descope"],
        pattern: keyed!("(?:onelogin|jumpcloud|fusionauth|keycloak|pingidentity|cognito|duo_|workos|descope)", "[a-z0-9_.-]{30,120}"), proof: Proof::Random(3.0),
        hides: "ONELOGIN_CLIENT_SECRET={64h}", keeps: "keycloak_realm = acme", ..Kind::NAMED },
    Kind { id: "stytch-secret", keywords: &["secret-live-", "secret-test-"], pattern: r"secret-(?:live|test)-[\w=-]{30,60}",
        hides: "secret-live-{36U}", keeps: "secret-live-docs", ..Kind::TOKEN },
    Kind { id: "infisical-token", keywords: &["st."], pattern: r"st\.[0-9a-f]{24}\.[0-9a-f]{32}\.[0-9a-f]{32}\b",
        hides: "st.{24h}.{32h}.{32h}", keeps: "st.{9h}.{9h}", ..Kind::TOKEN },
    Kind { id: "bitwarden-token", keywords: &["bws_access", "bitwarden"],
        pattern: keyed!("(?:bws_access|bitwarden)", r"0\.[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\.[a-z0-9]{20,40}:[a-z0-9+/]{20,30}={0,2}"),
        hides: "BWS_ACCESS_TOKEN=0.{uuid}.{30w}:{22w}==", keeps: "bitwarden_org={8h}", ..Kind::NAMED },
    Kind { id: "secret-keeper-key", keywords: &["lastpass", "akeyless", "dashlane", "cyberark", "conjur", "thycotic", "keeper_"],
        pattern: keyed!("(?:lastpass|akeyless|dashlane|cyberark|conjur|thycotic|keeper_)", "[a-z0-9+/_-]{20,120}={0,2}"), proof: Proof::Random(3.0),
        hides: "AKEYLESS_ACCESS_KEY={44w}", keeps: "conjur_account = acme", ..Kind::NAMED },
    Kind { id: "totp-secret", keywords: &["otpauth://"], pattern: r#"otpauth://[^\s"'<>]{1,160}?[?&]secret=([A-Za-z2-7]{16,128})"#,
        hides: "otpauth://totp/Acme:bo?secret={32B}&issuer=Acme", keeps: "otpauth://totp/Acme:bo?issuer=Acme", ..Kind::TOKEN },
];
