//! The table of personal data, in the same form as that of credentials.
//!
//! Off unless a setting asks for it. A number counts only where its checksum
//! holds; one whose checksum is weak needs a word beside it that says what it is.

use super::checksum;
use super::kind::{Edge, Kind, Proof};

/// The kinds of personal data, each with its samples.
pub fn pii_kinds() -> &'static [Kind] {
    PII
}

/// What numbers without a keyword of their own begin with.
const DIGITS: &[&str] = &["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];

#[rustfmt::skip]
const COUNTRIES: &[&str] = &[
    "ad", "ae", "al", "at", "az", "ba", "be", "bg", "bh", "br", "ch", "cr", "cy", "cz", "de", "dk", "do", "ee", "eg", "es",
    "fi", "fo", "fr", "gb", "ge", "gi", "gl", "gr", "gt", "hr", "hu", "ie", "il", "iq", "is", "it", "jo", "kw", "kz", "lb",
    "li", "lt", "lu", "lv", "mc", "md", "me", "mk", "mr", "mt", "mu", "nl", "no", "pk", "pl", "ps", "pt", "qa", "ro", "rs",
    "sa", "se", "si", "sk", "sm", "tn", "tr", "ua", "va", "xk",
];

/// Every kind, specific ones first.
#[rustfmt::skip]
static PII: &[Kind] = &[
    Kind { id: "email", keywords: &["@"], lead: 64, reach: 256, proof: Proof::Checked(checksum::email),
        pattern: r"[A-Za-z0-9][A-Za-z0-9._%+-]{0,63}@(?:[A-Za-z0-9-]{1,63}\.){1,6}[A-Za-z]{2,24}\b",
        allow: &["@example.", "noreply@"],
        hides: "mail «bo.{6a}@{8a}.dev»", keeps: "mail bo at acme dot dev, see logo@2x.png", ..Kind::TOKEN },
    Kind { id: "payment-card", keywords: &["2", "3", "4", "5", "6"], reach: 32, proof: Proof::Checked(checksum::payment_card),
        pattern: r"\d{4}[ -]\d{4}[ -]\d{4}[ -]\d{4}|\d{4}[ -]\d{6}[ -]\d{4,5}|\d{13,19}",
        hides: "card «4{3d} {4d} {4d} {4d}»", keeps: "order «4{15d}»", ..Kind::TOKEN },
    Kind { id: "iban", keywords: COUNTRIES, reach: 48, proof: Proof::Checked(checksum::iban),
        pattern: r"[A-Z]{2}\d{2}(?:[A-Z0-9]{11,30}\b|(?: [A-Z0-9]{4}){2,7}(?: [A-Z0-9]{1,3}\b)?)",
        hides: "pay to «DE{2d} {4d} {4d} {4d} {4d} {2d}»", keeps: "part «DE{20d}»", ..Kind::TOKEN },
    Kind { id: "us-ssn", keywords: &["ssn", "social security", "0", "1", "2", "3", "4", "5", "6", "7", "8"], reach: 64,
        pattern: r"(?i:ssn|social security)[^\d\r\n]{0,24}(\d{3}[- ]?\d{2}[- ]?\d{4})|(\d{3}-\d{2}-\d{4})",
        proof: Proof::Checked(checksum::us_ssn), hides: "SSN «{3d}-{2d}-{4d}»", keeps: "SSN «9{2d}-{2d}-{4d}»", ..Kind::TOKEN },
    Kind { id: "uk-nhs", keywords: &["nhs"], reach: 64, pattern: r"(?i:nhs)[^\d\r\n]{0,24}(\d{3}[ -]?\d{3}[ -]?\d{4})",
        proof: Proof::Checked(checksum::uk_nhs), hides: "NHS number «{3d} {3d} {4d}»", keeps: "NHS number «{10d}»", ..Kind::TOKEN },
    Kind { id: "de-tax-id", keywords: &["steuer", "idnr", "id-nr", "tax id", "tin"], reach: 80,
        pattern: r"(?i:steuer|idnr|id-nr|tax id|tin)[^\d\r\n]{0,40}(\d{2} ?\d{3} ?\d{3} ?\d{3})",
        proof: Proof::Checked(checksum::de_tax_id), hides: "Steuer-ID: «{11d}»", keeps: "Steuer-ID: «{11d}»", ..Kind::TOKEN },
    Kind { id: "fr-nir", keywords: &["1", "2"], reach: 24, proof: Proof::Checked(checksum::fr_nir),
        pattern: r"[12] ?\d{2} ?(?:0[1-9]|1[0-2]|[2-9]\d) ?(?:\d{2}|2[AB]) ?\d{3} ?\d{3} ?\d{2}",
        hides: "NIR «2 55 08 14 {3d} {3d} {2d}»", keeps: "NIR «2550814{8d}»", ..Kind::TOKEN },
    Kind { id: "es-dni", keywords: &["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "x", "y", "z"], reach: 12,
        pattern: r"(?:\d{8}|[XYZ]-?\d{7})-?[A-HJ-NP-TV-Z]\b", proof: Proof::Checked(checksum::es_dni),
        hides: "DNI «{8d}{1B}»", keeps: "DNI «{8d}{1B}»", ..Kind::TOKEN },
    Kind { id: "it-codice-fiscale", keywords: &["codice fiscale", "cod. fisc", "c.f.", "cf ", "cf:", "fiscal code", "tax code"], reach: 64,
        pattern: r"(?i:codice fiscale|cod\. fisc\.?|c\.f\.|cf|fiscal code|tax code)[^A-Z0-9\r\n]{1,24}([A-Z]{6}[0-9L-NP-V]{2}[A-EHLMPRST][0-9L-NP-V]{2}[A-Z][0-9L-NP-V]{3}[A-Z])\b",
        proof: Proof::Checked(checksum::it_codice_fiscale),
        hides: "codice fiscale «RSSMRA85T10A{3d}{1B}»", keeps: "codice fiscale «RSSMRA85T10A{3d}{1B}»", ..Kind::TOKEN },
    Kind { id: "nl-bsn", keywords: &["bsn", "burgerservice", "sofinummer"], reach: 64,
        pattern: r"(?i:bsn|burgerservice[- ]?nummer|sofinummer)[^\d\r\n]{0,24}(\d{4}\.?\d{2}\.?\d{3})",
        proof: Proof::Checked(checksum::nl_bsn), hides: "BSN: «{9d}»", keeps: "BSN: «{9d}»", ..Kind::TOKEN },
    Kind { id: "br-cpf", keywords: &["cpf", "0", "1", "2", "3", "4", "5", "6", "7", "8", "9"], reach: 48,
        pattern: r"(?i:cpf)[^\d\r\n]{0,24}(\d{3}\.?\d{3}\.?\d{3}-?\d{2})|(\d{3}\.\d{3}\.\d{3}-\d{2})",
        proof: Proof::Checked(checksum::br_cpf), hides: "CPF «{3d}.{3d}.{3d}-{2d}»", keeps: "CPF «{3d}.{3d}.{3d}-{2d}»", ..Kind::TOKEN },
    Kind { id: "in-aadhaar", keywords: &["aadhaar", "aadhar", "uidai", "2", "3", "4", "5", "6", "7", "8", "9"], reach: 64,
        pattern: r"(?i:aadhaa?r|uidai)[^\d\r\n]{0,24}([2-9]\d{3}[ -]?\d{4}[ -]?\d{4})|([2-9]\d{3} \d{4} \d{4})",
        proof: Proof::Checked(checksum::in_aadhaar), hides: "Aadhaar «2{3d} {4d} {4d}»", keeps: "Aadhaar «2{3d} {4d} {4d}»", ..Kind::TOKEN },
    Kind { id: "ca-sin", keywords: &["sin ", "sin:", "social insurance", "1", "2", "3", "4", "5", "6", "7", "9"], reach: 64,
        pattern: r"(?i:sin|social insurance)\b[^\d\r\n]{0,24}(\d{3}[ -]?\d{3}[ -]?\d{3})|(\d{3}-\d{3}-\d{3})",
        proof: Proof::Checked(checksum::ca_sin), hides: "SIN: «{3d} {3d} {3d}»", keeps: "SIN: «{9d}»", ..Kind::TOKEN },
    Kind { id: "au-tfn", keywords: &["tfn", "tax file"], reach: 64, pattern: r"(?i:tfn|tax file)[^\d\r\n]{0,24}(\d{3} ?\d{3} ?\d{3})",
        proof: Proof::Checked(checksum::au_tfn), hides: "TFN «{3d} {3d} {3d}»", keeps: "TFN «{9d}»", ..Kind::TOKEN },
    Kind { id: "cn-resident-id", keywords: &["1", "2", "3", "4", "5", "6", "7", "8"], reach: 20,
        pattern: r"[1-8]\d{5}(?:19|20)\d{2}(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])\d{3}[\dXx]",
        proof: Proof::Checked(checksum::cn_resident_id), hides: "身份证 «11010519491231{4d}»", keeps: "no. «11010519491231{4d}»", ..Kind::TOKEN },
    Kind { id: "se-personnummer", keywords: DIGITS, reach: 16, proof: Proof::Checked(checksum::se_personnummer),
        pattern: r"(?:19|20)?\d{2}(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01]|[6-8]\d|9[01])[-+]\d{4}",
        hides: "personnummer «811218-{4d}»", keeps: "personnummer «811218-{4d}»", ..Kind::TOKEN },
    Kind { id: "pl-pesel", keywords: &["pesel"], reach: 48, pattern: r"(?i:pesel)[^\d\r\n]{0,24}(\d{11})",
        proof: Proof::Checked(checksum::pl_pesel), hides: "PESEL «440514{5d}»", keeps: "PESEL «440514{5d}»", ..Kind::TOKEN },
    Kind { id: "ip-address", keywords: &["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "fe80:", "fc", "fd", "::"], reach: 48,
        pattern: r"(?i:(?:\d{1,3}\.){3}\d{1,3}|[0-9a-f]{0,4}(?::[0-9a-f]{0,4}){2,7})", proof: Proof::Checked(checksum::ip_address),
        hides: "from «10.1{1d}.1{1d}.2{1d}»", keeps: "version 1.2.3.4 on 127.0.0.1 at 10:20:30, std::fmt", ..Kind::TOKEN },
    Kind { id: "phone", keywords: &["+", "(", "0", "1", "2", "3", "4", "5", "6", "7", "8", "9"], reach: 40, edge: Edge::Word,
        pattern: concat!(
            r"\+\d{1,3}(?:[ ./-]{0,2}\(?\d{1,5}\)?){2,6}|\(\d{2,5}\)[ -]?\d{2,5}(?:[ .-]\d{2,5}){1,3}",
            r"|(?:1[ .-])?[2-9]\d{2}[ .-][2-9]\d{2}[ .-]\d{4}|0[1-9](?:[ .-]\d{2}){4}|0\d{1,4}[ /-]\d{3,8}(?:[ -]\d{2,5}){0,4}"),
        proof: Proof::Checked(checksum::phone),
        hides: "call «+44 20 7{3d} {4d}»", keeps: "2024-05-06 10:20:30, order 12345678, 3.141.592, $1,234.50, 01-02-2024", ..Kind::TOKEN },
];
