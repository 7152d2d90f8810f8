use std::collections::BTreeSet;
use std::sync::LazyLock;

use proptest::prelude::*;

use super::*;

static REDACTOR: LazyLock<Redactor> = LazyLock::new(Redactor::standard);

/// What `text` becomes; and that it stays so.
fn redacted(text: &str) -> String {
    let once = REDACTOR.text(text).into_string();
    assert_eq!(REDACTOR.text(&once).as_str(), once, "twice equals once");
    once
}

fn check(text: &str, expected: &str) {
    assert_eq!(redacted(text), expected);
}

fn hidden(counts: &[(&str, u64)]) -> Hidden {
    counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}

fn keeps(text: &str) {
    check(text, text);
}

fn json(text: &str, expected: &str) {
    let once = REDACTOR.json(&JsonText::parse(text).unwrap());
    assert_eq!(once.as_str(), expected);
    assert_eq!(REDACTOR.json(&once), once, "twice equals once");
}

#[test]
fn every_kind_hides_its_sample_and_keeps_its_near_miss() {
    let mut wrong = Vec::new();
    for kind in Redactor::kinds() {
        for seed in 0..20 {
            let sample = kind.sample(seed);
            let (shown, counts) = REDACTOR.text_counted(&sample);
            if counts != hidden(&[(kind.id, 1)]) {
                wrong.push(format!("{}: {sample} became {shown}", kind.id));
            }
            let near = kind.near_miss(seed);
            if redacted(&near) != near {
                wrong.push(format!("{}: {near} became {}", kind.id, redacted(&near)));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn ids_are_unique_and_fit_the_marker() {
    let ids: BTreeSet<&str> = Redactor::kinds().iter().map(|kind| kind.id).collect();
    assert_eq!(ids.len(), Redactor::kinds().len());
    assert!(ids.len() >= 230);
    assert!(ids.iter().all(|id| marker::is_name(id)));
}

/// Each kind in the places where secrets are met.
#[test]
fn surroundings_do_not_matter() {
    for kind in Redactor::kinds() {
        let sample = kind.sample(3);
        let alone = redacted(&sample);
        for (before, after) in [
            ("", "\n"),
            ("é", "é"),
            ("see `", "`"),
            ("日本", "語"),
            ("(", ")"),
            ("\u{0}", "\u{0}"),
            ("> ", ", ok?"),
        ] {
            let found = redacted(&format!("{before}{sample}{after}"));
            assert!(found.contains("[REDACTED:"), "{} in {before}…{after}: {found}", kind.id);
            assert!(found.starts_with(before), "{} in {before}…{after}: {found}", kind.id);
            assert!(alone.contains("[REDACTED:"));
        }
    }
}

#[test]
fn keeps_what_stands_around_a_secret() {
    check(
        &format!("postgres://app:{}@db/main", "s3cr7et-x"),
        "postgres://app:[REDACTED:url-password]@db/main",
    );
    check("http://bo:p@ss7@proxy:80/", "http://bo:[REDACTED:url-password]@proxy:80/");
    check("DB_PASSWORD=hunter22 # old", "DB_PASSWORD=[REDACTED:password] # old");
    check(
        "Server=db;Password=hunter22;Encrypt=true",
        "Server=db;Password=[REDACTED:password];Encrypt=true",
    );
    check("?user=bo&password=hunter22&page=2", "?user=bo&password=[REDACTED:password]&page=2");
    check(
        "connect(password='hunter22', user='bo')",
        "connect(password='[REDACTED:password]', user='bo')",
    );
    check(r#"{"password":"correct horse 9"}"#, r#"{"password":"[REDACTED:password]"}"#);
    check(
        r#"{\"password\":\"hunter22\",\"n\":1}"#,
        r#"{\"password\":\"[REDACTED:password]\",\"n\":1}"#,
    );
    check("password: \"a\\\"b22cd\"", "password: \"[REDACTED:password]\"");
    check("the password is Hunter22!", "the password is [REDACTED:password-prose]");
    check("password=letmein!", "password=[REDACTED:password]");
    check("my password is hunter22.", "my password is [REDACTED:password-prose].");
    check(
        "The password for the wifi is Blue!Horse7",
        "The password for the wifi is [REDACTED:password-prose]",
    );
    let key = Redactor::kinds()[0].sample(1).replace('\n', "\\n");
    check(&format!("{{\"k\":\"{key}\\n\"}}"), "{\"k\":\"[REDACTED:private-key]\\n\"}");
}

#[test]
fn keeps_what_is_no_secret() {
    for text in [
        "Passwords and keys: use a password manager, and never reuse a password.",
        "The secret of a good soup is time. The key: patience. A token of thanks: a cake.",
        "My password is wrong again, the password is required, the password is case-sensitive.",
        "The password is wrong! Is the passphrase on the router up-to-date?",
        "arn:aws:secretsmanager:eu-west-1:123456789012:secret:app/main-kv7SWD",
        "Password: ********",
        "password: xxxxxxxx",
        "api_key = YOUR_API_KEY",
        "token: <token>",
        "export TOKEN=$MY_TOKEN_1",
        "token = \"${TOKEN_2}\"",
        "password = os.environ['DB_PASSWORD_1']",
        "password = getpass(prompt=1)",
        "const token = await getToken2(user)",
        "max_tokens: 4096000000000000",
        "secret: my-app-secret-v2",
        "secretName: projects/acme/secrets/db-2",
        "token = self.next_token()",
        "let token: Option<Token> = None;",
        "token: arch::x86_64::avx2::Token,",
        "fn password(&self) -> &str { &self.password }",
        "id 123e4567-e89b-12d3-a456-426614174000",
        "commit 3f786850e387550fdab836ed7e6dc881de23001b",
        "sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=",
        "the task-list, the risk-free desk-job",
        "https://example.com:8080/path?x=1@2",
        "http://localhost:3000/@user",
        "postgres://app:${DB_PASS}@db",
        "postgres://app:$DB_PASS@db",
        "mysql://{user}:{password}@{host}",
        "user@example.com: hello",
        "Reset your password: https://example.com/reset/1",
        "password must have 8 characters",
        "password: \"${DB_PASS_1}\"",
        "password=\"{{ db_pass_1 }}\"",
        "{\"password\": \"Enter at least 8 characters\"}",
        "{\"type\": \"password\", \"required\": true}",
        "Authorization: Bearer $TOKEN",
        "Authorization: Basic auth",
        "bearer of good news, since 1999",
        "sk-learn",
        "npm_config_registry",
        "eyJ",
        "-----BEGIN CERTIFICATE-----",
        "It starts with -----BEGIN PRIVATE KEY----- and so on.",
        "",
    ] {
        keeps(text);
    }
}

#[test]
fn keys_that_begin_with_sk_are_told_from_names() {
    check("the key sk-canary-rfc0062-do-not-leak-qrs456.", "the key [REDACTED:sk-key].");
    for name in [
        "sk-learn",
        "sk-estimator-checks",
        "sk-toggleable__content-arrow",
        "sk-folding-cube-animation-12",
        "a task-list-of-things-to-do-today-99",
        "class=\"sk-top-container sk-text-repr-fallback\"",
    ] {
        keeps(name);
    }
}

/// Private keys are hidden whole, however they were pasted.
#[test]
fn private_keys_are_hidden_in_every_wrapping() {
    let key = sample("private-key");
    let hidden = "[REDACTED:private-key]";
    let wrapped = |mark: &str| key.replace('\n', &format!("\n{mark}"));
    for (text, expected) in [
        (key.replace("RSA", "ENCRYPTED"), hidden.to_owned()),
        (key.replace("RSA", "OPENSSH"), hidden.to_owned()),
        (key.replace("RSA ", ""), hidden.to_owned()),
        (format!("-{}", wrapped("-")), format!("-{hidden}")),
        (format!("+{}", wrapped("+")), format!("+{hidden}")),
        (format!("key: |\n  {}", wrapped("  ")), format!("key: |\n  {hidden}")),
        (format!("> {}", wrapped("> ")), format!("> {hidden}")),
        (key.replace('\n', "\r\n"), hidden.to_owned()),
        (key.replace('\n', "\\n"), hidden.to_owned()),
        (key.replace('\n', "\\\\n"), hidden.to_owned()),
        (key.replace('\n', " "), hidden.to_owned()),
    ] {
        check(&text, &expected);
    }
    let (cut, _) = key.rsplit_once("-----END").unwrap();
    check(cut.trim_end(), hidden);
    let certificate = key.replace("RSA PRIVATE KEY", "CERTIFICATE");
    check(&format!("{certificate}\n{key}"), &format!("{certificate}\n{hidden}"));
}

#[test]
fn urls_of_every_scheme_keep_host_and_user() {
    for scheme in [
        "postgres", "postgresql+asyncpg", "mysql", "mariadb", "mongodb+srv", "redis", "rediss",
        "amqps", "mssql", "clickhouse", "cockroachdb", "jdbc:postgresql", "ftp", "smtps", "ldap",
        "nats", "https",
    ] {
        check(
            &format!("{scheme}://app:tiger@db.acme.dev/main"),
            &format!("{scheme}://app:[REDACTED:url-password]@db.acme.dev/main"),
        );
    }
    check(
        "jdbc:sqlserver://db:1433;user=sa;password=tiger9!x;encrypt=true",
        "jdbc:sqlserver://db:1433;user=sa;password=[REDACTED:password];encrypt=true",
    );
}

#[test]
fn headers_commands_and_files_give_up_their_secret_only() {
    for (text, expected) in [
        (
            "Proxy-Authorization: Basic Ym86dGlnZXI5",
            "Proxy-Authorization: Basic [REDACTED:basic-auth]",
        ),
        ("X-Api-Key: q8Zk2Lm9Xw4Rt7", "X-Api-Key: [REDACTED:api-key-header]"),
        (
            "curl -sSL --user bo:tiger9x https://x.dev",
            "curl -sSL --user bo:[REDACTED:curl-user] https://x.dev",
        ),
        (
            "machine x.dev\n  login bo\n  password tiger9x\n",
            "machine x.dev\n  login bo\n  password [REDACTED:netrc-password]\n",
        ),
        ("db.acme.dev:5432:*:app:tiger9x", "db.acme.dev:5432:*:app:[REDACTED:pgpass-line]"),
        ("<password>tiger9x</password>", "<password>[REDACTED:xml-password]</password>"),
        (
            "CREATE USER bo IDENTIFIED BY 'tiger9x'",
            "CREATE USER bo IDENTIFIED BY '[REDACTED:sql-password]'",
        ),
        ("let api_key: &str = \"q8Zk2Lm9Xw4Rt7\";", "let api_key: &str = \"[REDACTED:api-key]\";"),
        ("#define PASSWORD \"tiger9x\"", "#define PASSWORD \"[REDACTED:password]\""),
        ("deploy --api-key q8Zk2Lm9Xw4Rt7 -v", "deploy --api-key [REDACTED:token-flag] -v"),
        ("mysql -u root -ptiger9x main", "mysql -u root -p[REDACTED:command-password] main"),
        (
            "Cookie: theme=dark; JSESSIONID=q8Zk2Lm9Xw4Rt7Pq; x=1",
            "Cookie: theme=dark; JSESSIONID=[REDACTED:session-cookie]; x=1",
        ),
        ("{\"kty\":\"oct\",\"kid\":\"1\"}", "{\"kty\":\"oct\",\"kid\":\"1\"}"),
    ] {
        check(text, expected);
    }
}

#[test]
fn sentences_give_up_their_secret_only() {
    for (text, expected) in [
        ("Das Passwort lautet Tiger9x!", "Das Passwort lautet [REDACTED:password-languages]"),
        ("le mot de passe est Tiger9x", "le mot de passe est [REDACTED:password-languages]"),
        ("La contraseña es Tiger9x", "La contraseña es [REDACTED:password-languages]"),
        ("пароль: Tiger9x", "пароль: [REDACTED:password-languages]"),
        ("密码是Tiger9x。", "密码是[REDACTED:password-languages]。"),
        ("パスワードはTiger9xです", "パスワードは[REDACTED:password-languages]です"),
        ("My PIN is 4821, keep it", "My PIN is [REDACTED:pin-prose], keep it"),
        ("here is the api key: q8Zk2Lm9Xw4Rt7", "here is the api key: [REDACTED:api-key]"),
        ("The token is q8Zk2Lm9Xw4Rt7 for now.", "The token is [REDACTED:key-prose] for now."),
        (
            "I changed the password to hunter22",
            "I changed the password to [REDACTED:password-changed]",
        ),
        ("use Tiger-9x as the password.", "use [REDACTED:password-after] as the password."),
        ("ssh as root, password q8Zk2Lm9Xw", "ssh as root, password [REDACTED:password-told]"),
        ("**Password:** Tiger9x!", "**Password:** [REDACTED:password]"),
    ] {
        check(text, expected);
    }
    for text in [
        "Das Passwort ist falsch. Le mot de passe est requis. La contraseña es incorrecta.",
        "PIN code: 560001, pin 13 is ground, the pin is missing",
        "Use SHA-256 for password storage and bcrypt_12 as the password hash.",
        "The key model is Qwen2.5-Coder-32B-Instruct-GGUF; the public key is MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQ.",
        "nextPageToken: \"1ueGcxLPRx1Tr2XYExHnhbYLgveDs2J\"",
        "password: required|min:8|confirmed",
        "The clave is an instrument; parola means word.",
        "The secret is that there is no secret-ingredient, and the token is case-insensitive.",
        "Write your seed phrase down: keep the twelve words on paper and never share them with anyone at all.",
    ] {
        keeps(text);
    }
}

#[test]
fn markers_survive_and_foreign_ones_take_our_form() {
    keeps("was [REDACTED:github-token] and password=[REDACTED:password]");
    keeps("[REDACTED]");
    check("[BYOK:prod-db] <REDACTED:aws.key:2>", "[REDACTED:prod-db] [REDACTED:aws.key:2]");
    check(
        "[BYOK:two words] <REDACTED:> [BYOK:é]",
        "[REDACTED:secret] [REDACTED:secret] [REDACTED:secret]",
    );
    check(&format!("[BYOK:{}]", "n".repeat(65)), "[REDACTED:secret]");
    check("[BYOK:<REDACTED:[REDACTED:x]>]", "[BYOK:<REDACTED:[REDACTED:x]>]");
    keeps("[REDACTED:[REDACTED:[REDACTED:x]]]");
    keeps("password=[REDACTED:a]hunter22");
    let token = sample("github-token");
    check(&format!("[REDACTED:{token}] [BYOK:{token}]"), "[REDACTED:secret] [REDACTED:secret]");
}

fn sample(id: &str) -> String {
    Redactor::kinds().iter().find(|kind| kind.id == id).unwrap().sample(1)
}

#[test]
fn overlapping_secrets_are_hidden_whole() {
    let token = sample("github-token");
    check(&format!("token={token}"), "token=[REDACTED:github-token]");
    check(&format!("token={token}.{token}"), "token=[REDACTED:token]");
    check(
        &format!("https://bo:{token}@github.com/x"),
        "https://bo:[REDACTED:github-token]@github.com/x",
    );
    check(&format!("{token}{token}"), "[REDACTED:github-token]");
}

#[test]
fn counts_by_kind() {
    let text =
        format!("{} {} [BYOK:x] pwd=hunter22", sample("github-token"), sample("github-token"));
    assert_eq!(REDACTOR.text_counted(&text).1, hidden(&[("github-token", 2), ("password", 1)]));
}

#[test]
fn json_values_are_known_by_their_keys() {
    json(
        r#"{"password":"correct horse 9", "n": 1.50}"#,
        r#"{"password":"[REDACTED:password]", "n": 1.50}"#,
    );
    json(r#"{"userPassword":"letmein"}"#, r#"{"userPassword":"[REDACTED:password]"}"#);
    json(r#"{"pwd": 12345678}"#, r#"{"pwd": "[REDACTED:password]"}"#);
    json(
        r#"{"a":[{"apiKey":"q8Zk\u0032Lm9Xw4Rt"}]}"#,
        r#"{"a":[{"apiKey":"[REDACTED:api-key]"}]}"#,
    );
    json(r#"{"password":"[BYOK:db]"}"#, r#"{"password":"[REDACTED:db]"}"#);
    let same = r#"{"password":null,"new_password":"required","old_password":"${OLD}","token_count":12,"secret":"\u0061 b","properties":{"password":{"type":"string"}}}"#;
    json(same, same);
    let hex = "3f786850e387550fdab836ed7e6dc881";
    json(&format!(r#"{{"DD_API_KEY":"{hex}"}}"#), r#"{"DD_API_KEY":"[REDACTED:datadog-key]"}"#);
}

#[test]
fn every_field_of_a_turn_is_looked_at() {
    let secret = sample("github-token");
    let quoted = || JsonText::string(&secret);
    let turn = RawTurn {
        id: Some(secret.clone()),
        role: secret.clone(),
        content: Content::Parts(quoted()),
        name: Some(secret.clone()),
        timestamp: None,
        model: Some(secret.clone()),
        parent_ids: Some(vec![secret.clone()]),
        tags: Some(vec![secret.clone()]),
        confidence: None,
        tool_calls: Some(quoted()),
        tool_call_id: Some(secret.clone()),
        extra: vec![(secret.clone(), quoted()), ("password".into(), JsonText::string("hunter22"))],
    };
    let shown = format!("{:?}", REDACTOR.turn(turn));
    assert!(!shown.contains(&secret) && !shown.contains("hunter22"), "{shown}");
    assert_eq!(shown.matches("[REDACTED:github-token").count(), 11);
}

/// The names of fields that we do not know, once redacted; and that the turn can
/// be read back and stays so.
fn extra_names(names: &[String], value: &str) -> Vec<String> {
    let mut turn = RawTurn::new("user", "hi");
    turn.extra = names.iter().map(|name| (name.clone(), JsonText::string(value))).collect();
    let once = REDACTOR.turn(turn);
    let written = crate::turn_jsonl::write_fields(&[], once.fields());
    assert_eq!(&crate::turn_jsonl::parse_stored(&written).unwrap().turn, once.fields());
    assert_eq!(REDACTOR.turn(once.fields().clone()), once, "twice equals once");
    once.into_fields().extra.into_iter().map(|(key, _)| key).collect()
}

#[test]
fn field_names_stay_apart_when_their_secrets_are_hidden() {
    let kind = Redactor::kinds().iter().find(|kind| kind.id == "github-token").unwrap();
    let token = |seed| kind.sample(seed);
    let marker = "[REDACTED:github-token]";
    let names = [token(1), token(2), "x".to_owned(), marker.to_owned()];
    let renamed = extra_names(&names, "hunter22");
    assert_eq!(renamed[2..], names[2..]);
    assert!(renamed[..2].iter().all(|name| name.starts_with("[REDACTED:github-token:")));
    // The tag tells the secret, wherever it stands.
    let reversed: Vec<String> = names.iter().rev().cloned().collect();
    assert_eq!(extra_names(&reversed, "y"), renamed.iter().rev().cloned().collect::<Vec<_>>());
    assert_eq!(extra_names(&names[1..3], "y"), renamed[1..3], "whatever stands beside it");
    let names = [1, 2].map(|seed| format!("{} password=", token(seed)));
    assert_eq!(extra_names(&names, "hunter22").len(), 2);
}

/// A quadratic engine would need hours for these; the benchmark has the figures.
#[test]
fn hostile_text_is_read_to_its_end() {
    for piece in [
        "a", "=", "password=", "password", "-----BEGIN PRIVATE KEY-----", "://a:", "[BYOK:",
        "[REDACTED:x]", "eyJ", "eyJaaaaaaaaaa.", "token=\"", "cookie:", "\u{0}", "sig=",
        "password is ", "AKIA", "é1:aa", "1-us",
    ] {
        redacted(&piece.repeat((1 << 20) / piece.len()));
    }
}

#[test]
fn a_credential_longer_than_its_reach_is_hidden_to_its_end() {
    let long = format!("sk-ant-{}", "a1B2c3D4".repeat(4000));
    check(&format!("{long} end"), "[REDACTED:anthropic-key] end");
}

pub(super) fn piece() -> impl Strategy<Value = String> {
    let kinds = Redactor::kinds();
    prop_oneof![
        4 => (0..kinds.len(), any::<u64>()).prop_map(move |(kind, seed)| kinds[kind].sample(seed)),
        1 => (0..kinds.len(), any::<u64>()).prop_map(move |(kind, seed)| kinds[kind].near_miss(seed)),
        2 => prop::sample::select(vec!["[REDACTED:x]", "[BYOK:db]", "<REDACTED:a b>", "[BYOK:", "[REDACTED:", "]", ">"])
            .prop_map(str::to_owned),
        3 => prop::sample::select(vec![" ", "\n", "password=", "\"", "token: ", "é", ",", "is ", "://u:", "@h", "_", "a", "1"])
            .prop_map(str::to_owned),
        1 => "\\PC{0,12}",
    ]
}

/// A redactor of a tenant that registered these, named `s0`, `s1` and so on.
pub(super) fn tenant(values: &[&str]) -> Redactor {
    let secret = |(at, value): (usize, &&str)| {
        let name = SecretName::new(&format!("s{at}")).unwrap();
        Secret::new(name, zeroize::Zeroizing::new((*value).to_owned())).unwrap()
    };
    let secrets: Vec<Secret> = values.iter().enumerate().map(secret).collect();
    Redactor::standard().for_tenant(&secrets, TagKey::new([7; 32]))
}

#[test]
fn registered_secrets_are_hidden_by_their_names() {
    let redactor =
        tenant(&["open sesame 7", "sesame 7 doors", "q8Zk2Lm9Xw4R", "q8Zk2Lm9Xw4R-more"]);
    let token = sample("github-token");
    for (text, expected) in [
        ("say open sesame 7!", "say [REDACTED:s0]!"),
        ("open sesame 7 doors, sesame 7 doors", "[REDACTED:s0], [REDACTED:s1]"),
        ("q8Zk2Lm9Xw4R-more or q8Zk2Lm9Xw4R", "[REDACTED:s3] or [REDACTED:s2]"),
        ("password=q8Zk2Lm9Xw4R", "password=[REDACTED:s2]"),
        ("postgres://u:q8Zk2Lm9Xw4R@h/d", "postgres://u:[REDACTED:s2]@h/d"),
        ("[BYOK:q8Zk2Lm9Xw4R] [REDACTED:s2]", "[REDACTED:secret] [REDACTED:s2]"),
        ("b3BlbiBzZXNhbWUgNyBhbmQgbW9yZQ==", "[REDACTED:s0]"),
        ("x?y=open%20sesame%207&z", "x?y=[REDACTED:s0]&z"),
        ("x?y=%6fpen%20sesame%207&z", "x?y=[REDACTED:s0]&z"),
        ("OPEN SESAME 7", "OPEN SESAME 7"),
        (&format!("{token}q8Zk2Lm9Xw4R"), "[REDACTED:s2]"),
    ] {
        let once = redactor.text(text);
        assert_eq!(once.as_str(), expected, "{text}");
        assert_eq!(redactor.text(once.as_str()), once, "twice equals once");
    }
    assert_eq!(redactor.text_counted("open sesame 7, open sesame 7").1, hidden(&[("s0", 2)]));
}

#[test]
fn encoded_credentials_are_hidden() {
    use base64::Engine as _;
    let encode = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
    let token = sample("github-token");
    check(&encode(&format!("{{\"token\": \"{token}\"}}")), "[REDACTED:github-token]");
    let hex: String = token.bytes().map(|byte| format!("{byte:02x}")).collect();
    check(&format!("blob {hex}."), "blob [REDACTED:github-token].");
    check("?a=password%3Dhunter22%26b%3D1", "?a=password%3D[REDACTED:password]%26b%3D1");
    keeps(&encode("nothing in here is secret, not even the word password itself"));
    // One level, as is written down.
    keeps(&encode(&encode(&token)));
}

#[test]
fn tags_tell_secrets_of_a_kind_apart() {
    let redactor = tenant(&["open sesame 7"]).with_tags(true);
    let (a, b) = (sample("github-token"), Redactor::kinds()[0].sample(9));
    let text = format!("{a} {a} {b} open sesame 7 [REDACTED:x]");
    let (once, counts) = redactor.text_counted(&text);
    let words: Vec<&str> = once.as_str().split(' ').collect();
    assert_eq!(words[0], words[1]);
    let shape = regex::Regex::new(r"^\[REDACTED:github-token:[0-9a-f]{6}\]$").unwrap();
    assert!(shape.is_match(words[0]), "{once}");
    assert_eq!(words[4], "[REDACTED:x]");
    assert_eq!(redactor.text(once.as_str()), once, "twice equals once");
    assert_eq!(counts, hidden(&[("github-token", 2), (Redactor::kinds()[0].id, 1), ("s0", 1)]));
    let other = Redactor::standard().for_tenant(&[], TagKey::new([8; 32])).with_tags(true);
    assert_ne!(other.text(&a).as_str(), words[0], "another tenant, another tag");
}

#[test]
fn what_a_turn_hid_is_counted_once() {
    let redactor = tenant(&["open sesame 7"]);
    let mut turn = RawTurn::new("user", "open sesame 7 and [REDACTED:old] and [BYOK:older]");
    turn.name = Some("open sesame 7".to_owned());
    turn.extra = vec![("password".to_owned(), JsonText::string("hunter22"))];
    let (redacted, counts) = redactor.turn_counted(turn);
    assert_eq!(counts, hidden(&[("password", 1), ("s0", 2)]));
    assert!(redactor.turn_counted(redacted.into_fields()).1.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn redacting_twice_equals_redacting_once(pieces in prop::collection::vec(piece(), 1..8)) {
        let text = pieces.concat();
        let once = REDACTOR.text(&text);
        prop_assert_eq!(&REDACTOR.text(once.as_str()), &once);
        prop_assert_eq!(&REDACTOR.text(&text), &once);
    }

    #[test]
    fn so_it_is_with_registered_secrets(
        pieces in prop::collection::vec(prop_oneof![2 => piece(), 1 => prop::sample::select(vec!["q8Zk2Lm9Xw4R", "9Xw4Rq8Zk2", "cThaazJMbTlYdzRS", "q8Zk2Lm9"]).prop_map(str::to_owned)], 1..8),
        tags in any::<bool>(),
    ) {
        let redactor = tenant(&["q8Zk2Lm9Xw4R", "9Xw4Rq8Zk2L"]).with_tags(tags);
        let text = pieces.concat();
        let once = redactor.text(&text);
        prop_assert_eq!(&redactor.text(once.as_str()), &once);
        prop_assert!(!once.as_str().contains("q8Zk2Lm9Xw4R") && !once.as_str().contains("cThaazJMbTlYdzRS"));
    }

    #[test]
    fn so_it_is_with_json(key in piece(), value in piece()) {
        let json = JsonText::parse(&serde_json::json!({ key: [value, 1] }).to_string()).unwrap();
        let once = REDACTOR.json(&json);
        prop_assert!(JsonText::parse(once.as_str()).is_ok());
        prop_assert_eq!(&REDACTOR.json(&once), &once);
    }

    #[test]
    fn so_it_is_with_field_names(
        names in prop::collection::btree_set(prop::collection::vec(piece(), 1..3), 1..6),
        end in piece(),
        value in piece(),
    ) {
        let names: BTreeSet<String> = names.iter().map(|pieces| pieces.concat() + &end).collect();
        let names: Vec<String> = names.into_iter().filter(|name| !KNOWN_FIELDS.contains(&name.as_str())).collect();
        extra_names(&names, &value);
    }
}
