//! Pages that ask before something is done. They say what will happen and to what; the same address, sent, does it.

use maud::{Markup, html};

use super::frame::{Here, View};
use crate::server::error::ApiError;
use crate::server::exchange::Reply;

pub struct Question<'a> {
    pub title: String,
    /// What happens then.
    pub text: Markup,
    /// Where it is sent.
    pub action: String,
    pub button: &'a str,
    /// It cannot be taken back.
    pub is_grave: bool,
    /// Where somebody goes who does not want to.
    pub back: String,
    pub here: Here,
}

impl Question<'_> {
    pub fn show(self, view: &View) -> Result<Reply, ApiError> {
        self.show_with(view, 200)
    }

    /// Again, because something was wrong with the answer.
    pub fn show_with(self, view: &View, status: u16) -> Result<Reply, ApiError> {
        let class = if self.is_grave { "danger" } else { "primary" };
        let main = html! {
            form.ask method="post" action=(self.action) {
                (view.proof())
                h1 { (self.title) }
                (self.text)
                p.actions {
                    button class=(class) { (self.button) }
                    a.button data-back href=(self.back) { "No, go back" }
                }
            }
        };
        view.page(self.title.clone(), self.here)
            .status(status)
            .show(main)
    }
}
