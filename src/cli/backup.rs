//! `stepward backup`: one file of everything, from the server that runs or from the folder of one that is stopped.

use std::fs::File;
use std::io::{self, BufReader, IsTerminal, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, Subcommand};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Serialize;
use tempfile::NamedTempFile;

use super::announce::{self, TokenUse};
use super::exit::{Exit, Fault};
use super::files::{SERVER_CONFIG, config_file, server_config, workflows_folder};
use super::look::Show;
use super::reach::{NamedBy, Reach, Remote, token_variable};
use super::say::{answer, answer_json, is_written, say};
use super::words::{bytes, count, moment, printable, shown_path};
use crate::backup::{self, Backup, BackupError, Contents, Manifest, Noted, Sources, Staging};
use crate::certificate::Trust;
use crate::client::CallError;
use crate::clock::wall_time;
use crate::config::{ServerConfig, read_token};
use crate::program::Feeder;
use crate::secret_policy::{SecretPolicy, TOKEN_VARIABLE};
use crate::store::{DATABASE_FILE, GoOn, OpenError, Stopped};
use crate::temporary;
use crate::wire::Time;
use crate::wire::api::{AuditLinkJson, BackupsJson};

/// The database is copied before the first byte comes.
const PATIENCE: Duration = Duration::from_secs(3_600);
const BACKUPS_PATH: &str = "/api/backups";
const SETTINGS_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    before_help = "Examples:
  stepward backup nightly.tar.gz                        the server of this folder, or its folder if it is stopped
  stepward backup - --server https://jobs.example.org | ssh elsewhere 'cat > jobs.tar'
  stepward backup copy.tar --data-dir /var/lib/stepward
  stepward backup nightly.tar.gz.age --pipe 'age -r age1...'   encrypted; age -d -i KEY nightly.tar.gz.age | stepward restore -
  stepward backup verify nightly.tar.gz"
)]
pub struct BackupArgs {
    #[command(subcommand)]
    verb: Option<BackupVerb>,
    /// The file to write, squeezed if it ends in .gz or .tgz; `-` for stdout. Whoever has it has the secrets of the server.
    #[arg(value_name = "FILE", required = true)]
    file: Option<PathBuf>,
    /// Sends the backup through this shell command once it is verified, and keeps what the command writes: `age -r age1...` encrypts it.
    #[arg(long, value_name = "COMMAND")]
    pipe: Option<String>,
    /// Writes over a file that is there.
    #[arg(long)]
    force: bool,
    /// The data folder; its server is asked if it runs.
    #[arg(long, value_name = "FOLDER")]
    data_dir: Option<PathBuf>,
    /// The settings file of a server that is stopped.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    show: Show,
    #[command(flatten)]
    reach: Reach,
}

#[derive(Subcommand)]
enum BackupVerb {
    /// Says what is in a backup, and that it is whole: every file, every page, every rule.
    ///
    /// Exits with 1 if the audit log in the backup was changed, or does not end as the backup says. Such a backup can be restored.
    Verify(VerifyArgs),
}

#[derive(Args)]
#[command(before_help = "Examples:
  stepward backup verify nightly.tar.gz
  stepward backup verify nightly.tar.gz --json | jq .schema_version")]
pub struct VerifyArgs {
    /// The backup; `-` for stdin.
    file: PathBuf,
    #[command(flatten)]
    show: Show,
}

/// What a backup holds, for programs.
#[derive(Serialize)]
pub struct HeldJson {
    pub file: String,
    pub made_at: Time,
    pub made_by: String,
    pub installation: String,
    pub schema_version: i64,
    /// Of all files in it.
    pub bytes: u64,
    pub files: usize,
    pub logs: usize,
    pub workflows: usize,
    pub left_out: Vec<String>,
    /// The head of the audit log, as the backup's manifest names it.
    pub audit_head: Option<AuditLinkJson>,
    /// Whether the audit log in the backup fits together and ends with that head; `null`: nobody looked, or it has none.
    pub audit_fits: Option<bool>,
}

impl HeldJson {
    /// With what was found out about its audit log.
    pub fn verified(file: &Path, contents: &Contents) -> HeldJson {
        HeldJson {
            audit_fits: contents.audit.fits(),
            ..HeldJson::of(file, &contents.manifest)
        }
    }

    pub fn of(file: &Path, manifest: &Manifest) -> HeldJson {
        HeldJson {
            file: shown_path(file),
            made_at: manifest.made_at,
            made_by: manifest.made_by.clone(),
            installation: manifest.installation.clone(),
            schema_version: manifest.schema_version,
            bytes: manifest.bytes(),
            files: manifest.count(),
            logs: manifest.logs.count,
            workflows: manifest.workflows(),
            left_out: manifest.left_out.clone(),
            audit_head: manifest.audit_head.clone(),
            audit_fits: None,
        }
    }

    pub fn in_words(&self) -> String {
        format!(
            "of {}, {} in {}: the database (schema version {}), {}, {}",
            moment(self.made_at),
            bytes(self.bytes),
            count(self.files, "file"),
            self.schema_version,
            count(self.logs, "log"),
            count(self.workflows, "workflow file"),
        )
    }
}

pub fn run(args: BackupArgs) -> anyhow::Result<Exit> {
    if let Some(BackupVerb::Verify(args)) = args.verb {
        return verify(&args);
    }
    let file = args.file.clone().expect("clap asks for it");
    let is_stdout = file == Path::new("-");
    if is_stdout && args.show.json {
        return Err(Fault::usage("--json and `-` both want stdout: name a file"));
    }
    if is_stdout && io::stdout().is_terminal() {
        return Err(Fault::usage(
            "a backup is nothing for a terminal: name a file, or send it somewhere with `stepward backup - | …`",
        ));
    }
    if !is_stdout && !args.force && file.symlink_metadata().is_ok() {
        return Err(conflict(format!(
            "{} is there already: name another file, or say --force",
            shown_path(&file)
        )));
    }
    // Held until the end: no server may start meanwhile.
    let stopped;
    let (held, piped_by_settings) = match source(&args)? {
        Source::Server(remote) => {
            let held = write(of_server(&remote)?, &file, &args)?;
            // A server that does not answer this has given the backup all the same.
            let program = || {
                let settings = remote.client.get(BACKUPS_PATH, SETTINGS_TIMEOUT);
                settings
                    .ok()
                    .and_then(|settings: BackupsJson| settings.pipe)
            };
            let is_plain = args.pipe.is_none();
            (held, is_plain.then(program).flatten())
        }
        Source::Folder(folder) => {
            stopped = Stopped::take(&folder).map_err(|error| match error {
                OpenError::InUse { .. } => {
                    anyhow::anyhow!("{error}; or name the server that uses it with --server URL")
                }
                error => error.into(),
            })?;
            let settings = server_config(args.config.as_deref())?;
            let program = settings.backup.pipe.first().cloned();
            let program = program.filter(|_| same(&settings.data_dir, &folder));
            let mut backup = of_folder(&stopped, args.config.as_deref(), settings)?;
            let held = write(&mut backup, &file, &args)?;
            let noted = Noted {
                made_at: backup.manifest().made_at,
                bytes: backup.bytes_read(),
            };
            backup::note(&folder, noted);
            (held, program)
        }
    };
    let secret = match held.manifest.has_key() {
        true if args.pipe.is_some() => {
            "it holds the key of the server's secrets; make sure that you can undo what the command did to it, because else nobody can restore it"
        }
        true => "it holds the key of the server's secrets: keep it as safe as the data folder",
        false => {
            "it holds no key, as the data folder has none: nothing that was sealed with one can be opened"
        }
    };
    let held = HeldJson::of(&file, &held.manifest);
    for left_out in &held.left_out {
        say(format!(
            "{left_out} of the workflows folder is left out: it is too large, no plain file, or a file of the server itself, such as a token"
        ));
    }
    if let (Some(program), None) = (&piped_by_settings, &args.pipe) {
        say(format!(
            "this backup is not encrypted: backup.pipe of the settings sends only the backups that the server makes by itself through \
             `{program}`; for this one use --pipe COMMAND"
        ));
    }
    match (is_stdout, args.show.json) {
        (true, _) => say(format!("backup {}; {secret}", held.in_words())),
        (false, true) => {
            answer_json(&held);
            say(secret);
        }
        (false, false) => {
            answer(format!("{}: backup {}", held.file, held.in_words()));
            say(secret);
        }
    }
    Ok(Exit::Success)
}

enum Source {
    Server(Box<Remote>),
    Folder(PathBuf),
}

fn source(args: &BackupArgs) -> anyhow::Result<Source> {
    let of_folder = |folder: PathBuf| -> anyhow::Result<Source> {
        let Some((announced, file)) = announce::of_folder(&folder) else {
            return match folder.join(DATABASE_FILE).exists() {
                true => Ok(Source::Folder(folder)),
                false => Err(Fault::not_found(format!(
                    "{} holds no database: name the data folder with --data-dir, or a server with --server URL",
                    shown_path(&folder)
                ))),
            };
        };
        let named = match (&args.reach.token_file, &announced.token_file) {
            (Some(file), _) => Some(read_token(file)?),
            (None, Some(_)) => None,
            (None, None) => token_variable()?,
        };
        let token = match named {
            Some(token) => Some(token),
            None => {
                let found = announced.token(&file, TokenUse::Command)?;
                found.map(|(token, _)| token)
            }
        };
        let named_by = NamedBy::Folder(file, announced.pid);
        let trust = match &args.reach.ca_file {
            Some(file) => Some(Trust::of_file(file)?),
            None => announced.trust()?,
        };
        let remote = Remote::trusting(&announced.url, token.as_deref(), trust.as_ref(), named_by);
        Ok(Source::Server(Box::new(remote)))
    };
    if let Some(folder) = &args.data_dir {
        args.reach.or_folder(folder)?;
        return of_folder(folder.clone());
    }
    match args.reach.find()? {
        Some(remote) => Ok(Source::Server(Box::new(remote))),
        None => of_folder(server_config(args.config.as_deref())?.data_dir),
    }
}

/// The backup that the server makes now. A server of version 0.1 answers POST with an error, and gives a backup to GET.
fn of_server(remote: &Remote) -> anyhow::Result<Box<dyn Read>> {
    const PATH: &str = "/api/backup";
    match remote.client.text_by_post(PATH, PATIENCE) {
        Err(CallError::Refused {
            status: 404 | 405, ..
        }) => {
            let stream = remote.heard(remote.client.text(PATH, PATIENCE))?;
            Ok(Box::new(stream))
        }
        stream => Ok(Box::new(remote.heard(stream)?)),
    }
}

/// With the settings and the workflows that a server would have if it were started here with this folder.
fn of_folder(
    stopped: &Stopped,
    config: Option<&Path>,
    settings: ServerConfig,
) -> anyhow::Result<Backup> {
    let file = config_file(config, SERVER_CONFIG);
    let is_its_own = config.is_some() || same(&settings.data_dir, stopped.folder());
    let sources = Sources {
        data_dir: stopped.folder().to_path_buf(),
        workflows_dir: workflows_folder(&settings).filter(|_| is_its_own),
        settings_file: file.filter(|_| is_its_own),
        staging: Staging::in_data(stopped.folder()),
        apart: settings.backup.dir.iter().cloned().collect(),
        policy: SecretPolicy::of_user(&ServerConfig {
            data_dir: stopped.folder().to_path_buf(),
            ..settings
        }),
    };
    if !is_its_own {
        say(
            "the settings and the workflows of that server are not known here, so they are left out: name them with --config FILE",
        );
    }
    let from = backup::From::Stopped(stopped);
    let go_on: GoOn = Arc::new(|| true);
    Ok(backup::begin(from, sources, wall_time(), &go_on)?)
}

fn same(one: &Path, other: &Path) -> bool {
    match (one.canonicalize(), other.canonicalize()) {
        (Ok(one), Ok(other)) => one == other,
        _ => false,
    }
}

/// All of it, or no file. What was written is read back before it gets its name.
fn write(stream: impl Read, file: &Path, args: &BackupArgs) -> anyhow::Result<Contents> {
    let is_stdout = file == Path::new("-");
    if let Some(command) = &args.pipe {
        let (mut plain, contents) = verified(stream, is_squeezed(file, true))?;
        plain.rewind().with_context(temporary_unwritten)?;
        match is_stdout {
            true => run_pipe(command, plain, Stdio::inherit())?,
            false => {
                let part = part_of(file)?;
                let out = part
                    .as_file()
                    .try_clone()
                    .with_context(|| unwritten(file))?;
                run_pipe(command, plain, out.into())?;
                let bytes = part.as_file().metadata().with_context(|| unwritten(file))?;
                if bytes.len() == 0 {
                    return Err(anyhow::anyhow!(
                        "the command of --pipe wrote nothing; no file was made"
                    ));
                }
                keep(part, file, args.force)?;
            }
        }
        return Ok(contents);
    }
    if is_stdout {
        let mut tee = Tee {
            stream,
            out: io::stdout().lock(),
            unwritten: None,
        };
        let looked = backup::look(&mut tee);
        if let Some(error) = tee.unwritten {
            return Err(anyhow::anyhow!(
                "stdout cannot be written: {error}; what was written is no backup"
            ));
        }
        let contents =
            looked.map_err(|error| anyhow::anyhow!("{error}; what was written is no backup"))?;
        is_written(io::stdout().lock().flush());
        return Ok(contents);
    }
    let mut part = part_of(file)?;
    copy(stream, part.as_file_mut(), is_squeezed(file, false))?;
    part.as_file().sync_all().with_context(|| unwritten(file))?;
    let read = File::open(part.path()).with_context(|| unwritten(file))?;
    let contents = backup::look(BufReader::new(read))?;
    keep(part, file, args.force)?;
    Ok(contents)
}

fn unwritten(file: &Path) -> String {
    format!("{} cannot be written", shown_path(file))
}

fn temporary_unwritten() -> String {
    let folder = std::env::temp_dir();
    format!(
        "the folder for temporary files, {}, cannot be written: let TMPDIR name another one",
        shown_path(&folder)
    )
}

fn folder_of(file: &Path) -> &Path {
    let folder = file.parent();
    let folder = folder.filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

/// Whether the name asks for gzip: `x.tar.gz`, `x.tgz`, and with a pipe also `x.tar.gz.age`.
fn is_squeezed(file: &Path, is_piped: bool) -> bool {
    let is_gzip = |file: &Path| {
        let extension = file.extension().unwrap_or_default();
        extension == "gz" || extension == "tgz"
    };
    is_gzip(file) || (is_piped && file.file_stem().is_some_and(|stem| is_gzip(stem.as_ref())))
}

/// The file under a name of which nobody knows yet.
fn part_of(file: &Path) -> anyhow::Result<NamedTempFile> {
    let part = temporary::create_file_in(folder_of(file), ".stepward-backup.");
    // Without the name that it has for a while.
    let part = part.map_err(|error| io::Error::from(error.kind()));
    part.with_context(|| unwritten(file))
}

fn copy(mut stream: impl Read, out: &mut File, squeeze: bool) -> anyhow::Result<()> {
    let copied = match squeeze {
        true => {
            let mut out = GzEncoder::new(out, Compression::default());
            io::copy(&mut stream, &mut out).and_then(|_| out.finish().map(|_| ()))
        }
        false => io::copy(&mut stream, out).map(|_| ()),
    };
    copied.with_context(|| "the backup broke off, nothing was kept of it")
}

fn keep(part: NamedTempFile, file: &Path, force: bool) -> anyhow::Result<()> {
    part.as_file().sync_all().with_context(|| unwritten(file))?;
    let kept = match force {
        true => part.persist(file).map_err(|error| error.error),
        false => part.persist_noclobber(file).map_err(|error| error.error),
    };
    kept.with_context(|| unwritten(file))?;
    let folder = File::open(folder_of(file));
    folder
        .and_then(|folder| folder.sync_all())
        .with_context(|| unwritten(file))
}

/// The backup before it is encrypted, in a file that has no name and is gone when this process ends. It is not where the encrypted
/// backup goes to: that may be another machine's disk.
fn verified(stream: impl Read, squeeze: bool) -> anyhow::Result<(File, Contents)> {
    let plain = backup::unnamed_file(&std::env::temp_dir(), "stepward-backup-plain.");
    let mut plain = plain.with_context(temporary_unwritten)?;
    copy(stream, &mut plain, squeeze)?;
    plain.rewind().with_context(temporary_unwritten)?;
    let contents = backup::look(BufReader::new(&plain))?;
    Ok((plain, contents))
}

/// Runs the command of `--pipe` as if it had been typed: it sees the terminal and the environment of whoever typed it, but not the token,
/// which other processes of the same user could read there.
fn run_pipe(command: &str, plain: File, out: Stdio) -> anyhow::Result<()> {
    let (feeder, stdin) = Feeder::new(plain).context("no pipe can be made")?;
    let mut child = Command::new("sh")
        .args(["-c", command])
        .env_remove(TOKEN_VARIABLE)
        .stdin(stdin)
        .stdout(out)
        .spawn()
        .context("sh cannot be started")?;
    let feeding = feeder.start();
    let status = child.wait().context("sh cannot be waited for")?;
    let fed = feeding.finish();
    if !status.success() {
        return Err(anyhow::anyhow!(
            "the command of --pipe ended with {status}; what it wrote is no backup and was not kept"
        ));
    }
    fed.map_err(|why| {
        anyhow::anyhow!("the command of --pipe failed: {why}; what it wrote was not kept")
    })
}

/// What is looked at goes out as well.
struct Tee<R, W> {
    stream: R,
    out: W,
    /// Why it could not go out: whoever looks takes it for the fault of what it reads.
    unwritten: Option<io::Error>,
}

impl<R: Read, W: Write> Read for Tee<R, W> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.stream.read(buffer)?;
        self.out.write_all(&buffer[..bytes]).map_err(|error| {
            let told = io::Error::from(error.kind());
            self.unwritten = Some(error);
            told
        })?;
        Ok(bytes)
    }
}

fn verify(args: &VerifyArgs) -> anyhow::Result<Exit> {
    let contents = backup::verify(opened(&args.file)?, wall_time()).map_err(refused)?;
    let held = HeldJson::verified(&args.file, &contents);
    tell_audit(&contents);
    if args.show.json {
        answer_json(&held);
    }
    let Some(fault) = contents.audit.fault() else {
        if !args.show.json {
            answer(format!(
                "{}: whole, every rule holds; backup {}",
                held.file,
                held.in_words()
            ));
        }
        return Ok(Exit::Success);
    };
    if !args.show.json {
        answer(format!(
            "{}: not as it was made: the audit log in it was changed, or is not whole: {}; all else is whole and can be restored; backup {}",
            held.file,
            printable(fault),
            held.in_words()
        ));
    }
    Ok(Exit::Error)
}

/// Says whether the audit log in a backup is the one that the backup's manifest names.
pub fn tell_audit(contents: &Contents) {
    if let Some(told) = contents.audit.in_words() {
        say(told);
    }
}

/// A file, or stdin.
pub fn opened(file: &Path) -> anyhow::Result<Box<dyn Read>> {
    if file == Path::new("-") {
        if io::stdin().is_terminal() {
            return Err(Fault::usage(
                "there is no backup on a terminal: name a file",
            ));
        }
        return Ok(Box::new(io::stdin()));
    }
    match File::open(file) {
        Ok(opened) => Ok(Box::new(opened)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Fault::not_found(format!(
            "{} does not exist",
            shown_path(file)
        ))),
        Err(error) => Err(anyhow::anyhow!(
            "{} cannot be read: {error}",
            shown_path(file)
        )),
    }
}

/// What is wrong with a backup is a finding; what is wrong with a disk is an error.
pub fn refused(error: BackupError) -> anyhow::Error {
    use BackupError::*;
    let exit = match &error {
        Truncated
        | Empty
        | Encrypted { .. }
        | Damaged(_)
        | Foreign { .. }
        | Newer { .. }
        | Broken { .. } => Exit::Invalid,
        Refused(_) => Exit::Conflict,
        Copy(_)
        | Source(..)
        | Target(..)
        | NoRoom { .. }
        | TooLarge(_)
        | Changed(_)
        | Unreadable(_)
        | Pipe { .. } => Exit::Error,
    };
    Fault::new(exit, error.to_string()).into()
}

fn conflict(message: String) -> anyhow::Error {
    Fault::new(Exit::Conflict, message).into()
}
