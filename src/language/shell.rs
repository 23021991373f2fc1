//! Who reads a script, and what a place in the text of a shell is: a word, quotes, a comment, a here-document.
//!
//! A value that `sh` quotes is one word only where a word may stand. Anywhere else its quotes are letters, or end what is around
//! them. Whatever is not certain counts as such a place.

use super::program_quotes::{ProgramQuotes, Syntax};

/// Who reads a script, as far as it decides how a value is written in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// One that reads quotes as `sh` does.
    Shell,
    /// Its texts in double quotes run or look up what stands in them, so that JSON is no literal.
    Interpolating,
    /// A language in which JSON is a literal outside of quotes.
    Other(Syntax),
    /// A template says it.
    Unknown,
}

pub const SHELLS: &[&str] = &[
    "sh", "bash", "dash", "ash", "ksh", "mksh", "zsh", "busybox", "rbash", "yash", "posh", "lksh",
    "oksh", "loksh", "pdksh", "rksh", "osh", "hush",
];
const INTERPOLATING: &[&str] = &[
    "ruby",
    "perl",
    "php",
    "pwsh",
    "powershell",
    "fish",
    "csh",
    "tcsh",
    "tclsh",
    "expect",
    "elixir",
    "groovy",
    "julia",
    "kotlin",
    "kotlinc",
    "dart",
    "swift",
    "nu",
    "make",
];

impl Program {
    /// Whoever is named, whoever the first line names, or `sh`.
    pub fn of(language: Option<&str>, script: &str) -> Program {
        let named = match language {
            Some(language) => language,
            None => match script.strip_prefix("#!") {
                None => return Program::Shell,
                Some(rest) => named_by(rest.lines().next().unwrap_or_default()),
            },
        };
        if named.contains("{{") || named.contains("{%") {
            return Program::Unknown;
        }
        // `bash5`, `ruby3.3`, `perl5`.
        let name = named.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
        match name {
            name if SHELLS.contains(&name) => Program::Shell,
            name if INTERPOLATING.contains(&name) => Program::Interpolating,
            name => Program::Other(Syntax::of(name)),
        }
    }
}

/// `/usr/bin/env -S bash -e` names `bash`.
fn named_by(line: &str) -> &str {
    let mut words = line.split_whitespace();
    let Some(first) = words.next() else {
        return "sh";
    };
    let program = base_name(first);
    if program != "env" {
        return program;
    }
    let named = words.find(|word| !word.starts_with('-') && !word.contains('='));
    named.map_or("sh", base_name)
}

/// The last part of a path.
pub fn base_name(path: &str) -> &str {
    &path[path.rfind('/').map_or(0, |at| at + 1)..]
}

/// What stands around the next letter of a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Around {
    /// A word may stand here.
    Nothing,
    SingleQuotes,
    DoubleQuotes,
    Backquotes,
    Comment,
    Arithmetic,
    /// A here-document in which the shell looks for `$`.
    HereDocument,
    /// One that is taken as it is.
    QuotedHereDocument,
    /// Directly behind a `$`.
    Dollar,
    /// Directly behind a `\`.
    Backslash,
    /// A regular expression between slashes.
    RegularExpression,
    /// A text between long brackets, or another text that is taken as it is.
    LongText,
    /// On one line behind a `/` that divides or begins a regular expression.
    UnclearSlash,
    /// Any place in a program whose language looks for code in texts in double quotes.
    Interpolation,
}

impl Around {
    /// In words, behind "it stands".
    pub fn words(self) -> &'static str {
        match self {
            Around::Nothing => "outside of quotes",
            Around::SingleQuotes => "inside single quotes",
            Around::DoubleQuotes => "inside double quotes",
            Around::Backquotes => "inside backquotes",
            Around::Comment => "in a comment",
            Around::Arithmetic => "in arithmetic",
            Around::HereDocument | Around::QuotedHereDocument => "in a here-document",
            Around::Dollar => "behind a `$`",
            Around::Backslash => "behind a `\\`",
            Around::RegularExpression => "in a regular expression",
            Around::LongText => "in a text of several lines",
            Around::UnclearSlash => "behind a `/` that may begin a regular expression",
            Around::Interpolation => "in a language that looks for code in texts in double quotes",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Frame {
    /// `( … )` and `$( … )`: commands. How many `case` are open, whose `)` close nothing.
    Commands {
        cases: u32,
    },
    Backquotes,
    Double,
    Single,
    /// `$'…'`, where a backslash counts.
    Escaped,
    /// `${ … }`.
    Braces,
    Arithmetic {
        open: u32,
    },
    Comment,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct HereDocument {
    /// `None`: a value decides it, so nobody knows where it ends.
    end: Option<String>,
    quoted: bool,
    tabs: bool,
}

/// Reads a script piece by piece; between the pieces stand values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shell {
    frames: Vec<Frame>,
    /// The letter before, unless it was escaped.
    last: char,
    /// A backslash has been read, and not what it escapes.
    escapes: bool,
    word: String,
    /// Begun on this line; their texts follow it.
    announced: Vec<HereDocument>,
    /// The name of a here-document is being read: with the quote that is open in it.
    naming: Option<Option<char>>,
    /// The line so far, of the here-document that we are in.
    line: Option<String>,
    /// Nobody nests like this.
    lost: bool,
}

const NESTED_MAX: usize = 100;
const HERE_DOCUMENT_END_MAX: usize = 1_000;

impl Default for Shell {
    fn default() -> Shell {
        Shell {
            frames: vec![Frame::Commands { cases: 0 }],
            last: '\n',
            escapes: false,
            word: String::new(),
            announced: Vec::new(),
            naming: None,
            line: None,
            lost: false,
        }
    }
}

impl Shell {
    pub fn around(&self) -> Around {
        if self.lost {
            return Around::DoubleQuotes;
        }
        if self.line.is_some() {
            return match self.announced.first() {
                Some(document) if document.quoted => Around::QuotedHereDocument,
                _ => Around::HereDocument,
            };
        }
        if self.naming.is_some() {
            return Around::HereDocument;
        }
        // What is around the innermost braces decides what they are.
        let outer = self.frames.iter().rev();
        let mut outer = outer.skip_while(|frame| **frame == Frame::Braces);
        match outer.next() {
            Some(Frame::Single | Frame::Escaped) => return Around::SingleQuotes,
            Some(Frame::Double) => return Around::DoubleQuotes,
            Some(Frame::Comment) => return Around::Comment,
            Some(Frame::Arithmetic { .. }) => return Around::Arithmetic,
            _ => {}
        }
        // A backquote in a value would end them, however deep.
        if self.frames.contains(&Frame::Backquotes) {
            return Around::Backquotes;
        }
        match self.last {
            _ if self.escapes => Around::Backslash,
            '$' => Around::Dollar,
            _ => Around::Nothing,
        }
    }

    /// A value stands here: of whatever letters, not of none.
    pub fn value(&mut self) {
        if self.line.is_some() {
            self.document_letter('\0');
            return;
        }
        if self.naming.take().is_some()
            && let Some(document) = self.announced.last_mut()
        {
            document.end = None;
        }
        self.escapes = false;
        self.last = '\0';
        self.word.replace_range(.., "\0");
    }

    /// See `Ways::work`. Every letter looks at all frames.
    fn work(&self, bytes: usize) -> usize {
        let ends = self
            .announced
            .iter()
            .filter_map(|document| document.end.as_ref());
        let kept: usize = ends.chain(&self.line).map(|text| text.len()).sum();
        let frames = self.frames.len();
        (bytes * (1 + frames / 16)).saturating_add(64 + 16 * (frames + self.announced.len()) + kept)
    }

    pub fn read(&mut self, text: &str) {
        let mut letters = text.chars().peekable();
        while let Some(letter) = letters.next() {
            if self.lost {
                return;
            }
            if self.line.is_some() {
                self.document_letter(letter);
                continue;
            }
            if self.naming.is_some() && self.named(letter) {
                continue;
            }
            let next = letters.peek().copied();
            if self.letter(letter, next) {
                letters.next();
            }
        }
    }

    fn document_letter(&mut self, letter: char) {
        let Some(line) = &mut self.line else { return };
        if letter != '\n' {
            if line.len() <= HERE_DOCUMENT_END_MAX {
                line.push(letter);
            }
            return;
        }
        let said = std::mem::take(line);
        let ends = self.announced.first().is_some_and(|document| {
            let said = match document.tabs {
                true => said.trim_start_matches('\t'),
                false => &said,
            };
            let is_short = said.len() <= HERE_DOCUMENT_END_MAX;
            is_short && document.end.as_deref() == Some(said)
        });
        if ends {
            self.announced.remove(0);
        }
        if self.announced.is_empty() {
            self.line = None;
            self.last = '\n';
        }
    }

    /// Whether the letter belongs to the name of a here-document.
    fn named(&mut self, letter: char) -> bool {
        let (Some(open), Some(document)) = (self.naming, self.announced.last_mut()) else {
            return false;
        };
        let name = document.end.get_or_insert_default();
        if self.escapes {
            self.escapes = false;
            name.push(letter);
            return true;
        }
        match (letter, open) {
            ('-', None) if name.is_empty() && self.last == '<' => {
                document.tabs = true;
                self.last = '-';
            }
            (' ' | '\t', None) if name.is_empty() && !document.quoted => {}
            ('\\', None) => {
                document.quoted = true;
                self.escapes = true;
            }
            ('\'' | '"', None) => {
                document.quoted = true;
                self.naming = Some(Some(letter));
            }
            (letter, Some(quote)) if letter == quote => self.naming = Some(None),
            (letter, None) if letter.is_whitespace() || ";&|()<>".contains(letter) => {
                self.naming = None;
                self.last = '\0';
                return false;
            }
            _ if name.len() <= HERE_DOCUMENT_END_MAX => name.push(letter),
            _ => {}
        }
        true
    }

    /// `true` if the next letter has been read as well.
    fn letter(&mut self, letter: char, next: Option<char>) -> bool {
        let before = std::mem::replace(&mut self.last, letter);
        if std::mem::take(&mut self.escapes) {
            self.last = '\0';
            self.word.replace_range(.., "\0");
            return false;
        }
        let in_quotes = self.around() == Around::DoubleQuotes;
        let in_backquotes = self.frames.contains(&Frame::Backquotes);
        let frame = self.frames.last_mut().expect("the script is never left");
        match (frame, letter) {
            (Frame::Single, '\'') | (Frame::Escaped, '\'') | (Frame::Double, '"') => self.leave(),
            (Frame::Single, _) => {}
            (Frame::Comment, '\n') => {
                self.frames.pop();
                self.end_of_line();
            }
            (Frame::Comment, _) => {}
            (_, '\\') => self.escapes = true,
            (Frame::Escaped, _) => {}
            (Frame::Double | Frame::Arithmetic { .. }, '\'') => {}
            (_, '\'') if before == '$' => self.enter(Frame::Escaped),
            (Frame::Braces, '\'') if in_quotes => {}
            (_, '\'') => self.enter(Frame::Single),
            (_, '"') => self.enter(Frame::Double),
            (Frame::Backquotes, '`') => self.leave(),
            // Backquotes inside of others are escaped, so this one ends those around.
            (_, '`') if in_backquotes => {
                while self.frames.pop() != Some(Frame::Backquotes) {}
                self.last = '\0';
            }
            (_, '`') => self.enter(Frame::Backquotes),
            (_, '{') if before == '$' => self.enter(Frame::Braces),
            (Frame::Braces, '}') => self.leave(),
            (Frame::Arithmetic { open }, '(') if before != '$' => *open += 1,
            (Frame::Arithmetic { open }, ')') => {
                *open -= 1;
                if *open == 0 {
                    self.leave();
                }
            }
            (frame, '(') => {
                let is_commands = matches!(frame, Frame::Commands { .. } | Frame::Backquotes);
                if before == '$' || is_commands {
                    let is_arithmetic = next == Some('(');
                    self.enter(match is_arithmetic {
                        true => Frame::Arithmetic { open: 2 },
                        false => Frame::Commands { cases: 0 },
                    });
                    self.last = '(';
                    return is_arithmetic;
                }
            }
            (Frame::Commands { cases: 0 }, ')') => {
                if self.frames.len() > 1 {
                    self.leave();
                }
                self.word.clear();
            }
            (Frame::Double | Frame::Braces | Frame::Arithmetic { .. }, _) => {}
            (Frame::Commands { .. } | Frame::Backquotes, '#') if begins_word(before) => {
                self.enter(Frame::Comment);
            }
            (Frame::Commands { .. } | Frame::Backquotes, '<') if before == '<' => {
                if next == Some('<') {
                    // `<<<` takes a word.
                    self.last = '\0';
                    return true;
                }
                self.announced.push(HereDocument {
                    end: None,
                    quoted: false,
                    tabs: false,
                });
                self.naming = Some(None);
                self.lost |= self.announced.len() > NESTED_MAX;
            }
            (Frame::Commands { .. } | Frame::Backquotes, letter) => {
                if begins_word(letter) {
                    self.end_of_word();
                } else if self.word.len() <= "case".len() {
                    self.word.push(letter);
                }
                if letter == '\n' {
                    self.end_of_line();
                }
            }
        }
        false
    }

    fn enter(&mut self, frame: Frame) {
        self.frames.push(frame);
        self.lost |= self.frames.len() > NESTED_MAX;
        self.word.clear();
        self.last = '\n';
    }

    fn leave(&mut self) {
        self.frames.pop();
        self.last = '\0';
        self.word.replace_range(.., "\0");
    }

    fn end_of_word(&mut self) {
        if let Some(Frame::Commands { cases }) = self.frames.last_mut() {
            match self.word.as_str() {
                "case" => *cases += 1,
                "esac" => *cases = cases.saturating_sub(1),
                _ => {}
            }
        }
        self.word.clear();
    }

    fn end_of_line(&mut self) {
        if !self.announced.is_empty() {
            self.line = Some(String::new());
        }
    }
}

/// Reads a script piece by piece, by the rules of the language of the script.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Reader {
    Shell(Shell),
    Quotes(ProgramQuotes),
    /// The script cannot be followed any more, so every place counts as quoted.
    Lost,
}

impl Reader {
    fn around(&self) -> Around {
        match self {
            Reader::Shell(shell) => shell.around(),
            Reader::Quotes(quotes) => quotes.around(),
            Reader::Lost => Around::DoubleQuotes,
        }
    }

    fn read(&mut self, text: &str) {
        match self {
            Reader::Shell(shell) => shell.read(text),
            Reader::Quotes(quotes) => quotes.read(text),
            Reader::Lost => {}
        }
    }

    fn value(&mut self) {
        match self {
            Reader::Shell(shell) => shell.value(),
            Reader::Quotes(quotes) => quotes.value(),
            Reader::Lost => {}
        }
    }

    fn work(&self, bytes: usize) -> usize {
        match self {
            Reader::Shell(shell) => shell.work(bytes),
            Reader::Quotes(quotes) => quotes.work(bytes),
            Reader::Lost => 64,
        }
    }
}

/// What a script may be at one place, by each of the ways through its template that lead there. A quote that one of them opens
/// is closed by what another takes for the beginning of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ways {
    first: Reader,
    /// None of them is the first, or another.
    others: Vec<Reader>,
}

/// Ways that do not meet again are not what anybody writes.
const WAYS_MAX: usize = 32;

impl Ways {
    /// Begins to read a script. The script of a program whose quotes do not matter is read as a shell would read it.
    pub fn new(program: Program) -> Ways {
        let first = match program {
            Program::Other(syntax) => Reader::Quotes(ProgramQuotes::new(syntax)),
            _ => Reader::Shell(Shell::default()),
        };
        Ways {
            first,
            others: Vec::new(),
        }
    }

    /// Stands for a script that cannot be followed any more.
    pub fn lost() -> Ways {
        Ways {
            first: Reader::Lost,
            others: Vec::new(),
        }
    }

    pub fn read(&mut self, text: &str) {
        self.each(|reader| reader.read(text));
    }

    /// A value stands here.
    pub fn value(&mut self) {
        self.each(Reader::value);
    }

    /// About what reading so many bytes costs, in bytes: each way reads them, and ways are copied and compared.
    pub fn work(&self, bytes: usize) -> usize {
        let count = self.others.len() + 1;
        let readers = self.others.iter().chain([&self.first]);
        let work: usize = readers.map(|reader| reader.work(bytes)).sum();
        work.saturating_add(16 * count * count)
    }

    /// What is worst: neither a word nor JSON may stand where it may not by one of the ways.
    pub fn around(&self) -> Around {
        let first = self.first.around();
        let mut others = self.others.iter().map(Reader::around);
        if others.clone().all(|other| other == first) {
            return first;
        }
        let is_bad =
            |around: &Around| !matches!(around, Around::Nothing | Around::QuotedHereDocument);
        let bad = Some(first).filter(is_bad).or_else(|| others.find(is_bad));
        bad.unwrap_or(Around::HereDocument)
    }

    /// Whatever the script may be by the one or by the other.
    pub fn or(mut self, other: Ways) -> Ways {
        self.add(other.first);
        for reader in other.others {
            self.add(reader);
        }
        match self.others.len() < WAYS_MAX {
            true => self,
            false => Ways::lost(),
        }
    }

    /// Whether all of these ways are among ours.
    pub fn contains(&self, other: &Ways) -> bool {
        let mut readers = other.others.iter().chain([&other.first]);
        readers.all(|reader| self.first == *reader || self.others.contains(reader))
    }

    fn each(&mut self, change: impl Fn(&mut Reader)) {
        change(&mut self.first);
        for mut reader in std::mem::take(&mut self.others) {
            change(&mut reader);
            self.add(reader);
        }
    }

    fn add(&mut self, reader: Reader) {
        if self.first != reader && !self.others.contains(&reader) {
            self.others.push(reader);
        }
    }
}

fn begins_word(before: char) -> bool {
    before.is_whitespace() || ";&|()<>".contains(before)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is around the last letter, a `@`.
    fn around(text: &str) -> Around {
        let mut shell = Shell::default();
        shell.read(text.strip_suffix('@').unwrap());
        shell.around()
    }

    #[test]
    fn a_word_may_stand_outside_of_quotes() {
        for text in [
            "@",
            "echo @",
            "echo 'a' \"b\" @",
            "echo \"$(basename @",
            "echo \"$(echo \"a\") b\" @",
            "# it's\necho @",
            "true # it's \"\necho @",
            "echo $# ${#x} a#b's' @",
            "echo it\\'s \\\" @",
            "echo 'a\\' @",
            "echo $'it\\'s' @",
            "cat <<EOF\nit's \"\nEOF\necho @",
            "cat <<-'E O' <<B\n'\n\tE O\n\"\nB\necho @",
            "cat <<\\EOF | tr a b\nit's\nEOF\necho @",
            "cat <<< \"a\" @",
            "x=$((1 << 2)) && echo @",
            "((x = 1 << 2)); echo @",
            "((echo a); echo b); echo @",
            "case $x in a) echo 'b';; esac; echo @",
            "y=\"$(case $x in a) echo;; esac; echo @",
            "echo \"${x:-\"a\"}\" @",
            "echo ${x:-@",
            "echo \"`date`\" @",
            "f() { echo; }; a=(1 '2') @",
            "echo a; ) @",
            "cat <<EOF; echo @",
            "echo --name=@",
        ] {
            assert_eq!(around(text), Around::Nothing, "{text}");
        }
    }

    #[test]
    fn nowhere_else_may_one_stand() {
        for (text, expected) in [
            ("echo \"@", Around::DoubleQuotes),
            ("echo \"a 'b' \\\" @", Around::DoubleQuotes),
            ("echo \"$(date) @", Around::DoubleQuotes),
            ("echo \"$(echo \")\") @", Around::DoubleQuotes),
            ("echo \"${x:-@", Around::DoubleQuotes),
            ("echo \"${x:-'@", Around::DoubleQuotes),
            ("echo '@", Around::SingleQuotes),
            ("echo '\"@", Around::SingleQuotes),
            ("echo $'\\'@", Around::SingleQuotes),
            ("echo `echo @", Around::Backquotes),
            ("echo `echo $(@", Around::Backquotes),
            ("# @", Around::Comment),
            ("echo a;# @", Around::Comment),
            ("echo $((@", Around::Arithmetic),
            ("echo $(( (1 + 2) * @", Around::Arithmetic),
            ("cat <<EOF\n@", Around::HereDocument),
            ("cat <<EOF\nEOF \n@", Around::HereDocument),
            ("cat <<@", Around::HereDocument),
            ("cat <<'EOF'\n@", Around::QuotedHereDocument),
            ("cat <<\"EOF\" >x # 'a\n a\n@", Around::QuotedHereDocument),
            ("cat <<A <<'B'\nA\n@", Around::QuotedHereDocument),
            ("echo $@", Around::Dollar),
            ("echo \\@", Around::Backslash),
        ] {
            assert_eq!(around(text), expected, "{text}");
        }
    }

    #[test]
    fn a_value_is_part_of_its_word() {
        let mut shell = Shell::default();
        shell.read("echo ");
        shell.value();
        shell.read("#'");
        assert_eq!(shell.around(), Around::SingleQuotes);
        let mut shell = Shell::default();
        shell.read("cat <<");
        shell.value();
        shell.read("\nEOF\n");
        assert_eq!(shell.around(), Around::HereDocument);
    }

    #[test]
    fn whoever_reads_a_script_is_known_by_name_or_first_line() {
        for (language, script, expected) in [
            (None, "echo", Program::Shell),
            (None, "#!/bin/sh -e\n", Program::Shell),
            (None, "#!/usr/bin/env -S bash -eu\n", Program::Shell),
            (
                None,
                "#! /usr/bin/env A=b python3\n",
                Program::Other(Syntax::Python),
            ),
            (None, "#!/usr/bin/perl5.36 -w\n", Program::Interpolating),
            (Some("bash"), "#!/usr/bin/python3", Program::Shell),
            (Some("python"), "", Program::Other(Syntax::Python)),
            (Some("ruby3.3"), "", Program::Interpolating),
            (Some("node"), "", Program::Other(Syntax::JavaScript)),
            (Some("cobol"), "", Program::Other(Syntax::Any)),
            (Some("{{ input.language }}"), "", Program::Unknown),
        ] {
            assert_eq!(
                Program::of(language, script),
                expected,
                "{language:?} {script}"
            );
        }
    }
}
