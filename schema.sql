-- The whole database of Stepward. Compiled into the binary; a new data folder is made from this text.
--
-- Conventions. Tables are singular and STRICT. Ids are integers that people can type and are never used twice.
-- `…_at` is wall-clock time in milliseconds since 1970: for display, `not_before` and cron. `…_up` is the service
-- clock, milliseconds that the server has been up over all its lives: for order, liveness and timeouts.
-- JSON is text that no statement looks into. State machines stand in the CHECKs a third time, after the table of moves
-- (src/domain) and the guarded updates (src/store), so that a bug in those two cannot reach the disk.
-- Indexes on live rows are partial, so that history costs nothing.

-- One row: this installation.
CREATE TABLE server (
    only_row         INTEGER PRIMARY KEY CHECK (only_row = 1),
    installation_key TEXT    NOT NULL,              -- random; workers refuse another installation's server
    service_clock_up INTEGER NOT NULL,              -- where the next life of the server continues the service clock
    change_seq       INTEGER NOT NULL DEFAULT 0,    -- the highest of jobs that are gone: none is given twice
    lineage          TEXT    NOT NULL DEFAULT '',   -- random; new after a restore, or when a person accepts an older database
    epoch            INTEGER NOT NULL DEFAULT 0,    -- number of starts of a server in this lineage
    commit_number    INTEGER NOT NULL DEFAULT 0,    -- number of the last group commit; stepward.mark holds a copy of it
    rollback_noticed INTEGER NOT NULL DEFAULT 0,    -- 1: a worker has worked for a later state of this database
    asks_by_default  INTEGER NOT NULL DEFAULT 0     -- 1: `stepward server` asks for tokens on loopback, too; 0: made by version 0.1
        CHECK (asks_by_default IN (0, 1)),
    first_start_at   INTEGER                        -- when a server that asks for tokens was started first; only that start writes token files
) STRICT;

-- The lineages of this installation, the current one last. The session that ran an attempt tells in which lineage the
-- attempt ran, and so which file holds its log. Sessions below the first row are of version 0.1, whose log names have no lineage.
CREATE TABLE lineage (
    lineage_no       INTEGER PRIMARY KEY,
    key              TEXT    NOT NULL UNIQUE,
    first_session_id INTEGER NOT NULL               -- sessions with this id or a higher one belong to this lineage or a later one
) STRICT;

-- The last starts of a server in the current lineage. A worker that has seen another start under the same number, or a commit
-- that this history does not have, has worked for a later state of the database, which was rolled back since.
CREATE TABLE epoch (
    epoch          INTEGER PRIMARY KEY,
    start_key      TEXT    NOT NULL,                -- random
    commits_before INTEGER NOT NULL                 -- the number of the last commit before this start
) STRICT;

-- How far things had come when: one row an hour. What is at most as high as in a row is at least as old as the row, so the
-- age of anything is told by its number, and no clock that is set makes it older. See src/domain/retention.rs.
CREATE TABLE milestone (
    age_ms     INTEGER PRIMARY KEY,                 -- what counts as time for retention, since this table was made
    at         INTEGER NOT NULL,
    up         INTEGER NOT NULL,
    owed_ms    INTEGER NOT NULL,                    -- what the clock was set back by and has not made good
    job_id     INTEGER NOT NULL,                    -- the highest then, 0: none; likewise the others
    event_seq  INTEGER NOT NULL,
    outbox_id  INTEGER NOT NULL,
    session_id INTEGER NOT NULL,
    audit_seq  INTEGER NOT NULL DEFAULT 0           -- the last row of the audit log then
) STRICT;

-- A frozen definition: a task and every task that it calls. Interned, so that a thousand jobs of one task share a row.
CREATE TABLE definition (
    definition_id INTEGER PRIMARY KEY AUTOINCREMENT,
    hash          TEXT NOT NULL UNIQUE,             -- SHA-256 of the body
    body          TEXT NOT NULL                     -- JSON
) STRICT;

-- A distinct set of required tags. A step points here, so that matching costs O(distinct sets), not O(steps).
CREATE TABLE requirement (
    requirement_id INTEGER PRIMARY KEY AUTOINCREMENT,
    tags           TEXT    NOT NULL,                -- sorted, one space between; `+name`: a feature of the worker's program
    unmatched      TEXT    NOT NULL CHECK (unmatched = 'fail' OR unmatched = 'wait'), -- when nobody offers them
    lost_up        INTEGER NOT NULL,                -- when a worker that offers them last stopped taking steps
    UNIQUE (tags, unmatched)
) STRICT;

-- A machine or process that runs steps. Deleted ones stay for the history that names them.
CREATE TABLE worker (
    worker_id     INTEGER PRIMARY KEY AUTOINCREMENT,
    instance_key  TEXT    NOT NULL,                 -- made once by the worker, kept in its folder
    name          TEXT    NOT NULL,
    state         TEXT    NOT NULL CHECK (state = 'active' OR state = 'inactive'),
    draining      INTEGER NOT NULL DEFAULT 0 CHECK (draining IN (0, 1)),
    paused        INTEGER NOT NULL DEFAULT 0 CHECK (paused IN (0, 1)),
    tags          TEXT    NOT NULL,                 -- sorted, one space between
    slots         INTEGER NOT NULL CHECK (slots >= 0),
    version       TEXT    NOT NULL,
    platform      TEXT    NOT NULL,
    session_id    INTEGER REFERENCES session (session_id),   -- the current one
    heartbeat_seq INTEGER NOT NULL DEFAULT -1,      -- last in-order heartbeat of the current session
    seen_at       INTEGER NOT NULL,
    seen_up       INTEGER NOT NULL,
    created_at    INTEGER NOT NULL,
    deleted_at    INTEGER,
    token_id      INTEGER,                          -- whose it is: no other token may speak for it; 0: the server's own worker
    CHECK (deleted_at IS NULL OR state = 'inactive')
) STRICT;

-- Opening a session finds the worker by what it keeps in its folder.
CREATE UNIQUE INDEX worker_by_instance ON worker (instance_key) WHERE deleted_at IS NULL;
-- Recovery looks for active workers that were silent for too long.
CREATE INDEX worker_by_silence ON worker (seen_up) WHERE state = 'active';
-- What a token that is revoked takes with it.
CREATE INDEX worker_of_token ON worker (token_id) WHERE token_id IS NOT NULL;
-- Nobody takes the name of another token's worker that is there.
CREATE INDEX worker_by_name ON worker (name) WHERE state = 'active' AND token_id IS NOT NULL;
-- Retention: the next worker that nobody has heard of for too long.
CREATE INDEX worker_by_absence ON worker (seen_up) WHERE state = 'inactive' AND deleted_at IS NULL;
-- Lists: the workers that were not deleted, however many were.
CREATE INDEX worker_not_deleted ON worker (worker_id) WHERE deleted_at IS NULL;
-- Retention: who is kept for the history that names it.
CREATE INDEX worker_deleted ON worker (worker_id) WHERE deleted_at IS NOT NULL;
-- Removing a session: whose it is.
CREATE INDEX worker_by_session ON worker (session_id) WHERE session_id IS NOT NULL;

-- One life of a worker process. A restart is a different session, never a later start time.
CREATE TABLE session (
    session_id  INTEGER PRIMARY KEY AUTOINCREMENT,
    worker_id   INTEGER NOT NULL REFERENCES worker (worker_id),
    session_key TEXT    NOT NULL UNIQUE,            -- opaque, made by the worker at its start
    opened_at   INTEGER NOT NULL,
    closed_at   INTEGER,                            -- replaced by the next one, or its worker was deleted
    features    TEXT    NOT NULL DEFAULT ''         -- what the worker announced that it understands, with commas between
) STRICT;

-- A worker has one at a time.
CREATE UNIQUE INDEX session_open ON session (worker_id) WHERE closed_at IS NULL;
-- Retention: a worker's sessions.
CREATE INDEX session_of_worker ON session (worker_id);

-- Which requirements a worker satisfies: computed when it opens its session, and when a requirement is new.
CREATE TABLE capability (
    worker_id      INTEGER NOT NULL REFERENCES worker (worker_id),
    requirement_id INTEGER NOT NULL REFERENCES requirement (requirement_id),
    PRIMARY KEY (worker_id, requirement_id)
) STRICT, WITHOUT ROWID;

-- "Who could run this?" asks from the other side.
CREATE INDEX capability_by_requirement ON capability (requirement_id, worker_id);

-- One submission of a task.
CREATE TABLE job (
    job_id            INTEGER PRIMARY KEY AUTOINCREMENT,
    definition_id     INTEGER NOT NULL REFERENCES definition (definition_id),
    task_index        INTEGER NOT NULL,             -- which task of the definition
    task              TEXT    NOT NULL,             -- its name
    state             TEXT    NOT NULL,
    reason            TEXT,
    message           TEXT,
    source            TEXT    NOT NULL,
    input             TEXT    NOT NULL,
    labels            TEXT    NOT NULL,
    priority          INTEGER NOT NULL,
    parent_step_id    INTEGER REFERENCES step (step_id),
    parent_attempt    INTEGER,
    depth             INTEGER NOT NULL CHECK (depth BETWEEN 0 AND 10),
    retry_of          INTEGER REFERENCES job (job_id),
    hook_of           INTEGER REFERENCES job (job_id), -- the job whose outcome a hook made this one for
    schedule_id       INTEGER REFERENCES schedule (schedule_id), -- whose fire it is, or was before it was retried
    scheduled_for     INTEGER,                      -- the time that its schedule meant; child jobs and retries keep it
    hold              TEXT    CHECK (hold = 'not_before' OR hold = 'concurrency'),
    not_before        INTEGER,
    concurrency_group TEXT,
    steps_open        INTEGER NOT NULL CHECK (steps_open >= 0),
    steps_failed      INTEGER NOT NULL DEFAULT 0,   -- without continue_on_failure
    steps_cancelled   INTEGER NOT NULL DEFAULT 0,
    failed_step_id    INTEGER REFERENCES step (step_id), -- the first of steps_failed: why the job will have failed
    change_seq        INTEGER NOT NULL,             -- grows with every commit that touches the job; streams resume from it
    created_at        INTEGER NOT NULL,
    started_at        INTEGER,
    ended_at          INTEGER,
    since_up          INTEGER NOT NULL,             -- when it entered its state
    due_up            INTEGER,                      -- when recovery ends it: waiting too long, or running too long
    logs_removed_at   INTEGER,                      -- since when what its steps printed is not kept any more
    kept              INTEGER NOT NULL DEFAULT 0 CHECK (kept IN (0, 1)),    -- by a person: it does not grow too old
    leaving           INTEGER NOT NULL DEFAULT 0 CHECK (leaving IN (0, 1)), -- it is being removed, in pieces: nobody sees it any more
    seal_id           BLOB    CHECK (length(seal_id) = 16), -- random; its secret inputs open for this id alone; NULL: made by version 4 or older

    CHECK ((parent_step_id IS NULL) = (parent_attempt IS NULL)),
    CHECK (CASE state
        WHEN 'pending'   THEN ended_at IS NULL AND started_at IS NULL
        WHEN 'running'   THEN ended_at IS NULL AND started_at IS NOT NULL AND hold IS NULL
        WHEN 'completed' THEN ended_at IS NOT NULL AND steps_open = 0 AND steps_failed = 0 AND due_up IS NULL
        WHEN 'failed'    THEN ended_at IS NOT NULL AND steps_open = 0 AND due_up IS NULL
                              AND reason IS NOT NULL AND message IS NOT NULL AND message <> ''
        WHEN 'cancelled' THEN ended_at IS NOT NULL AND steps_open = 0 AND due_up IS NULL
                              AND reason IS NOT NULL AND message IS NOT NULL AND message <> ''
        WHEN 'skipped'   THEN ended_at IS NOT NULL AND steps_open = 0 AND due_up IS NULL
                              AND reason IS NOT NULL AND message IS NOT NULL AND message <> '' AND started_at IS NULL
        ELSE 0 END)
) STRICT;

-- The latest job that is nobody's child.
CREATE INDEX job_asked_for ON job (job_id) WHERE parent_step_id IS NULL;
-- Lists: the newest jobs in a state.
CREATE INDEX job_by_state ON job (state, job_id);
-- Lists: the newest jobs that were submitted in one way.
CREATE INDEX job_by_source ON job (source, job_id);
-- Lists: the newest jobs that ended for one reason.
CREATE INDEX job_by_reason ON job (reason, job_id) WHERE reason IS NOT NULL;
-- What went wrong lately, by nobody's wish.
CREATE INDEX job_in_trouble ON job (ended_at)
    WHERE parent_step_id IS NULL AND (state = 'failed' OR (state = 'cancelled' AND reason IN ('job_timeout', 'queue_timeout')));
-- The latest job of a task in a state.
CREATE INDEX job_of_task ON job (task, state, job_id);
-- Live streams resume from here.
CREATE INDEX job_by_change ON job (change_seq);
-- A step's child jobs: one per attempt, by construction.
CREATE UNIQUE INDEX job_by_parent ON job (parent_step_id, parent_attempt) WHERE parent_step_id IS NOT NULL;
-- A job's retries.
CREATE INDEX job_by_retry ON job (retry_of) WHERE retry_of IS NOT NULL;
-- A job's hooks.
CREATE INDEX job_by_hook ON job (hook_of) WHERE hook_of IS NOT NULL;
-- What a fire of a schedule may find in its way.
CREATE INDEX job_of_schedule ON job (schedule_id, job_id) WHERE schedule_id IS NOT NULL AND ended_at IS NULL;
-- What time alone releases.
CREATE INDEX job_by_not_before ON job (not_before) WHERE hold = 'not_before';
-- Who is in a concurrency group, and who waits for it, in order.
CREATE INDEX job_in_group ON job (concurrency_group, hold, priority DESC, job_id)
    WHERE concurrency_group IS NOT NULL AND ended_at IS NULL;
-- Recovery: the next job whose time is up.
CREATE INDEX job_by_due ON job (due_up) WHERE due_up IS NOT NULL;

-- Retention: the next job whose logs may be too old.
CREATE INDEX job_with_logs ON job (job_id) WHERE logs_removed_at IS NULL AND ended_at IS NOT NULL;
-- Whether a definition is still needed.
CREATE INDEX job_of_definition ON job (definition_id);
-- Retention: what is on its way, to be finished first.
CREATE INDEX job_leaving ON job (job_id) WHERE leaving = 1;
-- Removing a step: who blames it.
CREATE INDEX job_by_failed_step ON job (failed_step_id) WHERE failed_step_id IS NOT NULL;

-- One node of a job's graph, and the attempt it is in or ended with. Its name and what it does are in the definition.
CREATE TABLE step (
    step_id        INTEGER PRIMARY KEY AUTOINCREMENT,
    job_id         INTEGER NOT NULL REFERENCES job (job_id),
    position       INTEGER NOT NULL,                -- in the definition
    item           INTEGER NOT NULL DEFAULT -1,     -- which instance of a loop; -1: not an instance
    kind           TEXT    NOT NULL,                -- who carries it out
    state          TEXT    NOT NULL,
    reason         TEXT,
    message        TEXT,
    requirement_id INTEGER REFERENCES requirement (requirement_id),
    priority       INTEGER NOT NULL,
    attempt        INTEGER NOT NULL DEFAULT 0,      -- the fence: each assignment increments it, each report quotes it
    tries          INTEGER NOT NULL DEFAULT 0,      -- started attempts
    returns        INTEGER NOT NULL DEFAULT 0,      -- assignments that came back unstarted, since the last start
    waiting_on     INTEGER NOT NULL CHECK (waiting_on >= 0), -- open dependencies; of a running loop, open instances
    -- No foreign keys for these two: a statement that changes one keeps a copy of every page that it touches, an eighth
    -- of all that a step's life costs; and a session could not be forgotten without a look at every step.
    worker_id      INTEGER,
    session_id     INTEGER,
    child_job_id   INTEGER REFERENCES job (job_id),
    origin_step_id INTEGER REFERENCES step (step_id), -- in a retried job: what may be carried over from the former one
    exit_code      INTEGER,
    output         TEXT,
    item_value     TEXT,
    absent_beats   INTEGER NOT NULL DEFAULT 0,      -- heartbeats in a row that did not mention it while it was running
    ready_at       INTEGER,                         -- when it last became ready, or began to wait for a person
    assigned_at    INTEGER,
    started_at     INTEGER,
    ended_at       INTEGER,
    queued_up      INTEGER,                         -- when it first became ready: its place in the queue
    since_up       INTEGER NOT NULL,                -- when it entered its state
    due_up         INTEGER,                         -- when recovery acts on it if nothing happens
    not_before_up  INTEGER,                         -- a retry waits until then
    unconfirmed    INTEGER NOT NULL DEFAULT 0 CHECK (unconfirmed IN (0, 1)), -- started on delivery, and its worker has not listed it yet

    CHECK (CASE kind
        WHEN 'work'     THEN requirement_id IS NOT NULL AND child_job_id IS NULL
        WHEN 'loop'     THEN requirement_id IS NULL AND child_job_id IS NULL AND session_id IS NULL AND item = -1
        WHEN 'task'     THEN requirement_id IS NULL AND session_id IS NULL
        WHEN 'approval' THEN requirement_id IS NULL AND child_job_id IS NULL AND session_id IS NULL AND item = -1
        ELSE 0 END),
    CHECK (CASE state
        WHEN 'pending'   THEN ended_at IS NULL AND ready_at IS NULL AND session_id IS NULL AND due_up IS NULL
                              AND not_before_up IS NULL AND attempt = 0
        WHEN 'ready'     THEN ended_at IS NULL AND queued_up IS NOT NULL AND session_id IS NULL AND due_up IS NULL
                              AND child_job_id IS NULL AND waiting_on = 0
        WHEN 'assigned'  THEN ended_at IS NULL AND session_id IS NOT NULL AND worker_id IS NOT NULL
                              AND assigned_at IS NOT NULL AND started_at IS NULL AND due_up IS NOT NULL
                              AND attempt > tries AND not_before_up IS NULL
        WHEN 'running'   THEN ended_at IS NULL AND started_at IS NOT NULL AND not_before_up IS NULL
                              AND (kind <> 'work' OR (session_id IS NOT NULL AND worker_id IS NOT NULL AND tries > 0))
                              AND (kind <> 'task' OR child_job_id IS NOT NULL)
                              AND kind <> 'approval'
        WHEN 'suspended' THEN ended_at IS NULL AND (kind = 'approval' OR kind = 'work') AND session_id IS NULL
                              AND not_before_up IS NULL
        WHEN 'completed' THEN ended_at IS NOT NULL AND due_up IS NULL AND not_before_up IS NULL AND reason IS NULL
        WHEN 'failed'    THEN ended_at IS NOT NULL AND due_up IS NULL AND not_before_up IS NULL
                              AND reason IS NOT NULL AND message IS NOT NULL AND message <> ''
        WHEN 'skipped'   THEN ended_at IS NOT NULL AND due_up IS NULL AND attempt = 0
                              AND reason IS NOT NULL AND message IS NOT NULL AND message <> ''
        WHEN 'cancelled' THEN ended_at IS NOT NULL AND due_up IS NULL AND not_before_up IS NULL
                              AND reason IS NOT NULL AND message IS NOT NULL AND message <> ''
        ELSE 0 END)
) STRICT;

-- A job's steps, a loop's instances, a dependency by its position.
CREATE UNIQUE INDEX step_of_job ON step (job_id, position, item);
-- A worker's poll: the next claimable step of a requirement, priority first, then first in first out.
CREATE INDEX step_claimable ON step (requirement_id, priority DESC, queued_up, step_id)
    WHERE state = 'ready' AND not_before_up IS NULL AND requirement_id IS NOT NULL;
-- What a session holds: heartbeats, polls, restarts.
CREATE INDEX step_held ON step (session_id) WHERE ended_at IS NULL AND session_id IS NOT NULL;
-- What waits for a person.
CREATE INDEX step_suspended ON step (step_id) WHERE state = 'suspended';
-- A retry whose delay is over.
CREATE INDEX step_delayed ON step (not_before_up) WHERE not_before_up IS NOT NULL;
-- What waits for no other step: the next instance of a loop that `max_parallel` held back, the first steps of a held job.
CREATE INDEX step_held_back ON step (job_id, position, item) WHERE state = 'pending' AND waiting_on = 0;
-- Recovery: the next assignment that was not acknowledged in time.
CREATE INDEX step_by_ack ON step (due_up) WHERE state = 'assigned';
-- Recovery: the next step whose time is up.
CREATE INDEX step_by_timeout ON step (due_up) WHERE due_up IS NOT NULL AND state <> 'assigned';
-- What the server itself carries out: how many child jobs and loops are waited for.
CREATE INDEX step_served ON step (kind) WHERE state = 'running' AND session_id IS NULL;
-- Recovery: what a worker that is there has stopped speaking of.
CREATE INDEX step_forgotten ON step (since_up) WHERE state = 'running' AND absent_beats >= 2;
-- Removing a job: whose child it is, or was before that step was carried over.
CREATE INDEX step_by_child ON step (child_job_id) WHERE child_job_id IS NOT NULL;
-- Removing a step: what was carried over from it.
CREATE INDEX step_by_origin ON step (origin_step_id) WHERE origin_step_id IS NOT NULL;

-- The attempts that did not settle their step: the worker gave the step back before it started, a retry followed, or the
-- worker was lost and the step was held for a person's decision. The last attempt of a step is in the step's own row
-- (which then names a session or a child job), so a step that is tried once costs nothing here.
CREATE TABLE former_attempt (
    step_id     INTEGER NOT NULL REFERENCES step (step_id),
    attempt     INTEGER NOT NULL,
    worker_id   INTEGER,
    session_id  INTEGER,
    child_job_id INTEGER,
    outcome     TEXT    NOT NULL CHECK (outcome = 'returned' OR outcome = 'failed'),
    reason      TEXT    NOT NULL,
    message     TEXT    NOT NULL,
    exit_code   INTEGER,
    assigned_at INTEGER,
    started_at  INTEGER,
    ended_at    INTEGER NOT NULL,
    PRIMARY KEY (step_id, attempt)
) STRICT, WITHOUT ROWID;

-- Logs that are not what their worker said of them when their attempt ended. A log that is has no row here.
CREATE TABLE log_fault (
    step_id INTEGER NOT NULL REFERENCES step (step_id),
    attempt INTEGER NOT NULL,
    fault   TEXT    NOT NULL CHECK (fault = 'missing' OR fault = 'differs'), -- bytes are missing at its end, or they are others
    length  INTEGER NOT NULL,                       -- bytes that the worker wrote
    crc32   INTEGER NOT NULL,                       -- of those bytes
    PRIMARY KEY (step_id, attempt)
) STRICT, WITHOUT ROWID;

-- Workers that just gave a step back, and until when they are passed over for it.
CREATE TABLE avoidance (
    step_id   INTEGER NOT NULL REFERENCES step (step_id),
    worker_id INTEGER NOT NULL REFERENCES worker (worker_id),
    until_up  INTEGER NOT NULL,
    PRIMARY KEY (step_id, worker_id)
) STRICT, WITHOUT ROWID;

-- Deleting a worker removes its rows.
CREATE INDEX avoidance_by_worker ON avoidance (worker_id);

-- What a person must be told. Rows outlive the jobs and workers that they speak of.
CREATE TABLE event (
    seq       INTEGER PRIMARY KEY AUTOINCREMENT,
    at        INTEGER NOT NULL,
    kind      TEXT    NOT NULL,
    phase     INTEGER CHECK (phase BETWEEN 1 AND 4),
    job_id    INTEGER,
    step_id   INTEGER,
    worker_id INTEGER,
    attempt   INTEGER,
    reason    TEXT,
    message   TEXT    NOT NULL,
    data      TEXT,                                  -- JSON: what the message says in words, for programs
    actor     TEXT                                   -- the person by whose call it happened
) STRICT;

-- The story of a job.
CREATE INDEX event_by_job ON event (job_id, seq) WHERE job_id IS NOT NULL;
-- The story of a worker.
CREATE INDEX event_by_worker ON event (worker_id, seq) WHERE worker_id IS NOT NULL;
-- What recovery did.
CREATE INDEX event_of_recovery ON event (seq) WHERE phase IS NOT NULL;
-- What one phase of it did.
CREATE INDEX event_of_phase ON event (phase, seq) WHERE phase IS NOT NULL;
-- Each thing is told once per attempt.
CREATE UNIQUE INDEX event_once ON event (step_id, attempt, kind) WHERE step_id IS NOT NULL;

-- Messages: an event for a target of the settings, written in the transaction that records the event and delivered after
-- its commit, at least once. outbox_id is the stable part of the id that a message carries to its receiver.
CREATE TABLE outbox (
    outbox_id    INTEGER PRIMARY KEY AUTOINCREMENT,
    event_seq    INTEGER NOT NULL,
    target       TEXT    NOT NULL,                   -- its name in the settings; where that leads is not kept here
    job_id       INTEGER,                            -- the event's
    state        TEXT    NOT NULL,
    attempts     INTEGER NOT NULL DEFAULT 0,         -- deliveries so far
    tries        INTEGER NOT NULL DEFAULT 0,         -- of these, since it was posted or asked for again
    next_up      INTEGER,                            -- when it is tried next
    created_at   INTEGER NOT NULL,
    delivered_at INTEGER,
    last_error   TEXT,

    CHECK (CASE state
        WHEN 'pending'   THEN next_up IS NOT NULL AND delivered_at IS NULL
        WHEN 'delivered' THEN next_up IS NULL AND delivered_at IS NOT NULL AND attempts > 0
        WHEN 'given_up'  THEN next_up IS NULL AND delivered_at IS NULL AND last_error IS NOT NULL
        ELSE 0 END)
) STRICT;

-- Exactly once per event and target, however many hooks and settings ask for it.
CREATE UNIQUE INDEX outbox_once ON outbox (event_seq, target);
-- What a target is to be told next.
CREATE INDEX outbox_pending ON outbox (target, next_up, outbox_id) WHERE state = 'pending';
-- Lists: the newest messages in a state, and for a target.
CREATE INDEX outbox_by_state ON outbox (state, outbox_id);
CREATE INDEX outbox_by_target ON outbox (target, state, outbox_id);
-- The messages about a job.
CREATE INDEX outbox_of_job ON outbox (job_id, outbox_id) WHERE job_id IS NOT NULL;

-- How deliveries went: the last ones of each message.
CREATE TABLE delivery (
    outbox_id   INTEGER NOT NULL REFERENCES outbox (outbox_id),
    attempt     INTEGER NOT NULL,
    at          INTEGER NOT NULL,
    ok          INTEGER NOT NULL CHECK (ok IN (0, 1)),
    status      INTEGER,                             -- of HTTP, or a program's exit code
    message     TEXT    NOT NULL,
    duration_ms INTEGER NOT NULL,
    PRIMARY KEY (outbox_id, attempt)
) STRICT, WITHOUT ROWID;

-- The same key of the same owner answers with the same job.
CREATE TABLE idempotency (
    idempotency_key TEXT    NOT NULL,
    owner           TEXT    NOT NULL,                -- token:ID, settings, webhook; any: it answers whoever repeats it
    request_hash    TEXT    NOT NULL,                -- another request of the same owner under the same key is refused
    job_id          INTEGER NOT NULL REFERENCES job (job_id),
    created_at      INTEGER NOT NULL,
    PRIMARY KEY (idempotency_key, owner)
) STRICT, WITHOUT ROWID;

-- Retention: the keys of the oldest job; removing a job: its keys.
CREATE INDEX idempotency_by_job ON idempotency (job_id);

-- When a task is submitted by itself. One that is gone from the files stays, for the history that names it.
CREATE TABLE schedule (
    schedule_id    INTEGER PRIMARY KEY AUTOINCREMENT,
    task           TEXT    NOT NULL,
    name           TEXT    NOT NULL,
    cron           TEXT    NOT NULL,
    timezone       TEXT    NOT NULL,                 -- an IANA name
    input          TEXT    NOT NULL,                 -- JSON of templates
    overlap        TEXT    NOT NULL,
    catch_up       TEXT    NOT NULL,
    catch_up_limit INTEGER,                          -- of latest: milliseconds; of all: how many
    enabled        INTEGER NOT NULL CHECK (enabled IN (0, 1)),           -- by its file
    paused         INTEGER NOT NULL DEFAULT 0 CHECK (paused IN (0, 1)),  -- by a person; no file changes it
    loaded         INTEGER NOT NULL DEFAULT 1 CHECK (loaded IN (0, 1)),  -- 0: what is loaded does not have it; it keeps its time
    next_at        INTEGER,                          -- the first due instant that the ledger says nothing of
    look_at        INTEGER,                          -- when something is to be done; not next_at: that waits for an earlier job
    created_at     INTEGER NOT NULL,
    removed_at     INTEGER,                          -- since when no file has it
    away_from      INTEGER,                          -- backlog of an absence: its first instant that is not dealt with
    away_until     INTEGER,                          -- backlog: its end; NULL: not known yet, see src/domain/presence.rs
    UNIQUE (task, name),
    CHECK (overlap = 'skip' OR overlap = 'queue' OR overlap = 'allow' OR overlap = 'cancel_previous'),
    CHECK (CASE catch_up
        WHEN 'none'   THEN catch_up_limit IS NULL
        WHEN 'latest' THEN catch_up_limit IS NOT NULL AND catch_up_limit >= 0
        WHEN 'all'    THEN catch_up_limit IS NOT NULL AND catch_up_limit >= 0
        ELSE 0 END),
    CHECK (removed_at IS NULL OR (next_at IS NULL AND loaded = 0)),
    CHECK (look_at IS NULL OR (next_at IS NOT NULL AND next_at <= look_at))
) STRICT;

-- The next that is due.
CREATE INDEX schedule_by_look ON schedule (look_at) WHERE look_at IS NOT NULL AND loaded = 1;
-- What is made up for one after another.
CREATE INDEX schedule_that_waits ON schedule (schedule_id) WHERE look_at IS NOT next_at AND loaded = 1;

-- The backlog of an absence.
CREATE INDEX schedule_with_backlog ON schedule (schedule_id) WHERE away_until IS NOT NULL AND loaded = 1;

-- One row: the last reading of the clocks by the scheduler. It tells an absence from a clock that was set.
CREATE TABLE presence (
    only_row        INTEGER PRIMARY KEY CHECK (only_row = 1),
    boot_id         TEXT    NOT NULL,                -- of the machine's boot
    boot_ms         INTEGER NOT NULL,                -- milliseconds since that boot
    wall_at         INTEGER NOT NULL,                -- the wall clock then
    up              INTEGER NOT NULL,                -- the service clock then
    behind_at       INTEGER,                         -- the wall clock is behind this earlier reading
    behind_since_ms INTEGER,                         -- since this start, in milliseconds since the boot
    CHECK ((behind_at IS NULL) = (behind_since_ms IS NULL))
) STRICT;

-- The ledger: one row per due instant, written in the transaction that makes its job, so that no instant counts twice.
CREATE TABLE schedule_fire (
    schedule_id INTEGER NOT NULL REFERENCES schedule (schedule_id),
    due_at      INTEGER NOT NULL,                    -- the time that was meant
    manual      INTEGER NOT NULL CHECK (manual IN (0, 1)), -- a person did not want to wait
    outcome     TEXT    NOT NULL,
    job_id      INTEGER REFERENCES job (job_id),
    until_at    INTEGER CHECK (until_at > due_at),   -- it stands for all instants before this one: too many to keep
    at          INTEGER NOT NULL,
    message     TEXT    NOT NULL,
    PRIMARY KEY (schedule_id, due_at, manual),
    CHECK (CASE outcome
        WHEN 'fired'     THEN job_id IS NOT NULL AND until_at IS NULL
        WHEN 'caught_up' THEN job_id IS NOT NULL AND until_at IS NULL AND manual = 0
        WHEN 'skipped'   THEN job_id IS NULL AND until_at IS NULL AND manual = 0
        WHEN 'queued'    THEN job_id IS NULL AND until_at IS NULL AND manual = 0
        WHEN 'refused'   THEN job_id IS NULL AND until_at IS NULL AND manual = 0
        WHEN 'missed'    THEN job_id IS NULL AND manual = 0
        WHEN 'paused'    THEN job_id IS NULL AND manual = 0
        ELSE 0 END)
) STRICT, WITHOUT ROWID;

-- At most one waits for the job of an earlier one.
CREATE UNIQUE INDEX schedule_fire_queued ON schedule_fire (schedule_id) WHERE outcome = 'queued';
-- What a clock wrote that was ahead.
CREATE INDEX schedule_fire_without_job ON schedule_fire (schedule_id, at) WHERE job_id IS NULL;
-- A job stands for one instant.
CREATE UNIQUE INDEX schedule_fire_by_job ON schedule_fire (job_id) WHERE job_id IS NOT NULL;
-- Retention: what was written down about the oldest instants that no job was made for.
CREATE INDEX schedule_fire_by_age ON schedule_fire (at) WHERE job_id IS NULL AND outcome <> 'queued';

-- What lets somebody in. Those that do no more stay as long as the events of what they did.
CREATE TABLE token (
    token_id      INTEGER PRIMARY KEY AUTOINCREMENT,
    name          TEXT    NOT NULL,                  -- what events call whoever shows it
    role          TEXT    NOT NULL,
    hash          TEXT    NOT NULL,                  -- SHA-256 of its secret; the secret itself is nowhere
    tags          TEXT,                              -- what its worker may offer, sorted, one space between; NULL: anything
    made_by       TEXT    NOT NULL,
    created_at    INTEGER NOT NULL,
    expires_at    INTEGER,
    used_at       INTEGER,                           -- the last time, give or take a minute
    ended_at      INTEGER,                           -- revoked; of an enrolment, used
    made_token_id INTEGER REFERENCES token (token_id), -- what an enrolment was exchanged for
    is_unasked    INTEGER NOT NULL DEFAULT 0         -- 1: made while the server asked nobody for a token, or with such a token
        CHECK (is_unasked IN (0, 1)),

    CHECK (CASE role
        WHEN 'viewer'    THEN tags IS NULL AND made_token_id IS NULL
        WHEN 'operator'  THEN tags IS NULL AND made_token_id IS NULL
        WHEN 'admin'     THEN tags IS NULL AND made_token_id IS NULL
        WHEN 'worker'    THEN made_token_id IS NULL
        WHEN 'enrolment' THEN expires_at IS NOT NULL AND (made_token_id IS NULL OR ended_at IS NOT NULL)
        ELSE 0 END)
) STRICT;

-- Those that let somebody in; the next one of an admin.
CREATE INDEX token_that_holds ON token (role, token_id) WHERE ended_at IS NULL;
-- Valid tokens that anybody on the machine could have made.
CREATE INDEX token_unasked ON token (token_id) WHERE ended_at IS NULL AND is_unasked = 1;
-- Retention: those that let nobody in for the longest time; what an enrolment was exchanged for stays as long as the enrolment.
CREATE INDEX token_by_end ON token (coalesce(ended_at, expires_at));
CREATE INDEX token_of_enrolment ON token (made_token_id) WHERE made_token_id IS NOT NULL;

-- Browsers that logged out before their session was over: its cookie opens nothing any more.
CREATE TABLE logout (
    session  TEXT    PRIMARY KEY,                    -- its id, as in the cookie
    until_at INTEGER NOT NULL                        -- when it would have been over
) STRICT, WITHOUT ROWID;

-- Those that can be forgotten.
CREATE INDEX logout_by_until ON logout (until_at);

-- Audit log.

-- What people and tokens did, as a chain: each row contains a hash of itself and of all rows before it. A row is written in the
-- transaction of the change that it records. Retention removes rows from the beginning only.
--
-- hash = SHA-256 over the hash of the previous row (32 bytes; 32 zero bytes before row 1) and the fields in this order: seq, at, actor,
-- token_id, address, action, object, outcome, detail. Each field is its length in bytes (4 bytes, big endian) and its UTF-8 text, with
-- numbers in decimal; NULL is the length 0xFFFFFFFF without text.
CREATE TABLE audit (
    seq      INTEGER PRIMARY KEY,                    -- one higher than the row before, without gaps, from 1
    at       INTEGER NOT NULL,                       -- the wall clock in milliseconds
    actor    TEXT    NOT NULL,                       -- the name of the token, or local, settings, console, server, first start, webhook:NAME, unknown
    token_id INTEGER,                                -- NULL: no token of the table
    address  TEXT,                                   -- the IP address that the request came from
    action   TEXT    NOT NULL,
    object   TEXT,                                   -- what it was done to: job/12, worker/3, token/7, …
    outcome  TEXT    NOT NULL CHECK (outcome = 'allowed' OR outcome = 'refused'),
    detail   TEXT,                                   -- a JSON object, hashed as it is written
    hash     BLOB    NOT NULL CHECK (length(hash) = 32)
) STRICT;

-- At most one row: the last row of the chain that retention has removed. The chain continues from it.
CREATE TABLE audit_anchor (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    seq      INTEGER NOT NULL,
    hash     BLOB    NOT NULL CHECK (length(hash) = 32)
) STRICT;

-- What the server last knew of its settings and workflows, so that a change between two starts is recorded.
CREATE TABLE audit_known (
    subject TEXT PRIMARY KEY,                        -- authentication, settings or workflows
    value   TEXT NOT NULL                            -- JSON: a hash for each name
) STRICT, WITHOUT ROWID;
