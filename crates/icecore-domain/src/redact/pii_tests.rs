use std::collections::BTreeSet;
use std::sync::LazyLock;

use super::*;

static REDACTOR: LazyLock<Redactor> = LazyLock::new(|| Redactor {
    engine: Arc::new(Engine::new(pii_kinds().iter().collect())),
    ..Redactor::standard()
});

/// What `text` becomes; and that it stays so.
fn redacted(text: &str) -> String {
    let once = REDACTOR.text(text).into_string();
    assert_eq!(REDACTOR.text(&once).as_str(), once, "twice equals once");
    once
}

#[test]
fn every_kind_hides_its_sample_and_keeps_its_near_miss() {
    let mut wrong = Vec::new();
    for kind in pii_kinds() {
        for seed in 0..20 {
            let sample = kind.sample(seed);
            let (hidden, counts) = REDACTOR.text_counted(&sample);
            if counts != Hidden::from([(kind.id.to_owned(), 1)]) {
                wrong.push(format!("{}: {sample} became {hidden}", kind.id));
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
fn ids_are_unique_and_no_credential_has_them() {
    let ids: BTreeSet<&str> = pii_kinds().iter().map(|kind| kind.id).collect();
    assert_eq!(ids.len(), pii_kinds().len());
    assert!(ids.iter().all(|id| marker::is_name(id)));
    assert!(Redactor::kinds().iter().all(|kind| !ids.contains(kind.id)));
}

#[test]
fn surroundings_do_not_matter() {
    for kind in pii_kinds() {
        let sample = kind.sample(3);
        for (before, after) in
            [("", "\n"), ("é", "é"), ("see `", "`"), ("日本", "語"), ("(", ")"), ("> ", ", ok?")]
        {
            let found = redacted(&format!("{before}{sample}{after}"));
            assert!(found.contains("[REDACTED:"), "{} in {before}…{after}: {found}", kind.id);
            assert!(found.starts_with(before), "{} in {before}…{after}: {found}", kind.id);
        }
    }
}

#[test]
fn hides_the_forms_people_write() {
    for (text, expected) in [
        ("Jane <jane.doe@mail.acme.dev>", "Jane <[REDACTED:email]>"),
        ("card 4111-1111-1111-1111 12/29", "card [REDACTED:payment-card] 12/29"),
        ("card 378282246310005.", "card [REDACTED:payment-card]."),
        ("IBAN GB82WEST12345698765432", "IBAN [REDACTED:iban]"),
        ("my ssn is 078-05-1120", "my ssn is [REDACTED:us-ssn]"),
        ("call (555) 010-0199 now", "call [REDACTED:phone] now"),
        ("call 212-555-0199 now", "call [REDACTED:phone] now"),
        ("tel. 06 12 34 56 78", "tel. [REDACTED:phone]"),
        ("Tel. 030/1234567-89", "Tel. [REDACTED:phone]"),
        ("http://10.1.2.3:8080/x", "http://[REDACTED:ip-address]:8080/x"),
        ("2001:db8::7 said", "[REDACTED:ip-address] said"),
    ] {
        assert_eq!(redacted(text), expected);
    }
}

#[test]
fn keeps_other_numbers() {
    for text in [
        "version 10.1.2.3, v10.1.2.3, 10.1.2.3.4, 127.0.0.1 and 0.0.0.0",
        "2024-05-06T10:20:30Z, 2024-05-06 10:20, 06/05/2024, 10:20:30",
        "id 123e4567-e89b-12d3-a456-426614174000",
        "commit 3f786850e387550fdab836ed7e6dc881de23001b",
        "1715000000000 ms since, 1715000000 s since, $1,234,567.89",
        "const PI: f64 = 3.141592653589793;",
        "use std::fmt; a::b::c; ::std::mem",
        "logo@2x.png, git@forge.acme.dev:x/y.git, pkg@1.2.3, @types/node",
        "pages 123-456, 12 345 678 people, 100 000 000",
        "ISBN 978-3-16-148410-0",
        r#"{"code": "app = Flask()\n@app.route('/login')"}"#,
    ] {
        assert_eq!(redacted(text), text);
    }
}

#[test]
fn personal_data_is_hidden_only_when_asked_for() {
    let text = "write to ana@firn.blog or from 203.0.113.9";
    assert_eq!(Redactor::standard().text(text).as_str(), text);
    let some = Redactor::standard().with_pii(&["email"]).unwrap();
    let shown = "write to [REDACTED:email] or from 203.0.113.9";
    assert_eq!(some.text(text).as_str(), shown);
    let all = Redactor::standard().with_pii(&["all"]).unwrap();
    assert_eq!(all.text(shown).as_str(), "write to [REDACTED:email] or from [REDACTED:ip-address]");
    let wrong = Redactor::standard().with_pii(&["email", "mood"]).unwrap_err();
    assert!(wrong.to_string().starts_with("`mood` is no kind of personal data"), "{wrong}");
}

proptest::proptest! {
    #[test]
    fn no_check_stumbles(value in "[0-9A-Za-zé .:/+-]{0,40}|[0-9]{8,20}|[A-Z0-9]{14,18}") {
        for kind in pii_kinds() {
            if let Proof::Checked(check) = kind.proof {
                let _ = check(&value);
            }
        }
        let _ = REDACTOR.text(&value);
    }
}
