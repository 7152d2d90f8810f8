//! Negatives that machines write: ids, hashes, encoded pictures, lock files.
//!
//! They are as random as secrets and give nothing away. Nonces of a content
//! security policy are here too: they go to everyone who loads the page, once.

use super::Family;
use super::draw::{ALNUM, BASE64, Draw, HEX, LOWER};

/// How each family is made.
#[rustfmt::skip]
pub(super) const FAMILIES: &[Family] = &[
    ("uuid", "log", |draw| one(draw, &[
        "{date}T{time}Z INFO request_id={uuid} path=/v1/{word}/{uuid} status=200 dur={n}ms",
        "{\"id\": \"{uuid}\", \"{word}\": \"{uuid}\", \"count\": {n}}",
        "see {uuid} and {uuid} in {word}", "urn:uuid:{uuid}",
        "INSERT INTO {word}s (id, parent) VALUES ('{uuid}', '{uuid}');",
        "correlation-id: {uuid}", "  - uuid: \"{uuid}\"\n    name: {word}-{n}",
        "{word}/{uuid}/{word}.json", "idempotency_key={uuid}", "client_id: {uuid}", "tenant_id={uuid}",
    ])),
    ("git hash", "log", |draw| one(draw, &[
        "commit {hex:40}\nAuthor: {name} <{word}@example.com>\nDate:   {date}\n\n    Fix the {word} of the {word}",
        "{hex:7} Fix the {word} {word}", "{hex:10} (HEAD -> main, tag: v{version}) Release {version}",
        "index {hex:7}..{hex:7} 100644", "Merge {hex:40} into {hex:40}", "reverts {hex:12}",
        "HEAD is now at {hex:9} Update {word}", "tree {hex:40}\nparent {hex:40}",
        "https://github.com/acme/{word}/commit/{hex:40}", "uses: actions/checkout@{hex:40} # v{version}",
        "{hex:40}\trefs/heads/{word}-{n}", "pick {hex:8} Rename {word} key to {word}",
    ])),
    ("data uri", "markdown", |draw| {
        let count = draw.between(10, 60) * 4;
        let body = draw.text(BASE64, count);
        let (kind, magic) = draw.pick(&[
            &("image/png", "iVBORw0KGgoAAAANSUhEUgAA"), &("image/jpeg", "/9j/4AAQSkZJRgABAQ"),
            &("image/gif", "R0lGODlhAQABAIAAAP"), &("font/woff2", "d09GMgABAAAAA"),
            &("image/svg+xml", "PHN2ZyB4bWxucz0iaHR0"),
        ]);
        let template = draw.pick(&["![{word}]({p})", "<img alt=\"{word}\" src=\"{p}\">", ".{word}-{n} { background: url({p}) }", "\"icon\": \"{p}\"", "src: url('{p}') format('woff2');"]);
        draw.fill(template).replace("{p}", &format!("data:{kind};base64,{magic}{body}=="))
    }),
    ("base64 file", "tool output", |draw| {
        let lines = draw.between(2, 6);
        let body: Vec<String> = (0..lines).map(|_| draw.text(BASE64, 76)).collect();
        let head = draw.pick(&["Content-Type: image/png\nContent-Transfer-Encoding: base64\n\n", "begin-base64 644 picture.jpg\n", "$ base64 logo.png\n"]);
        format!("{head}{}\n{}==\n", body.join("\n"), draw.text(BASE64, 30))
    }),
    ("minified js", "code", |draw| one(draw, &[
        "!function(e,t){\"object\"==typeof exports?module.exports=t():e.{word}=t()}(this,function(){var r={n},i=\"{word}\";return{a:function(e){return e.{word}^r<<{n}},b:i}});",
        "(()=>{\"use strict\";var e={{n}{n}:(e,t,n)=>{n.d(t,{Z:()=>a});var a=n({n}{n});const o=a.{word}(\"{hex:8}\")}}})();",
        "const a=e=>{let{key:t,token:n,...r}=e;return o({key:t,tokenList:n},r)},s=(0,i.{word})(a,\"{camel}\");",
        "webpackJsonp([{n}],{\"{alnum:4}\":function(t,e){t.exports=\"/static/{word}.{hex:20}.js\"}});",
        "self.__chunk=self.__chunk||[]).push([[{dig:4}],{{dig:5}:function(e,n,t){t.r(n),n.default=\"{word}_{low:5}__{word}\"}}]);",
        "var _0x{hex:4}=['{word}','{word}'];for(var t=0,p=a.password.length;t<p;++t)s+=a.password.charCodeAt(t);",
    ])),
    ("minified css", "code", |draw| one(draw, &[
        ".{word}_{low:5}{display:flex;color:#{hex:6}}.{word}_{low:5}>a{margin:0 {n}px;background:#{hex:3}}",
        ".css-{low:7}{box-shadow:0 {n}px {n}px rgba(0,0,0,.{n})}@media(min-width:{dig:3}px){.css-{low:6}{padding:{n}px}}",
        ":root{--{word}-{word}:#{hex:8};--{word}:calc({n}px + 2rem)}.sc-{low:6}.{low:5}{font:{n}px/1.5 a}",
        "<div class=\"{word}-{low:6} md:px-{n} {word}__{word}--{low:4} input-password\">",
    ])),
    ("checksum", "tool output", |draw| one(draw, &[
        "{hex:32}  {word}-{version}.tar.gz", "{hex:64}  {word}_{version}_linux_amd64.zip", "SHA256({word}.bin)= {hex:64}",
        "MD5 ({word}.iso) = {hex:32}", "sha512: {hex:128}", "{hex:40} *{word}.deb", "crc32 {hex:8} {word}",
        "\"sha256\": \"{hex:64}\"", "sha256sum: {hex:64}", "--hash=sha256:{hex:64}", "blake3 {hex:64} {word}.tar",
        "checksum = \"{hex:64}\"", "{word}.whl (md5={hex:32})", "sha256 \"{hex:64}\" => :{word}",
        "sha256:{hex:64}", "Fingerprint: {hex:4} {hex:4} {hex:4} {hex:4} {hex:4}",
    ])),
    ("sri", "code", |draw| one(draw, &[
        "<script src=\"https://cdn.example.com/{word}@{version}/{word}.min.js\" integrity=\"sha384-{b64:64}\" crossorigin=\"anonymous\"></script>",
        "\"integrity\": \"sha512-{b64:86}==\"", "integrity sha1-{b64:27}=", "integrity: 'sha256-{b64:43}='",
        "<link rel=\"stylesheet\" href=\"/{word}.css\" integrity=\"sha256-{b64:43}=\">",
    ])),
    ("cargo lock", "tool output", |draw| one(draw, &[
        "[[package]]\nname = \"{word}-{word}\"\nversion = \"{version}\"\nsource = \"registry+https://example.org/{word}-index\"\nchecksum = \"{hex:64}\"\ndependencies = [\n \"{word}\",\n]",
        "[[package]]\nname = \"secrecy-{word}\"\nversion = \"{version}\"\nchecksum = \"{hex:64}\"",
        "[[package]]\nname = \"{word}_token\"\nversion = \"{version}\"\nchecksum = \"{hex:64}\"",
    ])),
    ("package lock", "json", |draw| one(draw, &[
        "\"node_modules/{word}-{word}\": {\n  \"version\": \"{version}\",\n  \"resolved\": \"https://packages.example.org/{word}/-/{word}-{version}.tgz\",\n  \"integrity\": \"sha512-{b64:86}==\",\n  \"license\": \"MIT\"\n}",
        "\"node_modules/js-tokens\": {\"version\": \"{version}\", \"integrity\": \"sha512-{b64:86}==\"}",
        "\"packages\": {\"node_modules/{word}\": {\"version\": \"{version}\", \"integrity\": \"sha1-{b64:27}=\"}}",
        "{word}-{word}@^{version}:\n  version \"{version}\"\n  resolved \"https://packages.example.org/{word}/-/{word}-{version}.tgz#{hex:40}\"\n  integrity sha512-{b64:86}==",
        "\"@{word}/{word}@npm:^{version}\":\n  version: {version}\n  checksum: 10/{hex:128}\n  languageName: node",
        "  /{word}/{version}:\n    resolution: {integrity: sha512-{b64:86}==}\n    engines: {node: '>=12'}\n    dev: true",
    ])),
    ("go sum", "tool output", |draw| one(draw, &[
        "github.com/{word}/{word} v{version} h1:{b64:43}=\ngithub.com/{word}/{word} v{version}/go.mod h1:{b64:43}=",
        "golang.org/x/{word} v0.0.0-{dig:14}-{hex:12} h1:{b64:43}=",
        "example.org/{word}-keys v1.{n}.0/go.mod h1:{b64:43}=",
    ])),
    ("poetry lock", "tool output", |draw| one(draw, &[
        "[[package]]\nname = \"{word}\"\nversion = \"{version}\"\nfiles = [\n    {file = \"{word}-{version}-py3-none-any.whl\", hash = \"sha256:{hex:64}\"},\n]",
        "content-hash = \"{hex:64}\"", "{word}=={version} \\\n    --hash=sha256:{hex:64} \\\n    --hash=sha256:{hex:64}",
        "source = { url = \"https://files.example.org/{hex:2}/{hex:2}/{hex:60}/{word}-{version}.whl\", hash = \"sha256:{hex:64}\" }",
        "    {word} ({version})\n      {word} (~> {n}.0)\n\nCHECKSUMS\n  {word} ({version}) sha256={hex:64}",
        "\"sha256-{b64:43}=\";\n  rev = \"{hex:40}\";",
    ])),
    ("identifier", "code", |draw| one(draw, &[
        "{camel}{camel}Factory.create{camel}For{camel}({word}, {n})", "{word}_{word}_{word}_{word}_{n} = {word}_{word}({n})",
        "com.example.{word}.{word}.internal.{camel}{camel}Impl", "{word}-{word}-{word}-{word}-v{n}",
        "org.{word}.{word}.security.Password{camel}Test", "{WORD}_{WORD}_{WORD}_MAX_{n}",
        "public final class Abstract{camel}{camel}TokenProvider extends {camel} {", "{word}.{word}.api.key.{word}.{word}.enabled=true",
        "_ZN{n}{word}{n}{word}{n}h{hex:16}E", "secret_{word}_{word}_resolver", "is{camel}PasswordField({word})",
        "{word}_api_key_{word}_index", "idx_{word}_{word}_token_{n}",
    ])),
    ("pod name", "shell", |draw| one(draw, &[
        "kubectl logs {word}-{word}-{hex:10}-{low:5} -n {word}", "{word}-{hex:9}-{low:5}   1/1   Running   0   {n}d",
        "pod/{word}-{word}-{n} created", "secret/{word}-{word}-{low:10} configured", "{word}-token-{low:5}   kubernetes.io/service-account-token   3   {n}d",
        "deployment.apps/{word}-{word} scaled ({hex:10})", "i-{hex:17} running t3.medium {date}",
        "image: registry.example.com/{word}/{word}@sha256:{hex:64}", "FROM {word}:{version}@sha256:{hex:64}",
        "Digest: sha256:{hex:64}\nStatus: Downloaded newer image for {word}:{version}", "{hex:12}   {word}:{version}   \"/bin/sh\"   {n} hours ago",
    ])),
    ("url", "url", |draw| one(draw, &[
        "https://www.example.com/{word}/{word}/{dig:8}-{word}-{word}-{word}?utm_source={word}&utm_campaign={word}_{n}",
        "https://docs.example.com/d/1{alnum:43}/edit#gid={dig:9}", "https://video.example.com/watch?v={alnum:11}&list=PL{alnum:32}",
        "https://cdn.example.com/{hex:2}/{hex:2}/{hex:40}/{word}.jpg?w={dig:3}&h={dig:3}", "https://example.com/{word}?id={uuid}&page={n}",
        "https://maps.example.com/@{n}.{dig:6},-{n}.{dig:6},{n}z/data=!3m1!4b1", "http://localhost:{dig:4}/{word}/#/{word}?q={word}+{word}",
        "s3://{word}-{word}-prod/{date}/{word}/part-{dig:5}-{uuid}.parquet", "https://example.com/reset-password?lang=en&step={n}",
        "https://user.example.com:8443/{word}:{n}/@{word}", "git@example.com:{word}/{word}.git", "https://{word}@example.com/{word}/{word}.git",
        "https://example.com/blog/{date}/how-to-rotate-an-api-key", "postgres://localhost:5432/{word}_{n}", "redis://cache:6379/{n}",
    ])),
    ("numbers", "prose", |draw| one(draw, &[
        "call +49 30 {dig:8} or (555) {dig:3}-{dig:4} before {time}", "{date}T{time}.{dig:6}+02:00", "v{version}-rc.{n}+build.{dig:8}.{hex:7}",
        "ISBN 978-{n}-{dig:5}-{dig:3}-{n}", "pi is 3.{dig:40}", "order no. {dig:12}, customer {dig:8}", "lat {n}.{dig:8}, lon -{n}.{dig:8}",
        "{dig:10} {dig:13} {dig:19}", "tracking 1Z{dig:16}", "{n}% of {dig:7} rows in {dig:5} ms", "epoch {dig:10}.{dig:3}, build {dig:8}",
    ])),
    ("hex dump", "tool output", |draw| one(draw, &[
        "{hex:8}: {hex:4} {hex:4} {hex:4} {hex:4} {hex:4} {hex:4} {hex:4} {hex:4}  ..{word}...",
        "{hex:8}  {hex:2} {hex:2} {hex:2} {hex:2} {hex:2} {hex:2} {hex:2} {hex:2}  |{word}..|",
        "0x{hex:4}:  {hex:4} {hex:4} {hex:4} {hex:4} {hex:4}", "{ 0x{hex:2}, 0x{hex:2}, 0x{hex:2}, 0x{hex:2}, 0x{hex:2}, 0x{hex:2} }",
        "rax={hex:16} rbx={hex:16} rip={hex:16}", "{hex:16} T {word}_{word}", "0x{hex:40}", "at 0x{hex:12} in {word}_{word} (+{n})",
        "\\x{hex:2}\\x{hex:2}\\x{hex:2}\\x{hex:2}\\x{hex:2}\\x{hex:2}",
    ])),
    ("colours", "code", |draw| one(draw, &[
        "#{hex:6} #{hex:6} #{hex:3} #{hex:8}", "--{word}: #{hex:6}; --{word}-dark: #{hex:6};", "linear-gradient({n}deg, #{hex:6} 0%, #{hex:6} 100%)",
        "palette = [\"#{hex:6}\", \"#{hex:6}\", \"#{hex:6}\", \"#{hex:6}\"]", "d=\"M{n}.{n} {n}c-{n}.{dig:3} 0-{n}-.{dig:2} {n} {n}l{n}.{dig:3} {n}z\"",
    ])),
    ("public key", "tool output", |draw| {
        let kind = draw.pick(&["PUBLIC KEY", "CERTIFICATE", "RSA PUBLIC KEY", "CERTIFICATE REQUEST", "PGP PUBLIC KEY BLOCK", "PGP SIGNATURE", "PGP MESSAGE", "DH PARAMETERS"]);
        let lines = draw.between(2, 8);
        let body: Vec<String> = (0..lines).map(|_| draw.text(BASE64, 64)).collect();
        format!("-----BEGIN {kind}-----\nMII{}\n-----END {kind}-----\n", body.join("\n"))
    }),
    ("ssh public", "tool output", |draw| one(draw, &[
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{b64:43} {name}@{word}", "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABgQ{b64:340}= {word}@laptop",
        "github.com ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{b64:43}", "|1|{b64:27}=|{b64:27}= ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABB{b64:88}=",
        "256 SHA256:{b64:43} {word}@{word} (ED25519)", "Host key fingerprint is SHA256:{b64:43}.", "age1{low:58}",
        "no-pty,command=\"/bin/{word}\" ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{b64:43}", "public_key: {b64:43}=", "PublicKey = {b64:43}=",
        "{\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"{alnum:43}\",\"y\":\"{alnum:43}\",\"use\":\"sig\"}", "v=DKIM1; k=rsa; p=MIGfMA0GCSqGSIb3DQEBAQUAA4GN{b64:160}",
    ])),
    ("publishable", "code", |draw| one(draw, &[
        "Stripe('pk_live_{alnum:24}')", "posthog.init('phc_{alnum:43}')", "SUPABASE_PUBLISHABLE = sb_publishable_{alnum:22}",
        "gtag('config', 'G-{alnum:10}')", "GTM-{alnum:7}", "UA-{dig:8}-{n}", "ca-pub-{dig:16}", "app_id: {dig:15}",
        "<meta name=\"google-site-verification\" content=\"{alnum:43}\">", "data-sitekey=\"6L{alnum:38}\"",
    ])),
    ("arn", "yaml", |draw| one(draw, &[
        "arn:aws:iam::{dig:12}:role/{word}-{word}-role", "arn:aws:secretsmanager:eu-west-1:{dig:12}:secret:{word}/{word}-{alnum:6}",
        "arn:aws:kms:us-east-1:{dig:12}:key/{uuid}", "vpc-{hex:17} subnet-{hex:17} sg-{hex:17} ami-{hex:17}", "AROA{low:0}EXAMPLE role of {word}",
        "/subscriptions/{uuid}/resourceGroups/{word}/providers/Microsoft.KeyVault/vaults/{word}", "projects/{word}-{dig:6}/secrets/{word}-{word}/versions/{n}",
        "KeyId: {uuid}", "kms_key_id = \"arn:aws:kms:eu-central-1:{dig:12}:key/{uuid}\"", "secretName: {word}-{word}-tls", "//{word}.googleapis.com/projects/{dig:12}/locations/global/keyRings/{word}/cryptoKeys/{word}",
    ])),
    ("service id", "env", |draw| one(draw, &[
        "HEROKU_APP_ID={uuid}", "HEROKU_SLUG_COMMIT={hex:40}", "HEROKU_DYNO_ID={uuid}", "BITBUCKET_COMMIT={hex:40}", "BITBUCKET_REPO_UUID={uuid}",
        "VERCEL_GIT_COMMIT_SHA={hex:40}", "VERCEL_PROJECT_ID=prj_{alnum:24}", "GITHUB_SHA={hex:40}", "github_run_id: {dig:10}", "CIRCLE_SHA1={hex:40}",
        "CIRCLE_WORKFLOW_ID={uuid}", "TRAVIS_COMMIT={hex:40}", "CI_COMMIT_SHA={hex:40}", "BUILDKITE_COMMIT={hex:40}", "BUILDKITE_BUILD_ID={uuid}",
        "SENTRY_RELEASE={hex:40}", "sentry_event_id: {hex:32}", "cloudflare_zone_id = \"{hex:32}\"", "CLOUDFLARE_ACCOUNT_ID={hex:32}", "FASTLY_SERVICE_ID={alnum:22}",
        "postmark message {uuid} delivered", "twilio_message_sid: SM{hex:32}", "TWILIO_ACCOUNT_SID=AC{hex:32}", "\"stripe_customer\": \"cus_{alnum:14}\"", "stripe price_{alnum:24} pi_{alnum:24}",
        "asana_task_gid: {dig:16}", "discord guild {dig:18} channel {dig:19}", "slack_channel: C0{low:0}{dig:9}", "telegram_chat_id = -100{dig:10}", "mongodb _id: ObjectId('{hex:24}')",
        "paypal_order_id: {dig:17}", "google_client_id = {dig:12}-{low:32}.apps.googleusercontent.com", "AZURE_TENANT_ID={uuid}", "AZURE_CLIENT_ID={uuid}", "azure_subscription_id = \"{uuid}\"",
        "aws_account_id = {dig:12}", "datadog.trace_id={dig:19}", "dd.trace_id={hex:32} dd.span_id={dig:19}", "OKTA_CLIENT_ID=0oa{alnum:17}", "AUTH0_CLIENT_ID={alnum:32}",
        "algolia_app_id: {dig:4}ABCDEF", "mailgun message <{dig:14}.{hex:16}@mg.example.com>", "intercom_app_id={low:8}", "NETLIFY_SITE_ID={uuid}", "supabase project {low:20}",
        "mistral_request_id: {hex:32}", "openai request req_{hex:32}", "anthropic msg_01{alnum:22}", "cohere generation {uuid}", "huggingface revision {hex:40}",
        "npm_package_gitHead={hex:40}", "vault_accessor={word}-{n}", "terraform workspace ws-{alnum:16}", "hubspot_portal_id: {dig:8}", "linear issue {uuid}", "notion page {hex:32}", "https://www.notion.so/{Word}-{hex:32}", "figma.com/file/{alnum:22}/{Word}",
    ])),
    ("trace id", "log", |draw| one(draw, &[
        "traceparent: 00-{hex:32}-{hex:16}-01", "trace_id={hex:32} span_id={hex:16} sampled=true", "X-B3-TraceId: {hex:32}\nX-B3-SpanId: {hex:16}",
        "x-request-id: {hex:32}", "X-Amzn-Trace-Id: Root=1-{hex:8}-{hex:24}", "cf-ray: {hex:16}-FRA", "[{hex:8}-{n}] {word} {word} done in {n} ms", "uber-trace-id: {hex:16}:{hex:16}:0:1",
        "{\"trace_id\":\"{hex:32}\",\"span_id\":\"{hex:16}\",\"msg\":\"{word} {word}\"}",
    ])),
    ("http header", "log", |draw| one(draw, &[
        "ETag: \"{hex:32}\"", "If-None-Match: W/\"{hex:5}-{alnum:27}\"", "content-security-policy: script-src 'nonce-{b64:22}==' 'strict-dynamic'",
        "x-amz-id-2: {b64:76}", "Content-MD5: {b64:22}==", "Sec-WebSocket-Accept: {b64:27}=", "Cookie: theme=dark; lang=en; _ga=GA1.2.{dig:9}.{dig:10}",
        "Set-Cookie: {word}_consent=accepted; Max-Age={dig:8}; Path=/", "Digest: SHA-256={b64:43}=", "x-goog-hash: md5={b64:22}==", "Authorization: Basic", "WWW-Authenticate: Bearer realm=\"{word}\", error=\"expired\"",
    ])),
    ("letters", "prose", |draw| {
        let count = draw.between(30, 90);
        let text = match draw.below(4) {
            0 => draw.text("ACGT", count),
            1 => draw.text("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", count),
            2 => draw.text("ACDEFGHIKLMNPQRSTVWY", count),
            _ => draw.text(LOWER, count),
        };
        let template = draw.pick(&[">{word}_{n} sample\n{p}", "sequence {p} of {word}", "{word}: {p}", "cell {p} ({n} bp)"]);
        draw.fill(template).replace("{p}", &text)
    }),
    ("chess and math", "prose", |draw| one(draw, &[
        "{n}. e4 e5 2. Nf3 Nc6 3. Bb5 a6 4. Ba4 Nf6 5. O-O Be7 6. Re1 b5 7. Bb3 d6 {n}. c3 O-O", "r1bqkb1r/pppp1ppp/2n2n2/1B2p3/4P3/5N2/PPPP1PPP/RNBQK2R w KQkq - {n} 4",
        "f(x) = {n}x^3 - {n}x^2 + {n}/(2x+{n}), so f'(x) = {n}x^2", "\\sum_{i=1}^{{n}} x_i^{2} \\leq \\frac{{n}}{{n}}", "O(n log n) with n = 10^{n} is {dig:9}",
        "C{n}H{n}N{n}O{n}, InChIKey={WORD}-{WORD}-N", "{n}x{n} matrix [[{n}, {n}], [{n}, {n}]]",
    ])),
    ("compiled names", "stack trace", |draw| one(draw, &[
        "   {n}: {word}::{word}::{camel}::{word}::h{hex:16}\n             at /rustc/{hex:40}/library/std/src/{word}.rs:{n}:5",
        "\tat com.example.{word}.{camel}$$EnhancerBySpringCGLIB$${hex:8}.{word}(<generated>)", "    at Object.<anonymous> (webpack:///./src/{word}.tsx?{hex:4}:{n}:13)",
        "{word}.{word}.{hex:8}.chunk.js:1:{dig:5}", "lib{word}-{hex:16}.rlib", "__pycache__/{word}.cpython-3{n}.pyc", "target/debug/deps/{word}-{hex:16}.d", "0x{hex:16}: {word}::token::next ({word}.rs:{n})",
    ])),
    ("random name", "tool output", |draw| {
        let count = draw.between(16, 48);
        let letters = draw.pick(&[HEX, LOWER, ALNUM]);
        let text = draw.text(letters, count);
        let template = draw.pick(&["/tmp/{word}-{p}/{word}.txt", "upload {p}.jpg ({n} KB)", "session file sess-{p}.tmp removed", "\"fileName\": \"{p}.pdf\"", "cid {p}", "block {p} mined", "job {p} finished", "document {p} of {word}", "<{p}@mail.example.com>"]);
        draw.fill(template).replace("{p}", &text)
    }),
];

/// One of `templates`, filled.
pub(super) fn one(draw: &mut Draw, templates: &[&str]) -> String {
    let template = draw.pick(templates);
    draw.fill(template)
}
