//! What a target is reached by, found at the moment it is needed; and kept out of every sentence that is kept.

use crate::config::Text;
use crate::domain::secret::SecretRef;
use crate::secrets::Secrets;

/// Short texts would blank out half of a sentence.
const SECRET_BYTES_MIN: usize = 4;

/// What was resolved for one delivery.
#[derive(Default)]
pub struct Resolved {
    texts: Vec<String>,
    is_shown: bool,
}

impl Resolved {
    /// One that stays here, such as what messages are signed with.
    pub fn secret(&mut self, secret: &SecretRef) -> Result<String, String> {
        let found = Secrets::resolve(secret)?;
        if found.trim().is_empty() {
            return Err("the secret is nothing but blanks".to_string());
        }
        self.texts.push(found.clone());
        Ok(found)
    }

    /// One that the target is shown.
    pub fn shown(&mut self, secret: &SecretRef) -> Result<String, String> {
        self.is_shown = true;
        Ok(self.secret(secret)?.trim().to_string())
    }

    /// A plain text is no secret.
    pub fn text(&mut self, text: &Text) -> Result<String, String> {
        match text {
            Text::Plain(text) => Ok(text.clone()),
            Text::Reference(reference) => self.shown(&reference.0),
        }
    }

    /// Whether what the target says may be kept. One that was shown a secret may say a part of it, or in another form: `Cannot
    /// POST /services/T000/XXXX` is half of an address and as good as all of it.
    pub fn may_be_quoted(&self) -> bool {
        !self.is_shown
    }

    /// The sentence without anything that was resolved: a target may answer with what it was sent.
    pub fn scrub(&self, sentence: &str) -> String {
        let mut sentence = sentence.to_string();
        for text in self.texts.iter().map(|text| text.trim()) {
            if text.len() >= SECRET_BYTES_MIN {
                sentence = sentence.replace(text, "***");
            }
        }
        sentence
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_resolved_is_in_no_sentence() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        std::fs::write(&file, "tk_very_secret\n").unwrap();
        let secret = SecretRef::File(file.display().to_string());
        let mut resolved = Resolved::default();
        assert_eq!(resolved.secret(&secret).unwrap().trim(), "tk_very_secret");
        assert_eq!(
            resolved.scrub("401: tk_very_secret is wrong"),
            "401: *** is wrong"
        );
        assert!(resolved.may_be_quoted(), "nobody was shown it");
        assert_eq!(resolved.shown(&secret).unwrap(), "tk_very_secret");
        assert!(!resolved.may_be_quoted());
        std::fs::write(&file, " \n").unwrap();
        let empty = resolved.secret(&secret).unwrap_err();
        assert_eq!(empty, "the secret is nothing but blanks");
        let missing = SecretRef::Env("STEPWARD_TEST_NEVER_SET".to_string());
        assert!(resolved.secret(&missing).is_err());
    }
}
