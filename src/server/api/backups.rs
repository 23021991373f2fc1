//! Backups: one of everything as a file, and how those go that are made by themselves.

use crate::domain::audit::{AuditAction, AuditEntry};
use crate::domain::event::{EventKind, NewEvent};
use crate::server::App;
use crate::server::backups::Refusal;
use crate::server::download::Download;
use crate::server::error::ApiError;
use crate::server::exchange::{Method, Reply, Request, Response};

/// A tar of the whole installation: as secret as the data folder itself. Asked for with POST, which no link and no address bar
/// sends; `GET` is for the command line of 0.1 and needs a bearer token, see `routes.rs`.
pub fn take(app: &App, request: &Request) -> Result<Reply, ApiError> {
    request.says_no_more()?;
    let response = Response {
        content_type: "application/x-tar",
        ..Response::text(Vec::new())
    };
    let name = "attachment; filename=\"stepward-backup.tar\"";
    let response = response.header("content-disposition", name);
    // Whoever only looks gets none.
    if request.method == Method::Head {
        return Ok(response.into());
    }
    // A refused request must not leave a row that says a backup was taken.
    let place = app.downloads.reserve(app.share_owner(request))?;
    let handed = app.backups.begin().map_err(|refusal| match refusal {
        Refusal::Busy => {
            ApiError::new(503, "busy", "another backup is being handed out, try again")
        }
        Refusal::Failed(error) => ApiError::new(500, "backup_failed", error.to_string()),
    })?;
    // Whoever has one has the secrets: who took it is written down.
    let text = "a backup was taken over the API".to_string();
    let event = NewEvent::new(EventKind::BackupMade, text);
    let entry = AuditEntry::of(AuditAction::BackupTaken);
    app.engine_for(request)
        .tell_audited(event, entry, app.clock.now())?;
    Ok(Reply::Download(
        Download::of(response, handed).in_place(place),
    ))
}

pub fn show(app: &App, request: &Request) -> Result<Reply, ApiError> {
    request.says_no_more()?;
    Ok(Response::json(200, &app.backups.look()).into())
}
