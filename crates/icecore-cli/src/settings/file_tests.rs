//! What a settings file may say, and what is said of its mistakes.

use icecore::Tenant;
use icecore_host::settings::TenantBounds;
use icecore_settings::{read, rows};

use super::*;

/// What a file gives, or why it cannot be used.
fn check(text: &str, expected: &str) {
    let found = match resolve(Global::default(), &[], &env(), Some(text)) {
        Ok(settings) => {
            let given = settings.rows().into_iter().filter(|(.., origin)| *origin == Origin::File);
            let given = given.map(|(name, value, _)| format!("{name} = {value}"));
            given.collect::<Vec<_>>().join(", ")
        }
        Err(error) => {
            let message = error.message().replacen("in ``: ", "", 1);
            match error.hint() {
                Some(hint) => format!("{message} ({hint})"),
                None => message,
            }
        }
    };
    assert_eq!(found, expected, "{text}");
}

fn env() -> Env {
    Env { data_home: Some("/home/data".into()), ..Env::default() }
}

/// A value that a setting may have beside the one that is shown.
fn another(value: &str) -> Vec<String> {
    let words = ["json", "ctf", "llm", "endpoint", "anthropic", "o200k_base", "x"];
    let mut others = vec!["true", "false", "0.5", "[\"x\"]", "[\"email\"]"];
    let words: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
    others.extend(words.iter().map(String::as_str));
    let number = value.parse::<u64>().ok();
    let numbers =
        number.map(|number| [(number + 1).to_string(), number.saturating_sub(1).to_string()]);
    let all = numbers.into_iter().flatten().chain(others.into_iter().map(str::to_owned));
    all.filter(|other| other != value).collect()
}

#[test]
fn every_setting_is_read_by_its_name_and_no_other_changes() {
    let before = rows(&mut FileSettings::default());
    for row in &before {
        let (table, key) = (&row.table, &row.key);
        let given = another(&row.value).into_iter().find_map(|value| {
            let mut file = FileSettings::default();
            read(&mut file, &format!("[{table}]\n{key} = {value}")).ok()?;
            Some((value, rows(&mut file)))
        });
        let (value, after) = given.unwrap_or_else(|| panic!("{} takes nothing else", row.name()));
        let changed: Vec<_> = before.iter().zip(&after).filter(|(a, b)| a != b).collect();
        assert_eq!(changed.len(), 1, "{} = {value}: {changed:?}", row.name());
        assert_eq!(changed[0].1.name(), row.name());
    }
}

#[test]
fn seldom_changed_settings_say_where_they_are() {
    check("[advanced.serve]\npage_bytes = 5", "advanced.serve.page_bytes = 5");
    check(
        "[serve]\npage_bytes = 5",
        "the setting `serve.page_bytes` is called `advanced.serve.page_bytes` (write `page_bytes` under `[advanced.serve]`)",
    );
    check(
        "[advanced.serve]\npage = 5",
        "the setting `advanced.serve.page` is called `serve.page` (write `page` under `[serve]`)",
    );
    check(
        "[serve]\npage_byte = 5",
        "there is no setting `serve.page_byte` (did you mean `advanced.serve.page_bytes`?)",
    );
    check(
        "advanced = 1",
        "`advanced` must be a table, not 1 (`icecore config example` shows every setting)",
    );
}

#[test]
fn what_does_not_go_together_is_refused() {
    check("[serve]\npage = 20", "serve.page = 20");
    check(
        "[serve]\npage = 20\n[advanced.serve]\npage_default = 30",
        "`page_default` (30) is more than `page` (20) (lower `page_default` under `[advanced.serve]`, or raise `page`)",
    );
    check(
        "[serve]\nbody_bytes = 1073741824",
        "`buffered_bytes` (268435456) is less than `body_bytes` (1073741824) (raise `buffered_bytes` under `[advanced.serve]`, or lower `body_bytes`)",
    );
    check(
        "[serve]\nevent_streams = 0",
        "`serve.event_streams` must be a whole number from 1 to 65536, not 0 (`icecore config example` shows every setting)",
    );
}

#[test]
fn every_setting_of_the_reference_is_read() {
    check("", "");
    check("[memory]\nmicro_chunk_size = 5", "memory.micro_chunk_size = 5");
    check("[advanced.memory]\nwarm_format = \"json\"", "advanced.memory.warm_format = \"json\"");
    check("[advanced.memory]\ncold_format = \"ctf\"", "advanced.memory.cold_format = \"ctf\"");
    check("[memory]\nauto_embed = true", "memory.auto_embed = true");
    check(
        "[advanced.memory]\ncold_format = \"ctf\"\n[memory]\ncold_retention_days = 9",
        "`memory.cold_retention_days` lets go of packs, and `advanced.memory.cold_format = \"ctf\"` makes none \
         (use `cold_format = \"summary_only\"`, or keep cold bodies for ever)",
    );
    check("[serve]\nlisten = \"[::1]:1\"", "serve.listen = \"[::1]:1\"");
    check(
        "[serve]\nallowed_hosts = [\"memory.example\"]",
        "serve.allowed_hosts = [\"memory.example\"]",
    );
    check(
        "[serve]\nallowed_hosts = \"memory.example\"",
        "`serve.allowed_hosts` must be a list of strings, not \"memory.example\" (`icecore config example` shows every setting)",
    );
    check("[serve]\nrate_per_second = 0", "serve.rate_per_second = 0");
    let config = FileSettings::parse(
        "[memory]\nhot_chunks = 7\nmini_chunk_interval = 50\ncold_retention_days = 3\n\
         [advanced.memory]\nhot_max_tokens = 9\ndefer_summarization = false\n[serve]\npage = 20",
    )
    .unwrap();
    assert_eq!((config.memory.hot_chunks, config.memory.hot_max_tokens), (7, 9));
    assert_eq!(config.memory.cuts.mini_turns, 50);
    assert_eq!((config.memory.defer_summarization, config.memory.cold_retention_days), (false, 3));
    assert_eq!(config.server.limits.page, 20);
    assert_eq!(FileSettings::default().memory, MemorySettings::default());
}

#[test]
fn redaction_is_set_by_name() {
    let check_text = |file: &str, text: &str, expected: &str| {
        let redactor = FileSettings::parse(file).unwrap().redaction.redactor().unwrap();
        let found = redactor.text(text).into_string();
        assert!(found.starts_with(expected), "{file}: {found}");
    };
    let token = format!("ghp_{}", "a1B2".repeat(9));
    let address = "bo.lindqvist@glacier.dev";
    check("[redaction]\ntags = true", "redaction.tags = true");
    check_text("[redaction]\ntags = true", &token, "[REDACTED:github-token:");
    check_text("", &token, "[REDACTED:github-token]");
    check("[redaction]\npii = [\"email\"]", "redaction.pii = [\"email\"]");
    check_text("[redaction]\npii = [\"email\"]", address, "[REDACTED:email]");
    check_text("[redaction]\npii = [\"all\"]", address, "[REDACTED:email]");
    check_text("[redaction]\npii = [\"iban\"]", address, address);
    for wrong in ["\"email\"", "[\"mail\"]", "[1]"] {
        let error = FileSettings::parse(&format!("[redaction]\npii = {wrong}")).unwrap_err();
        let message = error.to_string();
        assert!(message.contains("a list of \"all\", \"email\", "), "{message}");
        assert!(message.ends_with(&format!("not {wrong}")), "{message}");
    }
}

#[test]
fn mistakes_are_named() {
    check(
        "[memory]\nhot_chunk = 1",
        "there is no setting `memory.hot_chunk` (did you mean `memory.hot_chunks`?)",
    );
    check("[memroy]\nx = 1", "there is no setting `memroy` (did you mean `memory`?)");
    check(
        "[memory]\nhot_chunks = \"two\"",
        "`memory.hot_chunks` must be a whole number from 0 to 1000000, not \"two\" (`icecore config example` shows every setting)",
    );
    check(
        "[advanced.dreams]\nlease_seconds = 3601",
        "`advanced.dreams.lease_seconds` must be a whole number from 1 to 3600, not 3601 (`icecore config example` shows every setting)",
    );
    check(
        "[memory]\nhot_chunks = -1",
        "`memory.hot_chunks` must be a whole number from 0 to 1000000, not -1 (`icecore config example` shows every setting)",
    );
    check(
        "[advanced.memory]\nwarm_format = \"xml\"",
        "`advanced.memory.warm_format` must be \"ctf\" or \"json\", not \"xml\" (`icecore config example` shows every setting)",
    );
    check(
        "memory = 3",
        "`memory` must be a table, not 3 (`icecore config example` shows every setting)",
    );
    check(
        "[memory]\nmini_chunk_interval = 30",
        "`macro_chunk_interval` (100) must be a multiple of `mini_chunk_interval` (30) (10, 25 and 100 are sizes that nest)",
    );
    check(
        "[advanced.memory]\nentry_budget_counter = \"words\"",
        "`advanced.memory.entry_budget_counter` must be \"chars\" or \"o200k_base\", not \"words\" (`icecore config example` shows every setting)",
    );
    check(
        "[openwop]\nread_only = 1",
        "`openwop.read_only` must be `true` or `false`, not 1 (`icecore config example` shows every setting)",
    );
    check(
        "[memory]\nsummarization_strategy = \"model\"",
        "`memory.summarization_strategy` must be \"heuristic\", \"llm\" or \"local\", not \"model\" (`icecore config example` shows every setting)",
    );
    check(
        "[memory]\nembedding_provider = \"cloud\"",
        "`memory.embedding_provider` must be \"local\" or \"endpoint\", not \"cloud\" (`icecore config example` shows every setting)",
    );
    check(
        "[memory]\nembedding_provider = \"endpoint\"",
        "`memory.embedding_provider = \"endpoint\"` needs `memory.embedding_url` (give the server's address, up to and without `/embeddings`: `embedding_url = \"http://127.0.0.1:8080/v1\"`)",
    );
    check(
        "[advanced.index]\ntail_docs = 0",
        "`advanced.index.tail_docs` must be a whole number from 1 to 1000000, not 0 (`icecore config example` shows every setting)",
    );
    assert!(matches!(FileSettings::parse("[memory"), Err(SettingError::Syntax(_))));
}

#[test]
fn the_place_of_objects_is_set_by_name() {
    check("[objects]\nurl = \"file:///srv/x\"", "objects.url = \"file:///srv/x\"");
    check(
        "[objects]\nurl = \"gs://b\"",
        "`objects.url` is no place for objects: it is neither file:///DIRECTORY nor s3://BUCKET/PREFIX (`url = \"s3://BUCKET/PREFIX\"`, `url = \"file:///DIRECTORY\"`, or leave it out)",
    );
    check(
        "[advanced.objects]\npart_bytes = 1000",
        "`advanced.objects.part_bytes` must be a whole number from 5242880 to 5368709120, not 1000 (`icecore config example` shows every setting)",
    );
}

#[test]
fn models_are_declared_by_name() {
    let config = FileSettings::parse(
        "[models]\ntokens_a_day = 5\nmoney_a_day = 1.5\nlocal_urls = []\n\
         [models.big]\nprotocol = \"anthropic\"\nurl = \"https://h/v1\"\nmodel = \"m-1\"\n\
         key_env = \"K\"\nwindow = 200000\nreserve = 4000\ninput_price = 3\n\
         cached_input_price = 0.3\noutput_price = 15.0\ntimeout_seconds = 9\n\
         idle_seconds = 8\nretries = 0\ncaches_prefix = true\n\
         [models.small]\nurl = \"http://127.0.0.1:1/v1\"\ninput_price = 0.25\n\
         [memory]\nsummarization_strategy = \"llm\"\nsummarization_model = \"small\"\n\
         consolidation_model = \"local\"\n[dreams]\nmodel = \"big\"\n\
         [sessions]\nwindow = 9000\nreserve = 90\ndistiller_model = \"small\"\n\
         handoff_tokens = 80",
    )
    .unwrap();
    let models = &config.models;
    assert_eq!((models.limits().tokens_a_day, models.limits().cost_a_day), (5, 1_500_000));
    let big = models.table("big").unwrap();
    assert_eq!(big.protocol.as_str(), "anthropic");
    assert_eq!(
        (big.window, big.reserve, big.retries, big.caches_prefix),
        (200_000, 4_000, 0, true)
    );
    assert_eq!(
        (big.prices().input, big.prices().cached_input, big.prices().output),
        (3_000_000, 300_000, 15_000_000)
    );
    let small = models.table("small").unwrap();
    assert_eq!((small.model.as_str(), small.window, small.retries), ("small", 0, 3));
    assert_eq!((small.prices().input, small.prices().cached_input), (250_000, 250_000));
    assert_eq!(models.summary_choice(), "small");
    assert_eq!(models.dream_model, "big");
    let sessions = &config.memory.handoffs;
    assert_eq!((sessions.window, sessions.reserve, sessions.handoff_tokens), (9_000, 90, 80));
    check(
        "[models]\nmoney_a_day = 0.000001\n[models.a]\nurl = \"http://h/v1\"\nretries = 1",
        "models.money_a_day = 0.000001, models.a.url = \"http://h/v1\", models.a.retries = 1",
    );
    // The one model there is need not be named.
    let one = "[models.a]\nurl = \"http://h/v1\"\n[memory]\nsummarization_strategy = \"llm\"";
    assert_eq!(FileSettings::parse(one).unwrap().models.summary_choice(), "a");
    let here = "[memory]\nsummarization_strategy = \"local\"";
    assert_eq!(FileSettings::parse(here).unwrap().models.summary_choice(), LOCAL_MODEL);
}

#[test]
fn mistakes_about_models_are_named() {
    let url = "url = \"http://h/v1\"\n";
    check(
        "[models.a]",
        "`[models.a]` needs `url` (give the server's address, up to and with the version path: `url = \"http://127.0.0.1:8080/v1\"`)",
    );
    check(
        &format!("[models.a]\n{url}windo = 5"),
        "there is no setting `models.a.windo` (did you mean `models.a.window`?)",
    );
    check(
        "[models]\ntoken_a_day = 5",
        "there is no setting `models.token_a_day` (did you mean `models.tokens_a_day`?)",
    );
    check(
        &format!("[models.a]\n{url}window = 0"),
        "`models.a.window` must be a whole number from 1 to 1000000000, not 0 (`icecore config example` shows every setting)",
    );
    check(
        &format!("[models.a]\n{url}window = 100\nreserve = 100"),
        "`models.a.reserve` (100) leaves nothing of the window of 100 tokens (give a smaller reserve, or the window that the model has)",
    );
    check(
        "[sessions]\nwindow = 100",
        "`sessions.reserve` (8192) leaves nothing of the window of 100 tokens (give a smaller reserve, or the window that the model has)",
    );
    check(
        "[sessions]\nwindow = 0",
        "`sessions.window` must be a whole number from 1 to 1000000000, not 0 (`icecore config example` shows every setting)",
    );
    check(
        &format!("[models.a]\n{url}protocol = \"grpc\""),
        "`models.a.protocol` must be \"openai\" or \"anthropic\", not \"grpc\" (`icecore config example` shows every setting)",
    );
    check(
        &format!("[models.a]\n{url}key_env = \"A\"\nkey_secret = \"b\""),
        "`[models.a]` has both `key_env` and `key_secret` (leave one of them out)",
    );
    for price in ["-1", "\"1\"", "nan", "1e300"] {
        let file = format!("[models.a]\n{url}input_price = {price}");
        let error = FileSettings::parse(&file).unwrap_err().to_string();
        assert!(error.starts_with("`models.a.input_price` must be a number"), "{error}");
    }
    check(
        &format!("[models.small]\n{url}[dreams]\nmodel = \"smal\""),
        "`dreams.model` names the model `smal`, and there is no `[models.smal]` (did you mean `small`?)",
    );
    check(
        "[sessions]\ndistiller_model = \"x\"",
        "`sessions.distiller_model` names the model `x`, and there is no `[models.x]` (declare it: `[models.x]` with its `url`)",
    );
    check(
        "[memory]\nsummarization_strategy = \"llm\"",
        "`memory.summarization_strategy = \"llm\"` needs a model, and none is declared (declare one: `[models.NAME]` with its `url`; `icecore config example` shows it)",
    );
    check(
        &format!("[models.a]\n{url}[models.b]\n{url}[memory]\nsummarization_strategy = \"llm\""),
        "`memory.summarization_strategy = \"llm\"` needs a model, and it is not said which of 2 (name it with `memory.summarization_model`)",
    );
}

/// The value of a setting, and whether the file gives it.
fn value(text: &str, key: &str) -> (String, bool) {
    let settings = resolve(Global::default(), &[], &env(), Some(text)).unwrap();
    let mut rows = settings.rows().into_iter();
    let (_, value, origin) = rows.find(|(name, ..)| name == key).unwrap();
    (value, origin == Origin::File)
}

#[test]
fn bounds_are_set_by_tenant() {
    // The tenant's table stands first, and what it leaves out is as for everyone.
    let text = "[bounds.tenants.acme]\nturns = 0\ntokens_a_day = 7\n\
         [bounds]\nturns = 1\nbytes = 2\nrequests_a_day = 3\ntokens_a_day = 4";
    let bounds = FileSettings::parse(text).unwrap().bounds;
    let everyone = TenantBounds { turns: 1, bytes: 2, requests_a_day: 3, tokens_a_day: 4 };
    let acme = TenantBounds { turns: 0, tokens_a_day: 7, ..everyone };
    assert_eq!(bounds.everyone, everyone);
    assert_eq!(bounds.tenants, [(Tenant::new("acme".to_owned()).unwrap(), acme)].into());
    assert_eq!(value(text, "bounds.tenants.acme.tokens_a_day"), ("7".to_owned(), true));
    assert_eq!(value(text, "bounds.tenants.acme.bytes"), ("2".to_owned(), false));
}

#[test]
fn mistakes_about_bounds_are_named() {
    let check = |file: &str, expected: &str| {
        let error = FileSettings::parse(file).unwrap_err();
        let told = format!("{error} {}", error.hint().unwrap_or_default());
        assert!(told.contains(expected), "{told}");
    };
    check("[bounds]\nturn = 1", "did you mean `bounds.turns`?");
    check("[bounds]\nturns = -1", "`bounds.turns` must be a whole number of at least 0");
    check("[bounds.tenants.a]\nbyte = 1", "did you mean `bounds.tenants.a.bytes`?");
    check("[bounds.tenants.a]\nbytes = -1", "`bounds.tenants.a.bytes` must be a whole number");
    check("[bounds.tenants]\na = 1", "`bounds.tenants.a` must be a table");
    check(
        "[bounds.tenants.\"\"]\nturns = 1",
        "`bounds.tenants` must be tables with names that are allowed",
    );
}

#[test]
fn providers_are_set_by_tenant() {
    let text = "[proxy]\nopenai_url = \"https://a/v1\"\nopenai_key_env = \"K\"\nwindow = 9000\n\
         [proxy.tenants.acme]\nanthropic_url = \"http://b/v1\"\nanthropic_key_secret = \"s\"";
    let proxy = FileSettings::parse(text).unwrap().server.proxy;
    assert_eq!(proxy.upstreams.openai.url.as_deref(), Some("https://a/v1"));
    assert_eq!(proxy.upstreams.openai.key_env, "K");
    assert_eq!(proxy.window, Some(9_000));
    let acme = &proxy.tenants["acme"];
    assert_eq!(acme.anthropic.url.as_deref(), Some("http://b/v1"));
    assert_eq!((acme.anthropic.key_secret.as_str(), acme.openai.url.as_deref()), ("s", None));
    let key = "proxy.tenants.acme.anthropic_url";
    assert_eq!(value(text, key), ("\"http://b/v1\"".to_owned(), true));
    assert_eq!(value(text, "proxy.window"), ("9000".to_owned(), true));
}

#[test]
fn mistakes_about_providers_are_named() {
    let check = |text: &str, expected: &str| {
        let error = FileSettings::parse(text).unwrap_err();
        let told = format!("{error} ({})", error.hint().unwrap_or_default());
        assert!(told.contains(expected), "{text}: {told}");
    };
    check("[proxy]\nopenai_url = \"api.example.com\"", "`proxy.openai_url` must be");
    check("[proxy]\nopenai_url = \"https://me:pw@h/v1\"", "without credentials");
    check("[proxy]\nopenai_key_env = \"A\"\nopenai_key_secret = \"b\"", "leave one of them out");
    check("[proxy]\nwindow = 10\nreserve = 10", "`proxy.reserve` (10) leaves nothing");
    check("[proxy.tenants.a]\nopenai_ur = \"x\"", "did you mean `proxy.tenants.a.openai_url`?");
    check("[proxy.tenants.a]\nopenai_url = \"\"", "a string that is not empty");
    check("[proxy.tenants]\na = 1", "`proxy.tenants.a` must be a table");
    check("[proxy]\nstream = 1", "did you mean `proxy.streams`?");
}
