//! Every route: method, path, who may, handler. What is not here does not exist.

use super::App;
use super::api::{
    deliveries, events, health, hooks, jobs, logs, queue, recovery, retention, schedules, steps,
    tasks, workers, workflows,
};
use super::error::ApiError;
use super::exchange::Method::{self, Delete, Get, Post, Put};
use super::exchange::{Reply, Request};
use super::web;
use super::worker_api;
use crate::wire::NO_ROUTE;

pub type Handler = fn(&App, &Request) -> Result<Reply, ApiError>;

/// Who may use a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Anybody who reaches the port.
    Everyone,
    /// Anybody who reaches the port, too; but the request must show by itself that it may.
    Signed,
    /// Whoever has the token, if there is one.
    People,
    /// The same for a browser: whoever may not is asked for the token, what goes wrong is a page.
    Pages,
    /// What a browser needs before that.
    Public,
    /// As people; but nobody else's requests are in front of theirs, and they may say more at once.
    Workers,
}
use Access::{Everyone, Pages, People, Public, Signed, Workers};

pub struct Route {
    pub method: Method,
    pub path: &'static str,
    pub access: Access,
    pub handler: Handler,
}

#[rustfmt::skip]
const ROUTES: &[Route] = &[
    route(Get,    "/healthz",                                        Everyone, health::healthz),
    route(Get,    "/readyz",                                         Everyone, health::readyz),

    route(Get,    "/api/tasks",                                      People,  tasks::list),
    route(Get,    "/api/tasks/{task}",                               People,  tasks::show),
    route(Post,   "/api/tasks/{task}/jobs",                          People,  tasks::submit),
    route(Get,    "/api/jobs",                                       People,  jobs::list),
    route(Get,    "/api/jobs/{job}",                                 People,  jobs::show),
    route(Post,   "/api/jobs/{job}/cancel",                          People,  jobs::cancel),
    route(Post,   "/api/jobs/{job}/retry",                           People,  jobs::retry),
    route(Post,   "/api/jobs/{job}/keep",                            People,  jobs::keep),
    route(Post,   "/api/jobs/{job}/release",                         People,  jobs::release),
    route(Get,    "/api/jobs/{job}/why",                             People,  jobs::why),
    route(Get,    "/api/jobs/{job}/events",                          People,  jobs::events),
    route(Get,    "/api/jobs/{job}/logs",                            People,  logs::of_job),
    route(Get,    "/api/jobs/{job}/steps/{step}/logs",               People,  logs::of_step),
    route(Get,    "/api/jobs/{job}/steps/{step}/why",                People,  steps::why),
    route(Get,    "/api/jobs/{job}/steps/{step}/output",             People,  steps::output),
    route(Post,   "/api/jobs/{job}/steps/{step}/approve",            People,  steps::approve),
    route(Post,   "/api/jobs/{job}/steps/{step}/reject",             People,  steps::reject),
    route(Get,    "/api/schedules",                                  People,  schedules::list),
    route(Get,    "/api/schedules/{schedule}",                       People,  schedules::show),
    route(Get,    "/api/schedules/{schedule}/fires",                 People,  schedules::fires),
    route(Get,    "/api/schedules/{schedule}/why",                   People,  schedules::why),
    route(Post,   "/api/schedules/{schedule}/pause",                 People,  schedules::pause),
    route(Post,   "/api/schedules/{schedule}/resume",                People,  schedules::resume),
    route(Post,   "/api/schedules/{schedule}/fire",                  People,  schedules::fire),
    route(Get,    "/api/workflows",                                  People,  workflows::show),
    route(Post,   "/api/validate",                                   People,  workflows::validate),
    route(Get,    "/api/queue",                                      People,  queue::list),
    route(Get,    "/api/workers",                                    People,  workers::list),
    route(Get,    "/api/workers/{worker}",                           People,  workers::show),
    route(Get,    "/api/workers/{worker}/why",                       People,  workers::why),
    route(Post,   "/api/workers/{worker}/drain",                     People,  workers::drain),
    route(Post,   "/api/workers/{worker}/pause",                     People,  workers::pause),
    route(Post,   "/api/workers/{worker}/resume",                    People,  workers::resume),
    route(Delete, "/api/workers/{worker}",                           People,  workers::delete),
    route(Get,    "/api/events",                                     People,  events::list_or_stream),
    route(Get,    "/api/recovery",                                   People,  recovery::show),
    route(Get,    "/api/retention",                                  People,  retention::show),
    route(Post,   "/api/prune",                                      People,  retention::prune),
    route(Get,    "/api/deliveries",                                 People,  deliveries::list),
    route(Get,    "/api/deliveries/{delivery}",                      People,  deliveries::show),
    route(Post,   "/api/deliveries/{delivery}/redeliver",            People,  deliveries::redeliver),
    route(Post,   "/api/notify/{target}/test",                       People,  deliveries::test),

    route(Get,    "/",                                               Pages,   web::overview::show),
    route(Get,    "/tasks",                                          Pages,   web::tasks::show),
    route(Get,    "/tasks/{task}",                                   Pages,   web::task::show),
    route(Get,    "/tasks/{task}/run",                               Pages,   web::task::show_again),
    route(Post,   "/tasks/{task}/run",                               Pages,   web::task::run),
    route(Get,    "/files",                                          Pages,   web::source::show),
    route(Get,    "/jobs",                                           Pages,   web::jobs::show),
    route(Get,    "/jobs/bulk",                                      Pages,   web::jobs::ask_bulk),
    route(Post,   "/jobs/bulk",                                      Pages,   web::jobs::bulk),
    route(Get,    "/jobs/{job}",                                     Pages,   web::job::show),
    route(Get,    "/jobs/{job}/graph.svg",                           Pages,   web::job::graph_file),
    route(Get,    "/jobs/{job}/cancel",                              Pages,   web::acts::ask_cancel),
    route(Post,   "/jobs/{job}/cancel",                              Pages,   web::acts::cancel),
    route(Get,    "/jobs/{job}/retry",                               Pages,   web::acts::ask_retry),
    route(Post,   "/jobs/{job}/retry",                               Pages,   web::acts::retry),
    route(Get,    "/jobs/{job}/steps/{step}/approve",                Pages,   web::acts::ask_approve),
    route(Post,   "/jobs/{job}/steps/{step}/approve",                Pages,   web::acts::approve),
    route(Get,    "/jobs/{job}/steps/{step}/reject",                 Pages,   web::acts::ask_reject),
    route(Post,   "/jobs/{job}/steps/{step}/reject",                 Pages,   web::acts::reject),
    route(Get,    "/jobs/{job}/steps/{step}/log",                    Pages,   web::log::window),
    route(Get,    "/jobs/{job}/steps/{step}/log/marks",              Pages,   web::log::marks),
    route(Get,    "/jobs/{job}/steps/{step}/log/find",               Pages,   web::log::find),
    route(Get,    "/jobs/{job}/steps/{step}/log/place",              Pages,   web::log::place_of),
    route(Get,    "/jobs/{job}/steps/{step}/log/groups",             Pages,   web::log::groups),
    route(Get,    "/jobs/{job}/steps/{step}/log/error",              Pages,   web::log::first_error),
    route(Get,    "/queue",                                          Pages,   web::queue::show),
    route(Get,    "/workers",                                        Pages,   web::workers::show),
    route(Get,    "/workers/{worker}/{verb}",                        Pages,   web::workers::ask),
    route(Post,   "/workers/{worker}/{verb}",                        Pages,   web::workers::act),
    route(Get,    "/schedules",                                      Pages,   web::schedules::show),
    route(Get,    "/schedules/{schedule}/{verb}",                    Pages,   web::schedules::ask),
    route(Post,   "/schedules/{schedule}/{verb}",                    Pages,   web::schedules::act),
    route(Get,    "/events",                                         Pages,   web::events::show),
    route(Get,    "/recovery",                                       Pages,   web::recovery::show),
    route(Get,    "/settings",                                       Pages,   web::settings::show),
    route(Get,    "/settings/notify/{target}/test",                  Pages,   web::settings::ask_test),
    route(Post,   "/settings/notify/{target}/test",                  Pages,   web::settings::test),
    route(Get,    "/settings/deliveries/{delivery}/redeliver",       Pages,   web::settings::ask_redeliver),
    route(Post,   "/settings/deliveries/{delivery}/redeliver",       Pages,   web::settings::redeliver),
    route(Get,    "/login",                                          Public,  web::login::show),
    route(Post,   "/login",                                          Public,  web::login::log_in),
    route(Post,   "/logout",                                         Public,  web::login::log_out),
    route(Get,    "/assets/{version}/{file}",                        Public,  web::assets::show),

    route(Post,   "/hooks/{name}",                                   Signed,  hooks::receive),

    route(Post,   "/api/worker/sessions",                            Workers, worker_api::open_session),
    route(Post,   "/api/worker/heartbeat",                           Workers, worker_api::heartbeat),
    route(Post,   "/api/worker/poll",                                Workers, worker_api::poll),
    route(Post,   "/api/worker/reports",                             Workers, worker_api::report),
    route(Post,   "/api/worker/drain",                               Workers, worker_api::drain),
    route(Put,    "/api/worker/steps/{step}/attempts/{attempt}/log", Workers, worker_api::append_log),
];

const fn route(method: Method, path: &'static str, access: Access, handler: Handler) -> Route {
    Route {
        method,
        path,
        access,
        handler,
    }
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
