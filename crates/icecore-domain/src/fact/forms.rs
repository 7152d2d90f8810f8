//! The forms that statements worth keeping have.
//!
//! A form is the words that a clause begins with, `|` between choices, adverbs
//! left out. What follows them is the value.

use super::FactKind;

/// What the rest of a clause must be like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rest {
    /// Anything with a word of its own.
    Any,
    /// Something that has two words of its own: short forms are small talk.
    Two,
    /// Something in general: "the" and "all the" point at what is before one.
    Taste,
    /// A name: it begins with a capital.
    Name,
    /// A word for what people do.
    Occupation,
    /// Somebody of the family, a pet.
    Kin,
    /// Somebody of the family, and what they do.
    Relative,
    /// Anything or nothing: the form says it all.
    State,
    /// A time stands in the clause.
    Dated,
    /// A time that is past stands in the clause.
    Past,
    /// A number comes first.
    Number,
}

/// A form.
#[derive(Debug, Clone, Copy)]
pub(super) struct Form {
    pub words: &'static str,
    pub kind: FactKind,
    /// The property that a newer value replaces. `*` is the second word as said,
    /// `count` the number of what is counted, if something is; `favourite` and
    /// `deadline` go on with of what.
    pub attribute: &'static str,
    pub rest: Rest,
}

const fn form(words: &'static str, kind: FactKind, attribute: &'static str, rest: Rest) -> Form {
    Form { words, kind, attribute, rest }
}

use FactKind::{Constraint, Decision, Event, Identity, Plan, Preference};

/// The first that fits is taken.
pub(super) const FORMS: &[Form] = &[
    form("my name is", Identity, "name", Rest::Name),
    form("call me", Identity, "name", Rest::Name),
    form("i go by", Identity, "name", Rest::Name),
    form("i live|reside in|at", Identity, "home", Rest::Name),
    form("i am living in", Identity, "home", Rest::Name),
    form("i am based in", Identity, "home", Rest::Name),
    form("i|we moved|relocated to", Identity, "home", Rest::Name),
    form("i|we have moved|relocated to", Identity, "home", Rest::Name),
    form("i live in|with|near|on", Identity, "", Rest::Any),
    form("i am from", Identity, "origin", Rest::Name),
    form("i come from", Identity, "origin", Rest::Name),
    form("i was born in|on", Identity, "birth", Rest::Any),
    form("i was born and raised in", Identity, "origin", Rest::Name),
    form("i grew up in|on|with", Identity, "", Rest::Any),
    form("i work as", Identity, "job", Rest::Any),
    form("i am working as", Identity, "job", Rest::Any),
    form("i work at|for", Identity, "workplace", Rest::Any),
    form("i am employed at|by", Identity, "workplace", Rest::Any),
    form("i work in", Identity, "", Rest::Any),
    form("i got a new? job|position at|as|in", Identity, "", Rest::Any),
    form("i started working as|at|for", Identity, "", Rest::Any),
    form("i am # years old", Identity, "age", Rest::Number),
    form("i am a|an # year old", Identity, "age", Rest::Number),
    form("i turned #", Identity, "age", Rest::Number),
    form("i am # year old", Identity, "age", Rest::Number),
    form("i am a|an|the", Identity, "job", Rest::Occupation),
    form("my job|role|occupation|title is", Identity, "job", Rest::Any),
    form("my birthday is", Identity, "birthday", Rest::Any),
    form("my email|phone|address|timezone is", Identity, "*", Rest::Any),
    form("my email address is", Identity, "email", Rest::Any),
    form("my phone number is", Identity, "phone", Rest::Any),
    form("my time zone is", Identity, "timezone", Rest::Any),
    form("i am married|engaged|divorced|single|widowed", Identity, "marital status", Rest::State),
    form("i am vegan|vegetarian|pescatarian", Identity, "diet", Rest::State),
    form("i am a|an vegan|vegetarian|pescatarian", Identity, "diet", Rest::State),
    form("i am pregnant|retired|diabetic|bilingual|autistic|deaf|blind", Identity, "", Rest::State),
    form("i am allergic to", Constraint, "", Rest::Any),
    form("i am lactose|gluten intolerant", Constraint, "", Rest::State),
    form("i can not eat|drink|have", Constraint, "", Rest::Any),
    form("i do not eat|drink", Constraint, "", Rest::Any),
    form("i have a|an|one|two|three|four|five|six", Identity, "count", Rest::Kin),
    form("i got a|an", Identity, "", Rest::Kin),
    form("my", Identity, "", Rest::Relative),
    form("i have # years of", Identity, "", Rest::Any),
    form("i have got # years of", Identity, "", Rest::Any),
    form("i speak", Identity, "", Rest::Any),
    form("i play the|in", Identity, "", Rest::Any),
    form("i own a|an|two|three", Identity, "", Rest::Any),
    form("i graduated from|in|with", Identity, "", Rest::Any),
    form("i studied|study", Identity, "", Rest::Any),
    form("i am studying|majoring", Identity, "", Rest::Any),
    form("i major|majored in", Identity, "major", Rest::Any),
    form("my major|degree is", Identity, "*", Rest::Any),
    form(
        "i have been married|working|living|playing|painting|running|teaching|studying|practicing",
        Identity,
        "",
        Rest::Dated,
    ),
    form("my favorite|favourite", Preference, "favourite", Rest::Any),
    form("i prefer", Preference, "", Rest::Any),
    form("i would prefer", Preference, "", Rest::Any),
    form("my preference is|for", Preference, "", Rest::Any),
    form("i would rather", Preference, "", Rest::Two),
    form("i like|love|enjoy|adore", Preference, "", Rest::Taste),
    form("i hate|dislike|detest", Preference, "", Rest::Taste),
    form("i do not like|enjoy|love", Preference, "", Rest::Taste),
    form("i can not stand", Preference, "", Rest::Any),
    form("i am a|an big|huge|massive|real? fan of", Preference, "", Rest::Any),
    form("i am not a big|huge? fan of", Preference, "", Rest::Any),
    form("i am into", Preference, "", Rest::Any),
    form("i am passionate about", Preference, "", Rest::Any),
    form("i am interested in", Preference, "", Rest::Any),
    form("i am keen on", Preference, "", Rest::Any),
    form("i|we decided to|on|against|not", Decision, "", Rest::Two),
    form("i|we have decided to|on|against|not", Decision, "", Rest::Two),
    form("i|we agreed to|on", Decision, "", Rest::Two),
    form("i|we have agreed to|on", Decision, "", Rest::Two),
    form("i|we chose|opted", Decision, "", Rest::Two),
    form("i|we have chosen|opted", Decision, "", Rest::Two),
    form("i|we settled on", Decision, "", Rest::Any),
    form("i|we have settled on", Decision, "", Rest::Any),
    form("i|we switched to|from", Decision, "", Rest::Any),
    form("i|we have switched to|from", Decision, "", Rest::Any),
    form("i|we will go with", Decision, "", Rest::Any),
    form("let us go with", Decision, "", Rest::Two),
    form("i|we are|am going|sticking with", Decision, "", Rest::Two),
    form("my|our budget is|of", Constraint, "budget", Rest::Any),
    form("i|we have a budget of", Constraint, "budget", Rest::Any),
    form("my|our|the deadline is", Constraint, "deadline", Rest::Dated),
    form("my|our|the deadline for|of", Constraint, "deadline", Rest::Dated),
    form("i|we have a deadline of|on|by|for", Constraint, "deadline", Rest::Dated),
    form("i|we must|need|have to|finish|submit|complete|have", Constraint, "", Rest::Dated),
    form("i|we must|can not", Constraint, "", Rest::Two),
    form("i plan to|on", Plan, "", Rest::Two),
    form("we plan to|on", Plan, "", Rest::Two),
    form("i|we am|are planning to|on|a|an|for|our|my", Plan, "", Rest::Two),
    form("i intend to", Plan, "", Rest::Two),
    form("i signed up for", Plan, "", Rest::Any),
    form("i have signed up for", Plan, "", Rest::Any),
    form("i have applied to|for", Plan, "", Rest::Any),
    form("i applied to|for", Plan, "", Rest::Any),
    form("my goal|dream is to", Plan, "", Rest::Two),
    form("my goal|dream is", Plan, "", Rest::Two),
    form("i am hoping to", Plan, "", Rest::Two),
    form("i am saving up? for", Plan, "", Rest::Any),
    form("i am thinking of|about", Plan, "", Rest::Two),
    form("i|we am|are going to", Plan, "", Rest::Dated),
    form("i|we will be?", Plan, "", Rest::Dated),
    form(
        "i|we got married|engaged|divorced|promoted|laid|hired|fired|accepted",
        Event,
        "",
        Rest::Any,
    ),
    form("i|we adopted", Event, "", Rest::Any),
    form("i|we bought a|an|our|my", Event, "", Rest::Any),
    form("i|we have bought|adopted|published|launched", Event, "", Rest::Any),
    form("i|we published|launched|won|graduated|retired", Event, "", Rest::Any),
    form("i|we passed my|our|the", Event, "", Rest::Any),
    form("i|we lost my|our", Event, "", Rest::Any),
    form("i|we quit my|our|the", Event, "", Rest::Any),
    form(
        "i|we joined|finished|completed|visited|created|opened|founded|built|enrolled|hired|received",
        Event,
        "count",
        Rest::Two,
    ),
    form(
        "i|we have joined|finished|completed|visited|created|opened|founded|built|enrolled|hired|received",
        Event,
        "count",
        Rest::Two,
    ),
    form(
        "i|we started a|an|my|our|taking|doing|learning|going|playing|volunteering|working",
        Event,
        "",
        Rest::Two,
    ),
    form(
        "i|we have started a|an|my|our|taking|doing|learning|going|playing|volunteering|working",
        Event,
        "",
        Rest::Two,
    ),
    form("i used to", Identity, "", Rest::Two),
    form("i volunteer|teach|coach|collect|tutor|mentor|freelance", Identity, "", Rest::Any),
    form("i|we ~", Event, "", Rest::Past),
    form("i|we have ~", Event, "", Rest::Past),
    form("my ~", Event, "", Rest::Past),
];

/// Whether any form begins with `word`.
pub(super) fn begins_form(word: &str) -> bool {
    ["i", "we", "my", "our", "the", "call", "let"].contains(&word)
}

/// Whether `word` names what somebody does or is by trade or calling.
pub(super) fn is_occupation(word: &str) -> bool {
    const OTHER: [&str; 24] = [
        "nurse", "chef", "student", "teacher", "artist", "pilot", "judge", "architect", "coach",
        "clerk", "analyst", "scientist", "freelancer", "ceo", "cto", "founder", "lawyer",
        "mechanic", "surgeon", "therapist", "dentist", "vet", "cook", "intern",
    ];
    const NOT: [&str; 26] = [
        "believer", "fighter", "survivor", "winner", "lover", "killer", "factor", "matter",
        "number", "member", "supporter", "bummer", "player", "mother", "father", "sister",
        "brother", "daughter", "loner", "sucker", "beginner", "newcomer", "starter", "error",
        "better", "bit",
    ];
    let ends = ["er", "or", "ist", "ian", "eer", "ant", "dent"];
    OTHER.contains(&word)
        || word.len() > 4 && !NOT.contains(&word) && ends.iter().any(|end| word.ends_with(end))
}

/// Whether `word` names a relative or a pet.
pub(super) fn is_kin(word: &str) -> bool {
    let one = match word {
        "children" | "child" => "child",
        "wife" | "wives" => "wife",
        _ => word.strip_suffix('s').unwrap_or(word),
    };
    [
        "mother", "father", "mom", "mum", "dad", "grandmother", "grandfather", "grandma",
        "grandpa", "child", "kid", "son", "daughter", "brother", "sister", "sibling", "wife",
        "husband", "partner", "girlfriend", "boyfriend", "dog", "cat", "pet", "puppy", "kitten",
        "turtle", "rabbit", "hamster", "parrot", "horse", "twin", "niece", "nephew", "grandchild",
        "grandson", "granddaughter", "cousin", "roommate", "fiancé", "fiancée", "stepson",
        "stepdaughter", "puppie",
    ]
    .contains(&one)
}

/// Verbs in the past that do not end in `ed`.
pub(super) fn is_past(word: &str) -> bool {
    const IRREGULAR: [&str; 54] = [
        "ate", "became", "began", "bought", "broke", "brought", "built", "came", "caught", "chose",
        "did", "drew", "drove", "fell", "felt", "flew", "found", "gave", "got", "grew", "had",
        "held", "hurt", "kept", "knew", "led", "left", "lost", "made", "met", "paid", "quit",
        "ran", "read", "rode", "sang", "saw", "sent", "set", "sold", "spent", "spoke", "sprained",
        "swam", "taught", "told", "took", "went", "won", "wore", "wrote", "started", "heard",
        "threw",
    ];
    const NO_EVENT: [&str; 10] = [
        "needed", "wanted", "loved", "liked", "hoped", "wished", "agreed", "used", "excited",
        "supposed",
    ];
    IRREGULAR.contains(&word)
        || word.len() > 4
            && word.ends_with("ed")
            && !NO_EVENT.contains(&word)
            && !word.ends_with("eed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_that_forms_begin_with_are_all_named() {
        for form in FORMS {
            let first = form.words.split(' ').next().unwrap();
            assert!(first.split('|').all(begins_form), "{}", form.words);
        }
    }
}
