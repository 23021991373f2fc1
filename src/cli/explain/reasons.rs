//! Why steps and jobs end without completing.

use super::Said;
use crate::domain::reason::Reason;

pub fn said(reason: Reason) -> Said {
    let (title, text) = match reason {
        Reason::ExitCode => (
            "the step's program ended with another code than 0",
            "What it printed says why: `stepward logs JOB/STEP`. The code is in `stepward job show JOB`.\n\
             Shells give 127 for a program that is not there and 126 for one that may not be run.\n\
             For faults that pass by themselves: `retry: { max_attempts: 3, delay: 10s }`.",
        ),
        Reason::Signal => (
            "the step's program was ended by a signal",
            "SIGKILL (9) without anybody's doing is usually the kernel, which ran out of memory: look at `dmesg` on the worker's machine.\n\
             SIGSEGV (11) and SIGABRT (6) are faults of the program itself.\n\
             Give it less to do at once, a machine with more memory (`tags`), or a `retry`.",
        ),
        Reason::SpawnError => (
            "the worker could not start the step at all",
            "The interpreter, the image or the folder is not there, or may not be used; the message names it.\n\
             Look at the worker's machine: is the program installed, can it pull the image, does `workdir` exist?\n\
             If only some machines have it, give those a tag and name it in `tags` of the step.",
        ),
        Reason::TemplateError => (
            "a template of the step could not be rendered",
            "Something that it speaks of is not there: an output that an earlier step did not give, an item without that field.\n\
             `stepward render TASK --step STEP` shows what is known beforehand; `{{ x | default('…') }}` allows it to be missing.",
        ),
        Reason::PayloadError => (
            "what the step is to be given cannot be made",
            "A secret is not where the file says, an input does not fit the action, or a rendered text is too long.\n\
             The message says which. Secrets are looked for on the server: its environment and its files count, not yours.",
        ),
        Reason::OutputInvalid => (
            "the step ended well, but what it gave back does not fit its `outputs`",
            "The message names the value and what was expected. A step gives values by `echo \"name=value\" >> \"$STEPWARD_OUTPUT\"`\n\
             or by a line `OUTPUT: {\"name\": 1}`. Make the script give it, or the rule in `outputs` say what is meant.",
        ),
        Reason::WorkerLost => (
            "the worker fell silent while it ran the step",
            "Nothing was heard of it for `heartbeat_timeout_secs`: its machine or its network is gone, or it was stopped.\n\
             How far the step came is unknown, so it is not tried again unless it says so: `on_worker_loss: retry` for what may run twice,\n\
             `hold` to be asked. `stepward worker ls` shows who is there, `stepward retry JOB` does the rest again.",
        ),
        Reason::WorkerRestarted => (
            "the worker was started anew while it ran the step",
            "Its former process ended without reporting the step: killed, crashed, or its machine was restarted.\n\
             How far the step came is unknown. `on_worker_loss: retry` for what may run twice; `stepward retry JOB` by hand.",
        ),
        Reason::WorkerDeleted => (
            "somebody removed the worker while it ran the step",
            "It was told to end what it runs. To take a worker away gently, drain it first: `stepward worker drain NAME`.\n\
             `stepward retry JOB` does again what did not complete.",
        ),
        Reason::WorkerForgot => (
            "the worker is there, but no longer reports the step",
            "Its heartbeats have left the step out for longer than `report_grace_secs`: whatever ran it is gone.\n\
             The worker's own log says more. It is a fault worth reporting; `stepward retry JOB` does the step again.",
        ),
        Reason::WorkerShutdown => (
            "the worker was told twice to stop, and ended what it ran",
            "The first SIGTERM lets it finish, up to `drain_timeout_secs`; the second, or that time, ends its steps.\n\
             Let service managers wait long enough (`TimeoutStopSec`), or allow `worker_shutdown` in `retry: { on: [ … ] }`.",
        ),
        Reason::AssignmentExhausted => (
            "several workers were given the step, and none could begin it",
            "Each gave it back or said nothing for `ack_timeout_secs`, too often in a row. `stepward why JOB/STEP` tells who and why.\n\
             Look for a full disk, an image that takes longer than `prepare_timeout_secs`, or a worker that hangs.",
        ),
        Reason::StepTimeout => (
            "the step ran longer than its `timeout`",
            "It got SIGTERM, and SIGKILL after `cancel_grace_secs`. `stepward logs JOB/STEP` shows how far it came.\n\
             Raise `timeout` of the step, or `defaults.step_timeout_secs` of the server; or find what it waited for.",
        ),
        Reason::ApprovalTimeout => (
            "nobody decided in time",
            "The step waited for a person for as long as its `timeout` allows.\n\
             `stepward retry JOB` asks again. `on_suspended` with a notification tells people that they are waited for.",
        ),
        Reason::ApprovalRejected => (
            "somebody said no",
            "Who and why is in the message. Steps that accept `failed` of this one run nevertheless.\n\
             `stepward retry JOB` asks again.",
        ),
        Reason::JobTimeout => (
            "the job ran longer than its `timeout`",
            "It was cancelled with all its steps and child jobs. The time counts from its first start.\n\
             `stepward job show JOB` shows where the time went; raise `timeout` of the task, or of the server (`defaults`).",
        ),
        Reason::QueueTimeout => (
            "the job waited longer for its first step than `queue_timeout` allows",
            "No worker was free, or its concurrency group was full. `stepward queue` shows what waits and for what.\n\
             More workers or slots, or a longer `queue_timeout`.",
        ),
        Reason::Unmatched => (
            "no active worker could run the step",
            "For `unmatched_step_timeout_secs` there was none that offers all its tags and is neither paused nor draining.\n\
             `stepward why JOB/STEP` says what each worker lacks. Start one: `stepward worker --tags script,…`;\n\
             or let the step wait: `unmatched: wait`.",
        ),
        Reason::DependencyNotAccepted => (
            "a step that it depends on did not end as it asks",
            "Usually that step failed or was itself skipped: begin with the first one that failed, `stepward why JOB` names it.\n\
             To run nevertheless: `depends_on: [{ step: build, accept: terminal }]`.",
        ),
        Reason::WhenFalse => (
            "its `when` said no",
            "That is its own choice and no fault. `stepward render TASK -i …` shows what `when` gives for given inputs.\n\
             Empty texts, `false`, `0`, `null` and empty lists mean no.",
        ),
        Reason::EmptyLoop => (
            "the list of its `for_each` was empty",
            "There was nothing to do, which is no fault. Steps that need it accept `skipped`.\n\
             If it should not be empty, look at the step that gave the list.",
        ),
        Reason::ChildFailed => (
            "the job that it called did not complete",
            "`stepward why JOB` leads to the child job and to what failed there. `stepward retry` of the parent does it again.",
        ),
        Reason::InstanceFailed => (
            "at least one item of the loop failed",
            "`stepward job show JOB` lists the instances, such as test[2]; `stepward logs JOB --failed` what the failed ones printed.\n\
             `continue_on_failure: true` keeps that from failing the job.",
        ),
        Reason::FailedByUser => (
            "an admin failed the step",
            "Who failed it and why is in the message. The step is not retried by its policy; steps that accept `failed` of it run.\n\
             `stepward retry JOB` runs the job again from this step.",
        ),
        Reason::CancelledByUser => (
            "somebody cancelled it",
            "By `stepward cancel`, a page or the API; the message says who if that is known. `stepward retry JOB` does the rest.",
        ),
        Reason::CancelledByParent => (
            "the job that called this one ended or was cancelled",
            "Look at the parent: `stepward job show JOB` names it.",
        ),
        Reason::ChildCancelled => (
            "the job that it called was cancelled",
            "By somebody, or for its own reason: look at the child job, which `stepward job show JOB` names.",
        ),
        Reason::Superseded => (
            "a newer job took its place",
            "Its concurrency group, or its schedule's `overlap`, says `cancel_previous`. That is as it was asked for.\n\
             `queue` instead lets the newer one wait.",
        ),
        Reason::OverlapSkipped => (
            "another job was still at it",
            "Its concurrency group was full and says `when_full: skip`, or its schedule says `overlap: skip`.\n\
             `queue` lets it wait instead; a larger `limit` lets several run.",
        ),
    };
    Said { title, text }
}
