//! Why a step waits, and why it ended as it did: two closed sets.

use super::words;

words! {
    /// Why a step or job ended without completing.
    pub enum Reason {
        ExitCode = "exit_code",
        Signal = "signal",
        SpawnError = "spawn_error",
        TemplateError = "template_error",
        PayloadError = "payload_error",
        OutputInvalid = "output_invalid",
        WorkerLost = "worker_lost",
        WorkerRestarted = "worker_restarted",
        WorkerDeleted = "worker_deleted",
        WorkerForgot = "worker_forgot",
        WorkerShutdown = "worker_shutdown",
        AssignmentExhausted = "assignment_exhausted",
        StepTimeout = "step_timeout",
        ApprovalTimeout = "approval_timeout",
        ApprovalRejected = "approval_rejected",
        JobTimeout = "job_timeout",
        QueueTimeout = "queue_timeout",
        Unmatched = "unmatched",
        DependencyNotAccepted = "dependency_not_accepted",
        WhenFalse = "when_false",
        EmptyLoop = "empty_loop",
        ChildFailed = "child_failed",
        InstanceFailed = "instance_failed",
        /// A person failed the step.
        FailedByUser = "failed_by_user",
        CancelledByUser = "cancelled_by_user",
        CancelledByParent = "cancelled_by_parent",
        ChildCancelled = "child_cancelled",
        Superseded = "superseded",
        OverlapSkipped = "overlap_skipped",
    }
}

impl Reason {
    /// The reasons that a worker itself may give for a failed attempt; all others are the server's.
    pub fn is_reported(self) -> bool {
        use Reason::*;
        matches!(
            self,
            ExitCode
                | Signal
                | SpawnError
                | PayloadError
                | OutputInvalid
                | StepTimeout
                | WorkerShutdown
        )
    }

    /// The worker vanished with the attempt; what the step did until then is unknown.
    pub fn is_worker_loss(self) -> bool {
        use Reason::*;
        matches!(
            self,
            WorkerLost | WorkerRestarted | WorkerDeleted | WorkerForgot
        )
    }
}

words! {
    /// Why a step that has not ended is where it is.
    pub enum Waiting {
        Dependencies = "dependencies",
        NotBefore = "not_before",
        RetryBackoff = "retry_backoff",
        Concurrency = "concurrency",
        Paused = "paused",
        Approval = "approval",
        /// Suspended after its worker was lost, until a person decides.
        Held = "held",
        ChildJob = "child_job",
        Instances = "instances",
        NoMatchingWorker = "no_matching_worker",
        MatchingWorkersSilent = "matching_workers_silent",
        WorkersBusy = "workers_busy",
        Claimable = "claimable",
        Preparing = "preparing",
        Running = "running",
    }
}
