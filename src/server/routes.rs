//! Every route: method, path, who may, handler. What is not here does not exist.

use super::App;
use super::api::{events, health, jobs, logs, queue, recovery, steps, tasks, workers};
use super::error::ApiError;
use super::exchange::Method::{self, Delete, Get, Post, Put};
use super::exchange::{Reply, Request};
use super::worker_api;

pub type Handler = fn(&App, &Request) -> Result<Reply, ApiError>;

/// Who may use a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Anybody who reaches the port.
    Everyone,
    /// Whoever has the token, if there is one.
    Token,
}
use Access::{Everyone, Token};

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

    route(Get,    "/api/tasks",                                      Token, tasks::list),
    route(Get,    "/api/tasks/{task}",                               Token, tasks::show),
    route(Post,   "/api/tasks/{task}/jobs",                          Token, tasks::submit),
    route(Get,    "/api/jobs",                                       Token, jobs::list),
    route(Get,    "/api/jobs/{job}",                                 Token, jobs::show),
    route(Post,   "/api/jobs/{job}/cancel",                          Token, jobs::cancel),
    route(Post,   "/api/jobs/{job}/retry",                           Token, jobs::retry),
    route(Get,    "/api/jobs/{job}/why",                             Token, jobs::why),
    route(Get,    "/api/jobs/{job}/events",                          Token, jobs::events),
    route(Get,    "/api/jobs/{job}/logs",                            Token, logs::of_job),
    route(Get,    "/api/jobs/{job}/steps/{step}/logs",               Token, logs::of_step),
    route(Get,    "/api/jobs/{job}/steps/{step}/why",                Token, steps::why),
    route(Get,    "/api/jobs/{job}/steps/{step}/output",             Token, steps::output),
    route(Post,   "/api/jobs/{job}/steps/{step}/approve",            Token, steps::approve),
    route(Post,   "/api/jobs/{job}/steps/{step}/reject",             Token, steps::reject),
    route(Get,    "/api/queue",                                      Token, queue::list),
    route(Get,    "/api/workers",                                    Token, workers::list),
    route(Get,    "/api/workers/{worker}",                           Token, workers::show),
    route(Post,   "/api/workers/{worker}/drain",                     Token, workers::drain),
    route(Post,   "/api/workers/{worker}/pause",                     Token, workers::pause),
    route(Post,   "/api/workers/{worker}/resume",                    Token, workers::resume),
    route(Delete, "/api/workers/{worker}",                           Token, workers::delete),
    route(Get,    "/api/events",                                     Token, events::list_or_stream),
    route(Get,    "/api/recovery",                                   Token, recovery::show),

    route(Post,   "/api/worker/sessions",                            Token, worker_api::open_session),
    route(Post,   "/api/worker/heartbeat",                           Token, worker_api::heartbeat),
    route(Post,   "/api/worker/poll",                                Token, worker_api::poll),
    route(Post,   "/api/worker/reports",                             Token, worker_api::report),
    route(Post,   "/api/worker/drain",                               Token, worker_api::drain),
    route(Put,    "/api/worker/steps/{step}/attempts/{attempt}/log", Token, worker_api::append_log),
];

const fn route(method: Method, path: &'static str, access: Access, handler: Handler) -> Route {
    Route {
        method,
        path,
        access,
        handler,
    }
}

/// Finds the route and fills the request's parameters.
pub fn find(request: &mut Request) -> Result<&'static Route, ApiError> {
    let mut others = Vec::new();
    let method = match request.method {
        Method::Head => Get,
        method => method,
    };
    for route in ROUTES {
        if let Some(params) = matches(route.path, &request.path) {
            if route.method == method {
                request.params = params;
                return Ok(route);
            }
            others.push(route.method.as_str());
            others.extend((route.method == Get).then_some(Method::Head.as_str()));
        }
    }
    if others.is_empty() {
        return Err(ApiError::not_found("there is nothing at this address"));
    }
    let message = format!("here one may only {}", others.join(" or "));
    Err(ApiError {
        allow: Some(others.join(", ")),
        ..ApiError::new(405, "method_not_allowed", message)
    })
}

/// What stands in the braces of the pattern, if the path fits.
fn matches(pattern: &str, path: &[String]) -> Option<Vec<String>> {
    let segments = pattern.split('/').skip(1);
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
