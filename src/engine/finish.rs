//! A worker reports how its attempt ended. One report wins; those of a former attempt or session change nothing.

use super::EngineError;
use super::cascade::{Cascade, Failure};
use super::check::{check_json, workers_sentence};
use super::inputs::sentence;
use super::report::Together;
use super::scope::parsed;
use crate::domain::Json;
use crate::domain::limits;
use crate::domain::protocol::{Finished, Verdict};
use crate::domain::reason::Reason;
use crate::domain::step::{StepHead, StepState};
use crate::domain::value::ValueSpec;
use crate::language::values::check_values;
use crate::sealer::{SEALED_KEY, Sealer};
use crate::store::Ending;

/// The report as it counts. What is wrong with it must not keep its step from ending: it makes it fail.
fn made_good(report: &Finished, outputs: &[ValueSpec]) -> Finished {
    if let Finished::Completed {
        output: Some(output),
        exit_code,
    } = report
        && let Some(value) = Sealer::with_reserved_key(&output.0)
    {
        let path = Sealer::reserved_key_path("output", &value).unwrap_or_default();
        return Finished::Failed {
            reason: Reason::OutputInvalid,
            message: format!(
                "its output has the key `{SEALED_KEY}` at {}, which marks encrypted values of the server and is not allowed here; use \
                 another key",
                limits::shorten(&path)
            ),
            exit_code: *exit_code,
        };
    }
    match report {
        Finished::Completed { output, exit_code } if !outputs.is_empty() => {
            let given = output.as_ref().map_or(serde_json::Value::Null, parsed);
            let (output, message) = match check_values(outputs, &given) {
                Ok(values) => (Json(serde_json::Value::Object(values).to_string()), None),
                Err(violations) => (Json::empty_object(), Some(sentence(&violations))),
            };
            match message {
                None => made_good(
                    &Finished::Completed {
                        output: Some(output),
                        exit_code: *exit_code,
                    },
                    &[],
                ),
                Some(message) => Finished::Failed {
                    reason: Reason::OutputInvalid,
                    message: format!("its output is not what it promises: {message}"),
                    exit_code: *exit_code,
                },
            }
        }
        Finished::Completed {
            output: Some(output),
            exit_code,
        } => match check_json("output", output, limits::OUTPUT_BYTES_MAX) {
            // A member that is there twice may hide the reserved key from whoever parses the text, and must not be stored and shown.
            Ok(()) if Sealer::may_have_reserved_key(&output.0) => Finished::Completed {
                output: Some(Json(parsed(output).to_string())),
                exit_code: *exit_code,
            },
            Ok(()) => report.clone(),
            Err(error) => Finished::Failed {
                reason: Reason::OutputInvalid,
                message: error.to_string(),
                exit_code: *exit_code,
            },
        },
        Finished::Completed { .. } => report.clone(),
        Finished::Failed {
            reason,
            message,
            exit_code,
        } => {
            let message = workers_sentence(message, "the worker did not say why");
            let (reason, message) = match reason.is_reported() {
                true => (*reason, message),
                false => (
                    Reason::OutputInvalid,
                    format!(
                        "the worker gave the reason {reason}, which is the server's: {message}"
                    ),
                ),
            };
            Finished::Failed {
                reason,
                message,
                exit_code: *exit_code,
            }
        }
    }
}

impl Cascade<'_> {
    /// Ends an attempt that the fence has let through, as reported.
    pub(super) fn finish_attempt(
        &mut self,
        step: &StepHead,
        report: &Finished,
        together: &mut Together,
    ) -> Result<Verdict, EngineError> {
        if step.state != StepState::Running {
            return Ok(Verdict::abort(format!(
                "{} was never started",
                step.attempt_ref()
            )));
        }
        let context = self.context(step.job_id)?;
        match made_good(report, &context.draft(step).outputs) {
            Finished::Completed { output, exit_code } => {
                let ending = Ending::completed(exit_code, output);
                together.ending.push((step.clone(), ending));
            }
            Finished::Failed {
                reason,
                message,
                exit_code,
            } => {
                let failure = Failure::new(reason, message).exited(exit_code);
                let failed = self.fail_or_retry(&context, step, failure)?;
                assert!(failed, "nobody moves the step within our transaction");
            }
        }
        Ok(Verdict::Accepted)
    }
}
