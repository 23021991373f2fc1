//! What things look like: the shapes of `wire`, field by field, in the words of `notation.rs`.

use serde_json::{Map, Value, json};

use super::notation::{add_shapes, schema};
use crate::domain::depends::Outcome;
use crate::domain::event::EventKind;
use crate::domain::job::{JobState, Source};
use crate::domain::outbox::MessageState;
use crate::domain::reason::Reason;
use crate::domain::recovery::Deed;
use crate::domain::schedule::{FireOutcome, Overlap};
use crate::domain::step::StepState;
use crate::domain::task::Runner;
use crate::domain::token::Role;
use crate::domain::value::ValueType;
use crate::domain::worker::{WorkerStanding, WorkerState};
use crate::engine::{FactKind, Outlook};

pub fn all() -> Map<String, Value> {
    let mut schemas = Map::new();
    for (name, words) in [
        ("JobStatus", closed(JobState::ALL)),
        ("StepStatus", closed(StepState::ALL)),
        ("WorkerStatus", closed(WorkerState::ALL)),
        ("Role", closed(Role::ALL)),
        ("DeliveryState", closed(MessageState::ALL)),
        ("Source", open(Source::ALL)),
        ("Reason", open(Reason::ALL)),
        ("EventKind", open(EventKind::ALL)),
        ("Outcome", open(Outcome::ALL)),
        ("ValueType", open(ValueType::ALL)),
        ("Overlap", open(Overlap::ALL)),
        ("FireOutcome", open(FireOutcome::ALL)),
        ("WorkerStanding", open(WorkerStanding::ALL)),
        ("RecoveryAction", open(Deed::ALL)),
        ("Outlook", open(Outlook::ALL)),
        ("FactKind", open(FactKind::ALL)),
        ("Runner", open(Runner::ALL)),
    ] {
        schemas.insert(name.to_string(), words);
    }
    add_shapes(&mut schemas, ANSWERS, false);
    add_shapes(&mut schemas, REQUESTS, true);
    for name in LISTED {
        let items = schema(&format!("[{name}]"));
        let next = "Ask for what comes after it; null: this was the last page.";
        let list = json!({
            "type": "object",
            "required": ["items", "next"],
            "properties": {
                "items": items,
                "next": { "type": ["string", "null"], "description": next },
            },
        });
        schemas.insert(format!("{name}List"), list);
    }
    let actions = ["ScriptAction", "DockerAction", "PodAction"].map(schema);
    schemas.insert("Action".to_string(), json!({ "oneOf": actions }));
    schemas
}

/// There will be no others.
fn closed<T: ToString>(all: &[T]) -> Value {
    json!({ "type": "string", "enum": words(all) })
}

/// There may be others one day: whoever does not know one goes on.
fn open<T: ToString>(all: &[T]) -> Value {
    json!({ "type": "string", "x-extensible-enum": words(all) })
}

fn words<T: ToString>(all: &[T]) -> Vec<String> {
    all.iter().map(ToString::to_string).collect()
}

/// What comes in pages.
const LISTED: &[&str] = &[
    "Task",
    "JobSummary",
    "Event",
    "StepLogs",
    "Schedule",
    "Fire",
    "QueuedStep",
    "Worker",
    "DeliverySummary",
    "Token",
];

const ANSWERS: &str = "
Error Why something was not done.
    error                ErrorDetail

ErrorDetail
    code                 string      For programs.
    message              string      For people: what is wrong, where, what to do.
    details              [string]    One by one, if there are several things wrong.

Empty

Health
    status               string
    problems?            [string]
    warnings?            [string]    Nothing stops because of these.
    version?             string      Told by `/readyz`.
    now?                 time        What the server takes for the time. Told by `/readyz`.

Value What somebody is asked for.
    name                 string
    type                 ValueType
    required             boolean
    default              any
    options              [any]
    pattern              string?
    min                  any
    max                  any
    multiple             boolean
    secret               boolean
    description          string?

Edges What a step asks of those that it depends on, besides that all of them complete.
    accepts?             {[Outcome]} How they may end, where that is not `completed` alone.
    any_of?              [string]    Those of which one is enough.

TaskStep
    name                 string
    type                 string      `script`, `docker`, `pod`, `task` or `approval`.
    depends_on           [string]
    required_tags        [string]
    ..Edges
    for_each?            boolean     It goes over a list.
    when?                string      As it was written, template and all.
    task?                string      The task that it calls.
    continue_on_failure? boolean     Its failure does not fail the job.

Task A definition, from which jobs are made.
    name                 string
    description          string?
    inputs               [Value]
    steps                [TaskStep]
    priority             int32
    timeout_secs         integer?
    queue_timeout_secs   integer?

Parent The step whose child a job is.
    job_id               integer
    step                 string

JobSummary A job without its steps and its output.
    id                   integer
    task                 string
    status               JobStatus
    reason               Reason?     Why it did not complete.
    message              string?
    source               Source
    input                object      What is secret in it is left out.
    output               any         Of a job that is asked for by itself.
    labels               {string}
    priority             int32
    parent               Parent?
    retry_of             integer?
    hook_of              integer?    The job whose hook it is.
    schedule_id          integer?
    scheduled_for        time?       The time that its schedule meant.
    created_at           time
    started_at           time?
    ended_at             time?
    logs_removed_at?     time        Since when what its steps printed is not kept any more.
    kept?                boolean     By a person: it does not grow too old.

Attempt
    attempt              1..
    worker               string?
    session              integer?
    started_at           time?
    ended_at             time?
    outcome              string      The status of its step, or `returned` if it never began.
    reason               string?
    message              string?
    exit_code            int32?

Step
    id                   integer
    name                 string
    status               StepStatus
    reason               Reason?     Why it did not complete.
    message              string?
    type                 string      `script`, `docker`, `pod`, `task` or `approval`.
    depends_on           [string]
    ..Edges
    for_each?            boolean     It goes over a list; its instances are steps of their own.
    continue_on_failure? boolean     Its failure does not fail the job.
    required_tags        [string]
    attempt              0..         0: it was not given to anybody yet.
    max_attempts         0..
    worker               string?
    child_job_id         integer?
    exit_code            int32?
    output               any
    asks?                [Value]     What whoever approves is asked for.
    ready_at             time?
    assigned_at          time?
    started_at           time?
    ended_at             time?
    not_before           time?       When it is tried next.
    attempts             [Attempt]

Job
    ..JobSummary
    steps                [Step]

Event What happened.
    seq                  integer
    at                   time
    kind                 EventKind
    phase                integer?    Of recovery, 1 to 4.
    job_id               integer?
    step_id              integer?
    step                 string?
    worker_id            integer?
    worker               string?
    attempt              integer?
    reason               Reason?
    message              string
    data                 object      What the message says, for programs.
    actor                string?     The person by whose call it happened.

JobChange A job has changed: whoever shows it looks again.
    job_id               integer
    task                 string
    status               JobStatus
    change               integer

LogLine
    n                    1..
    at                   time?
    stream               string      `stdout`, `stderr`, `worker` or `server`.
    text                 string

Logs
    lines                [LogLine]
    total_lines          0..
    total_matches?       0..         Of a search: how many lines there are in all that hold what was looked for.
    truncated            boolean     There is more than one answer may hold: ask on from the line after the last.
    partial?             boolean     The last of these lines is not all there yet.
    attempt?             0..         Which attempt's log this is.
    removed_at?          time        It is not kept any more, since then.

StepLogs The end of a step's log.
    step                 string
    ..Logs
    attempt              0..

WhyFact
    kind                 FactKind
    text                 string

WhyWorker
    name                 string
    offers               [string]
    lacks                [string]
    state                WorkerStanding
    seen_secs_ago        number
    slots_used           0..
    slots                0..

RootCause The step that did not do as it should by itself, perhaps of a child job.
    job_id               integer
    step                 string
    status               StepStatus
    code                 Reason?     null: it completed, and that was not wanted.
    sentence             string

WhyOutcome What recovery will do if nothing happens.
    action               string      In a sentence.
    code                 Outlook
    phase                1..4
    in_secs              number

Why What it waits for, or what ended it.
    code                 string      The reason of its end, or what it waits for.
    sentence             string
    facts                [string]
    details              [WhyFact]   The same as `facts`, each with its kind.
    needs                [string]    What a worker must offer to take it.
    workers              [WhyWorker] Those that matter here; who offers all that it needs comes first.
    root_cause           RootCause?  Where it began, if that was somewhere else.
    outcome              WhyOutcome?
    skips                [string]    Steps that never run because of that; the first of them.
    fix                  [string]    What a person can do.

StepWhy
    step                 string
    status               StepStatus
    since_secs           number      How long it is so.
    attempt              0..
    max_attempts         0..
    worker               string?
    ..Why

OneStepWhy A step that was asked for by itself.
    job_id               integer
    task                 string
    job_status           JobStatus
    ..StepWhy

JobWhy
    job_id               integer
    task                 string
    status               JobStatus
    since_secs           number      How long it is so.
    ran_secs             number?     Of one that has started and ended.
    ..Why
    steps                [StepWhy]   What has not ended, or what did not complete; what matters most comes first.
    more                 boolean
    more_steps           0..         How many more there are.
    counts               {0..}       How many steps are where, by their status.

QueuedStep A step that waits for somebody.
    job_id               integer
    task                 string
    step_id              integer
    step                 string
    status               StepStatus
    priority             int32
    ready_at             time?
    age_secs             number
    required_tags        [string]
    why                  Why

HeldStep
    job_id               integer
    step                 string
    attempt              1..
    status               StepStatus

Worker
    id                   integer
    name                 string
    status               WorkerStatus
    tags                 [string]
    slots                0..
    slots_used           0..
    session              integer?
    version              string
    platform             string
    last_heartbeat_at    time
    heartbeat_age_secs   number
    inactive_in_secs     number?     null: it is inactive, or too many are silent at once.
    draining             boolean
    paused               boolean
    running              [HeldStep]

TakeableStep
    job_id               integer
    step                 string

WorkerWhy
    worker               Worker
    ..Why
    could_take           [TakeableStep] Steps that wait and that it offers all for; the first of them.

CatchUp
    policy               none/latest/all
    within_secs          integer?    Of `latest`.
    max                  integer?    Of `all`.

Fire What became of a time at which a schedule was due.
    due_at               time        The time that was meant.
    until_at             time?       It stands for every time from `due_at` to before this one.
    outcome              FireOutcome
    manual               boolean     A person did not want to wait.
    job_id               integer?
    at                   time
    message              string

Schedule
    id                   integer
    task                 string
    name                 string
    cron                 string
    timezone             string
    input                object      As it was written, templates and all.
    overlap              Overlap
    catch_up             CatchUp
    enabled              boolean     By its file.
    paused               boolean     By a person.
    loaded               boolean     false: no file that loads has it.
    next_at              time?
    following            [time]      The next few times, `next_at` included.
    last                 Fire?       What became of the last time.
    created_at           time
    removed_at           time?       Since when no file has it.

ScheduleWhy
    schedule             Schedule
    ..Why
    next_in_secs         number?     Until it fires next; null if it will not.

Spot A place in a file. Lines and columns count from 1; the end is the first one behind it.
    file                 string
    line                 0..
    column               0..
    end_line             0..
    end_column           0..
    source               string      Its first line.
    label                string

Fix What to write instead of what is there.
    line                 0..
    column               0..
    end_line             0..
    end_column           0..
    text                 string

Diagnostic Something that is wrong with a workflow file.
    code                 string      `stepward explain` says more about it.
    severity             error/warning
    message              string
    ..Spot
    related?             [Spot]
    help?                [string]
    fix?                 Fix

Workflows
    folder               string?     Where the files are; null: none are served.
    tasks                0..
    schedules            0..
    webhooks             0..
    loaded_at            time?
    stale                [string]    Files that are served as they were when they were last good.
    left_out             [string]    Files that are not served at all.
    problems             [Diagnostic]

Validated
    valid                boolean
    errors               0..
    warnings             0..
    diagnostics          [Diagnostic]

RecoverySettings
    heartbeat_interval_secs      integer
    heartbeat_timeout_secs       integer
    sweep_interval_secs          integer
    unmatched_step_timeout_secs  integer
    ack_timeout_secs             integer
    prepare_timeout_secs         integer
    report_grace_secs            integer
    cancel_grace_secs            integer

LastSweep
    at                   time
    recoveries           0..
    failures             0..

Forecast What recovery will do if nothing happens.
    phase                1..4
    action               RecoveryAction
    reason               Reason?
    job_id               integer?
    task                 string?
    step_id              integer?
    step                 string?
    worker_id            integer?
    worker               string?
    in_secs              number

Recovery
    settings             RecoverySettings
    last_sweep           LastSweep?
    forecast             [Forecast]
    forecast_more        boolean     There is more of some kind than is told.
    history              [Event]     What recovery did last, newest first.

DeliverySummary A message to a target of the settings.
    id                   integer
    message_id           string      What the receiver knows it by, the same in each delivery.
    target               string
    state                DeliveryState
    event_seq            integer
    job_id               integer?
    attempts             0..
    next_at              time?
    created_at           time
    delivered_at         time?
    last_error           string?

DeliveryTry
    attempt              0..
    at                   time
    ok                   boolean
    status               integer?    Of HTTP, or a program's exit code.
    message              string
    duration_ms          integer

Delivery
    ..DeliverySummary
    event?               Event       What it tells, while that is kept.
    log                  [DeliveryTry] How its deliveries went, oldest first, the last ones.

Tested What a test message came to.
    target               string
    ok                   boolean
    status               integer?
    message              string
    duration_ms          integer

Hooked What a request to a webhook came to.
    job_id               integer
    repeated             boolean     It had come before: this is the job that it made then.

Backup
    file                 string
    made_at              time
    bytes                0..

BackupFailure
    since                time
    message              string

Backups
    dir                  string?     null: the settings ask for none.
    every_hours          0..
    keep                 0..
    last_taken_at        time?       By whomever.
    last                 Backup?     The newest that is there.
    next_at              time?
    failed               BackupFailure? Why there is none since.

Retention
    rounds               0..         Since the server started.
    last_round_at        time?
    last_error           string?     Why the last round could not do everything.
    removed              {0..}       How many, by what they were.
    database_bytes       integer
    database_free_bytes  integer     Of these, used for nothing.
    database_shrinks     boolean     The file gives free bytes back by itself.

Pruned
    dry_run              boolean
    jobs                 0..         With those below them.
    log_bytes            0..
    needed               0..         Ended early enough, and needed: kept, retried, hooked, or promised to a key.
    next?                integer     That was not all: ask again, after this.

Me
    name                 string
    role                 Role
    token_id             integer?
    needs_token          boolean     Whether whoever comes must show a token.

Token
    id                   integer
    name                 string
    role                 Role
    status               good/used/revoked/expired
    tags                 [string]?   What its worker may offer; null: anything.
    made_by              string
    created_at           time
    expires_at           time?
    used_at              time?       The last time, give or take a minute.
    ended_at             time?
    made_token_id        integer?    What an enrolment was exchanged for.

MadeToken
    token                Token
    text                 string      The token itself: it is told here and never again.

Enrolled
    token_id             integer

SessionSettings
    heartbeat_interval_ms      integer
    heartbeat_timeout_ms       integer
    sweep_interval_ms          integer
    unmatched_step_timeout_ms  integer
    ack_timeout_ms             integer
    prepare_timeout_ms         integer
    report_grace_ms            integer
    cancel_grace_ms            integer
    step_timeout_ms            integer
    job_timeout_ms             integer

Verdict
    result               accepted/abort/refused
    why?                 string      Of all but `accepted`.

Session
    worker_id            integer
    session_id           integer
    installation         string      A worker refuses a server of another installation.
    settings             SessionSettings
    spooled              [Verdict]   One for each that was sent, in their order.

AbortedAttempt It is not this worker's any more: stop it.
    step_id              integer
    attempt              1..

Beaten
    abort                [AbortedAttempt]
    draining             boolean

ScriptAction
    type                 'script'
    runner               Runner
    image?               string
    language?            string
    script               string

DockerAction
    type                 'docker'
    image                string
    entrypoint?          [string]
    command?             [string]

PodAction
    type                 'pod'
    manifest             string

Assignment
    step_id              integer
    attempt              1..
    job_id               integer
    task                 string
    step                 string
    action               Action
    env?                 {string}
    workdir?             string
    masks?               [string]    What no log may show.
    input                any
    item?                0..
    item_value?          any
    scheduled_at?        time
    ack_timeout_ms       integer
    prepare_timeout_ms   integer
    timeout_ms           integer
    fenced               boolean

Polled
    assignments          [Assignment]
    abort                [AbortedAttempt]
    draining             boolean

Reported
    results              [Verdict]   One for each item, in their order.
    poll                 Polled?

LogAppended
    length               0..         Where the next piece belongs.
    abort                boolean     The attempt is nobody's any more: stop it.
    full                 boolean     No more of this log is kept.
";

const REQUESTS: &str = "
SubmitRequest
    input?               object?
    priority?            int32?   
    not_before?          time?
    labels?              {string}

RetryRequest What did not complete, unless more is asked for.
    from?                string?     This step, and what did not complete.
    all?                 boolean     Everything once more.

CancelRequest
    why?                 string?

ApproveRequest
    output?              any         What the approval gives to the steps after it.

RejectRequest
    why?                 string?

WorkflowFile
    path                 string
    text                 string

ValidateRequest
    files                [WorkflowFile]

PruneRequest
    jobs_older_secs?     1..?        Jobs that ended so long ago; as `retention.job_days` says if left out.
    after?               integer?    `next` of the last answer.
    dry_run?             boolean     Says what would go, and removes nothing.

NewTokenRequest
    name                 string
    role                 Role
    tags?                [string]?   What its worker may offer.
    expires_in_secs?     uint32?     At least 1; an enrolment has an hour if it is left out.

EnrolRequest
    name                 string
    secret_hash          string      SHA-256 in hex of the secret that the worker drew.

Finished
    outcome              completed/failed
    exit_code?           int32?
    output?              any
    reason?              Reason?     Of `failed`, and required there.
    message?             string?

Spooled A result that the server has not answered for yet.
    step_id              integer
    attempt              uint32
    session              string
    finished             Finished

SessionRequest
    name                 string
    instance             string
    session              string
    tags                 [string]
    slots                1..10000
    version              string
    platform             string
    spooled              [Spooled]   One that is not understood is refused by itself.

Held
    step_id              integer
    attempt              uint32
    phase                preparing/running

HeartbeatRequest
    session              string
    seq                  integer
    held                 [Held]      An empty list means none.

HeldAttempt
    step_id              integer
    attempt              uint32

PollRequest
    session              string
    free_slots           uint32
    held                 [HeldAttempt]
    wait_ms              0..         How long the server may keep the answer back while there is nothing to say.

ReportsPoll
    free_slots           uint32
    held                 [HeldAttempt]

Report
    step_id              integer
    attempt              uint32
    news                 started/keepalive/declined/finished
    why?                 string?     Of `declined`.
    finished?            Finished?   Of `finished`.

ReportsRequest
    session              string
    items                [Report]    One that is not understood is refused by itself.
    poll?                ReportsPoll? With it, more work is asked for in the same call.

DrainRequest
    session              string
";
