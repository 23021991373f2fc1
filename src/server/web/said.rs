//! What a page says after something was done. An address carries a word of this list and never a text.

const SAID: &[(&str, &str)] = &[
    ("submitted", "The job was submitted."),
    ("cancelled", "The job is being cancelled."),
    (
        "retried",
        "This is the new job. What had completed is not done again.",
    ),
    (
        "retried-from",
        "This is the new job. What stands before the step that it begins from, and had completed, is not done again.",
    ),
    (
        "retried-all",
        "This is the new job. Everything is done once more.",
    ),
    ("approved", "The step was approved."),
    ("rejected", "The step was rejected."),
    ("resumed", "The step runs again."),
    (
        "drained",
        "The worker finishes what it has, takes nothing more, and leaves.",
    ),
    (
        "paused",
        "The worker takes nothing more until it is resumed.",
    ),
    ("worker-resumed", "The worker takes steps again."),
    (
        "deleted",
        "The worker was deleted. Steps that it still had are told of in the events.",
    ),
    (
        "schedule-paused",
        "The schedule is paused: it makes no jobs until it is resumed.",
    ),
    ("schedule-resumed", "The schedule makes jobs again."),
    ("redelivered", "The message is sent again."),
    ("token-revoked", "The token lets nobody in any more."),
    ("test-sent", "The test message was delivered."),
];

pub fn sentence(word: &str) -> Option<String> {
    let found = SAID.iter().find(|(known, _)| *known == word);
    if let Some((_, sentence)) = found {
        return Some((*sentence).to_string());
    }
    // `cancelled-3-of-5`
    let (verb, rest) = word.split_once('-')?;
    let (done, all) = rest.split_once("-of-")?;
    let (done, all): (u32, u32) = (done.parse().ok()?, all.parse().ok()?);
    let what = match verb {
        "cancelled" => "are being cancelled",
        "retried" => "were retried",
        _ => return None,
    };
    Some(match all - done.min(all) {
        0 if done == 1 => format!(
            "1 job {}.",
            what.replace("are", "is").replace("were", "was")
        ),
        0 => format!("{done} jobs {what}."),
        left => format!("{done} of {all} jobs {what}; {left} could not be, look at their pages."),
    })
}

#[cfg(test)]
mod tests {
    use super::sentence;

    #[test]
    fn only_words_of_the_list_are_said() {
        assert_eq!(sentence("submitted").unwrap(), "The job was submitted.");
        assert_eq!(
            sentence("cancelled-3-of-3").unwrap(),
            "3 jobs are being cancelled."
        );
        assert_eq!(sentence("retried-1-of-1").unwrap(), "1 job was retried.");
        assert!(
            sentence("retried-2-of-5")
                .unwrap()
                .contains("3 could not be")
        );
        for odd in [
            "",
            "x",
            "exploded-1-of-1",
            "cancelled--1-of-x",
            "cancelled-5-of-3-of-1",
        ] {
            assert_eq!(sentence(odd), None, "{odd}");
        }
    }
}
