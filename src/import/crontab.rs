//! A crontab becomes one task for each of its lines, with a schedule that fires when cron would.

use std::collections::{BTreeMap, BTreeSet};

use jiff::tz::TimeZone;

use super::Imported;
use super::report::Outcome::{Changed, Converted, LeftOut, NotSupported};
use super::report::Report;
use super::shell::{base_name, literal, name_of};
use super::valid::{Draft, finish};
use super::yaml::{Map, Node, quoted};
use crate::cron::Cron;

/// One crontab, as it was read.
#[derive(Debug, Clone)]
pub struct CrontabSource {
    /// What its lines are called in the report, such as `/etc/crontab`.
    pub name: String,
    /// The name of the file that is written, without its ending.
    pub stem: String,
    pub text: String,
    /// Its lines name a user before the command, as those of `/etc/crontab` and `/etc/cron.d` do.
    pub system: bool,
    /// The zone that cron runs in where it has been so far.
    pub timezone: String,
}

/// What the lines above an entry have set for it.
#[derive(Default)]
struct Setting {
    env: BTreeMap<String, String>,
    shell: Option<String>,
    timezone: Option<String>,
}

struct Entry {
    /// Of the line, from 1.
    number: usize,
    fields: String,
    user: Option<String>,
    command: String,
}

/// All sources at once: a name stands for one task in all of them.
pub fn import_crontab(sources: &[CrontabSource]) -> Imported {
    let mut report = Report::default();
    let mut drafts = Vec::new();
    let mut names = BTreeSet::new();
    for source in sources {
        let mut reader = Reader {
            source,
            system: source.system || says_user_column(&source.text),
            setting: Setting::default(),
            remarks: Vec::new(),
            head: Vec::new(),
            tail: Vec::new(),
            tasks: Map::default(),
            places: BTreeMap::new(),
            names: &mut names,
            report: &mut report,
            uses_own_zone: false,
        };
        reader.read();
        let Reader {
            mut head,
            tail,
            tasks,
            places,
            ..
        } = reader;
        if tasks.is_empty() {
            continue;
        }
        head.insert(0, format!("Imported from the crontab {}.", source.name));
        let mut document = Map::default();
        document.put("tasks", tasks);
        drafts.push(Draft {
            name: format!("{}.yaml", source.stem),
            source: source.name.clone(),
            head,
            document,
            tail,
            places,
        });
    }
    if !drafts.is_empty() {
        all_lines(&mut report);
    }
    finish(drafts, BTreeMap::new(), report)
}

/// What is true of every line of every crontab.
fn all_lines(report: &mut Report) {
    let rows: [(&str, &str); 4] = [
        (
            "output",
            "cron mails what a command prints; here it is the log of the job; add on_error with notify to hear of failures",
        ),
        (
            "PATH, HOME, USER",
            "those of the worker, where the crontab sets none; cron's PATH is /usr/bin:/bin",
        ),
        (
            "folder",
            "cron starts in the home folder; the scripts begin with cd, so they do too",
        ),
        (
            "time limits",
            "cron has none; the server's defaults hold, timeout on a task or step sets its own",
        ),
    ];
    for (what, note) in rows {
        report.add("every line", Changed, what, note);
    }
}

/// The remark that Debian puts over the columns.
fn is_column_head(remark: &str) -> bool {
    let words: Vec<&str> = remark.split_whitespace().collect();
    words.starts_with(&["m", "h", "dom", "mon", "dow"])
}

fn says_user_column(text: &str) -> bool {
    let mut remarks = text.lines().filter_map(|line| line.strip_prefix('#'));
    remarks.any(|remark| {
        is_column_head(remark)
            && remark
                .split_whitespace()
                .nth(5)
                .is_some_and(|word| word.starts_with("user"))
    })
}

struct Reader<'a> {
    source: &'a CrontabSource,
    system: bool,
    setting: Setting,
    /// The remarks since the last line that was something else.
    remarks: Vec<(usize, String)>,
    head: Vec<String>,
    tail: Vec<String>,
    tasks: Map,
    /// The line of each task.
    places: BTreeMap<Vec<String>, String>,
    names: &'a mut BTreeSet<String>,
    report: &'a mut Report,
    /// Some entry fires by the zone of the machine.
    uses_own_zone: bool,
}

impl Reader<'_> {
    fn read(&mut self) {
        let text = &self.source.text;
        for (index, line) in text.lines().enumerate() {
            self.line(index + 1, line.trim());
        }
        self.let_remarks_stand();
        if self.uses_own_zone {
            let note = format!(
                "cron fires by the clock of its machine; written as timezone: {}; give --timezone if that is another",
                self.source.timezone
            );
            self.report
                .add(self.source.name.as_str(), Changed, "time zone", &note);
        }
    }

    fn place(&self, number: usize) -> String {
        format!("{}:{number}", self.source.name)
    }

    fn line(&mut self, number: usize, line: &str) {
        if line.is_empty() {
            self.let_remarks_stand();
        } else if let Some(remark) = line.strip_prefix('#') {
            if self
                .entry(number, remark.trim())
                .is_ok_and(|entry| is_schedule(&entry.fields))
            {
                let note = "commented out, so cron does not run it either";
                self.report.add(self.place(number), LeftOut, line, note);
            } else if is_column_head(remark) {
                self.report.add(
                    self.place(number),
                    LeftOut,
                    line,
                    "the names of the columns",
                );
            } else {
                self.remarks.push((number, remark.trim().to_string()));
            }
        } else if let Some((name, value)) = assignment(line) {
            self.let_remarks_stand();
            self.assign(number, line, name, value);
        } else {
            match self.entry(number, line) {
                Ok(entry) => self.take(line, entry),
                Err(why) => self.refuse(number, line, &why),
            }
        }
    }

    /// Remarks that belong to no line stay at the top of the file.
    fn let_remarks_stand(&mut self) {
        for (number, text) in std::mem::take(&mut self.remarks) {
            let place = self.place(number);
            self.report.add(
                place,
                Converted,
                &format!("# {text}"),
                "remark at the top of the file",
            );
            self.head.push(text);
        }
    }

    fn refuse(&mut self, number: usize, line: &str, why: &str) {
        self.let_remarks_stand();
        self.report.add(self.place(number), NotSupported, line, why);
        self.tail
            .push(format!("not imported, line {number}: {line} ({why})"));
    }

    fn assign(&mut self, number: usize, line: &str, name: &str, value: String) {
        let place = self.place(number);
        let (outcome, note) = match name {
            "MAILTO" if value.is_empty() => {
                (Converted, "nothing is mailed here either".to_string())
            }
            "MAILTO" | "MAILFROM" => (
                NotSupported,
                "no mail is sent by itself; use notify: with on_error: [{ notify: TARGET }], and a target of type email in the server's settings".to_string(),
            ),
            "SHELL" => {
                let note = format!("language of the scripts below: {value}");
                self.setting.shell = Some(value);
                (Converted, note)
            }
            "CRON_TZ" if value.is_empty() => {
                self.setting.timezone = None;
                (Converted, "the time zone of the machine again".to_string())
            }
            "CRON_TZ" => match TimeZone::get(&value) {
                Ok(_) => {
                    let note = format!("timezone of the schedules below: {value}");
                    self.setting.timezone = Some(value);
                    (Converted, note)
                }
                Err(_) => (
                    NotSupported,
                    "is not an IANA time zone; write one, such as Europe/Oslo, into the schedules below".to_string(),
                ),
            },
            "RANDOM_DELAY" => (
                NotSupported,
                "schedules fire on time; add a sleep to the script to spread load".to_string(),
            ),
            _ if name.starts_with("STEPWARD_") => (
                NotSupported,
                "names that begin with STEPWARD_ are reserved; rename it".to_string(),
            ),
            _ => {
                let note = "env of the tasks below".to_string();
                self.setting.env.insert(name.to_string(), value);
                (Converted, note)
            }
        };
        // A secret may be in it; what it is called is enough.
        self.report.add(
            place,
            outcome,
            line.split('=').next().unwrap_or(line),
            &note,
        );
        if outcome == NotSupported {
            self.tail
                .push(format!("not imported, line {number}: {name} ({note})"));
        }
    }

    /// The columns of a line, if they are those of an entry.
    fn entry(&self, number: usize, line: &str) -> Result<Entry, String> {
        let count = if line.starts_with('@') { 1 } else { 5 };
        let mut rest = line;
        let mut fields = Vec::new();
        for _ in 0..count {
            let (field, after) = rest.split_once([' ', '\t']).unwrap_or((rest, ""));
            fields.push(field);
            rest = after.trim_start();
        }
        let user = match self.system {
            false => None,
            true => {
                let (user, after) = rest.split_once([' ', '\t']).unwrap_or((rest, ""));
                rest = after.trim_start();
                Some(user.to_string())
            }
        };
        if rest.is_empty() {
            let columns = if self.system {
                "time, user and command"
            } else {
                "time and command"
            };
            return Err(format!("is no entry: {columns} are expected"));
        }
        Ok(Entry {
            number,
            fields: fields.join(" "),
            user,
            command: rest.to_string(),
        })
    }

    fn take(&mut self, line: &str, entry: Entry) {
        let place = self.place(entry.number);
        let mut notes = Vec::new();
        let cron = match self.cron(&entry, &mut notes) {
            Ok(cron) => cron,
            Err(why) => return self.refuse(entry.number, line, &why),
        };
        let script = match self.script(&entry.command, &mut notes) {
            Ok(script) => script,
            Err(why) => return self.refuse(entry.number, line, &why),
        };
        let name = self.name(&entry.command);
        let mut task = Map::default();
        let remarks = std::mem::take(&mut self.remarks);
        for (number, text) in &remarks {
            let place = self.place(*number);
            self.report.add(
                place,
                Converted,
                &format!("# {text}"),
                &format!("description of {name}"),
            );
        }
        let description: Vec<String> = remarks.into_iter().map(|(_, text)| text).collect();
        if !description.is_empty() {
            task.put("description", description.join("\n"));
        }
        if !self.setting.env.is_empty() {
            let env = task.map_mut("env");
            for (name, value) in &self.setting.env {
                env.put(name, literal(value));
            }
        }
        let mut step = Map::default();
        if let Some(language) = self.setting.shell.as_deref().and_then(language) {
            step.put("language", language);
        }
        if let Some(user) = &entry.user {
            let tag = format!("user-{user}");
            notes.push(format!(
                "steps run as the user of their worker: start one as {user} with --tags script,{tag}"
            ));
            step.put("tags", vec![Node::from(tag)]);
        }
        step.put("script", script);
        task.map_mut("flow").put("run", step);
        let mut schedule = Map::default();
        schedule.put("cron", Node::Plain(quoted(&cron)));
        self.uses_own_zone |= self.setting.timezone.is_none();
        let timezone = self
            .setting
            .timezone
            .as_ref()
            .unwrap_or(&self.source.timezone);
        schedule.put("timezone", timezone.as_str());
        schedule.put_remarked(
            "overlap",
            "allow",
            vec!["As cron does; the default is skip.".to_string()],
        );
        schedule.put_remarked(
            "catch_up",
            "none",
            vec!["As cron does; the default is latest.".to_string()],
        );
        task.map_mut("schedules").put("cron", schedule);
        let remark = format!("line {}: {line}", entry.number);
        self.tasks.put_remarked(&name, task, vec![remark]);
        for part in [&["tasks", &name][..], &["tasks", &name, "flow", "run"]] {
            let part = part.iter().map(|key| key.to_string()).collect();
            self.places.insert(part, place.clone());
        }
        let outcome = if notes.is_empty() { Converted } else { Changed };
        notes.insert(0, format!("task {name}"));
        self.report.add(place, outcome, line, &notes.join("; "));
    }

    /// The time in our words, or why there is none.
    fn cron(&self, entry: &Entry, notes: &mut Vec<String>) -> Result<String, String> {
        if entry.fields.starts_with('-') {
            let why = "the leading - (do not log) is not supported; remove it";
            return Err(why.to_string());
        }
        if let Some(word) = entry.fields.strip_prefix('@') {
            return match word.to_ascii_lowercase().as_str() {
                word @ ("yearly" | "annually" | "monthly" | "weekly" | "daily" | "hourly") => {
                    Ok(format!("@{word}"))
                }
                "midnight" => Ok("@daily".to_string()),
                "every_minute" => Ok("* * * * *".to_string()),
                "reboot" => Err(
                    "nothing runs at the start of a machine here; use a systemd unit, or submit the task from one".to_string(),
                ),
                _ => Err(format!("Stepward has no @{word}; write five fields")),
            };
        }
        let mut fields: Vec<String> = entry.fields.split(' ').map(str::to_string).collect();
        for (index, field) in fields.iter_mut().enumerate() {
            if field.contains('~') {
                let was = field.clone();
                *field = settle(field, index, &entry.command)?;
                notes.push(format!(
                    "{was} is drawn anew by each start of cron; written as {field}, for good"
                ));
            }
        }
        for day in [2, 4] {
            if fields[day] == "*/1" {
                fields[day] = "*".to_string();
            }
        }
        // Cron takes a day that begins with a star for no condition by itself; here only a star alone is none.
        let starred = |field: &str| field.starts_with('*') && field != "*";
        let bound = |field: &str| field != "*";
        if (starred(&fields[2]) && bound(&fields[4])) || (starred(&fields[4]) && bound(&fields[2]))
        {
            return Err(format!(
                "cron asks for both days ({} and {}), here either is enough; keep one of them and test the other in the script",
                fields[2], fields[4]
            ));
        }
        let cron = fields.join(" ");
        let timezone = self.setting.timezone.as_ref();
        match Cron::parse(&cron, timezone.unwrap_or(&self.source.timezone)) {
            Ok(_) => Ok(cron),
            Err(fault) => Err(format!(
                "the time cannot be read: {fault}; write it in another way"
            )),
        }
    }

    /// The command as a script that does the same.
    fn script(&self, command: &str, notes: &mut Vec<String>) -> Result<String, String> {
        let (command, stdin) = split_percent(command);
        let shell = self.setting.shell.as_deref();
        let knows_braces = !matches!(shell.map(base_name), Some("csh" | "tcsh" | "fish" | "rc"));
        let mut script = String::new();
        if let Some(shell) = shell
            && language(shell).is_none()
            && base_name(shell) != "sh"
        {
            script.push_str(&format!("#!{shell}\n"));
        }
        script.push_str("cd\n");
        match stdin {
            None => {
                script.push_str(&command);
                script.push('\n');
            }
            Some(_) if !knows_braces => {
                return Err(format!(
                    "{} has no form for what stands behind %; write the text into a file",
                    shell.unwrap_or_default()
                ));
            }
            Some(stdin) => {
                let mut end = "STDIN".to_string();
                while stdin.lines().any(|line| line == end) {
                    end.push('_');
                }
                notes.push(
                    "what stands behind % is given to the command in a here-document".to_string(),
                );
                script.push_str(&format!("{{\n{command}\n}} <<'{end}'\n{stdin}\n{end}\n"));
            }
        }
        if script.contains("{% endraw") || script.contains("{%- endraw") {
            return Err(
                "the command holds {% endraw %}, which ends what we would quote it by".to_string(),
            );
        }
        Ok(literal(&script))
    }

    fn name(&mut self, command: &str) -> String {
        let (command, _) = split_percent(command);
        let wanted = name_of(&command);
        let mut name = wanted.clone();
        let mut number = 2;
        while !self.names.insert(name.clone()) {
            name = format!("{wanted}-{number}");
            number += 1;
        }
        name
    }
}

/// `NAME = value`, with or without quotes, as cron reads it.
fn assignment(line: &str) -> Option<(&str, String)> {
    let (name, value) = line.split_once('=')?;
    let name = name.trim().trim_matches(['"', '\'']);
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) || !name.chars().all(word)
    {
        return None;
    }
    let value = value.trim();
    for quote in ['"', '\''] {
        let inner = value
            .strip_prefix(quote)
            .and_then(|rest| rest.strip_suffix(quote));
        if let Some(inner) = inner {
            return Some((name, inner.to_string()));
        }
    }
    Some((name, value.to_string()))
}

fn is_schedule(fields: &str) -> bool {
    let letters = |c: char| c.is_ascii_alphanumeric() || "*/,-~".contains(c);
    let begins = |field: &str| field.starts_with(|c: char| c.is_ascii_digit() || c == '*');
    let named = [
        "@reboot",
        "@yearly",
        "@annually",
        "@monthly",
        "@weekly",
        "@daily",
        "@midnight",
        "@hourly",
    ];
    let five = fields.split(' ').count() == 5
        && fields.split(' ').all(|field| field.chars().all(letters))
        && fields.split(' ').take(3).all(begins);
    five || named.contains(&fields)
}

/// The command and, from the first bare `%` on, what it is given on its standard input. `\%` is a percent sign.
fn split_percent(command: &str) -> (String, Option<String>) {
    let mut parts = vec![String::new()];
    let mut chars = command.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' if chars.peek() == Some(&'%') => {
                chars.next();
                parts.last_mut().expect("never empty").push('%');
            }
            '%' => parts.push(String::new()),
            c => parts.last_mut().expect("never empty").push(c),
        }
    }
    let stdin = parts.split_off(1);
    let command = parts.remove(0).trim_end().to_string();
    (command, (!stdin.is_empty()).then(|| stdin.join("\n")))
}

/// One value out of `a~b`, always the same for the same command.
fn settle(field: &str, index: usize, command: &str) -> Result<String, String> {
    const BOUNDS: [(u32, u32); 5] = [(0, 59), (0, 23), (1, 31), (1, 12), (0, 6)];
    let fault = || format!("{field} is no range that can be drawn from; write a number");
    let (low, high) = field.split_once('~').ok_or_else(fault)?;
    let number = |text: &str, default: u32| match text {
        "" => Ok(default),
        text => text.parse::<u32>().map_err(|_| fault()),
    };
    let low = number(low, BOUNDS[index].0)?;
    let high = number(high, BOUNDS[index].1)?;
    if low > high || high > BOUNDS[index].1 {
        return Err(fault());
    }
    // FNV-1a: the same on every machine and in every version of ours.
    let bytes = command.bytes().chain([index as u8]);
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    let drawn = (hash >> 16) % u64::from(high - low + 1);
    Ok((u64::from(low) + drawn).to_string())
}

/// The word for a shell that is found by its name; `None` for `sh` itself, and for one at a place of its own.
fn language(shell: &str) -> Option<&str> {
    let usual = ["/bin/", "/usr/bin/"]
        .iter()
        .any(|folder| shell == format!("{folder}{}", base_name(shell)));
    (usual && base_name(shell) != "sh").then(|| base_name(shell))
}
