//! Every route: method, path, who may, handler. What is not here does not exist.

use super::App;
use super::api::{
    audit, backups, deliveries, events, health, hooks, jobs, logs, queue, recovery, retention,
    schedules, steps, tasks, tokens, workers, workflows,
};
use super::error::ApiError;
use super::exchange::Method::{self, Delete, Get, Post, Put};
use super::exchange::{Reply, Request};
use super::metrics;
use super::openapi;
use super::web;
use super::worker_api;
use crate::domain::token::Role;
use crate::wire::NO_ROUTE;

pub type Handler = fn(&App, &Request) -> Result<Reply, ApiError>;

/// Who may use a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Anybody who reaches the port.
    Everyone,
    /// Anybody who reaches the port, too; but the request must show by itself that it may.
    Signed,
    /// Whoever has this role.
    People(Role),
    /// The same for a browser: whoever may not is asked for a token, what goes wrong is a page.
    Pages(Role),
    /// What a browser needs before that.
    Public,
    /// A worker, about its own sessions and attempts. Nobody else's requests are in front of theirs, and they may say more at once.
    Workers,
    /// A worker that has no token yet, with an enrolment.
    Enrolment,
}
use Access::{Enrolment, Everyone, Pages, People, Public, Signed, Workers};
use Role::{Admin, Operator, Viewer};

impl Access {
    /// What whoever comes must be. `None`: whoever it is, or the route itself looks.
    pub fn needed_role(self) -> Option<Role> {
        match self {
            Everyone | Signed | Public | Enrolment => None,
            People(role) | Pages(role) => Some(role),
            Workers => Some(Role::Worker),
        }
    }

    /// Whether a request gets to the handler only if its caller has shown that it may use the route. All other callers are strangers.
    pub fn is_checked(self) -> bool {
        self.needed_role().is_some()
    }

    /// Whether workers call it, each of which announces what it understands.
    pub fn is_for_workers(self) -> bool {
        matches!(self, Workers | Enrolment)
    }

    pub fn is_page(self) -> bool {
        matches!(self, Pages(_) | Public)
    }
}

pub struct Route {
    pub method: Method,
    pub path: &'static str,
    pub access: Access,
    pub handler: Handler,
    /// Whether a link on another site may lead a browser here. Only pages: a link must not start a download or show raw data.
    pub is_linkable: bool,
    /// Whether a request without a bearer token is refused with 405, also where nobody is asked for a token. A browser never sends
    /// a bearer token by itself, so no page of any site can make it use such a route.
    pub needs_bearer: bool,
    /// Whether every request reads a whole log.
    pub reads_whole_log: bool,
}

/// Work that may take seconds, for which there are handlers of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CostlyWork {
    /// Checks files that somebody sent.
    Validation,
    /// Reads a whole log.
    LogSearch,
}

impl Route {
    pub fn costly_work(&self, request: &Request) -> Option<CostlyWork> {
        match self.path {
            VALIDATE => Some(CostlyWork::Validation),
            // The log of the server about a job is made of all events of the job.
            STEP_LOGS
                if request.query("grep").is_some() || request.param(1) == logs::SERVER_STEP =>
            {
                Some(CostlyWork::LogSearch)
            }
            // Until enough lines fit, the whole log may have to be read.
            LOG_WINDOW
                if ["only", "stream", "skip"]
                    .iter()
                    .any(|key| request.query(key).is_some()) =>
            {
                Some(CostlyWork::LogSearch)
            }
            _ => self.reads_whole_log.then_some(CostlyWork::LogSearch),
        }
    }
}

const VALIDATE: &str = "/api/validate";
const LOG_WINDOW: &str = "/jobs/{job}/steps/{step}/log";
const STEP_LOGS: &str = "/api/jobs/{job}/steps/{step}/logs";

#[rustfmt::skip]
const ROUTES: &[Route] = &[
    route(Get,    "/healthz",                                                        Everyone,          health::healthz),
    route(Get,    "/readyz",                                                         Everyone,          health::readyz),
    route(Get,    "/metrics",                                                        People(Viewer),    metrics::show),

    route(Get,    "/api/tasks",                                                      People(Viewer),    tasks::list),
    route(Get,    "/api/tasks/{task}",                                               People(Viewer),    tasks::show),
    route(Post,   "/api/tasks/{task}/jobs",                                          People(Operator),  tasks::submit),
    route(Get,    "/api/jobs",                                                       People(Viewer),    jobs::list),
    route(Get,    "/api/failures",                                                   People(Viewer),    jobs::failures),
    route(Get,    "/api/jobs/{job}",                                                 People(Viewer),    jobs::show),
    route(Post,   "/api/jobs/{job}/cancel",                                          People(Operator),  jobs::cancel),
    route(Post,   "/api/jobs/{job}/retry",                                           People(Operator),  jobs::retry),
    route(Post,   "/api/jobs/{job}/keep",                                            People(Operator),  jobs::keep),
    route(Post,   "/api/jobs/{job}/release",                                         People(Operator),  jobs::release),
    route(Get,    "/api/jobs/{job}/why",                                             People(Viewer),    jobs::why),
    route(Get,    "/api/jobs/{job}/events",                                          People(Viewer),    jobs::events),
    route(Get,    "/api/jobs/{job}/logs",                                            People(Viewer),    logs::of_job),
    route(Get,    STEP_LOGS,                                                         People(Viewer),    logs::of_step),
    route(Get,    "/api/jobs/{job}/steps/{step}/why",                                People(Viewer),    steps::why),
    route(Get,    "/api/jobs/{job}/steps/{step}/output",                             People(Viewer),    steps::output),
    route(Post,   "/api/jobs/{job}/steps/{step}/approve",                            People(Operator),  steps::approve),
    route(Post,   "/api/jobs/{job}/steps/{step}/reject",                             People(Operator),  steps::reject),
    route(Post,   "/api/jobs/{job}/steps/{step}/requeue",                            People(Admin),     steps::requeue),
    route(Post,   "/api/jobs/{job}/steps/{step}/fail",                               People(Admin),     steps::fail),
    route(Get,    "/api/schedules",                                                  People(Viewer),    schedules::list),
    route(Get,    "/api/schedules/{schedule}",                                       People(Viewer),    schedules::show),
    route(Get,    "/api/schedules/{schedule}/fires",                                 People(Viewer),    schedules::fires),
    route(Get,    "/api/schedules/{schedule}/why",                                   People(Viewer),    schedules::why),
    route(Post,   "/api/schedules/{schedule}/pause",                                 People(Operator),  schedules::pause),
    route(Post,   "/api/schedules/{schedule}/resume",                                People(Operator),  schedules::resume),
    route(Post,   "/api/schedules/{schedule}/fire",                                  People(Operator),  schedules::fire),
    route(Get,    "/api/workflows",                                                  People(Viewer),    workflows::show),
    route(Post,   VALIDATE,                                                          People(Viewer),    workflows::validate),
    route(Get,    "/api/queue",                                                      People(Viewer),    queue::list),
    route(Get,    "/api/workers",                                                    People(Viewer),    workers::list),
    route(Get,    "/api/workers/{worker}",                                           People(Viewer),    workers::show),
    route(Get,    "/api/workers/{worker}/why",                                       People(Viewer),    workers::why),
    route(Post,   "/api/workers/{worker}/drain",                                     People(Operator),  workers::drain),
    route(Post,   "/api/workers/{worker}/pause",                                     People(Operator),  workers::pause),
    route(Post,   "/api/workers/{worker}/resume",                                    People(Operator),  workers::resume),
    route(Delete, "/api/workers/{worker}",                                           People(Admin),     workers::delete),
    route(Get,    "/api/events",                                                     People(Viewer),    events::list_or_stream),
    route(Get,    "/api/audit",                                                      People(Admin),     audit::list),
    route(Get,    "/api/audit/head",                                                 People(Admin),     audit::ends),
    route(Get,    "/api/recovery",                                                   People(Viewer),    recovery::show),
    route(Post,   "/api/recovery/sweep",                                             People(Admin),     recovery::sweep),
    route(Get,    "/api/deliveries",                                                 People(Viewer),    deliveries::list),
    route(Get,    "/api/deliveries/{delivery}",                                      People(Viewer),    deliveries::show),
    route(Post,   "/api/deliveries/{delivery}/redeliver",                            People(Operator),  deliveries::redeliver),
    route(Post,   "/api/notify/{target}/test",                                       People(Admin),     deliveries::test),

    route(Post,   "/api/backup",                                                     People(Admin),     backups::take),
    bearer(Get,   "/api/backup",                                                     People(Admin),     backups::take),
    route(Get,    "/api/backups",                                                    People(Viewer),    backups::show),
    route(Get,    "/api/retention",                                                  People(Viewer),    retention::show),
    route(Post,   "/api/prune",                                                      People(Admin),     retention::prune),
    route(Get,    "/api/openapi.json",                                               People(Viewer),    openapi::show),
    route(Get,    "/api/me",                                                         People(Viewer),    tokens::me),
    route(Get,    "/api/tokens",                                                     People(Admin),     tokens::list),
    route(Post,   "/api/tokens",                                                     People(Admin),     tokens::make),
    route(Delete, "/api/tokens/{token}",                                             People(Admin),     tokens::revoke),

    route(Get,    "/",                                                               Pages(Viewer),     web::overview::show),
    route(Get,    "/tasks",                                                          Pages(Viewer),     web::tasks::show),
    route(Get,    "/tasks/{task}",                                                   Pages(Viewer),     web::task::show),
    route(Get,    "/tasks/{task}/run",                                               Pages(Viewer),     web::task::show_again),
    route(Post,   "/tasks/{task}/run",                                               Pages(Operator),   web::task::run),
    route(Get,    "/files",                                                          Pages(Viewer),     web::source::show),
    route(Get,    "/jobs",                                                           Pages(Viewer),     web::jobs::show),
    route(Get,    "/jobs/bulk",                                                      Pages(Operator),   web::jobs::ask_bulk),
    route(Post,   "/jobs/bulk",                                                      Pages(Operator),   web::jobs::bulk),
    route(Get,    "/jobs/{job}",                                                     Pages(Viewer),     web::job::show),
    part(Get,     "/jobs/{job}/graph.svg",                                           Pages(Viewer),     web::job::graph_file),
    route(Get,    "/jobs/{job}/cancel",                                              Pages(Operator),   web::acts::ask_cancel),
    route(Post,   "/jobs/{job}/cancel",                                              Pages(Operator),   web::acts::cancel),
    route(Get,    "/jobs/{job}/retry",                                               Pages(Operator),   web::acts::ask_retry),
    route(Post,   "/jobs/{job}/retry",                                               Pages(Operator),   web::acts::retry),
    route(Get,    "/jobs/{job}/steps/{step}/approve",                                Pages(Operator),   web::acts::ask_approve),
    route(Post,   "/jobs/{job}/steps/{step}/approve",                                Pages(Operator),   web::acts::approve),
    route(Get,    "/jobs/{job}/steps/{step}/reject",                                 Pages(Operator),   web::acts::ask_reject),
    route(Post,   "/jobs/{job}/steps/{step}/reject",                                 Pages(Operator),   web::acts::reject),
    route(Get,    LOG_WINDOW,                                                        Pages(Viewer),     web::log::window),
    whole_log("/jobs/{job}/steps/{step}/log/marks", web::log::marks),
    whole_log("/jobs/{job}/steps/{step}/log/find", web::log::find),
    whole_log("/jobs/{job}/steps/{step}/log/place", web::log::place_of),
    whole_log("/jobs/{job}/steps/{step}/log/groups", web::log::groups),
    whole_log("/jobs/{job}/steps/{step}/log/error", web::log::first_error),
    route(Get,    "/queue",                                                          Pages(Viewer),     web::queue::show),
    route(Get,    "/workers",                                                        Pages(Viewer),     web::workers::show),
    route(Get,    "/workers/{worker}/delete",                                        Pages(Admin),      web::workers::ask),
    route(Post,   "/workers/{worker}/delete",                                        Pages(Admin),      web::workers::act),
    route(Get,    "/workers/{worker}/{verb}",                                        Pages(Operator),   web::workers::ask),
    route(Post,   "/workers/{worker}/{verb}",                                        Pages(Operator),   web::workers::act),
    route(Get,    "/schedules",                                                      Pages(Viewer),     web::schedules::show),
    route(Get,    "/schedules/{schedule}/{verb}",                                    Pages(Operator),   web::schedules::ask),
    route(Post,   "/schedules/{schedule}/{verb}",                                    Pages(Operator),   web::schedules::act),
    route(Get,    "/events",                                                         Pages(Viewer),     web::events::show),
    route(Get,    "/recovery",                                                       Pages(Viewer),     web::recovery::show),
    route(Get,    "/settings",                                                       Pages(Viewer),     web::settings::show),
    route(Get,    "/settings/audit",                                                 Pages(Admin),      web::audit::show),
    route(Get,    "/settings/tokens/new",                                            Pages(Admin),      web::tokens::ask_new),
    route(Post,   "/settings/tokens/new",                                            Pages(Admin),      web::tokens::make),
    route(Get,    "/settings/tokens/{token}/revoke",                                 Pages(Admin),      web::tokens::ask_revoke),
    route(Post,   "/settings/tokens/{token}/revoke",                                 Pages(Admin),      web::tokens::revoke),
    route(Get,    "/settings/notify/{target}/test",                                  Pages(Admin),      web::settings::ask_test),
    route(Post,   "/settings/notify/{target}/test",                                  Pages(Admin),      web::settings::test),
    route(Get,    "/settings/deliveries/{delivery}/redeliver",                       Pages(Operator),   web::settings::ask_redeliver),
    route(Post,   "/settings/deliveries/{delivery}/redeliver",                       Pages(Operator),   web::settings::redeliver),
    route(Get,    "/login",                                                          Public,            web::login::show),
    route(Post,   "/login",                                                          Public,            web::login::log_in),
    route(Post,   "/logout",                                                         Public,            web::login::log_out),
    part(Get,     "/assets/{version}/{file}",                                        Public,            web::assets::show),

    route(Post,   "/hooks/{name}",                                                   Signed,            hooks::receive),

    route(Get,    "/api/worker/enrol",                                               Enrolment,         worker_api::show_server_to_enrolment),
    route(Post,   "/api/worker/enrol",                                               Enrolment,         worker_api::enrol),
    route(Get,    "/api/worker/server",                                              Workers,           worker_api::show_server),
    route(Post,   "/api/worker/sessions",                                            Workers,           worker_api::open_session),
    route(Post,   "/api/worker/heartbeat",                                           Workers,           worker_api::heartbeat),
    route(Post,   "/api/worker/poll",                                                Workers,           worker_api::poll),
    route(Post,   "/api/worker/reports",                                             Workers,           worker_api::report),
    route(Post,   "/api/worker/drain",                                               Workers,           worker_api::drain),
    route(Put,    "/api/worker/steps/{step}/attempts/{attempt}/log",                 Workers,           worker_api::append_log),
];

const fn route(method: Method, path: &'static str, access: Access, handler: Handler) -> Route {
    Route {
        method,
        path,
        access,
        handler,
        is_linkable: matches!(access, Pages(_) | Public),
        needs_bearer: false,
        reads_whole_log: false,
    }
}

/// A route for what a page is made of: a file, or data that its script fetches.
const fn part(method: Method, path: &'static str, access: Access, handler: Handler) -> Route {
    Route {
        is_linkable: false,
        ..route(method, path, access, handler)
    }
}

/// A part of a page for which a whole log is read.
const fn whole_log(path: &'static str, handler: Handler) -> Route {
    Route {
        reads_whole_log: true,
        ..part(Get, path, Pages(Viewer), handler)
    }
}

/// A route for programs that show a bearer token.
const fn bearer(method: Method, path: &'static str, access: Access, handler: Handler) -> Route {
    Route {
        needs_bearer: true,
        ..route(method, path, access, handler)
    }
}

/// The pattern of each route's path; some more than once.
pub fn patterns() -> impl Iterator<Item = &'static str> {
    ROUTES.iter().map(|route| route.path)
}

/// The route, and what stands in its braces.
pub fn find(method: Method, path: &[String]) -> Result<(&'static Route, Vec<String>), ApiError> {
    let method = match method {
        Method::Head => Get,
        method => method,
    };
    let mut others = Vec::new();
    for route in ROUTES {
        if let Some(params) = matches(route.path, path) {
            if route.method == method {
                return Ok((route, params));
            }
            others.push(route.method.as_str());
            others.extend((route.method == Get).then_some(Method::Head.as_str()));
        }
    }
    if others.is_empty() {
        return Err(ApiError::new(
            404,
            NO_ROUTE,
            "there is nothing at this address",
        ));
    }
    let message = format!("here one may only {}", others.join(" or "));
    Err(ApiError {
        allow: Some(others.join(", ")),
        ..ApiError::new(405, "method_not_allowed", message)
    })
}

/// What stands in the braces of the pattern, if the path fits.
fn matches(pattern: &str, path: &[String]) -> Option<Vec<String>> {
    // The first page is at a path of nothing.
    let segments = pattern.split('/').filter(|segment| !segment.is_empty());
    if segments.clone().count() != path.len() {
        return None;
    }
    let mut params = Vec::new();
    for (expected, found) in segments.zip(path) {
        if expected.starts_with('{') {
            params.push(found.clone());
        } else if expected != found {
            return None;
        }
    }
    Some(params)
}

/// Every route as method, path and who may, for whoever checks that no door was forgotten.
pub fn every_route() -> impl Iterator<Item = (&'static str, &'static str, Access)> {
    let routes = ROUTES.iter();
    routes.map(|route| (route.method.as_str(), route.path, route.access))
}
