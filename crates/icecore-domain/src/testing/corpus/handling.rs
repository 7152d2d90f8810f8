//! Negatives that people write: about secrets, around secrets, in place of
//! secrets. The words are all there; the secret is not.

use super::Family;
use super::draw::Draw;
use super::machine::one;
use crate::redact::Redactor;

/// How each family is made.
#[rustfmt::skip]
pub(super) const FAMILIES: &[Family] = &[
    ("prose about passwords", "prose", |draw| about(draw, &[
        "{who} {forgot} the {thing} {whence} again, so {who} {asked} {name}{end}",
        "The {thing} {whence} is {state}{end}", "Never {share} your {thing} with {name} or put it in {where}{end}",
        "A good {thing} has at least {n} characters and is {state}{end}", "My {thing} is {state}, I will {asked2} {name}{end}",
        "What is the {thing} {whence}? {name} said it is {state}.", "{name} keeps every {thing} in {where}, which is {state}{end}",
        "Please rotate the {thing} {whence} before {date}; the old one is {state}{end}",
        "The secret of {name}'s {word} is patience; the key to it: time, {n} hours of it.",
        "Is the {thing} {state}? If so, {asked2} {name} to change it to something longer than {n} letters.",
        "the {thing} was changed by {name} on {date} at {time}", "Passwords: {n} of them, all in {where}.",
        "{Word} token: a small gift. Token of thanks: a {word}. Secret: it was {name}.", "Password: required. Token: optional. Key: see {where}.",
        "I set the {thing} to expire after {n} days", "{name} asked: password or {thing}? Answer: neither, use passkeys.",
    ])),
    ("prose in other languages", "prose", |draw| one(draw, &[
        "Das Passwort für {name} ist abgelaufen, bitte bis {date} ändern.", "Mein Passwort ist falsch, sagt {name}, schon {n} Mal.",
        "Le mot de passe de {name} est trop court ({n} caractères au moins).", "La contraseña de {name} es incorrecta; inténtelo en {n} minutos.",
        "{name}さんのパスワードは{n}日後に期限が切れます。", "Пароль {name} неверный, осталось {n} попыток.", "密码错误，请在{n}分钟后重试（{name}）。",
        "La clave: paciencia. El secreto: {n} horas de horno.", "A senha de {name} foi alterada em {date}.", "Hasło musi mieć co najmniej {n} znaków.",
        "Kennwort vergessen? {name} hilft bis {time} Uhr.", "Il token è scaduto il {date}, chiedi a {name}.", "كلمة المرور قصيرة جدا ({n})", "비밀번호는 {n}자 이상이어야 합니다.",
    ])),
    ("placeholder", "markdown", placeholder),
    ("template", "yaml", |draw| one(draw, &[
        "password: {{ {word}_password }}", "api_key: ${{WORD}_API_KEY}", "token: ${{ secrets.{WORD}_TOKEN }}", "{WORD}_SECRET=$(vault kv get -field=value {word}/{word})",
        "password: \"{{ .Values.{word}.password }}\"", "secret: !Ref {camel}Secret", "DB_PASSWORD=%{WORD}_PASSWORD%", "client_secret = var.{word}_client_secret",
        "api_key: !vault |", "token: <%= ENV['{WORD}_TOKEN'] %>", "postgres://{word}:${DB_PASSWORD}@db:5432/{word}", "mysql://{{user}}:{{password}}@{{host}}/{word}",
        "https://$USER:$TOKEN@example.com/{word}.git", "secretKeyRef:\n  name: {word}-{word}\n  key: {word}-password", "valueFrom: {secretKeyRef: {name: {word}, key: token}}",
        "password: op://{word}/{word}/password", "api_key: vault:secret/data/{word}#api_key", "token=\"$(cat /run/secrets/{word}_token)\"", "password: env({WORD}_PASSWORD)",
        "Authorization: Bearer ${{WORD}_TOKEN}", "Authorization: Bearer {{access_token}}", "X-Api-Key: {{{word}ApiKey}}", "sops: ENC[placeholder]", "token: ref+awsssm://{word}/{word}",
        "--password \"${WORD}_PASSWORD\" --host {word}", "export AWS_SECRET_ACCESS_KEY=$(aws configure get {word}.key)",
    ])),
    ("code without secrets", "code", |draw| one(draw, &[
        "password = getpass.getpass('Password for {word}: ')", "const apiKey = process.env.{WORD}_API_KEY;", "token = os.environ['{WORD}_TOKEN_{n}']", "secret := os.Getenv(\"{WORD}_SECRET\")",
        "fn password(&self) -> Option<&str> { self.{word}.password.as_deref() }", "def connect(host: str, password: str | None = None, port: int = {dig:4}) -> {camel}:", "let token: Token = self.{word}.next_token()?;",
        "private final String {word}Password;", "if (password.length < {n}) throw new Error('password too short');", "SELECT id, password_hash, token_{word} FROM {word}s WHERE id = {n};",
        "ALTER TABLE {word} ADD COLUMN api_key VARCHAR({n}) NOT NULL;", "token = jwt.encode(payload, settings.SECRET_KEY, algorithm='HS256')", "assert user.check_password(form.password.data) is False", "self.api_key = api_key or config.get('{word}', 'api_key')",
        "const { password, ...rest } = await {word}.findOne({ id: {n} });", "type Props = { token: string; secret?: string; {word}Key: number };", "password = bcrypt.hashpw(raw, bcrypt.gensalt({n}))", "secret = secrets.token_urlsafe({n})",
        "headers['Authorization'] = f'Bearer {token}'", "headers: { Authorization: `Bearer ${token}` }", "@Value(\"${{word}.api.key}\") String apiKey;", "expect(screen.getByLabelText('Password')).toBeVisible();",
        "token = tokens[{n}] if tokens else None", "API_KEY_HEADER = \"X-{Word}-Api-Key\"", "PASSWORD_MIN_LENGTH = {n}", "token_type = TokenType.{WORD}_{n}", "max_tokens={dig:4}, stop_token_ids=[{dig:5}, {dig:5}]", "tokenizer = AutoTokenizer.from_pretrained('{word}/{word}-{n}b')",
        "password: Mapped[str] = mapped_column(String({n}))", "input type=\"password\" name=\"password\" autocomplete=\"new-password\" minlength=\"{n}\"", "pub struct Credentials { pub user: String, pub password: SecretString }", "$password = $_POST['password_{n}'] ?? '';",
        "password = input(\"Enter {word} password: \")", "secret = base64.b64decode(os.getenv('{WORD}_B64'))", "std::env::var(\"{WORD}_API_KEY\").expect(\"{WORD}_API_KEY is set\")", "apiKey: await keychain.get('{word}', '{word}-{n}'),",
    ])),
    ("settings without secrets", "yaml", |draw| one(draw, &[
        "token_count: {dig:5}\nmax_tokens: {dig:4}", "password_policy: strict-v{n}", "\"tokenizer_class\": \"{camel}TokenizerFast\"", "secret_name: {word}-{word}-v{n}", "api_key_header: X-{Word}-Key", "token_type: Bearer", "\"password\": null, \"token\": \"\", \"n\": {n}",
        "password_file: /etc/{word}/{word}.pass", "SECRET_PATH=/run/secrets/{word}_{n}", "token_url: https://auth.example.com/oauth2/v{n}/token", "api_key_id: {word}-{n}", "cache_key: {word}:{hex:16}:{n}", "partition_key: {word}#{uuid}", "sort_key={date}#{word}", "primary_key: [{word}_id, {word}_n]",
        "key: {word}/{date}/{hex:32}.json", "public_key_path: ~/.ssh/id_{word}.pub", "pwd: /home/{word}/{word}-{n}", "PWD=/srv/{word}/releases/{dig:14}", "OLDPWD=/var/{word}{n}", "password_reset_ttl: {n}h", "secret_rotation_days={n}", "\"keyboard_layout\": \"{word}-{n}\"", "foreign_key: {word}_{n}", "auth_token_lifetime: {dig:4}s", "secrets_backend: {word}.{word}.{camel}Backend{n}",
    ])),
    ("test names", "tool output", |draw| one(draw, &[
        "test {word}::tests::rejects_a_wrong_password_{n} ... ok", "PASSED tests/test_{word}.py::Test{camel}::test_token_is_refreshed_after_{n}_s", "✓ shows an error when the password is too short ({n} ms)", "--- FAIL: TestApiKey{camel}/{word}_{n} (0.{n}s)",
        "describe('{camel} secret rotation', () => {", "it('hides the {word} token after {n} seconds', async () => {", "{n} passed, 1 failed: password_reset_{word}", "[ RUN      ] {camel}Test.Password{camel}{n}", "ok {n} - secret {word} is never printed",
    ])),
    ("markup", "code", |draw| one(draw, &[
        "<label for=\"password-{n}\">Password</label><input id=\"password-{n}\" type=\"password\">", "<a href=\"/account/password/reset?step={n}\" class=\"btn btn-{word}\">Forgot password?</a>", "<svg viewBox=\"0 0 {n} {n}\"><path d=\"M{n}.{dig:2} {n}h{n}v-{n}z\"/></svg>", ".password-strength--{word}::after { content: '{n}'; }",
        "<li class=\"token punctuation {word}-{low:6}\">{word}</li>", "<p data-testid=\"api-key-{word}-{n}\">No key yet</p>", "<input name=\"token\" value=\"\" placeholder=\"Paste your token, {n} letters\">", "[data-token=\"{word}\"] > .{word}:nth-child({n}) { color: #{hex:6} }",
    ])),
    ("mail", "prose", |draw| one(draw, &[
        "From: {name} <{word}.{word}{n}@example.com>\nMessage-ID: <{hex:24}.{dig:10}@{word}.example.com>\nSubject: {Word} {n}", "write to {word}+{word}{n}@mail.example.org, {n} {Word} Street, {dig:5} {Word}town", "{name} ({word}@example.com) wrote on {date}, {time}:", "password resets go to {word}@example.com within {n} minutes",
        "DKIM-Signature: v=1; a=rsa-sha256; bh={b64:43}=; b={b64:86}==", "boundary=\"----=_Part_{dig:6}_{dig:9}.{dig:13}\"", "mailto:{word}@example.com?subject=API%20key%20{n}", "unsubscribe: https://mail.example.com/u/{alnum:24}",
    ])),
    ("error messages", "log", |draw| one(draw, &[
        "401 Unauthorized: token expired at {date}T{time}Z ({word})", "error: invalid API key provided for {word} (code {dig:4})", "password authentication failed for user \"{word}_{n}\"", "SyntaxError: Unexpected token '<', line {n}", "Invalid token: expected {n} segments, got 1", "could not read secret \"{word}/{word}\": permission denied",
        "Access denied for user '{word}'@'10.0.{n}.{n}' (using password: YES)", "WARN {word}: the secret key of {word} is shorter than {n} bytes", "key not found: {word}_{word}_{n}", "missing API key: set {WORD}_API_KEY", "unexpected token: Identifier(\"{word}{n}\") at {n}:{n}", "token limit reached: {dig:6} of {dig:6}", "Enter passphrase for key '/home/{word}/.ssh/id_ed25519':", "sudo: {n} incorrect password attempts",
    ])),
    ("near miss of the table", "prose", |draw| {
        let kinds = Redactor::kinds();
        let kind = &kinds[draw.below(kinds.len())];
        let template = draw.pick(&["{p}", "see {p} in {word}", "{word} {n}: {p}", "- {p}\n- {word}-{n}"]);
        draw.fill(template).replace("{p}", &kind.near_miss(draw.next()))
    }),
];

/// A sentence: `templates` with words of its own kind.
fn about(draw: &mut Draw, templates: &[&str]) -> String {
    let mut text = draw.pick(templates).to_owned();
    #[rustfmt::skip]
    let lists: [(&str, &[&str]); 9] = [
        ("{who}", &["I", "we", "she", "my colleague", "the new intern", "your brother", "someone"]),
        ("{forgot}", &["forgot", "lost", "mistyped", "changed", "shared", "wrote down", "reset"]),
        ("{thing}", &["password", "passphrase", "API key", "token", "secret", "access key", "passcode", "private key", "credential", "client secret"]),
        ("{whence}", &["for the wifi", "of the staging server", "to the shared drive", "for the bank", "of the old laptop", "on the router", "for Grandma's tablet"]),
        ("{asked}", &["asked", "called", "told", "bothered", "wrote to"]),
        ("{asked2}", &["ask", "call", "write to", "wait for"]),
        ("{state}", &["wrong", "too short", "expired", "required", "case-sensitive", "the same as before", "on a sticky note", "unknown to me", "incorrect", "missing", "still the default", "stored in the vault", "well-known", "up-to-date", "a secret"]),
        ("{share}", &["share", "reuse", "mail", "discuss"]),
        ("{where}", &["the password manager", "an e-mail", "chat", "the wiki", "a spreadsheet", "plain text", "the repository"]),
    ];
    for (hole, words) in lists {
        while text.contains(hole) {
            text = text.replacen(hole, draw.pick(words), 1);
        }
    }
    let end = draw.pick(&[".", "!", "", "?", " :)", ", sorry."]);
    draw.fill(&text.replace("{end}", end))
}

/// What documentation writes where a secret goes.
fn placeholder(draw: &mut Draw) -> String {
    #[rustfmt::skip]
    let name = draw.pick(&[
        "api_key", "API_KEY", "token", "TOKEN", "password", "DB_PASSWORD", "client_secret", "secret", "SECRET_KEY", "access_token",
        "apiKey", "auth_token", "OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "passphrase", "privateKey", "STRIPE_SECRET_KEY",
    ]);
    #[rustfmt::skip]
    let value = draw.pick(&[
        "YOUR_API_KEY", "your-api-key-here", "<token>", "<your password>", "xxxxxxxxxxxxxxxx", "XXXXXXXX", "changeme", "********", "...", "…",
        "sk-xxxxxxxxxxxxxxxxxxxxxxxx", "ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", "<API_KEY>", "INSERT_TOKEN_HERE", "replace-me", "${TOKEN}", "{{ token }}",
        "[your key]", "example", "placeholder", "dummy", "none", "null", "undefined", "TODO", "YOUR-SECRET", "my-secret-key", "<redacted>", "test", "secret",
        "password", "yourpassword", "sk_test_xxxxxxxxxxxxxxxxxxxxxxxx", "AKIAXXXXXXXXXXXXXXXX", "1234567890abcdef", "00000000-0000-0000-0000-000000000000", "$API_KEY", "%TOKEN%", "sk-...", "<YOUR_TOKEN_GOES_HERE>", "your_password_here", "insert-your-key", "xxx-xxx-xxx", "*****", "#####", "foobar",
    ]);
    let template = draw.pick(&[
        "{name}={value}",
        "{name}: {value}",
        "export {name}=\"{value}\"",
        "\"{name}\": \"{value}\"",
        "{name} = '{value}'  # {word}",
        "set {name} to `{value}` in {word}.toml",
        "curl -H 'Authorization: Bearer {value}' https://api.example.com/{word}/{n}",
        "https://user:{value}@example.com/{word}",
        "{word} --password {value} --retries {n}",
        "client = {Word}({name}=\"{value}\", timeout={n})",
        "| `{name}` | `{value}` | {word} {n} |",
        "Authorization: token {value}",
        "your password is {value} until you change it ({n} days)",
    ]);
    let template = template.replace("{name}", name).replace("{value}", "\u{e002}");
    draw.fill(&template).replace('\u{e002}', value)
}
