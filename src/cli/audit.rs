//! `stepward audit`: what people and tokens did, whether the log of it fits together, and a copy of it.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use clap::{Args, Subcommand};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::columns::Columns;
use super::columns::Room::{Any, Wide};
use super::exit::{Exit, Fault};
use super::files::refuse_no_database;
use super::look::{Ink, Look, Show};
use super::reach::{Reach, Remote, in_url, name};
use super::say::{answer, answer_json, answer_json_line, answer_json_list, print, say};
use super::sheet::NOTHING;
use super::table::Cell;
use super::words::{count, moment, printable, shown_path};
use crate::clock::wall_time;
use crate::domain::Timestamp;
use crate::domain::audit::{AnchorFault, AuditAction, AuditRow, ChainFault, ChainLink, ChainWalk};
use crate::engine::AuditEnds;
use crate::language::duration;
use crate::language::words::did_you_mean;
use crate::store::{AuditFilter, Store, StoreOptions};
use crate::wire::Time;
use crate::wire::api::{AuditEndsJson, AuditJson, AuditLinkJson, List};

/// Rows that a list shows unless another number is asked for.
const NEWEST: u32 = 50;
/// Rows of one request.
const PAGE: u32 = 500;
/// Number of times that a walk over the API begins anew because retention removed rows in front of it.
const WALKS_MAX: usize = 5;
/// No line of an export is longer than this.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// Name of the format, in the first line of an export.
const FORMAT: &str = "stepward-audit";
const FORMAT_VERSION: u32 = 1;

#[derive(Args)]
#[command(before_help = "\
Examples:
  stepward audit ls --actor ada --since 7d
  stepward audit verify
  stepward audit verify --expect 1042:9f2c…      compares with a head that the server had logged
  stepward audit export > audit.jsonl
  stepward audit verify --file audit.jsonl")]
pub struct AuditArgs {
    #[command(subcommand)]
    verb: AuditVerb,
}

#[derive(Subcommand)]
enum AuditVerb {
    /// Lists what people and tokens did, newest first.
    #[command(alias = "list")]
    Ls(LsArgs),
    /// Checks that no row was changed, removed or added, from the first row to the last.
    ///
    /// Exits with 0 if every row fits, with 1 otherwise. Who can write the database could rebuild all of it: compare it with a head
    /// from the server's log or from a backup by --expect. Exits with 5 if every row fits, but retention has removed the row of
    /// --expect, so that nobody can compare it.
    Verify(VerifyArgs),
    /// Prints every row as a line of JSON, with its hash.
    Export(ExportArgs),
}

/// A server that runs, or the data folder of one that does not.
#[derive(Args)]
struct AuditLocation {
    /// The data folder of a server that does not run.
    #[arg(long, value_name = "FOLDER")]
    data_dir: Option<PathBuf>,
    #[command(flatten)]
    reach: Reach,
}

#[derive(Args)]
#[command(
    before_help = "Examples:\n  \
    stepward audit ls\n  \
    stepward audit ls --actor ada --since 7d\n  \
    stepward audit ls --action token_made --json",
    after_help = "Columns: row, time, action, by, object, outcome, token, address, details"
)]
struct LsArgs {
    /// Only rows of this actor: the name of a token, or local, settings, console, server, "first start", webhook:NAME, unknown.
    #[arg(long, value_name = "NAME", value_parser = name)]
    actor: Option<String>,
    /// Only this action, such as token_made.
    #[arg(long, value_parser = action)]
    action: Option<AuditAction>,
    /// Not longer ago than this, such as 2d; or since a time, such as 2026-01-31T08:00:00Z.
    #[arg(long, value_name = "AGE", value_parser = since)]
    since: Option<Timestamp>,
    /// Only rows before the row with this number.
    #[arg(long, value_name = "SEQ")]
    before: Option<i64>,
    /// Maximum number of rows to list; the default is 50.
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,
    #[command(flatten)]
    place: AuditLocation,
    #[command(flatten)]
    show: Show,
}

#[derive(Args)]
#[command(before_help = "Examples:\n  \
    stepward audit verify\n  \
    stepward audit verify --data-dir /var/lib/stepward\n  \
    stepward audit verify --file audit.jsonl --expect 1042:9f2c…")]
struct VerifyArgs {
    /// A head that was noted before, as SEQ:HASH: from the server's log, a backup or an export.
    #[arg(long, value_name = "SEQ:HASH", value_parser = expected)]
    expect: Option<ChainLink>,
    /// An export; `-` for stdin.
    #[arg(long, value_name = "FILE", conflicts_with = "data_dir")]
    file: Option<PathBuf>,
    #[command(flatten)]
    place: AuditLocation,
    #[command(flatten)]
    show: Show,
}

#[derive(Args)]
#[command(before_help = "Examples:\n  \
    stepward audit export > audit.jsonl\n  \
    stepward audit export --data-dir /var/lib/stepward > audit.jsonl")]
struct ExportArgs {
    #[command(flatten)]
    place: AuditLocation,
}

/// Name of the format, in the first line of an export.
#[derive(Serialize, Deserialize)]
struct ExportHeader {
    format: String,
    version: u32,
    anchor: AuditLinkJson,
}

/// The last line of an export. An export without it was cut off.
#[derive(Serialize, Deserialize)]
struct ExportFooter {
    head: AuditLinkJson,
    rows: u64,
}

#[derive(Serialize)]
struct VerifiedJson {
    ok: bool,
    /// Rows that fit, from the first one on.
    rows: u64,
    anchor: AuditLinkJson,
    /// The last row that fits.
    head: AuditLinkJson,
    /// The first row that does not fit the chain; `null` if every row fits.
    fault: Option<String>,
}

pub fn run(args: AuditArgs) -> anyhow::Result<Exit> {
    match args.verb {
        AuditVerb::Ls(args) => list(args),
        AuditVerb::Verify(args) => verify(args),
        AuditVerb::Export(args) => export(args),
    }
}

fn action(word: &str) -> Result<AuditAction, String> {
    AuditAction::from_word(word).ok_or_else(|| {
        let known: Vec<&str> = AuditAction::ALL.iter().map(|it| it.as_str()).collect();
        let meant = did_you_mean(word, known.iter().copied());
        match meant.is_empty() {
            true => format!("there is no such action, known are: {}", known.join(", ")),
            false => format!("there is no such action{meant}"),
        }
    })
}

fn since(text: &str) -> Result<Timestamp, String> {
    if let Ok(time) = text.parse::<jiff::Timestamp>() {
        return Ok(Timestamp(time.as_millisecond()));
    }
    let age_ms = duration::parse(text).map_err(|_| {
        "expected an age such as 2d, or a time such as 2026-01-31T08:00:00Z".to_string()
    })?;
    Ok(Timestamp(wall_time().0.saturating_sub(age_ms)))
}

fn expected(text: &str) -> Result<ChainLink, String> {
    ChainLink::parse(text).ok_or_else(|| {
        "expected the number of a row, a colon and its hash of 64 hexadecimal digits".to_string()
    })
}

/// The source that the audit log is read from.
enum OpenedAudit {
    Server(Box<Remote>),
    Folder(Store),
}

impl AuditLocation {
    fn source(&self) -> anyhow::Result<OpenedAudit> {
        let Some(folder) = &self.data_dir else {
            return Ok(OpenedAudit::Server(Box::new(self.reach.server()?)));
        };
        self.reach.or_folder(folder)?;
        refuse_no_database(folder)?;
        Ok(OpenedAudit::Folder(Store::open(
            folder,
            StoreOptions::looking(),
        )?))
    }
}

/// Result of a walk along the whole chain.
struct Walked {
    anchor: ChainLink,
    head: ChainLink,
    rows: u64,
    fault: Option<String>,
    /// Whether the fault is only that retention has removed the row to compare with. Every row fits.
    is_incomparable: bool,
}

impl Walked {
    /// `last`: the last row that fits, and how many fit until then.
    fn of(
        anchor: ChainLink,
        last: (ChainLink, u64),
        end: Result<(ChainLink, u64), ChainFault>,
    ) -> Walked {
        let fault = end.as_ref().err().map(ChainFault::to_string);
        let is_incomparable = matches!(end, Err(ChainFault::Removed { .. }));
        let (head, rows) = end.unwrap_or(last);
        Walked {
            anchor,
            head,
            rows,
            fault,
            is_incomparable,
        }
    }
}

impl OpenedAudit {
    fn walk(&self, expect: Option<ChainLink>) -> anyhow::Result<Walked> {
        match self {
            OpenedAudit::Folder(store) => {
                let anchor = store.read(|tx| tx.audit_anchor())?;
                let (mut last, mut rows) = (anchor, 0);
                let count = |row: &AuditRow| (last, rows) = (row.link(), rows + 1);
                let end = store.read(|tx| tx.walk_audit(expect, count))?;
                Ok(Walked::of(anchor, (last, rows), end))
            }
            OpenedAudit::Server(remote) => {
                for _ in 1..WALKS_MAX {
                    let (walked, is_overtaken) = walk_remote(remote, expect)?;
                    if !is_overtaken {
                        return Ok(walked);
                    }
                }
                Ok(walk_remote(remote, expect)?.0)
            }
        }
    }
}

fn ends(remote: &Remote) -> anyhow::Result<AuditEnds> {
    let ends: AuditEndsJson = remote.get("/api/audit/head")?;
    // A fault of a newer server that this program does not know is a fault, too.
    let anchor_fault = (ends.anchor_fault.as_deref())
        .map(|word| AnchorFault::from_word(word).unwrap_or(AnchorFault::Unreadable));
    let (anchor, head) = (ends.anchor.link(), ends.head.link());
    let (anchor, head) = anchor.zip(head).ok_or_else(not_understood)?;
    Ok(AuditEnds {
        anchor,
        anchor_fault,
        head,
        noted_seq: ends.noted_seq,
    })
}

fn not_understood() -> anyhow::Error {
    anyhow!(
        "the server answered with a row whose hash is no hash, or whose time `at` is not the one in `at_ms`; it may be of another \
         version"
    )
}

/// Whether retention removed rows while the walk went on is told with the result.
fn walk_remote(remote: &Remote, expect: Option<ChainLink>) -> anyhow::Result<(Walked, bool)> {
    let AuditEnds {
        anchor,
        anchor_fault,
        head,
        noted_seq,
    } = ends(remote)?;
    if let Some(fault) = anchor_fault {
        let walked = Walked::of(anchor, (anchor, 0), Err(ChainFault::Anchor(fault)));
        return Ok((walked, false));
    }
    // The head that the server names has to be among the rows that it lists.
    let expected = expect.into_iter().chain([head]);
    let mut walk = ChainWalk::from(anchor).expecting(expected);
    let stepped = each_remote(remote, |row| walk.step(row).err());
    let last = (walk.last(), walk.rows());
    let end = match stepped? {
        Some(fault) => Err(fault),
        None => walk.end_with_noted(noted_seq),
    };
    let is_overtaken = end.is_err() && ends(remote)?.anchor != anchor;
    Ok((Walked::of(anchor, last, end), is_overtaken))
}

/// Every row, page by page, until `visit` returns something. Begins with the lowest number there is: rows that somebody added before
/// the anchor do not belong there.
fn each_remote<T>(
    remote: &Remote,
    mut visit: impl FnMut(&AuditRow) -> Option<T>,
) -> anyhow::Result<Option<T>> {
    let mut after = i64::MIN.to_string();
    loop {
        let path = format!("/api/audit?limit={PAGE}&after={after}");
        let page: List<AuditJson> = remote.get(&path)?;
        for row in page.items {
            let row = row.into_row().ok_or_else(not_understood)?;
            if let Some(found) = visit(&row) {
                return Ok(Some(found));
            }
        }
        match page.next {
            Some(next) => after = next,
            None => return Ok(None),
        }
    }
}

fn list(args: LsArgs) -> anyhow::Result<Exit> {
    let limit = args.limit.unwrap_or(NEWEST) as usize;
    let is_filtered = args.actor.is_some()
        || args.action.is_some()
        || args.since.is_some()
        || args.before.is_some();
    let filter = AuditFilter {
        actor: args.actor,
        action: args.action,
        since: args.since,
    };
    let rows = match args.place.source()? {
        OpenedAudit::Folder(store) => local_rows(&store, &filter, args.before, limit)?,
        OpenedAudit::Server(remote) => remote_rows(&remote, &filter, args.before, limit)?,
    };
    if args.show.json {
        answer_json_list(rows);
    } else if rows.is_empty() {
        say(match is_filtered {
            true => "no row of the audit log matches",
            false => "the audit log is empty",
        });
    } else {
        let look = args.show.look();
        print(&table(&rows, &look).text(&look));
    }
    Ok(Exit::Success)
}

fn local_rows(
    store: &Store,
    filter: &AuditFilter,
    before: Option<i64>,
    limit: usize,
) -> anyhow::Result<Vec<AuditJson>> {
    let mut rows: Vec<AuditJson> = Vec::new();
    let mut before = Some(before.unwrap_or(i64::MAX));
    while let Some(next) = before.filter(|_| rows.len() < limit) {
        let page = store.read(|tx| tx.audit_before(next, filter, PAGE))?;
        rows.extend(page.rows.into_iter().map(AuditJson::from));
        before = page.next;
    }
    rows.truncate(limit);
    Ok(rows)
}

fn remote_rows(
    remote: &Remote,
    filter: &AuditFilter,
    before: Option<i64>,
    limit: usize,
) -> anyhow::Result<Vec<AuditJson>> {
    let page = limit.clamp(1, PAGE as usize);
    let mut path = format!("/api/audit?limit={page}");
    if let Some(actor) = &filter.actor {
        path.push_str(&format!("&actor={}", in_url(actor)));
    }
    if let Some(action) = filter.action {
        path.push_str(&format!("&action={action}"));
    }
    if let Some(since) = filter.since {
        let since = crate::words::rfc3339_ms(since);
        path.push_str(&format!("&since={}", in_url(&since)));
    }
    let mut rows: Vec<AuditJson> = Vec::new();
    let mut before = before.map(|before| before.to_string());
    while rows.len() < limit {
        let cursor = match &before {
            Some(before) => format!("&before={before}"),
            None => String::new(),
        };
        let list: List<AuditJson> = remote.get(&format!("{path}{cursor}"))?;
        rows.extend(list.items);
        match list.next {
            Some(next) => before = Some(next),
            None => break,
        }
    }
    rows.truncate(limit);
    Ok(rows)
}

fn table(rows: &[AuditJson], look: &Look) -> Columns {
    let columns = [
        ("ROW", Any),
        ("TIME", Any),
        ("ACTION", Any),
        ("BY", Any),
        ("OBJECT", Any),
        ("OUTCOME", Any),
        ("TOKEN", Wide),
        ("ADDRESS", Wide),
        ("DETAILS", Wide),
    ];
    let mut table = Columns::new(look, &columns);
    let or_nothing = |text: &Option<String>| Cell::new(text.as_deref().unwrap_or(NOTHING));
    for row in rows {
        let outcome = Cell::new(&row.outcome);
        table.row(vec![
            Cell::number(row.seq),
            Cell::new(moment(Time(Timestamp(row.at_ms)))),
            Cell::new(&row.action),
            Cell::new(&row.actor),
            or_nothing(&row.object),
            match row.outcome.as_str() {
                "refused" => outcome.ink(Ink::Bad),
                _ => outcome,
            },
            Cell::new(
                row.token_id
                    .map_or(NOTHING.to_string(), |id| id.to_string()),
            ),
            or_nothing(&row.address),
            or_nothing(&row.detail),
        ]);
    }
    table
}

fn verify(args: VerifyArgs) -> anyhow::Result<Exit> {
    let walked = match &args.file {
        Some(file) => walk_file(file, args.expect)?,
        None => args.place.source()?.walk(args.expect)?,
    };
    let exit = match walked.fault {
        None => Exit::Success,
        Some(_) if walked.is_incomparable => Exit::NotFound,
        Some(_) => Exit::Error,
    };
    if args.show.json {
        answer_json(&VerifiedJson {
            ok: exit == Exit::Success,
            rows: walked.rows,
            anchor: walked.anchor.into(),
            head: walked.head.into(),
            fault: walked.fault,
        });
        return Ok(exit);
    }
    match &walked.fault {
        None => {
            let rows = count(walked.rows as usize, "row");
            answer(format!(
                "every row fits: {rows}, the head is {}",
                walked.head
            ));
            if walked.anchor.seq > 0 {
                say(format!(
                    "retention removed the rows up to {}, the chain begins with row {}",
                    walked.anchor.seq,
                    walked.anchor.seq.saturating_add(1)
                ));
            }
        }
        Some(fault) if walked.is_incomparable => {
            answer(printable(fault));
            say(format!(
                "every row that is left fits: {}, the head is {}",
                count(walked.rows as usize, "row"),
                walked.head
            ));
        }
        Some(fault) => {
            answer(printable(fault));
            say(format!(
                "the audit log was changed, or is not whole; the last row that fits is {}",
                walked.head
            ));
        }
    }
    Ok(exit)
}

fn export(args: ExportArgs) -> anyhow::Result<Exit> {
    let begin = |anchor: ChainLink| {
        answer_json_line(&ExportHeader {
            format: FORMAT.to_string(),
            version: FORMAT_VERSION,
            anchor: anchor.into(),
        })
    };
    let (mut rows, mut head, mut is_read) = (0, ChainLink::GENESIS, true);
    let mut put = |row: &AuditRow| {
        is_read = is_read && answer_json_line(&AuditJson::from(row.clone()));
        rows += 1;
        head = row.link();
        (!is_read).then_some(())
    };
    let (anchor, anchor_fault) = match args.place.source()? {
        OpenedAudit::Folder(store) => {
            let mut anchor = (ChainLink::GENESIS, None);
            store.read(|tx| {
                anchor = tx.checked_audit_anchor()?;
                begin(anchor.0);
                let mut after = i64::MIN;
                loop {
                    let page = tx.audit_after(after, PAGE)?;
                    let Some(last) = page.last() else {
                        return Ok::<_, crate::store::StoreError>(());
                    };
                    after = last.seq;
                    if page.iter().any(|row| put(row).is_some()) {
                        return Ok(());
                    }
                }
            })?;
            anchor
        }
        OpenedAudit::Server(remote) => {
            let ends = ends(&remote)?;
            begin(ends.anchor);
            each_remote(&remote, &mut put)?;
            (ends.anchor, ends.anchor_fault)
        }
    };
    if is_read {
        let head = if rows == 0 { anchor } else { head };
        answer_json_line(&ExportFooter {
            head: head.into(),
            rows,
        });
    }
    if let Some(fault) = anchor_fault {
        let fault = ChainFault::Anchor(fault);
        return Err(anyhow!(
            "{fault}; the export has all rows, but a wrong anchor in its first line"
        ));
    }
    Ok(Exit::Success)
}

/// Verifies an export, one line in memory at a time.
fn walk_file(file: &Path, expect: Option<ChainLink>) -> anyhow::Result<Walked> {
    let shown = shown_path(file);
    let mut lines = Lines {
        reader: match file == Path::new("-") {
            true => Box::new(BufReader::new(std::io::stdin())),
            false => Box::new(BufReader::new(
                File::open(file).with_context(|| format!("{shown} cannot be read"))?,
            )),
        },
        number: 0,
        shown: shown.clone(),
    };
    let foreign = || {
        let what = format!("{shown} is no export of an audit log: its first line names no anchor");
        Fault::new(Exit::Invalid, what)
    };
    let header = lines.next()?.ok_or_else(foreign)?;
    let read: ExportHeader = serde_json::from_str(&header).map_err(|_| foreign())?;
    if read.format != FORMAT || read.version > FORMAT_VERSION {
        return Err(Fault::new(
            Exit::Invalid,
            format!(
                "{shown} has format {} version {}, this program knows {FORMAT} version {FORMAT_VERSION}",
                printable(&read.format),
                read.version
            ),
        )
        .into());
    }
    let read: Option<ExportHeader> = read_exactly(&header);
    let anchor = read.and_then(|it| it.anchor.link()).ok_or_else(foreign)?;
    let mut walk = ChainWalk::from(anchor).expecting(expect);
    loop {
        let cut_off = |walk: &ChainWalk, what: String| Walked {
            anchor,
            head: walk.last(),
            rows: walk.rows(),
            fault: Some(what),
            is_incomparable: false,
        };
        let Some(line) = lines.next()? else {
            let what = format!("{shown} was cut off: it ends without the line that names the head");
            return Ok(cut_off(&walk, what));
        };
        let number = lines.number;
        if let Some(footer) = read_exactly::<ExportFooter>(&line) {
            if footer.head.link() != Some(walk.last()) {
                let what = format!("line {number} of {shown} names another head than its last row");
                return Ok(cut_off(&walk, what));
            }
            if footer.rows != walk.rows() {
                let what = format!(
                    "line {number} of {shown} says that there are {} rows, and there are {}",
                    footer.rows,
                    walk.rows()
                );
                return Ok(cut_off(&walk, what));
            }
            if lines.next()?.is_some() {
                let what = format!("line {} of {shown} comes after its end", number + 1);
                return Ok(cut_off(&walk, what));
            }
            let last = (walk.last(), walk.rows());
            return Ok(Walked::of(anchor, last, walk.end()));
        }
        let row: Option<AuditJson> = read_exactly(&line);
        let Some(row) = row.and_then(AuditJson::into_row) else {
            let what = format!(
                "line {number} of {shown} is no row of an audit log, or something was changed in it that its hash does not cover"
            );
            return Ok(cut_off(&walk, what));
        };
        if let Err(fault) = walk.step(&row) {
            let last = (walk.last(), walk.rows());
            return Ok(Walked::of(anchor, last, Err(fault)));
        }
    }
}

/// Reads a line that says nothing but what is read of it: no other key, and each value in the form in which an export has it.
fn read_exactly<T: Serialize + DeserializeOwned>(line: &str) -> Option<T> {
    let read: T = serde_json::from_str(line).ok()?;
    let all: serde_json::Value = serde_json::from_str(line).ok()?;
    (serde_json::to_value(&read).ok()? == all).then_some(read)
}

struct Lines {
    reader: Box<dyn BufRead>,
    number: u64,
    shown: String,
}

impl Lines {
    fn next(&mut self) -> anyhow::Result<Option<String>> {
        let mut line = String::new();
        let read = self
            .reader
            .by_ref()
            .take(LINE_BYTES_MAX)
            .read_line(&mut line);
        let read = read.with_context(|| format!("{} cannot be read", self.shown))?;
        self.number += 1;
        Ok((read > 0).then(|| line.trim_end_matches('\n').to_string()))
    }
}
