//! How time went by in a job, step by step.

use maud::{Markup, html};

use super::frame::View;
use crate::wire::api::{JobJson, JobWhyJson, StepJson};

pub fn section(_: &JobJson, _: &JobWhyJson, _: Option<&StepJson>, _: &View) -> Markup {
    html! {}
}
