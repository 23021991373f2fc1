//! Every route that is no page: what it takes and what it answers.

use serde_json::json;

use super::notation::schema;
use super::operation::{Operation, delete, get, post, put};
use crate::metrics::text::CONTENT_TYPE;
use crate::server::api::logs::STEPS_MAX;
use crate::server::api::queue::PAGE as QUEUE_PAGE;
use crate::server::api::{PAGE, PAGE_MAX};

/// What belongs together, in the order in which one gets to know it.
type Tag = (&'static str, &'static str, fn() -> Vec<Operation>);

#[rustfmt::skip]
pub const TAGS: &[Tag] = &[
    ("tasks",      "What can be submitted.",                                  tasks),
    ("jobs",       "What was submitted, its steps, its story and its logs.",  jobs),
    ("queue",      "What waits, and why.",                                    queue),
    ("workers",    "Who runs steps.",                                         workers),
    ("schedules",  "When jobs are made by themselves.",                       schedules),
    ("workflows",  "The files in which tasks are written.",                   workflows),
    ("events",     "What happened, and what recovery does.",                  events),
    ("deliveries", "Messages to the outside.",                                deliveries),
    ("webhooks",   "Requests from the outside that make jobs.",               webhooks),
    ("server",     "The server itself: health, metrics, backups, retention.", server),
    ("tokens",     "Who is let in.",                                          tokens),
    ("worker",     "What workers say to the server.",                         worker),
];

#[rustfmt::skip]
fn tasks() -> Vec<Operation> {
    vec![
        get("/api/tasks", "listTasks", "All tasks, by name.")
            .paged("after", "string", PAGE, PAGE_MAX)
            .lists("Task"),
        get("/api/tasks/{task}", "showTask", "One task with its inputs and steps.")
            .answers(200, "Task", "The task."),
        post("/api/tasks/{task}/jobs", "submitJob", "Make a job of a task.")
            .optional_body("SubmitRequest")
            .makes_job(),
    ]
}

#[rustfmt::skip]
fn jobs() -> Vec<Operation> {
    let narrowed =
        "Words such as `status:failed task:release reason:worker_lost source:schedule since:2d`.";
    let text = schema("string");
    vec![
        get("/api/jobs", "listJobs", "Jobs, newest first. A page with fewer jobs than `limit` and a `next` is possible in two cases: \
             the inputs on it are large, or each word of `q` fits millions of jobs and all together fit almost none.")
            .query("q", "string", narrowed)
            .paged("after", "integer", PAGE, PAGE_MAX)
            .lists("JobSummary"),
        get("/api/failures", "listFailures", "Jobs that failed or ran out of time within the last 24 hours and that no other job \
             started, the last ended first. There is no next page.")
            .limited(PAGE, PAGE_MAX)
            .lists("JobSummary"),
        get("/api/jobs/{job}", "showJob", "One job with its steps.")
            .answers(200, "Job", "The job."),
        post("/api/jobs/{job}/cancel", "cancelJob", "Cancel a job that has not ended.")
            .optional_body("CancelRequest")
            .answers(200, "Job", "The job as it is now."),
        post("/api/jobs/{job}/retry", "retryJob", "Make a new job in which what completed is not done again.")
            .optional_body("RetryRequest")
            .makes_job(),
        post("/api/jobs/{job}/keep", "keepJob", "Keep a job however old it is.")
            .answers(200, "Job", "The job as it is now."),
        post("/api/jobs/{job}/release", "releaseJob", "Let a job that was kept grow old.")
            .answers(200, "Job", "The job as it is now."),
        get("/api/jobs/{job}/why", "whyJob", "What a job waits for, or what ended it.")
            .answers(200, "JobWhy", "The explanation."),
        get("/api/jobs/{job}/events", "listJobEvents", "A job's story, oldest first.")
            .paged("after", "integer", PAGE_MAX, PAGE_MAX)
            .lists("Event"),
        get("/api/jobs/{job}/logs", "showJobLogs", "The last lines of each step that has run.")
            .query("tail", "0..", "Lines of each step.")
            .limited(STEPS_MAX, STEPS_MAX)
            .query("after", "string", "The step that was the last of the page before: its `next`.")
            .lists("StepLogs"),
        get("/api/jobs/{job}/steps/{step}/logs", "showStepLogs", "A step's log: its end, unless asked otherwise.")
            .place("step", "string", "Its name, or `_server` for what the server did about the job.")
            .query("tail", "0..", "So many of the last lines.")
            .query("from", "0..", "From this line on. Not with `tail`.")
            .query("n", "0..", "So many lines. Not with `tail`.")
            .query("grep", "string", "Only lines that hold this text. Not with `raw`.")
            .query("ignore_case", "boolean", "In `grep`, of ASCII letters.")
            .query("raw", "boolean", "The bare text.")
            .query("printed", "boolean", "Of the bare text, only what the step itself printed.")
            .query("attempt", "uint32", "Another attempt than the last.")
            .answers_as(200, &[("application/json", schema("Logs")), ("text/plain", text)], "The lines; with `raw`, their text."),
        get("/api/jobs/{job}/steps/{step}/why", "whyStep", "What a step waits for, or what ended it.")
            .answers(200, "OneStepWhy", "The explanation."),
        get("/api/jobs/{job}/steps/{step}/output", "showStepOutput", "What a step gave.")
            .answers(200, "any", "The value; null if it gave none."),
        post("/api/jobs/{job}/steps/{step}/approve", "approveStep", "Let a suspended step go on.")
            .optional_body("ApproveRequest")
            .answers(200, "Job", "The job as it is now."),
        post("/api/jobs/{job}/steps/{step}/reject", "rejectStep", "Fail a suspended step.")
            .optional_body("RejectRequest")
            .answers(200, "Job", "The job as it is now."),
        post("/api/jobs/{job}/steps/{step}/requeue", "requeueStep", "End the attempt of an assigned or running step and put the step back in the queue.")
            .answers(200, "Job", "The job as it is now."),
        post("/api/jobs/{job}/steps/{step}/fail", "failStep", "Fail a ready, assigned, running or suspended step. It is not retried.")
            .body("FailRequest")
            .answers(200, "Job", "The job as it is now."),
    ]
}

#[rustfmt::skip]
fn queue() -> Vec<Operation> {
    vec![
        get("/api/queue", "listQueue", "Every step that waits for a worker, a person, its next try or its turn.")
            .paged("after", "text", QUEUE_PAGE, PAGE_MAX)
            .lists("QueuedStep"),
    ]
}

#[rustfmt::skip]
fn workers() -> Vec<Operation> {
    vec![
        get("/api/workers", "listWorkers", "All workers.")
            .paged("after", "integer", PAGE, PAGE_MAX)
            .lists("Worker"),
        get("/api/workers/{worker}", "showWorker", "One worker and what it runs.")
            .answers(200, "Worker", "The worker."),
        get("/api/workers/{worker}/why", "whyWorker", "What a worker does or does not do, and why.")
            .answers(200, "WorkerWhy", "The explanation."),
        post("/api/workers/{worker}/drain", "drainWorker", "Let a worker finish what it has, and end.")
            .answers(200, "Worker", "The worker as it is now."),
        post("/api/workers/{worker}/pause", "pauseWorker", "Give a worker nothing more.")
            .answers(200, "Worker", "The worker as it is now."),
        post("/api/workers/{worker}/resume", "resumeWorker", "Give a worker steps again.")
            .answers(200, "Worker", "The worker as it is now."),
        delete("/api/workers/{worker}", "deleteWorker", "Forget a worker.")
            .query("force", "boolean", "Though it holds steps.")
            .answers(200, "Empty", "It is gone."),
    ]
}

#[rustfmt::skip]
fn schedules() -> Vec<Operation> {
    vec![
        get("/api/schedules", "listSchedules", "All schedules with their next times.")
            .paged("after", "integer", PAGE, PAGE_MAX)
            .lists("Schedule"),
        get("/api/schedules/{schedule}", "showSchedule", "One schedule.")
            .answers(200, "Schedule", "The schedule."),
        get("/api/schedules/{schedule}/fires", "listFires", "What became of its times, newest first.")
            .paged("before", "text", PAGE, PAGE_MAX)
            .lists("Fire"),
        get("/api/schedules/{schedule}/why", "whySchedule", "When a schedule fires next, or why it does not.")
            .answers(200, "ScheduleWhy", "The explanation."),
        post("/api/schedules/{schedule}/pause", "pauseSchedule", "Let a schedule make no jobs.")
            .answers(200, "Schedule", "The schedule as it is now."),
        post("/api/schedules/{schedule}/resume", "resumeSchedule", "Let a schedule make jobs again.")
            .answers(200, "Schedule", "The schedule as it is now."),
        post("/api/schedules/{schedule}/fire", "fireSchedule", "Make the job of a schedule now.")
            .makes_job(),
    ]
}

#[rustfmt::skip]
fn workflows() -> Vec<Operation> {
    vec![
        get("/api/workflows", "showWorkflows", "Which workflow files are served, and what is wrong with them.")
            .answers(200, "Workflows", "The files."),
        post("/api/validate", "validateWorkflows", "What would be wrong with these workflow files.")
            .body("ValidateRequest")
            .answers(200, "Validated", "What `stepward validate` says, and what only a server knows."),
    ]
}

#[rustfmt::skip]
fn events() -> Vec<Operation> {
    let stream = json!({
        "type": "string",
        "description": "Events named `event`, each an Event, and `job`, each a JobChange.",
    });
    vec![
        get("/api/events", "listEvents", "What happened; or, as text/event-stream, everything from now on.")
            .query("after", "string", "Those after this `seq`, oldest first; of a stream, the id of the last that was seen.")
            .query("before", "integer", "Those before this `seq`, newest first. Not of a stream.")
            .limited(PAGE, PAGE_MAX)
            .query("recovery", "boolean", "Only what recovery did. Not of a stream, nor with `after`.")
            .query("job", "string", "Only what is about this job. Of a stream.")
            .header("Last-Event-ID", "The id of the last that was seen. Of a stream.")
            .answers_as(200, &[("application/json", schema("EventList")), ("text/event-stream", stream)], "A page of them, or a stream."),
        get("/api/recovery", "showRecovery", "Settings of recovery, its last sweep, what it will do and what it did.")
            .answers(200, "Recovery", "As it is now."),
        post("/api/recovery/sweep", "sweepRecovery", "Go through all four phases of recovery once, now.")
            .answers(200, "Sweep", "What the sweep did."),
    ]
}

#[rustfmt::skip]
fn deliveries() -> Vec<Operation> {
    vec![
        get("/api/deliveries", "listDeliveries", "Messages to the targets of the settings, newest first.")
            .query("state", "DeliveryState", "")
            .query("target", "string", "")
            .query("job", "string", "Only those about this job.")
            .paged("after", "integer", PAGE, PAGE_MAX)
            .lists("DeliverySummary"),
        get("/api/deliveries/{delivery}", "showDelivery", "One message and how its deliveries went.")
            .answers(200, "Delivery", "The message."),
        post("/api/deliveries/{delivery}/redeliver", "redeliver", "Send a message once more, under the same id.")
            .answers(200, "Delivery", "The message as it is now."),
        post("/api/notify/{target}/test", "testTarget", "Send a message that tells nothing.")
            .answers(200, "Tested", "How it went."),
    ]
}

#[rustfmt::skip]
fn webhooks() -> Vec<Operation> {
    vec![
        post("/hooks/{name}", "receiveWebhook", "Make a job of what somebody else sends, once per delivery.")
            .place("name", "string", "The webhook's name.")
            .header("webhook-id", "Names the delivery: one that comes again makes no second job.")
            .header("x-github-delivery", "The same, as GitHub calls it.")
            .header("idempotency-key", "The same, of others.")
            .body_of("application/json", json!({}), false)
            .answers(201, "Hooked", "A job was made.")
            .answers(200, "Hooked", "The delivery had come before."),
    ]
}

#[rustfmt::skip]
fn server() -> Vec<Operation> {
    let document = json!({ "type": "object" });
    vec![
        get("/healthz", "showHealth", "Whether the process lives.")
            .answers(200, "Health", "It does."),
        get("/readyz", "showReadiness", "Whether the server can write and recovery is awake.")
            .answers(200, "Health", "It can work.")
            .answers(503, "Health", "It cannot, and `problems` says why to whoever may know."),
        get("/metrics", "showMetrics", "What was counted, and what there is now, for Prometheus.")
            .answers_as(200, &[(CONTENT_TYPE, schema("string"))], "Prometheus text."),
        get("/api/openapi.json", "showOpenapi", "This document.")
            .answers_as(200, &[("application/json", document)], "OpenAPI 3.1."),
        post("/api/backup", "takeBackup", "Everything as one file: as secret as the data folder itself.")
            .answers_as(200, &[("application/x-tar", json!({}))], "A tar."),
        get("/api/backup", "takeBackupAs01", "The same for clients of version 0.1. Without a bearer token it is 405, also where nobody is asked for one.")
            .answers_as(200, &[("application/x-tar", json!({}))], "A tar."),
        get("/api/backups", "showBackups", "Backups that the server makes by itself.")
            .answers(200, "Backups", "As it is now."),
        get("/api/retention", "showRetention", "What was removed because it was too old.")
            .answers(200, "Retention", "As it is now."),
        post("/api/prune", "pruneJobs", "Remove old jobs before their time, or the events of jobs that are gone, one piece of them.")
            .optional_body("PruneRequest")
            .answers(200, "Pruned", "What went, or would go."),
    ]
}

#[rustfmt::skip]
fn tokens() -> Vec<Operation> {
    vec![
        get("/api/me", "showMe", "Who asks.")
            .answers(200, "Me", "Whoever asks."),
        get("/api/tokens", "listTokens", "All tokens in the order in which they were made, ended ones too.")
            .paged("after", "integer", PAGE_MAX, PAGE_MAX)
            .lists("Token"),
        post("/api/tokens", "makeToken", "Make a token.")
            .body("NewTokenRequest")
            .answers(201, "MadeToken", "The token, with its text."),
        delete("/api/tokens/{token}", "revokeToken", "Let a token open nothing from now on.")
            .answers(200, "Token", "The token as it is now."),
        get("/api/audit", "listAudit", "The audit log: what people and tokens did. A page may have fewer rows than asked for and still have a `next`.")
            .query("after", "integer", "Rows after this `seq`, oldest first. Not with a filter.")
            .query("before", "integer", "Rows before this `seq`, newest first.")
            .limited(PAGE, PAGE_MAX)
            .query("actor", "string", "Only what this actor did.")
            .query("action", "string", "Only this action.")
            .query("since", "string", "Only from this time on, such as 2026-01-31T08:00:00Z.")
            .lists("Audit"),
        get("/api/audit/head", "showAuditHead", "Both ends of the audit log, to verify it.")
            .answers(200, "AuditEnds", "The last row that retention removed, and the last row."),
    ]
}

#[rustfmt::skip]
fn worker() -> Vec<Operation> {
    vec![
        post("/api/worker/enrol", "enrolWorker", "Exchange an enrolment for a token of one's own.")
            .body("EnrolRequest")
            .answers(200, "Enrolled", "The number of the token, whose secret the worker has."),
        get("/api/worker/enrol", "showServerToEnrolment", "Which installation this is. A worker asks before it uses its enrolment.")
            .answers(200, "ServerIdentity", "The installation and the version of the server."),
        get("/api/worker/server", "showServer", "Which installation this is. A worker asks before it opens a session.")
            .answers(200, "ServerIdentity", "The installation and the version of the server."),
        post("/api/worker/sessions", "openSession", "Begin: who the worker is, what it offers, what it could not report.")
            .body("SessionRequest")
            .answers(200, "Session", "The session."),
        post("/api/worker/heartbeat", "beat", "Say that the worker lives, and what it holds.")
            .body("HeartbeatRequest")
            .answers(200, "Beaten", "What it should stop."),
        post("/api/worker/poll", "poll", "Ask for steps, and wait for them.")
            .body("PollRequest")
            .answers(200, "Polled", "What it is given."),
        post("/api/worker/reports", "report", "Say what became of attempts.")
            .body("ReportsRequest")
            .answers(200, "Reported", "What was made of it."),
        post("/api/worker/drain", "drainSession", "Take nothing more.")
            .body("DrainRequest")
            .answers(200, "Empty", "It is given nothing more."),
        put("/api/worker/steps/{step}/attempts/{attempt}/log", "appendLog", "A piece of an attempt's log, at its offset.")
            .place("step", "0..", "The number of the step.")
            .place("attempt", "uint32", "The number of the attempt.")
            .required_query("session", "string", "The session that holds the attempt.")
            .required_query("offset", "0..", "Where the piece belongs. A wrong one is answered with the right one.")
            .body_of("application/octet-stream", json!({}), false)
            .answers(200, "LogAppended", "How much of it there is."),
    ]
}
