//! The bounds of what a definition or a submission may ask for. Everything has one.

pub const JOB_STEPS_MAX: usize = 10_000;
/// Levels of child jobs below a root job.
pub const NESTING_MAX: usize = 10;
pub const LOOP_ITEMS_MAX: usize = 10_000;
/// Groups within groups in `depends_on`.
pub const DEPENDS_DEPTH_MAX: usize = 10;
pub const STEP_TAGS_MAX: usize = 100;
pub const TAG_BYTES_MAX: usize = 64;
pub const NAME_BYTES_MAX: usize = 128;
pub const SCRIPT_BYTES_MAX: usize = 1 << 20;
pub const IMAGE_BYTES_MAX: usize = 512;
pub const WORKDIR_BYTES_MAX: usize = 1 << 10;
/// Variables that a step adds to its environment, and all their bytes: execve has limits of its own.
pub const ENV_MAX: usize = 128;
pub const ENV_BYTES_MAX: usize = 128 << 10;
/// All tasks frozen into a job, taken together.
pub const DEFINITION_BYTES_MAX: usize = 16 << 20;
pub const TASKS_MAX: usize = 1_000;
pub const INPUT_BYTES_MAX: usize = 1 << 20;
/// Shorter lines of secrets cannot be masked: they would hide half of every log and protect nothing.
pub const SECRET_BYTES_MIN: usize = 6;
pub const OUTPUT_BYTES_MAX: usize = 64 << 10;
pub const MESSAGE_BYTES_MAX: usize = 4 << 10;
/// What an event says to programs.
pub const EVENT_DATA_BYTES_MAX: usize = 16 << 10;
pub const LABELS_MAX: usize = 64;
pub const LABEL_BYTES_MAX: usize = 256;
pub const KEY_BYTES_MAX: usize = 256;
pub const ATTEMPTS_MAX: u32 = 100;
pub const SLOTS_MAX: u32 = 10_000;
/// An eternity that still adds up in milliseconds: ten years.
pub const DURATION_MS_MAX: i64 = 10 * 366 * 24 * 3_600_000;
/// Assignments that come back without having started before the step is given up.
pub const RETURNS_MAX: u32 = 5;
/// Steps that one event creates at once through child jobs and loops; the rest follows in transactions of their own.
pub const CREATED_STEPS_MAX: usize = 20_000;

/// Whether masking can hide a secret: logs are masked line by line, so one line at least must be long enough. Blanks around a line do
/// not count.
pub fn can_be_masked(secret: &str) -> bool {
    let mut lines = secret.lines();
    lines.any(|line| line.trim().len() >= SECRET_BYTES_MIN)
}

/// A hostile name may be megabytes long; what we echo of it is not.
pub fn shorten(text: &str) -> String {
    const SHOWN_CHARS_MAX: usize = 60;
    let mut shown: String = text.chars().take(SHOWN_CHARS_MAX).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    format!("{shown:?}")
}

/// Cuts a sentence to what a row may hold, at a character boundary.
pub fn clip(text: &str, bytes_max: usize) -> String {
    if text.len() <= bytes_max {
        return text.to_string();
    }
    let mut end = bytes_max.saturating_sub('…'.len_utf8());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}…", &text[..end])
}

/// A sentence that somebody sent, fit to be kept: without NUL bytes, not too long, never empty.
pub fn sentence(text: &str, if_empty: &str) -> String {
    let text = text.replace('\0', "\u{FFFD}");
    let text = if text.trim().is_empty() {
        if_empty
    } else {
        &text
    };
    clip(text, MESSAGE_BYTES_MAX)
}
