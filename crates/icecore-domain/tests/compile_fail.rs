//! What does not compile is the promise: text that no redactor has seen cannot
//! be made into text that may be stored.

#[test]
fn only_a_redactor_makes_what_may_be_stored() {
    trybuild::TestCases::new().compile_fail("tests/compile_fail/*.rs");
}
