//! What else is to know, a screen each.

use super::Said;

pub const TOPICS: &[(&str, Said)] = &[
    (
        "exit-codes",
        Said {
            title: "how commands end",
            text: "Every code has one meaning, in every command.",
        },
    ),
    (
        "recovery",
        Said {
            title: "what happens when nobody acts",
            text: "Always on, at the latest every `sweep_interval_secs`, in four phases:

  1  workers that were silent for `heartbeat_timeout_secs` become inactive; what they ran fails (worker_lost), what they had not
     begun goes back to the queue
  2  steps that ran longer than their `timeout` fail, and so do approvals that nobody gave in time
  3  jobs that ran longer than their `timeout` are cancelled with all they made
  4  ready steps that no active worker can run fail after `unmatched_step_timeout_secs` (`unmatched: wait` lets them wait)

What ran may have run in part, so it is not tried again unless it says so: `retry`, or `on_worker_loss: retry`, or `hold`.
`stepward recovery` tells what it did and what it will do, to whom and when.",
        },
    ),
    (
        "rollback",
        Said {
            title: "an older copy of the database was put in place",
            text: "Workers remember the last start and the last commit of the server that they have seen. If the database does not know them,
somebody put an older copy of the data folder in place, and what happened later is not in it. The server then refuses the calls of
these workers, records the event `rollback_noticed` and shows the problem `database_rolled_back`. The workers keep their results and
logs and try again. Two ways out, with the server stopped:

  put the later data folder back      the workers report as if nothing had happened
  stepward server --data-dir FOLDER --accept-older-database
                                      start it so once to go on with the older state; what happened later is lost

Restoring a backup needs neither: `stepward restore` begins a new lineage, which workers accept.",
        },
    ),
    (
        "states",
        Said {
            title: "how far jobs, steps and workers are",
            text: "Steps:
  pending    waits for other steps, or for its turn
  ready      a worker may take it
  assigned   a worker makes it ready
  running
  suspended  waits for a person, or for its next attempt to be allowed
  completed, failed, cancelled
  skipped    its `when` said no, its list was empty, or what it depends on did not end as it asks
Jobs:     pending, running, completed, failed, cancelled, skipped
Workers:  active, inactive (silent for too long, or gone)

`stepward why JOB` says what something waits for, or why it ended so.",
        },
    ),
    (
        "completed",
        Said {
            title: "it ended well",
            text: "There is nothing to do. `stepward job show JOB` has what it gave, `stepward logs JOB` what it printed.",
        },
    ),
    (
        "selectors",
        Said {
            title: "how jobs and steps are named",
            text: "  42              the job with this number
  latest          the last job that no other job made
  release@latest  the last one of a task
  release@failed  the last one of a task that is so; any status will do: pending, running, completed, failed, cancelled, skipped
  42/unit         a step of it
  42/test[2]      an instance of a loop; quote it, shells read brackets",
        },
    ),
    (
        "templates",
        Said {
            title: "what {{ … }} may speak of",
            text: "Jinja, strict: a name that is not there is an error. Rendered on the server when the step goes to a worker.

  input.NAME                  what the job was given, or the action
  steps.NAME.output.KEY       what an earlier step gave; also .status and .error
  each.item, each.index       in a step with for_each
  env.NAME                    of the task and of the step
  secret.NAME                 as `secrets` says where it is found
  job.id, .task, .attempt, .started_at, .scheduled_at

A text that is exactly one {{ … }} keeps the type of its value. In scripts what others decide needs a filter: {{ input.name | sh }} is one
quoted word, {{ input | json }} is JSON. {{ x | default('y') }} allows x to be missing. {%# … #%} is a comment.
`stepward render TASK` shows what becomes of them.",
        },
    ),
    (
        "durations",
        Said {
            title: "how long something is",
            text: "  90      seconds
  30s, 5m, 2h, 7d
  1h30m   large units first, each once

In settings files names that end in `_secs` are whole seconds, without a unit.",
        },
    ),
    (
        "environment",
        Said {
            title: "variables that we read, and those that steps see",
            text: "Read by commands:
  STEPWARD_SERVER_URL, STEPWARD_TOKEN, STEPWARD_TOKEN_FILE      which server, and its token
  NO_COLOR, CLICOLOR_FORCE, TERM, LC_ALL, LC_CTYPE, LANG        how things look
Read by `stepward server`:
  STEPWARD_LISTEN, STEPWARD_DATA_DIR, STEPWARD_WORKFLOWS_DIR, STEPWARD_EMBEDDED_WORKER, STEPWARD_LOG_FORMAT
  STEPWARD_RECOVERY_ACK_TIMEOUT_SECS sets recovery.ack_timeout_secs, and so on for every setting that is no list
Read by `stepward worker`:
  STEPWARD_SERVER_URL, STEPWARD_TOKEN, STEPWARD_WORKER_NAME, STEPWARD_WORKER_TAGS, STEPWARD_WORKER_SLOTS
  STEPWARD_WORKER_DATA_DIR sets data_dir, and so on for every setting that is no list
Read by both:
  STEPWARD_LOG                                                  what they say of themselves, such as debug
A flag overrides the environment, the environment overrides the settings file.

Seen by steps:
  INPUT_NAME                      each input of the job, or of the action
  EACH_ITEM, EACH_INDEX           in a loop
  STEPWARD_OUTPUT                 a file: name=value lines become the step's output
  STEPWARD_WORKSPACE, STEPWARD_TMP
  STEPWARD_JOB_ID, STEPWARD_TASK, STEPWARD_STEP, STEPWARD_ATTEMPT, STEPWARD_WORKER, STEPWARD_JOB_URL
  STEPWARD_SCHEDULED_AT           the time that a schedule meant
  STEPWARD_STARTED_AT             when the attempt started (a step that reads it needs a worker of version 0.2 or newer)
  STEPWARD, CI                    that it runs here, and not by hand
and of the worker's own: PATH, HOME, USER, LOGNAME, SHELL, LANG, LC_*, TZ.",
        },
    ),
];
