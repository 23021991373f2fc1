//! What a form of a page sends. Nobody gets to see it before it has shown that it comes from a page of ours.

use crate::server::App;
use crate::server::error::ApiError;
use crate::server::exchange::Request;
use crate::server::http::decode_query;

/// The hidden field that only a page of ours can fill.
pub const PROOF: &str = "page";

pub struct Form {
    fields: Vec<(String, String)>,
}

impl Form {
    pub fn read(app: &App, request: &Request) -> Result<Form, ApiError> {
        let form = Form::read_unproven(request)?;
        let proof = form.text(PROOF).unwrap_or_default();
        app.gate.check_proof(&request.headers, proof)?;
        Ok(form)
    }

    /// For who is not let in yet.
    pub fn read_unproven(request: &Request) -> Result<Form, ApiError> {
        let content_type = request.headers.content_type.as_deref().unwrap_or_default();
        let media = content_type.split(';').next().unwrap_or_default().trim();
        if !media.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
            let message = "expected what a form of a page sends; programs use /api";
            return Err(ApiError::new(415, "unsupported_media_type", message));
        }
        let body = std::str::from_utf8(&request.body).ok();
        let fields = body.and_then(decode_query);
        let fault = || ApiError::new(400, "bad_request", "the form is not text");
        Ok(Form {
            fields: fields.ok_or_else(fault)?,
        })
    }

    pub fn text(&self, name: &str) -> Option<&str> {
        let mut fields = self.fields.iter();
        fields
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }

    /// Without what is only white space.
    pub fn said(&self, name: &str) -> Option<&str> {
        self.text(name)
            .map(str::trim)
            .filter(|text| !text.is_empty())
    }

    pub fn all<'f>(&'f self, name: &'f str) -> impl Iterator<Item = &'f str> {
        let fields = self.fields.iter();
        fields
            .filter(move |(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }
}
