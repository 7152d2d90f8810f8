use super::*;

fn redactor() -> Redactor {
    Redactor::standard()
}

#[test]
fn every_kind_hides_its_sample_and_keeps_its_near_miss() {
    let redactor = redactor();
    let mut wrong = Vec::new();
    for kind in Redactor::kinds() {
        for seed in 0..20 {
            let sample = kind.sample(seed);
            let (hidden, counts) = redactor.text_counted(&sample);
            if counts != [(kind.id, 1)] {
                wrong.push(format!("{}: {sample} became {hidden}", kind.id));
            }
            let near = kind.near_miss(seed);
            if redactor.text(&near).as_str() != near {
                wrong.push(format!("{}: {near} became {}", kind.id, redactor.text(&near)));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
