//! The audit log, for admins: newest first.

use maud::{Markup, html};

use super::frame::{Here, View};
use super::{links, parts};
use crate::domain::Now;
use crate::domain::audit::AuditRow;
use crate::server::App;
use crate::server::api::audit::filter;
use crate::server::error::ApiError;
use crate::server::exchange::{Reply, Request};

const PAGE: u32 = 100;
const HERE: &str = "/settings/audit";

pub fn show(app: &App, request: &Request) -> Result<Reply, ApiError> {
    request.check_query(&["actor", "action", "before"])?;
    let before = request.query_number("before")?.unwrap_or(i64::MAX);
    let view = View::begin(app, request)?;
    let page = app.engine.audit_before(before, &filter(request)?, PAGE)?;
    let next = page.next.map(|next| next.to_string());
    let own = [
        ("actor", request.query("actor")),
        ("action", request.query("action")),
    ];
    let main = html! {
        div.title { h1 { "Audit log" } span.note { "what people and tokens did" } }
        section.box aria-label="Audit log" {
            @if !page.rows.is_empty() { (table(&page.rows, view.now)) }
            @else if let Some(next) = &next {
                div.empty { "No row from number " (next) " on matches. Older rows have not been searched yet." }
            }
            @else { div.empty { "No rows match." } }
            (parts::paging(
                request.query("before").map(|_| ("newest", links::with_query(HERE, &own))),
                next.as_deref().map(|next| ("older", links::with_query(HERE, &[own[0], own[1], ("before", Some(next))]))),
            ))
            div.in { p.note { "Each row contains a hash of the row before it. Check all of them with " code { "stepward audit verify" } "." } }
        }
    };
    view.page("Audit log", Here::Settings).show(main)
}

fn table(rows: &[AuditRow], now: Now) -> Markup {
    html! {
        div.scroll tabindex="0" role="group" aria-label="Rows of the audit log" {
            table.events {
                caption.hidden { "What was done, by whom, and when" }
                thead { tr {
                    th scope="col" { "when" } th scope="col" { "action" } th scope="col" { "by" } th scope="col" { "object" }
                    th scope="col" { "outcome" } th.wide scope="col" { "address" } th.wide scope="col" { "details" } th.wide.number scope="col" { "row" }
                } }
                tbody { @for row in rows { (line(row, now)) } }
            }
        }
    }
}

fn line(row: &AuditRow, now: Now) -> Markup {
    let shade = match row.outcome.as_str() {
        "refused" => "failed",
        _ => "pending",
    };
    html! {
        tr id={ "audit-" (row.seq) } {
            td.number { (parts::ago(row.at.into(), now)) }
            td { a href=(links::with_query(HERE, &[("action", Some(&row.action))])) { (row.action) } }
            td.wrap { a href=(links::with_query(HERE, &[("actor", Some(&row.actor))])) { (row.actor) } }
            td.wrap { @if let Some(object) = &row.object { (object) } @else { (parts::none()) } }
            td { span class={ "state state-" (shade) } { (row.outcome) } }
            td.wide { @if let Some(address) = &row.address { (address) } @else { (parts::none()) } }
            td.wide.wrap { @if let Some(detail) = &row.detail { code { (detail) } } @else { (parts::none()) } }
            td.wide.number { (row.seq) }
        }
    }
}
