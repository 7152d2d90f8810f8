//! Secrets told in a sentence.

use crate::redact::kind::{Edge, Kind, Proof};

#[rustfmt::skip]
pub(super) const KINDS: &[Kind] = &[
    Kind { id: "password-prose", keywords: &["password", "passphrase", "passcode", "pass phrase", "passwort"],
        pattern: r#"(?i)(?:password|pass ?phrase|passcode|passwort)(?: (?:for|to|of|on|in) [^\n.:=]{1,40}?)? (?:is|was|ist|will be|to be|changed to|set to)(?: now| still)?:? {0,2}["'`]?([^\s"'`]{6,128})"#,
        proof: Proof::Password, edge: Edge::Any, allow: &["-sensitive"],
        hides: "my password is hunter{4d}", keeps: "my password is wrong again", ..Kind::TOKEN },
    Kind { id: "password-languages", keywords: &["senha", "wachtwoord", "hasło", "parola", "şifre", "sifre", "lösenord", "salasana", "adgangskode", "kodeord", "пароль", "密码", "密碼", "口令", "パスワード", "비밀번호", "mật khẩu", "kata sandi", "كلمة المرور", "סיסמה", "kennwort", "passwort", "contraseña", "contrasena", "clave", "mot de passe"],
        pattern: r#"(?i)(?:senha|wachtwoord|hasło|parola|(?:ş|s)ifre|lösenord|salasana|adgangskode|kodeord|пароль|密码|密碼|口令|パスワード|비밀번호|mật khẩu|kata sandi|كلمة المرور|סיסמה|kennwort|passwort|contrase(?:ñ|n)a|clave|mot de passe)(?: (?:für|pour|para|de|del|van|voor|per|do|da|от|для|till|dla)[^\n.:=]{1,40}?)?(?:\s{0,2}(?:=|:|：|是|为|為|は)| (?:is|ist|lautet|est|es|é|è|to|är|on|er|—|-))\s{0,2}["'`]?([!#-&(-;=?-_a-~]{6,128})"#, proof: Proof::Password, edge: Edge::Any,
        hides: "a senha é hunter{4d}", keeps: "a senha é muito fraca", ..Kind::TOKEN },
    Kind { id: "pin-prose", keywords: &["pin is", "pin code", "pin number", "pin:", "pin for", "pin to", "pin was"],
        pattern: r#"(?i)pin(?: number)?(?: (?:for|to) [^\n.:=]{1,30}?)?(?: is| was|:)(?: now)?:? {0,2}["'`]?(\d{4,8})\b|pin code(?: (?:for|to) [^\n.:=]{1,30}?)?(?: is| was|:)(?: now)?:? {0,2}["'`]?(\d{4,5})\b"#,
        hides: "my PIN is {4d}", keeps: "the PIN is wrong, and pin: 13 is high", ..Kind::TOKEN },
    Kind { id: "key-prose", keywords: &["api key", "access key", "secret key", "secret", "token", "auth key", "credential", "license key", "signing key", "encryption key"],
        pattern: r#"(?i)(?:(?:api|access|secret|auth|license|signing|encryption) key|secret|token|credential)s?(?: (?:for|to|of|on|in) [^\n.:=]{1,40}?)?(?: (?:is|are|was|ist|es|est|would be|should be|changed to|set to)(?: now| still)?:?| ?->| ?→|: ?\n{1,2}) {0,2}["'`]{0,3}([a-z0-9][\w+/=.~:-]{11,511})"#, proof: Proof::Random(3.0), edge: Edge::Any,
        hides: "the api key for staging is {32w}", keeps: "the token is something-you-get-from-the-portal", ..Kind::TOKEN },
    Kind { id: "password-told", keywords: &["password", "passphrase", "passcode", "passwd", "pwd", "pw ", "wifi key"],
        pattern: r#"(?i)(?:password|passphrase|passcode|passwd|pwd|pw|wifi key)(?:'s|,| to| should be| ?->| ?→| is|:)? ["'`]?([^\s"'`<>]{8,128})"#, proof: Proof::Strong,
        hides: "ssh in as root, password {14w}", keeps: "password PBKDF2-SHA256 hashing", ..Kind::TOKEN },
    Kind { id: "password-changed", keywords: &["password to ", "passphrase to ", "passcode to "],
        pattern: r#"(?i)(?:password|passphrase|passcode) to ["'`]?([^\s"'`<>]{8,128})"#, proof: Proof::Password,
        hides: "I changed the password to hunter{4d}", keeps: "I sent the password to everyone", ..Kind::TOKEN },
    Kind { id: "short-password", keywords: &["pw:", "pw=", "pw is ", "pwd is ", "pw "],
        pattern: r#"(?i)(?:pwd? is |pw[:=]? {1,2}|pw[:=])["'`]?([^\s_"'`<>][^\s"'`<>]{5,127})"#, proof: Proof::Password,
        hides: "login bo, pw Tiger{4d}", keeps: "a 300 pw supply", ..Kind::TOKEN },
    Kind { id: "password-after", keywords: &["use ", "using ", "try ", "with ", "enter "],
        pattern: r#"(?i)(?:use|using|try|with|enter) ["'`]?([^\s"'`<>(]{8,64})["'`]? (?:as|for) (?:the |my |your |its |a )?(?:[a-z]{2,12} )?pass(?:word|phrase|code)(?:[^a-z ]|\z| [^a-z]| (?:is|for|on|when|in|there|and|then|please|to|at|so|if|now|but|or)\b)"#, proof: Proof::Password,
        hides: "use hunter{4d} as the password", keeps: "use bcrypt_12 as the password hash", ..Kind::TOKEN },
    Kind { id: "login-pair", keywords: &["creds", "credentials", "log in with", "login with", "login:", "log in as", "log in:", "sign in with", "username ", "user "],
        pattern: r#"(?i)(?:(?:creds|credentials|log ?in (?:with|as)|log ?in:|sign in with)(?: are| is|:)? ["'`]?[\w.@+-]{2,40}["'`]?(?: ?/ ?|:| )|user(?:name)? [\w.@+-]{2,40},? pass(?:word)?:? )["'`]?([^\s"'`<>]{8,128})"#, proof: Proof::Strong,
        hides: "the creds are admin:{14w}", keeps: "log in with google / facebook-2024", ..Kind::TOKEN },
    Kind { id: "key-told", keywords: &["key", "token", "secret", "schlüssel", "clave", "privkey"],
        pattern: r#"(?i)(?:key|token|secret|schlüssel|clave)(?: [a-z]{1,12}){0,6}[,:]?(?: [a-z]{1,12}){0,4}(?: (?:->|→))?:? \*{0,2}["'`]{0,3}([a-z0-9][a-z0-9+/=.-]{23,511})(?:[^\w/+:@-]|\z)"#, proof: Proof::Strong, edge: Edge::Any,
        hides: "I rotated the token, the new one is {40w}", keeps: "the key file has the hash {64h}", ..Kind::TOKEN },
];
