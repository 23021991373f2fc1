//! What somebody may have meant by a word that names nothing.

/// `, did you mean X?`, or nothing if no known word is near.
pub fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    /// A third of the word may be wrong.
    const SHARE: usize = 3;
    let far = (word.chars().count() / SHARE).max(1);
    let near = known
        .into_iter()
        .map(|known| (strsim::damerau_levenshtein(word, known), known))
        .filter(|(distance, _)| *distance <= far)
        .min();
    near.map_or_else(String::new, |(_, known)| format!(", did you mean {known}?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_near_was_meant() {
        let known = ["unit", "publish"];
        assert_eq!(did_you_mean("uint", known), ", did you mean unit?");
        assert_eq!(did_you_mean("deploy", known), "");
    }
}
