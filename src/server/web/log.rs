//! The log of a step.

use maud::{Markup, html};

use super::frame::View;
use crate::server::error::ApiError;
use crate::server::exchange::Request;
use crate::wire::api::{JobJson, StepJson};

pub fn panel(_: &JobJson, step: &StepJson, _: &Request, _: &View) -> Result<Markup, ApiError> {
    Ok(html! { section.box #log aria-label="Log" { div.in { "The log of " (step.name) } } })
}
