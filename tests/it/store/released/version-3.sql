-- A database as a server of version 0.1 (schema version 3) left it when it stopped. It began as version-2.sql.
PRAGMA foreign_keys = OFF;
BEGIN;
CREATE TABLE avoidance (
    step_id   INTEGER NOT NULL REFERENCES step (step_id),
    worker_id INTEGER NOT NULL REFERENCES worker (worker_id),
    until_up  INTEGER NOT NULL,
    PRIMARY KEY (step_id, worker_id)
) STRICT, WITHOUT ROWID;
INSERT INTO "avoidance" VALUES(16,1,99999999);
CREATE TABLE capability (
    worker_id      INTEGER NOT NULL REFERENCES worker (worker_id),
    requirement_id INTEGER NOT NULL REFERENCES requirement (requirement_id),
    PRIMARY KEY (worker_id, requirement_id)
) STRICT, WITHOUT ROWID;
INSERT INTO "capability" VALUES(1,1);
INSERT INTO "capability" VALUES(2,1);
CREATE TABLE definition (
    definition_id INTEGER PRIMARY KEY AUTOINCREMENT,
    hash          TEXT NOT NULL UNIQUE,
    body          TEXT NOT NULL
) STRICT;
INSERT INTO "definition" VALUES(1,'c4531507f3a514241472936c824130744a66cb3b028f5e534af3dbb018c47ceb','[{"name":"hello","steps":[{"name":"say","action":{"type":"script","runner":"local","script":"echo hello"},"on_worker_loss":"fail","unmatched":"fail"}]}]');
INSERT INTO "definition" VALUES(2,'04706d9ebe0101f511898a2d64d69879d46b493fae1cb6f9217d439048fb3e38','[{"name":"fails","steps":[{"name":"bad","action":{"type":"script","runner":"local","script":"exit 3"},"retry":{"max_attempts":2,"delay_ms":0,"backoff":"fixed","max_delay_ms":3600000,"jitter":false,"on":["exit_code","signal","spawn_error","step_timeout"]},"on_worker_loss":"fail","unmatched":"fail"},{"name":"after","action":{"type":"script","runner":"local","script":"echo never"},"depends_on":{"all":[{"step":{"step":"bad","accept":["completed"]}}]},"on_worker_loss":"fail","unmatched":"fail"}],"hooks":[{"on":"on_error","notify":{"target":"team"}}]}]');
INSERT INTO "definition" VALUES(3,'ad8c044ce646e79cf9893dca48000b9a4cddb507088b2c2ed15f64bb6429f61b','[{"name":"asks","steps":[{"name":"ask","action":{"type":"approval","message":"go?"},"on_worker_loss":"fail","unmatched":"fail"},{"name":"go","action":{"type":"script","runner":"local","script":"echo gone"},"depends_on":{"all":[{"step":{"step":"ask","accept":["completed"]}}]},"on_worker_loss":"fail","unmatched":"fail"}]}]');
INSERT INTO "definition" VALUES(4,'2a58a335bd3c7433e0045dd0e216f195de3c47c2d060205c3b537739b7a11ff2','[{"name":"parent","steps":[{"name":"child","action":{"type":"task","task":"hello","input":"{}"},"on_worker_loss":"fail","unmatched":"fail"},{"name":"each","action":{"type":"script","runner":"local","script":"echo \"$EACH_ITEM\""},"for_each":{"items":["\"a\"","\"b\"","\"c\""],"max_parallel":null},"on_worker_loss":"fail","unmatched":"fail"}]},{"name":"hello","steps":[{"name":"say","action":{"type":"script","runner":"local","script":"echo hello"},"on_worker_loss":"fail","unmatched":"fail"}]}]');
INSERT INTO "definition" VALUES(5,'85f6bf95cdc960a824e4a67b58d8d28b9f0db7d96ad122ab8992a68f1b6db3b3','[{"name":"slow","steps":[{"name":"wait","action":{"type":"script","runner":"local","script":"sleep 600"},"on_worker_loss":"fail","unmatched":"fail"},{"name":"then","action":{"type":"script","runner":"local","script":"echo then"},"depends_on":{"all":[{"step":{"step":"wait","accept":["completed"]}}]},"on_worker_loss":"fail","unmatched":"fail"}]}]');
INSERT INTO "definition" VALUES(6,'c8c7bff2a8a6e6cc04816c2c8d48d4d684bc2e41c4e6facfef368db859a97271','[{"name":"nobody","steps":[{"name":"gpu","action":{"type":"script","runner":"local","script":"echo x"},"tags":["gpu"],"on_worker_loss":"fail","unmatched":"wait"}]}]');
INSERT INTO "definition" VALUES(7,'21e84b9fc6c77310e64f12d419d0477d3947fc29eb6310ee778c11b738f0e0d4','[{"name":"lonely","steps":[{"name":"wait","action":{"type":"script","runner":"local","script":"sleep 600"},"on_worker_loss":"fail","unmatched":"fail"}],"concurrency":{"group":"one","limit":1,"when_full":"queue"}}]');
INSERT INTO "definition" VALUES(8,'bf422d3a7eff2e82863287db4dd1af89e73a386dd28fde624c2b84c5d30204ca','[{"name":"secret","steps":[{"name":"use","action":{"type":"script","runner":"local","script":"test -n \"$INPUT_WORD\""},"on_worker_loss":"fail","unmatched":"fail"}],"inputs":[{"name":"word","type":"string","required":true,"secret":true}]}]');
INSERT INTO "definition" VALUES(9,'4801469567046d5a0d9c2ac15c9dbce47518f20a59167576f98d32ffcb16f2e1','[{"name":"greet","steps":[{"name":"hello","action":{"type":"script","runner":"local","script":"echo \"hello, $INPUT_NAME\"\necho \"greeted=$INPUT_NAME\" >> \"$STEPWARD_OUTPUT\"\n"},"on_worker_loss":"fail","unmatched":"fail"},{"name":"report","action":{"type":"script","runner":"local","script":"echo \"greeted $G\""},"depends_on":{"all":[{"step":{"step":"hello","accept":["completed"]}}]},"env":{"G":"{{ steps.hello.output.greeted }}"},"on_worker_loss":"fail","unmatched":"fail"}],"inputs":[{"name":"name","type":"string","default":"\"world\""}]}]');
INSERT INTO "definition" VALUES(10,'7eb5af0ee54fadeba07764877a5878cce91204b4b50fa0ce84a602d7f857da9d','[{"name":"fails","steps":[{"name":"build","action":{"type":"script","runner":"local","script":"echo building; exit 2"},"on_worker_loss":"fail","unmatched":"fail"},{"name":"publish","action":{"type":"script","runner":"local","script":"echo publishing"},"depends_on":{"all":[{"step":{"step":"build","accept":["completed"]}}]},"on_worker_loss":"fail","unmatched":"fail"}]}]');
CREATE TABLE delivery (
    outbox_id   INTEGER NOT NULL REFERENCES outbox (outbox_id),
    attempt     INTEGER NOT NULL,
    at          INTEGER NOT NULL,
    ok          INTEGER NOT NULL CHECK (ok IN (0, 1)),
    status      INTEGER,
    message     TEXT    NOT NULL,
    duration_ms INTEGER NOT NULL,
    PRIMARY KEY (outbox_id, attempt)
) STRICT, WITHOUT ROWID;
INSERT INTO "delivery" VALUES(1,1,1794927318826,0,NULL,'no connection: Connection refused (os error 111)',1);
INSERT INTO "delivery" VALUES(1,2,1794927323827,0,NULL,'no connection: Connection refused (os error 111)',1);
INSERT INTO "delivery" VALUES(2,1,1794927318812,1,0,'delivered',12);
INSERT INTO "delivery" VALUES(4,1,1794927321860,0,NULL,'no connection: Connection refused (os error 111)',1);
INSERT INTO "delivery" VALUES(5,1,1794927321861,1,0,'delivered',3);
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
    data      TEXT
, actor TEXT) STRICT;
INSERT INTO "event" VALUES(1,1794927318198,'worker_registered',NULL,NULL,NULL,1,NULL,NULL,'worker ann registered: script','{"platform":"linux-x86_64","slots":4,"tags":["script"],"version":"0.1.0"}',NULL);
INSERT INTO "event" VALUES(2,1794927318245,'job_submitted',NULL,1,NULL,NULL,NULL,NULL,'task hello was submitted as job 1','{"source":"submit","task":"hello"}',NULL);
INSERT INTO "event" VALUES(3,1794927318308,'job_submitted',NULL,2,NULL,NULL,NULL,NULL,'task fails was submitted as job 2','{"source":"submit","task":"fails"}',NULL);
INSERT INTO "event" VALUES(4,1794927318339,'job_submitted',NULL,3,NULL,NULL,NULL,NULL,'task asks was submitted as job 3','{"source":"submit","task":"asks"}',NULL);
INSERT INTO "event" VALUES(5,1794927318339,'step_suspended',NULL,3,4,NULL,0,NULL,'step ask waits for approval: go?',NULL,NULL);
INSERT INTO "event" VALUES(6,1794927318361,'job_submitted',NULL,4,NULL,NULL,NULL,NULL,'task asks was submitted as job 4','{"source":"submit","task":"asks"}',NULL);
INSERT INTO "event" VALUES(7,1794927318361,'step_suspended',NULL,4,6,NULL,0,NULL,'step ask waits for approval: go?',NULL,NULL);
INSERT INTO "event" VALUES(8,1794927318493,'job_submitted',NULL,5,NULL,NULL,NULL,NULL,'task parent was submitted as job 5','{"source":"submit","task":"parent"}',NULL);
INSERT INTO "event" VALUES(9,1794927318502,'step_retried',NULL,2,2,1,1,'exit_code','step bad failed (try 1) and is tried again in 0 s: exit code 3','{"again_in_secs":0.0,"exit_code":3,"max_attempts":2,"tries":1}',NULL);
INSERT INTO "event" VALUES(10,1794927318523,'job_completed',NULL,1,NULL,NULL,NULL,NULL,'job 1 completed',NULL,NULL);
INSERT INTO "event" VALUES(11,1794927318613,'job_submitted',NULL,7,NULL,NULL,NULL,NULL,'task slow was submitted as job 7','{"source":"submit","task":"slow"}',NULL);
INSERT INTO "event" VALUES(12,1794927318638,'job_submitted',NULL,8,NULL,NULL,NULL,NULL,'task nobody was submitted as job 8','{"source":"submit","task":"nobody"}',NULL);
INSERT INTO "event" VALUES(13,1794927318665,'job_submitted',NULL,9,NULL,NULL,NULL,NULL,'task lonely was submitted as job 9','{"source":"submit","task":"lonely"}',NULL);
INSERT INTO "event" VALUES(14,1794927318669,'job_completed',NULL,6,NULL,NULL,NULL,NULL,'job 6 completed',NULL,NULL);
INSERT INTO "event" VALUES(15,1794927318682,'job_submitted',NULL,10,NULL,NULL,NULL,NULL,'task lonely was submitted as job 10','{"source":"submit","task":"lonely"}',NULL);
INSERT INTO "event" VALUES(16,1794927318682,'job_held',NULL,10,NULL,NULL,NULL,NULL,'job 10 waits for a place in its concurrency group','{"group":"one","hold":"concurrency","limit":1}',NULL);
INSERT INTO "event" VALUES(17,1794927318724,'job_submitted',NULL,11,NULL,NULL,NULL,NULL,'task secret was submitted as job 11','{"source":"submit","task":"secret"}',NULL);
INSERT INTO "event" VALUES(18,1794927318733,'job_completed',NULL,5,NULL,NULL,NULL,NULL,'job 5 completed',NULL,NULL);
INSERT INTO "event" VALUES(19,1794927318793,'step_failed',NULL,2,2,1,2,'exit_code','step bad failed: exit code 3','{"exit_code":3}',NULL);
INSERT INTO "event" VALUES(20,1794927318793,'job_failed',NULL,2,NULL,NULL,NULL,'exit_code','job 2 failed: step bad failed: exit code 3','{"failed":1,"step":"bad"}',NULL);
INSERT INTO "event" VALUES(21,1794927318844,'job_completed',NULL,11,NULL,NULL,NULL,NULL,'job 11 completed',NULL,NULL);
INSERT INTO "event" VALUES(22,1794927321752,'step_approved',NULL,3,4,NULL,0,NULL,'step ask was approved by api','{"by":"api"}',NULL);
INSERT INTO "event" VALUES(23,1794927321772,'job_submitted',NULL,12,NULL,NULL,NULL,NULL,'job 12 retries job 2','{"retry_of":2,"source":"retry","task":"fails"}',NULL);
INSERT INTO "event" VALUES(24,1794927321807,'job_completed',NULL,3,NULL,NULL,NULL,NULL,'job 3 completed',NULL,NULL);
INSERT INTO "event" VALUES(25,1794927321822,'job_submitted',NULL,13,NULL,NULL,NULL,NULL,'task hello was submitted as job 13','{"schedule_id":1,"scheduled_for":"2026-11-17T14:55:21.822Z","source":"schedule","task":"hello"}',NULL);
INSERT INTO "event" VALUES(26,1794927321831,'step_retried',NULL,12,20,1,1,'exit_code','step bad failed (try 1) and is tried again in 0 s: exit code 3','{"again_in_secs":0.0,"exit_code":3,"max_attempts":2,"tries":1}',NULL);
INSERT INTO "event" VALUES(27,1794927321856,'step_failed',NULL,12,20,1,2,'exit_code','step bad failed: exit code 3','{"exit_code":3}',NULL);
INSERT INTO "event" VALUES(28,1794927321856,'job_failed',NULL,12,NULL,NULL,NULL,'exit_code','job 12 failed: step bad failed: exit code 3','{"failed":1,"step":"bad"}',NULL);
INSERT INTO "event" VALUES(29,1794927321860,'job_completed',NULL,13,NULL,NULL,NULL,NULL,'job 13 completed',NULL,NULL);
INSERT INTO "event" VALUES(30,1794965956931,'delivery_given_up',NULL,NULL,NULL,NULL,NULL,NULL,'2 messages were given up: the settings have no target "dead" any more','{"messages":2,"target":"dead"}',NULL);
INSERT INTO "event" VALUES(31,1794965956950,'worker_registered',NULL,NULL,NULL,2,NULL,NULL,'worker vm registered: script','{"platform":"linux-x86_64","slots":1,"tags":["script"],"version":"0.1.0"}',NULL);
INSERT INTO "event" VALUES(32,1794965957121,'job_submitted',NULL,14,NULL,NULL,NULL,NULL,'task greet was submitted as job 14','{"source":"submit","task":"greet"}','local');
INSERT INTO "event" VALUES(33,1794965957141,'job_submitted',NULL,15,NULL,NULL,NULL,NULL,'task fails was submitted as job 15','{"source":"submit","task":"fails"}','local');
INSERT INTO "event" VALUES(34,1794965957169,'step_failed',NULL,15,25,2,1,'exit_code','step build failed: exit code 2','{"exit_code":2}',NULL);
INSERT INTO "event" VALUES(35,1794965957169,'job_failed',NULL,15,NULL,NULL,NULL,'exit_code','job 15 failed: step build failed: exit code 2','{"failed":1,"step":"build"}',NULL);
INSERT INTO "event" VALUES(36,1794965957188,'job_completed',NULL,14,NULL,NULL,NULL,NULL,'job 14 completed',NULL,NULL);
INSERT INTO "event" VALUES(37,1794965960173,'worker_draining',NULL,NULL,NULL,2,NULL,NULL,'worker vm drains: it finishes what it has and takes no new steps',NULL,NULL);
INSERT INTO "event" VALUES(38,1794965975662,'token_made',NULL,NULL,NULL,NULL,NULL,NULL,'token 1 was made: t-admin, admin','{"name":"t-admin","role":"admin","token_id":1}','console');
INSERT INTO "event" VALUES(39,1794965975674,'token_made',NULL,NULL,NULL,NULL,NULL,NULL,'token 2 was made: t-viewer, viewer','{"name":"t-viewer","role":"viewer","token_id":2}','console');
INSERT INTO "event" VALUES(40,1794965975686,'token_made',NULL,NULL,NULL,NULL,NULL,NULL,'token 3 was made: t-enrolment, enrolment','{"name":"t-enrolment","role":"enrolment","token_id":3}','console');
INSERT INTO "event" VALUES(41,1794965975699,'token_revoked',NULL,NULL,NULL,NULL,NULL,NULL,'token 2 was revoked: t-viewer, viewer','{"name":"t-viewer","role":"viewer","token_id":2}','console');
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
INSERT INTO "former_attempt" VALUES(2,1,1,1,NULL,'failed','exit_code','exit code 3',3,1794927318313,1794927318329,1794927318502);
INSERT INTO "former_attempt" VALUES(20,1,1,1,NULL,'failed','exit_code','exit code 3',3,1794927321777,1794927321798,1794927321831);
CREATE TABLE idempotency (
    idempotency_key TEXT PRIMARY KEY,
    request_hash    TEXT    NOT NULL,
    job_id          INTEGER NOT NULL REFERENCES job (job_id),
    created_at      INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO "idempotency" VALUES('kasks11686','zSfNdk4pNfpf2YKxC+zlexpiKVYxZ2VIABZVB47Xqb4',4,1794927318361);
INSERT INTO "idempotency" VALUES('kasks3909','zSfNdk4pNfpf2YKxC+zlexpiKVYxZ2VIABZVB47Xqb4',3,1794927318339);
INSERT INTO "idempotency" VALUES('kfails19375','wnFs+A4huU/0em9coq7H80u6yvIaRcEJnhfTRy+l+eM',2,1794927318308);
INSERT INTO "idempotency" VALUES('khello15960','kTRP635qtHD0zY5odX955NBOY1LWPG2F8Yu2KZ2hHuc',1,1794927318245);
INSERT INTO "idempotency" VALUES('klonely14224','lSkNrzCEuTCC6+8caUaYaE8ZGmHWbqJxlL+Wybx53VY',9,1794927318665);
INSERT INTO "idempotency" VALUES('klonely16594','lSkNrzCEuTCC6+8caUaYaE8ZGmHWbqJxlL+Wybx53VY',10,1794927318682);
INSERT INTO "idempotency" VALUES('knobody3287','SxY91mD2GGfYCFtwgHJJ5+2KpiTOUkEyy9bMkLAYZZY',8,1794927318638);
INSERT INTO "idempotency" VALUES('kparent9868','vvNuV9+WPjj3TVeAoVfMXW/bB75nCiXwW+kKn3kDG2Y',5,1794927318493);
INSERT INTO "idempotency" VALUES('kslow674','IhhnGs80zm4n7UABCHFPzv0YQs9gyHVvdwWaQXUtF2Q',7,1794927318613);
CREATE TABLE job (
    job_id            INTEGER PRIMARY KEY AUTOINCREMENT,
    definition_id     INTEGER NOT NULL REFERENCES definition (definition_id),
    task_index        INTEGER NOT NULL,
    task              TEXT    NOT NULL,
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
    hook_of           INTEGER REFERENCES job (job_id),
    schedule_id       INTEGER REFERENCES schedule (schedule_id),
    scheduled_for     INTEGER,
    hold              TEXT    CHECK (hold = 'not_before' OR hold = 'concurrency'),
    not_before        INTEGER,
    concurrency_group TEXT,
    steps_open        INTEGER NOT NULL CHECK (steps_open >= 0),
    steps_failed      INTEGER NOT NULL DEFAULT 0,
    steps_cancelled   INTEGER NOT NULL DEFAULT 0,
    failed_step_id    INTEGER REFERENCES step (step_id),
    change_seq        INTEGER NOT NULL,
    created_at        INTEGER NOT NULL,
    started_at        INTEGER,
    ended_at          INTEGER,
    since_up          INTEGER NOT NULL,
    due_up            INTEGER, logs_removed_at INTEGER, kept INTEGER NOT NULL DEFAULT 0 CHECK (kept IN (0, 1)), leaving INTEGER NOT NULL DEFAULT 0 CHECK (leaving IN (0, 1)),
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
INSERT INTO "job" VALUES(1,1,0,'hello','completed',NULL,NULL,'submit','{}','{}',0,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,0,0,NULL,10,1794927318245,1794927318313,1794927318523,562,NULL,NULL,0,0);
INSERT INTO "job" VALUES(2,2,0,'fails','failed','exit_code','step bad failed: exit code 3','submit','{}','{}',0,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,1,0,2,24,1794927318308,1794927318329,1794927318793,831,NULL,NULL,0,0);
INSERT INTO "job" VALUES(3,3,0,'asks','completed',NULL,NULL,'submit','{}','{}',0,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,0,0,NULL,30,1794927318339,1794927318339,1794927321807,3846,NULL,NULL,0,0);
INSERT INTO "job" VALUES(4,3,0,'asks','running',NULL,NULL,'submit','{}','{}',0,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,2,0,0,NULL,7,1794927318361,1794927318361,NULL,399,604800399,NULL,0,0);
INSERT INTO "job" VALUES(5,4,0,'parent','completed',NULL,NULL,'submit','{}','{}',0,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,0,0,NULL,21,1794927318493,1794927318493,1794927318733,772,NULL,NULL,0,0);
INSERT INTO "job" VALUES(6,4,1,'hello','completed',NULL,NULL,'task','{}','{}',0,8,1,1,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,0,0,NULL,17,1794927318493,1794927318545,1794927318669,708,NULL,NULL,0,0);
INSERT INTO "job" VALUES(7,5,0,'slow','running',NULL,NULL,'submit','{}','{}',0,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,2,0,0,NULL,21,1794927318613,1794927318733,NULL,772,604800772,NULL,0,0);
INSERT INTO "job" VALUES(8,6,0,'nobody','pending',NULL,NULL,'submit','{}','{}',0,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,1,0,0,NULL,14,1794927318638,NULL,NULL,677,NULL,NULL,0,0);
INSERT INTO "job" VALUES(9,7,0,'lonely','running',NULL,NULL,'submit','{}','{}',0,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,'one',1,0,0,NULL,22,1794927318665,1794927318744,NULL,783,604800783,NULL,0,0);
INSERT INTO "job" VALUES(10,7,0,'lonely','pending',NULL,NULL,'submit','{}','{}',0,NULL,NULL,0,NULL,NULL,NULL,NULL,'concurrency',NULL,'one',1,0,0,NULL,18,1794927318682,NULL,NULL,721,NULL,NULL,0,0);
INSERT INTO "job" VALUES(11,8,0,'secret','completed',NULL,NULL,'submit','{"word":{"$sealed":"v1.Gp/LRoXUoGaPE5XXLNiusVGJ8RCB2Co+UT4sCRkJgzTD2TznYA"}}','{}',0,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,0,0,NULL,25,1794927318724,1794927318767,1794927318844,883,NULL,NULL,0,0);
INSERT INTO "job" VALUES(12,2,0,'fails','failed','exit_code','step bad failed: exit code 3','retry','{}','{}',0,NULL,NULL,0,2,NULL,NULL,NULL,NULL,NULL,NULL,0,1,0,20,35,1794927321772,1794927321798,1794927321856,3894,NULL,NULL,0,0);
INSERT INTO "job" VALUES(13,1,0,'hello','completed',NULL,NULL,'schedule','{}','{}',0,NULL,NULL,0,NULL,NULL,1,1794927321822,NULL,NULL,NULL,0,0,0,NULL,36,1794927321822,1794927321841,1794927321860,3899,NULL,NULL,0,0);
INSERT INTO "job" VALUES(14,9,0,'greet','completed',NULL,NULL,'submit','{"name":"world"}','{}',0,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,0,0,NULL,44,1794965957121,1794965957129,1794965957188,6459,NULL,NULL,0,0);
INSERT INTO "job" VALUES(15,10,0,'fails','failed','exit_code','step build failed: exit code 2','submit','{}','{}',0,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,1,0,25,42,1794965957141,1794965957156,1794965957169,6440,NULL,NULL,0,0);
CREATE TABLE logout (
        session  TEXT    PRIMARY KEY,
        until_at INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
INSERT INTO "logout" VALUES('5f1d0c',1800000000000);
CREATE TABLE milestone (
        age_ms     INTEGER PRIMARY KEY,
        at         INTEGER NOT NULL,
        up         INTEGER NOT NULL,
        owed_ms    INTEGER NOT NULL,
        job_id     INTEGER NOT NULL,
        event_seq  INTEGER NOT NULL,
        outbox_id  INTEGER NOT NULL,
        session_id INTEGER NOT NULL
    ) STRICT;
INSERT INTO "milestone" VALUES(0,1794965956935,6206,0,13,30,5,1);
CREATE TABLE outbox (
    outbox_id    INTEGER PRIMARY KEY AUTOINCREMENT,
    event_seq    INTEGER NOT NULL,
    target       TEXT    NOT NULL,
    job_id       INTEGER,
    state        TEXT    NOT NULL,
    attempts     INTEGER NOT NULL DEFAULT 0,
    tries        INTEGER NOT NULL DEFAULT 0,
    next_up      INTEGER,
    created_at   INTEGER NOT NULL,
    delivered_at INTEGER,
    last_error   TEXT,
    CHECK (CASE state
        WHEN 'pending'   THEN next_up IS NOT NULL AND delivered_at IS NULL
        WHEN 'delivered' THEN next_up IS NULL AND delivered_at IS NOT NULL AND attempts > 0
        WHEN 'given_up'  THEN next_up IS NULL AND delivered_at IS NULL AND last_error IS NOT NULL
        ELSE 0 END)
) STRICT;
INSERT INTO "outbox" VALUES(1,20,'dead',2,'given_up',2,2,NULL,1794927318793,NULL,'the settings have no target "dead" any more');
INSERT INTO "outbox" VALUES(2,20,'team',2,'delivered',1,1,NULL,1794927318793,1794927318812,NULL);
INSERT INTO "outbox" VALUES(4,28,'dead',12,'given_up',1,1,NULL,1794927321856,NULL,'the settings have no target "dead" any more');
INSERT INTO "outbox" VALUES(5,28,'team',12,'delivered',1,1,NULL,1794927321856,1794927321861,NULL);
CREATE TABLE requirement (
    requirement_id INTEGER PRIMARY KEY AUTOINCREMENT,
    tags           TEXT    NOT NULL,
    unmatched      TEXT    NOT NULL CHECK (unmatched = 'fail' OR unmatched = 'wait'),
    lost_up        INTEGER NOT NULL,
    UNIQUE (tags, unmatched)
) STRICT;
INSERT INTO "requirement" VALUES(1,'script','fail',9444);
INSERT INTO "requirement" VALUES(2,'gpu script','wait',677);
CREATE TABLE schedule (
    schedule_id    INTEGER PRIMARY KEY AUTOINCREMENT,
    task           TEXT    NOT NULL,
    name           TEXT    NOT NULL,
    cron           TEXT    NOT NULL,
    timezone       TEXT    NOT NULL,
    input          TEXT    NOT NULL,
    overlap        TEXT    NOT NULL,
    catch_up       TEXT    NOT NULL,
    catch_up_limit INTEGER,
    enabled        INTEGER NOT NULL CHECK (enabled IN (0, 1)),
    paused         INTEGER NOT NULL DEFAULT 0 CHECK (paused IN (0, 1)),
    loaded         INTEGER NOT NULL DEFAULT 1 CHECK (loaded IN (0, 1)),
    next_at        INTEGER,
    look_at        INTEGER,
    created_at     INTEGER NOT NULL,
    removed_at     INTEGER,
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
INSERT INTO "schedule" VALUES(1,'hello','hourly','0 * * * *','UTC','{}','skip','latest',3600000,1,0,0,NULL,NULL,1794927317977,1794965956930);
INSERT INTO "schedule" VALUES(2,'nightly','night','0 3 * * *','UTC','{}','skip','latest',3600000,1,0,1,1794970800000,1794970800000,1794965956930,NULL);
CREATE TABLE schedule_fire (
    schedule_id INTEGER NOT NULL REFERENCES schedule (schedule_id),
    due_at      INTEGER NOT NULL,
    manual      INTEGER NOT NULL CHECK (manual IN (0, 1)),
    outcome     TEXT    NOT NULL,
    job_id      INTEGER REFERENCES job (job_id),
    until_at    INTEGER CHECK (until_at > due_at),
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
INSERT INTO "schedule_fire" VALUES(1,1794927321822,1,'fired',13,NULL,1794927321822,'fired by hand');
CREATE TABLE server (
    only_row         INTEGER PRIMARY KEY CHECK (only_row = 1),
    installation_key TEXT    NOT NULL,
    service_clock_up INTEGER NOT NULL
, change_seq INTEGER NOT NULL DEFAULT 0) STRICT;
INSERT INTO "server" VALUES(1,'cf26736814f21b3da49127872d9f2493',9450,0);
CREATE TABLE session (
    session_id  INTEGER PRIMARY KEY AUTOINCREMENT,
    worker_id   INTEGER NOT NULL REFERENCES worker (worker_id),
    session_key TEXT    NOT NULL UNIQUE,
    opened_at   INTEGER NOT NULL,
    closed_at   INTEGER
) STRICT;
INSERT INTO "session" VALUES(1,1,'8034b4d00ceda04a1280bb0c4263964c',1794927318198,NULL);
INSERT INTO "session" VALUES(2,2,'fb7f7a591c8ecc6377dc33d14e594c4a',1794965956950,NULL);
CREATE TABLE step (
    step_id        INTEGER PRIMARY KEY AUTOINCREMENT,
    job_id         INTEGER NOT NULL REFERENCES job (job_id),
    position       INTEGER NOT NULL,
    item           INTEGER NOT NULL DEFAULT -1,
    kind           TEXT    NOT NULL,
    state          TEXT    NOT NULL,
    reason         TEXT,
    message        TEXT,
    requirement_id INTEGER REFERENCES requirement (requirement_id),
    priority       INTEGER NOT NULL,
    attempt        INTEGER NOT NULL DEFAULT 0,
    tries          INTEGER NOT NULL DEFAULT 0,
    returns        INTEGER NOT NULL DEFAULT 0,
    waiting_on     INTEGER NOT NULL CHECK (waiting_on >= 0),
    worker_id      INTEGER,
    session_id     INTEGER,
    child_job_id   INTEGER REFERENCES job (job_id),
    origin_step_id INTEGER REFERENCES step (step_id),
    exit_code      INTEGER,
    output         TEXT,
    item_value     TEXT,
    absent_beats   INTEGER NOT NULL DEFAULT 0,
    ready_at       INTEGER,
    assigned_at    INTEGER,
    started_at     INTEGER,
    ended_at       INTEGER,
    queued_up      INTEGER,
    since_up       INTEGER NOT NULL,
    due_up         INTEGER,
    not_before_up  INTEGER,
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
INSERT INTO "step" VALUES(1,1,0,-1,'work','completed',NULL,NULL,1,0,1,1,0,0,1,1,NULL,NULL,0,NULL,NULL,0,1794927318245,1794927318262,1794927318313,1794927318523,283,562,NULL,NULL);
INSERT INTO "step" VALUES(2,2,0,-1,'work','failed','exit_code','exit code 3',1,0,2,2,0,0,1,1,NULL,NULL,3,NULL,NULL,0,1794927318502,1794927318646,1794927318733,1794927318793,540,831,NULL,NULL);
INSERT INTO "step" VALUES(3,2,1,-1,'work','skipped','dependency_not_accepted','step bad failed, which it does not accept',1,0,0,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,1794927318793,NULL,831,NULL,NULL);
INSERT INTO "step" VALUES(4,3,0,-1,'approval','completed',NULL,NULL,NULL,0,0,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,1794927318339,NULL,NULL,1794927321752,NULL,3791,NULL,NULL);
INSERT INTO "step" VALUES(5,3,1,-1,'work','completed',NULL,NULL,1,0,1,1,0,0,1,1,NULL,NULL,0,NULL,NULL,0,1794927321752,1794927321753,1794927321772,1794927321807,3791,3846,NULL,NULL);
INSERT INTO "step" VALUES(6,4,0,-1,'approval','suspended',NULL,'go?',NULL,0,0,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,1794927318361,NULL,NULL,NULL,NULL,399,NULL,NULL);
INSERT INTO "step" VALUES(7,4,1,-1,'work','pending',NULL,NULL,1,0,0,0,0,1,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,399,NULL,NULL);
INSERT INTO "step" VALUES(8,5,0,-1,'task','completed',NULL,NULL,NULL,0,1,1,0,0,NULL,NULL,6,NULL,NULL,NULL,NULL,0,NULL,NULL,1794927318493,1794927318669,NULL,708,NULL,NULL);
INSERT INTO "step" VALUES(9,5,1,-1,'loop','completed',NULL,NULL,NULL,0,0,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,1794927318493,1794927318733,NULL,772,NULL,NULL);
INSERT INTO "step" VALUES(10,6,0,-1,'work','completed',NULL,NULL,1,0,1,1,0,0,1,1,NULL,NULL,0,NULL,NULL,0,1794927318493,1794927318495,1794927318545,1794927318669,532,708,NULL,NULL);
INSERT INTO "step" VALUES(11,5,1,0,'work','completed',NULL,NULL,1,0,1,1,0,0,1,1,NULL,NULL,0,NULL,'"a"',0,1794927318493,1794927318495,1794927318545,1794927318733,532,772,NULL,NULL);
INSERT INTO "step" VALUES(12,5,1,1,'work','completed',NULL,NULL,1,0,1,1,0,0,1,1,NULL,NULL,0,NULL,'"b"',0,1794927318493,1794927318502,1794927318545,1794927318646,532,684,NULL,NULL);
INSERT INTO "step" VALUES(13,5,1,2,'work','completed',NULL,NULL,1,0,1,1,0,0,1,1,NULL,NULL,0,NULL,'"c"',0,1794927318493,1794927318523,1794927318577,1794927318709,532,747,NULL,NULL);
INSERT INTO "step" VALUES(14,7,0,-1,'work','running',NULL,NULL,1,0,1,1,0,0,1,1,NULL,NULL,NULL,NULL,NULL,0,1794927318613,1794927318669,1794927318733,NULL,652,772,86400772,NULL);
INSERT INTO "step" VALUES(15,7,1,-1,'work','pending',NULL,NULL,1,0,0,0,0,1,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,652,NULL,NULL);
INSERT INTO "step" VALUES(16,8,0,-1,'work','ready',NULL,NULL,2,0,0,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,1794927318638,NULL,NULL,NULL,677,677,NULL,NULL);
INSERT INTO "step" VALUES(17,9,0,-1,'work','running',NULL,NULL,1,0,1,1,0,0,1,1,NULL,NULL,NULL,NULL,NULL,0,1794927318665,1794927318709,1794927318744,NULL,703,783,86400783,NULL);
INSERT INTO "step" VALUES(18,10,0,-1,'work','pending',NULL,NULL,1,0,0,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,721,NULL,NULL);
INSERT INTO "step" VALUES(19,11,0,-1,'work','completed',NULL,NULL,1,0,1,1,0,0,1,1,NULL,NULL,0,NULL,NULL,0,1794927318724,1794927318733,1794927318767,1794927318844,763,883,NULL,NULL);
INSERT INTO "step" VALUES(20,12,0,-1,'work','failed','exit_code','exit code 3',1,0,2,2,0,0,1,1,NULL,NULL,3,NULL,NULL,0,1794927321831,1794927321831,1794927321843,1794927321856,3870,3894,NULL,NULL);
INSERT INTO "step" VALUES(21,12,1,-1,'work','skipped','dependency_not_accepted','step bad failed, which it does not accept',1,0,0,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,1794927321856,NULL,3894,NULL,NULL);
INSERT INTO "step" VALUES(22,13,0,-1,'work','completed',NULL,NULL,1,0,1,1,0,0,1,1,NULL,NULL,0,NULL,NULL,0,1794927321822,1794927321823,1794927321841,1794927321860,3860,3899,NULL,NULL);
INSERT INTO "step" VALUES(23,14,0,-1,'work','completed',NULL,NULL,1,0,1,1,0,0,2,2,NULL,NULL,0,'{"greeted":"world"}',NULL,0,1794965957121,1794965957123,1794965957129,1794965957145,6391,6416,NULL,NULL);
INSERT INTO "step" VALUES(24,14,1,-1,'work','completed',NULL,NULL,1,0,1,1,0,0,2,2,NULL,NULL,0,NULL,NULL,0,1794965957145,1794965957169,1794965957176,1794965957188,6416,6459,NULL,NULL);
INSERT INTO "step" VALUES(25,15,0,-1,'work','failed','exit_code','exit code 2',1,0,1,1,0,0,2,2,NULL,NULL,2,NULL,NULL,0,1794965957141,1794965957145,1794965957156,1794965957169,6412,6440,NULL,NULL);
INSERT INTO "step" VALUES(26,15,1,-1,'work','skipped','dependency_not_accepted','step build failed, which it does not accept',1,0,0,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,1794965957169,NULL,6440,NULL,NULL);
CREATE TABLE token (
        token_id      INTEGER PRIMARY KEY AUTOINCREMENT,
        name          TEXT    NOT NULL,
        role          TEXT    NOT NULL,
        hash          TEXT    NOT NULL,
        tags          TEXT,
        made_by       TEXT    NOT NULL,
        created_at    INTEGER NOT NULL,
        expires_at    INTEGER,
        used_at       INTEGER,
        ended_at      INTEGER,
        made_token_id INTEGER REFERENCES token (token_id),
        CHECK (CASE role
            WHEN 'viewer'    THEN tags IS NULL AND made_token_id IS NULL
            WHEN 'operator'  THEN tags IS NULL AND made_token_id IS NULL
            WHEN 'admin'     THEN tags IS NULL AND made_token_id IS NULL
            WHEN 'worker'    THEN made_token_id IS NULL
            WHEN 'enrolment' THEN expires_at IS NOT NULL AND (made_token_id IS NULL OR ended_at IS NOT NULL)
            ELSE 0 END)
    ) STRICT;
INSERT INTO "token" VALUES(1,'t-admin','admin','83124e449488e50c0eda519309ff8c3b11e7a8e3364f18e324a5d1a25cea85d2',NULL,'console',1794965975662,NULL,NULL,NULL,NULL);
INSERT INTO "token" VALUES(2,'t-viewer','viewer','58a0b6539148fa7ba7287d1a589de339c2cf08034e329aa769019c302355684c',NULL,'console',1794965975674,NULL,NULL,1794965975699,NULL);
INSERT INTO "token" VALUES(3,'t-enrolment','enrolment','238ea7e1d14717f7e16c120990bd6513233cba0e26791bf5fa88f371e4a77a19',NULL,'console',1794965975686,1794969575686,NULL,NULL,NULL);
CREATE TABLE worker (
    worker_id     INTEGER PRIMARY KEY AUTOINCREMENT,
    instance_key  TEXT    NOT NULL,
    name          TEXT    NOT NULL,
    state         TEXT    NOT NULL CHECK (state = 'active' OR state = 'inactive'),
    draining      INTEGER NOT NULL DEFAULT 0 CHECK (draining IN (0, 1)),
    paused        INTEGER NOT NULL DEFAULT 0 CHECK (paused IN (0, 1)),
    tags          TEXT    NOT NULL,
    slots         INTEGER NOT NULL CHECK (slots >= 0),
    version       TEXT    NOT NULL,
    platform      TEXT    NOT NULL,
    session_id    INTEGER REFERENCES session (session_id),
    heartbeat_seq INTEGER NOT NULL DEFAULT -1,
    seen_at       INTEGER NOT NULL,
    seen_up       INTEGER NOT NULL,
    created_at    INTEGER NOT NULL,
    deleted_at    INTEGER, token_id INTEGER,
    CHECK (deleted_at IS NULL OR state = 'inactive')
) STRICT;
INSERT INTO "worker" VALUES(1,'e64ec46753e9a5756cf7c139302245fe','ann','active',0,0,'script',4,'0.1.0','linux-x86_64',1,1,1794927321767,3805,1794927318198,NULL,NULL);
INSERT INTO "worker" VALUES(2,'bc6e74049d0e44e9cc277928aa825ad6','vm','active',1,0,'script',1,'0.1.0','linux-x86_64',2,1,1794965960173,9444,1794965956950,NULL,NULL);
CREATE UNIQUE INDEX worker_by_instance ON worker (instance_key) WHERE deleted_at IS NULL;
CREATE INDEX worker_by_silence ON worker (seen_up) WHERE state = 'active';
CREATE UNIQUE INDEX session_open ON session (worker_id) WHERE closed_at IS NULL;
CREATE INDEX capability_by_requirement ON capability (requirement_id, worker_id);
CREATE INDEX job_asked_for ON job (job_id) WHERE parent_step_id IS NULL;
CREATE INDEX job_open ON job (job_id) WHERE ended_at IS NULL;
CREATE INDEX job_in_trouble ON job (ended_at)
    WHERE parent_step_id IS NULL AND (state = 'failed' OR (state = 'cancelled' AND reason IN ('job_timeout', 'queue_timeout')));
CREATE INDEX job_of_task ON job (task, state, job_id);
CREATE INDEX job_by_change ON job (change_seq);
CREATE UNIQUE INDEX job_by_parent ON job (parent_step_id, parent_attempt) WHERE parent_step_id IS NOT NULL;
CREATE INDEX job_by_retry ON job (retry_of) WHERE retry_of IS NOT NULL;
CREATE INDEX job_by_hook ON job (hook_of) WHERE hook_of IS NOT NULL;
CREATE INDEX job_of_schedule ON job (schedule_id, job_id) WHERE schedule_id IS NOT NULL AND ended_at IS NULL;
CREATE INDEX job_by_not_before ON job (not_before) WHERE hold = 'not_before';
CREATE INDEX job_in_group ON job (concurrency_group, hold, priority DESC, job_id)
    WHERE concurrency_group IS NOT NULL AND ended_at IS NULL;
CREATE INDEX job_by_due ON job (due_up) WHERE due_up IS NOT NULL;
CREATE UNIQUE INDEX step_of_job ON step (job_id, position, item);
CREATE INDEX step_claimable ON step (requirement_id, priority DESC, queued_up, step_id)
    WHERE state = 'ready' AND not_before_up IS NULL AND requirement_id IS NOT NULL;
CREATE INDEX step_held ON step (session_id) WHERE ended_at IS NULL AND session_id IS NOT NULL;
CREATE INDEX step_suspended ON step (step_id) WHERE state = 'suspended';
CREATE INDEX step_delayed ON step (not_before_up) WHERE not_before_up IS NOT NULL;
CREATE INDEX step_held_back ON step (job_id, position, item) WHERE state = 'pending' AND waiting_on = 0;
CREATE INDEX step_by_ack ON step (due_up) WHERE state = 'assigned';
CREATE INDEX step_by_timeout ON step (due_up) WHERE due_up IS NOT NULL AND state <> 'assigned';
CREATE INDEX step_forgotten ON step (since_up) WHERE state = 'running' AND absent_beats >= 2;
CREATE INDEX avoidance_by_worker ON avoidance (worker_id);
CREATE INDEX event_by_job ON event (job_id, seq) WHERE job_id IS NOT NULL;
CREATE INDEX event_by_worker ON event (worker_id, seq) WHERE worker_id IS NOT NULL;
CREATE INDEX event_of_recovery ON event (seq) WHERE phase IS NOT NULL;
CREATE INDEX event_of_phase ON event (phase, seq) WHERE phase IS NOT NULL;
CREATE UNIQUE INDEX event_once ON event (step_id, attempt, kind) WHERE step_id IS NOT NULL;
CREATE UNIQUE INDEX outbox_once ON outbox (event_seq, target);
CREATE INDEX outbox_pending ON outbox (target, next_up, outbox_id) WHERE state = 'pending';
CREATE INDEX outbox_of_job ON outbox (job_id, outbox_id) WHERE job_id IS NOT NULL;
CREATE INDEX schedule_by_look ON schedule (look_at) WHERE look_at IS NOT NULL AND loaded = 1;
CREATE INDEX schedule_that_waits ON schedule (schedule_id) WHERE look_at IS NOT next_at AND loaded = 1;
CREATE UNIQUE INDEX schedule_fire_queued ON schedule_fire (schedule_id) WHERE outcome = 'queued';
CREATE INDEX schedule_fire_without_job ON schedule_fire (schedule_id, at) WHERE job_id IS NULL;
CREATE UNIQUE INDEX schedule_fire_by_job ON schedule_fire (job_id) WHERE job_id IS NOT NULL;
CREATE INDEX worker_of_token ON worker (token_id) WHERE token_id IS NOT NULL;
CREATE INDEX worker_by_name ON worker (name) WHERE state = 'active' AND token_id IS NOT NULL;
CREATE INDEX token_that_holds ON token (role, token_id) WHERE ended_at IS NULL;
CREATE INDEX token_by_end ON token (coalesce(ended_at, expires_at));
CREATE INDEX token_of_enrolment ON token (made_token_id) WHERE made_token_id IS NOT NULL;
CREATE INDEX logout_by_until ON logout (until_at);
CREATE INDEX step_served ON step (kind) WHERE state = 'running' AND session_id IS NULL;
CREATE INDEX job_with_logs ON job (job_id) WHERE logs_removed_at IS NULL AND ended_at IS NOT NULL;
CREATE INDEX job_of_definition ON job (definition_id);
CREATE INDEX job_leaving ON job (job_id) WHERE leaving = 1;
CREATE INDEX job_by_failed_step ON job (failed_step_id) WHERE failed_step_id IS NOT NULL;
CREATE INDEX step_by_child ON step (child_job_id) WHERE child_job_id IS NOT NULL;
CREATE INDEX step_by_origin ON step (origin_step_id) WHERE origin_step_id IS NOT NULL;
CREATE INDEX worker_by_absence ON worker (seen_up) WHERE state = 'inactive' AND deleted_at IS NULL;
CREATE INDEX worker_deleted ON worker (worker_id) WHERE deleted_at IS NOT NULL;
CREATE INDEX worker_by_session ON worker (session_id) WHERE session_id IS NOT NULL;
CREATE INDEX session_of_worker ON session (worker_id);
CREATE INDEX idempotency_by_job ON idempotency (job_id);
CREATE INDEX schedule_fire_by_age ON schedule_fire (at) WHERE job_id IS NULL AND outcome <> 'queued';
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('schedule',2);
INSERT INTO "sqlite_sequence" VALUES('worker',2);
INSERT INTO "sqlite_sequence" VALUES('session',2);
INSERT INTO "sqlite_sequence" VALUES('event',41);
INSERT INTO "sqlite_sequence" VALUES('definition',10);
INSERT INTO "sqlite_sequence" VALUES('job',15);
INSERT INTO "sqlite_sequence" VALUES('requirement',2);
INSERT INTO "sqlite_sequence" VALUES('step',26);
INSERT INTO "sqlite_sequence" VALUES('outbox',6);
INSERT INTO "sqlite_sequence" VALUES('token',3);
PRAGMA application_id = 1398034519;
PRAGMA user_version = 3;
COMMIT;
