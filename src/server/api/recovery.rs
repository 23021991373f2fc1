//! Recovery: its settings, its last sweep, what it will do, what it did.

use super::show;
use crate::domain::EventSeq;
use crate::domain::recovery::Recovery;
use crate::engine::EngineError;
use crate::server::App;
use crate::server::error::ApiError;
use crate::server::exchange::{Reply, Request, Response};
use crate::store::StoreError;
use crate::sweeper::recovery_forecast;
use crate::wire::api::{
    ForecastJson, LastSweepJson, RecoveryJson, RecoverySettingsJson, SweepActionJson, SweepJson,
};

const HISTORY: u32 = 50;

pub fn show(app: &App, request: &Request) -> Result<Reply, ApiError> {
    request.check_query(&[])?;
    Ok(Response::json(200, &look(app)?).into())
}

/// One sweep now: all four phases, on the thread of the request.
pub fn sweep(app: &App, request: &Request) -> Result<Reply, ApiError> {
    request.says_no_more()?;
    let now = app.clock.now();
    app.engine.prove_writing(now)?;
    let report = app.sweeper.sweep_now(&app.engine, now);
    let report = report.ok_or(EngineError::Store(StoreError::Busy { waited_ms: 0 }))?;
    let (actions, failures) = (report.recoveries.len(), report.failures.len());
    app.engine_for(request).tell_sweep(actions, failures, now)?;
    let names = app.engine.names_of(&report.recoveries)?;
    let actions = report.recoveries.iter().zip(names);
    let actions = actions.map(|(recovery, names)| SweepActionJson {
        phase: recovery.phase.number(),
        action: recovery.deed.to_string(),
        reason: recovery.reason.map(|reason| reason.to_string()),
        job_id: recovery.job_id.map(|id| id.0),
        task: names.task,
        step_id: recovery.step_id.map(|id| id.0),
        step: names.step,
        worker_id: recovery.worker_id.map(|id| id.0),
        worker: names.worker,
    });
    let swept = SweepJson {
        actions: actions.collect(),
        failures,
        more: report.more,
    };
    Ok(Response::json(200, &swept).into())
}

/// As it is now.
pub fn look(app: &App) -> Result<RecoveryJson, EngineError> {
    let settings = app.engine.settings;
    let forecast = recovery_forecast(&app.engine, app.clock.now())?;
    let recoveries = forecast.foreseen.iter();
    let recoveries: Vec<Recovery> = recoveries.map(|it| it.recovery.clone()).collect();
    let names = app.engine.names_of(&recoveries)?;
    let foreseen = forecast
        .foreseen
        .iter()
        .zip(names)
        .map(|(foreseen, names)| {
            let recovery = &foreseen.recovery;
            ForecastJson {
                phase: recovery.phase.number(),
                action: recovery.deed.to_string(),
                reason: recovery.reason.map(|reason| reason.to_string()),
                job_id: recovery.job_id.map(|id| id.0),
                task: names.task,
                step_id: recovery.step_id.map(|id| id.0),
                step: names.step,
                worker_id: recovery.worker_id.map(|id| id.0),
                worker: names.worker,
                in_secs: show::secs(foreseen.in_ms),
            }
        });
    let history = app.engine.recoveries_before(EventSeq(i64::MAX), HISTORY)?;
    Ok(RecoveryJson {
        settings: RecoverySettingsJson {
            heartbeat_interval_secs: settings.heartbeat_interval_ms / 1_000,
            heartbeat_timeout_secs: settings.heartbeat_timeout_ms / 1_000,
            sweep_interval_secs: settings.sweep_interval_ms / 1_000,
            unmatched_step_timeout_secs: settings.unmatched_step_timeout_ms / 1_000,
            ack_timeout_secs: settings.ack_timeout_ms / 1_000,
            prepare_timeout_secs: settings.prepare_timeout_ms / 1_000,
            report_grace_secs: settings.report_grace_ms / 1_000,
            cancel_grace_secs: settings.cancel_grace_ms / 1_000,
        },
        last_sweep: app.sweeper.last_sweep().map(|last| LastSweepJson {
            at: last.at.into(),
            recoveries: last.recoveries,
            failures: last.failures,
        }),
        forecast: foreseen.collect(),
        forecast_more: forecast.more,
        history: history.into_iter().map(show::event).collect(),
    })
}
