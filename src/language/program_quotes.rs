//! Finds out whether a place in the text of a program is inside quotes, a comment or a regular expression. `shell.rs` does the same for
//! programs that a shell reads.
//!
//! A value that `json` writes is one literal only where a literal may stand. Inside of quotes its own quotes end those around it. The
//! scanner follows only what it needs for that: it knows the quotes and comments of a few families of languages, and no grammar. A
//! quote that its language does not let span lines ends with its line, so that a mistake of the scanner stays on one line.

use super::shell::{Around, base_name};

/// The quotes and comments of a language.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Syntax {
    Python,
    /// JavaScript and TypeScript.
    JavaScript,
    Lua,
    R,
    Awk,
    /// Lisp and Scheme: `'` begins no text.
    Lisp,
    /// Go, Java and others with `//` and `/* … */`.
    Slashes,
    /// The language looks for code in texts in double quotes, so that JSON is a literal nowhere. Also languages with raw texts, whose
    /// quotes this scanner does not follow. Version 0.1 accepted JSON in these languages, unlike those of `Program::Interpolating`.
    Interpolating,
    /// A language of which nothing is known.
    Any,
}

const SYNTAXES: &[(Syntax, &[&str])] = &[
    (
        Syntax::Python,
        &[
            "python",
            "pypy",
            "ipython",
            "bpython",
            "jython",
            "micropython",
            "sage",
        ],
    ),
    (
        Syntax::JavaScript,
        &[
            "node",
            "nodejs",
            "iojs",
            "deno",
            "bun",
            "ts-node",
            "tsx",
            "qjs",
            "mujs",
            "rhino",
            "js",
            "javascript",
            "typescript",
        ],
    ),
    (Syntax::Lua, &["lua", "luajit", "texlua"]),
    (Syntax::R, &["R", "Rscript", "r"]),
    (Syntax::Awk, &["awk", "gawk", "mawk", "nawk"]),
    (
        Syntax::Lisp,
        &[
            "guile", "racket", "sbcl", "clojure", "clj", "bb", "janet", "scsh", "hy",
        ],
    ),
    (Syntax::Slashes, &["go", "yaegi", "java", "jshell", "tcc"]),
    (
        Syntax::Interpolating,
        &[
            "coffee",
            "crystal",
            "raku",
            "jruby",
            "irb",
            "xonsh",
            "gnuplot",
            "scala",
            "csi",
            "dotnet-script",
            "rust-script",
        ],
    ),
];

impl Syntax {
    /// The syntax of the language that this program reads. The name may have a path, and no version.
    pub fn of(program: &str) -> Syntax {
        let name = base_name(program);
        let mut known = SYNTAXES.iter();
        let found = known.find(|(_, names)| names.contains(&name));
        found.map_or(Syntax::Any, |(syntax, _)| *syntax)
    }

    /// The text that begins a comment up to the end of its line.
    fn line_comment(self) -> Option<&'static str> {
        match self {
            Syntax::Python | Syntax::R | Syntax::Awk => Some("#"),
            Syntax::JavaScript | Syntax::Slashes => Some("//"),
            Syntax::Lua => Some("--"),
            Syntax::Lisp => Some(";"),
            // Here a quote ends with its line, so that an apostrophe in a comment does no harm.
            Syntax::Interpolating | Syntax::Any => None,
        }
    }

    fn has_block_comments(self) -> bool {
        matches!(self, Syntax::JavaScript | Syntax::Slashes)
    }

    fn has_regular_expressions(self) -> bool {
        matches!(self, Syntax::JavaScript | Syntax::Awk)
    }

    /// Three quotes in a row begin a text of several lines.
    fn has_triple(self, quote: char) -> bool {
        match self {
            Syntax::Python => quote != '`',
            Syntax::Slashes => quote == '"',
            _ => false,
        }
    }

    fn has_quote(self, quote: char) -> bool {
        match self {
            Syntax::Python | Syntax::Lua => quote != '`',
            Syntax::Awk | Syntax::Lisp => quote == '"',
            _ => true,
        }
    }

    fn spans_lines(self, quote: char) -> bool {
        match self {
            Syntax::R | Syntax::Lisp => true,
            Syntax::JavaScript | Syntax::Slashes => quote == '`',
            _ => false,
        }
    }

    /// Whether `'` directly behind a letter belongs to a name, as in `x'` and `it's`.
    fn has_primes(self) -> bool {
        matches!(self, Syntax::Slashes | Syntax::Any)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Frame {
    Quoted {
        quote: char,
        is_triple: bool,
    },
    /// `${ … }` in backquotes of JavaScript, with the number of braces that are open in it.
    Substitution {
        open: u32,
    },
    RegularExpression {
        /// Inside of `[ … ]`, where `/` ends nothing.
        is_class: bool,
    },
    LineComment,
    /// The rest of a line behind a `/` that divides or begins a regular expression: only the grammar could tell.
    UnclearSlash,
    /// A comment or a long text, and what ends it.
    Until {
        end: String,
        is_comment: bool,
    },
}

/// Reads a program piece by piece; between the pieces stand values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramQuotes {
    syntax: Syntax,
    frames: Vec<Frame>,
    /// The end of the last word, or the last sign, as far as it decides what `/` and `'` are.
    word: String,
    is_beginning: bool,
    /// The scanner cannot tell any more what stands around the next letter.
    is_lost: bool,
}

const NESTED_MAX: usize = 100;
/// Length up to which a word is kept. No keyword is longer.
const WORD_MAX: usize = 10;
/// Words of JavaScript and awk behind which `/` begins a regular expression.
const OPERATOR_WORDS: &[&str] = &[
    "return",
    "typeof",
    "case",
    "in",
    "of",
    "do",
    "else",
    "void",
    "delete",
    "throw",
    "new",
    "instanceof",
    "await",
    "yield",
    "print",
];
/// Letters in front of a quote that say how its text is read.
const PREFIXES: &[&str] = &["b", "f", "r", "u", "L", "B", "F", "R", "U"];

impl ProgramQuotes {
    pub fn new(syntax: Syntax) -> ProgramQuotes {
        ProgramQuotes {
            syntax,
            frames: Vec::new(),
            word: String::new(),
            is_beginning: true,
            is_lost: false,
        }
    }

    /// Returns what the next letter stands in. `Nothing`: a literal may stand there. JSON has no line break, so it does not end the
    /// comment of one line either.
    pub fn around(&self) -> Around {
        if self.syntax == Syntax::Interpolating {
            return Around::Interpolation;
        }
        if self.is_lost {
            return Around::DoubleQuotes;
        }
        match self.frames.last() {
            None | Some(Frame::LineComment | Frame::Substitution { .. }) => Around::Nothing,
            Some(Frame::Quoted { quote: '\'', .. }) => Around::SingleQuotes,
            Some(Frame::Quoted { quote: '`', .. }) => Around::Backquotes,
            Some(Frame::Quoted { .. }) => Around::DoubleQuotes,
            Some(Frame::RegularExpression { .. }) => Around::RegularExpression,
            Some(Frame::UnclearSlash) => Around::UnclearSlash,
            Some(Frame::Until {
                is_comment: true, ..
            }) => Around::Comment,
            Some(Frame::Until { .. }) => Around::LongText,
        }
    }

    /// Notes that a value of a template stands between the text so far and the next piece of text.
    pub fn value(&mut self) {
        self.is_beginning = false;
        self.word.replace_range(.., "0");
    }

    /// Estimates what reading so many bytes costs, as a number of bytes.
    pub fn work(&self, bytes: usize) -> usize {
        bytes.saturating_add(64 + 16 * self.frames.len())
    }

    pub fn read(&mut self, text: &str) {
        let mut rest = text;
        if std::mem::take(&mut self.is_beginning) && rest.starts_with("#!") {
            self.frames.push(Frame::LineComment);
        }
        while let Some(letter) = rest.chars().next() {
            if self.is_lost || self.syntax == Syntax::Interpolating {
                return;
            }
            let bytes = match self.frames.last_mut() {
                None | Some(Frame::Substitution { .. }) => self.code(letter, rest),
                Some(Frame::UnclearSlash) if letter == '`' || rest.starts_with("/*") => {
                    // What may begin here does not end with the line.
                    self.is_lost = true;
                    return;
                }
                Some(Frame::LineComment | Frame::UnclearSlash) => {
                    if letter == '\n' {
                        self.frames.pop();
                    }
                    letter.len_utf8()
                }
                Some(Frame::Until { end, .. }) => match rest.starts_with(end.as_str()) {
                    true => {
                        let bytes = end.len();
                        self.leave();
                        bytes
                    }
                    false => letter.len_utf8(),
                },
                Some(Frame::RegularExpression { is_class }) => match letter {
                    '\\' => escaped_bytes(rest),
                    '\n' => {
                        self.leave();
                        1
                    }
                    '/' if !*is_class => {
                        self.leave();
                        1
                    }
                    _ => {
                        *is_class = match letter {
                            '[' => true,
                            ']' => false,
                            _ => *is_class,
                        };
                        letter.len_utf8()
                    }
                },
                Some(&mut Frame::Quoted { quote, is_triple }) => {
                    self.quoted(letter, rest, quote, is_triple)
                }
            };
            rest = &rest[bytes..];
        }
    }

    /// Reads inside of quotes. Returns the number of bytes that were read.
    fn quoted(&mut self, letter: char, rest: &str, quote: char, is_triple: bool) -> usize {
        // A quote of Go and R that begins with a backquote knows no escapes.
        let has_escapes = quote != '`' || self.syntax == Syntax::JavaScript;
        if letter == '\\' && has_escapes {
            return escaped_bytes(rest);
        }
        if is_triple {
            let ends = rest.len() >= 3 && rest.chars().take(3).all(|letter| letter == quote);
            if ends {
                self.leave();
                return 3;
            }
        } else if letter == quote || (letter == '\n' && !self.syntax.spans_lines(quote)) {
            self.leave();
        } else if quote == '`' && self.syntax == Syntax::JavaScript && rest.starts_with("${") {
            self.enter(Frame::Substitution { open: 0 });
            return 2;
        }
        letter.len_utf8()
    }

    /// Reads outside of quotes and comments. Returns the number of bytes that were read.
    fn code(&mut self, letter: char, rest: &str) -> usize {
        // A letter of Lisp, such as `#\"`.
        if self.syntax == Syntax::Lisp && rest.starts_with("#\\") {
            return rest.chars().take(3).map(char::len_utf8).sum();
        }
        if let Some((frame, bytes)) = self.begun(letter, rest) {
            self.enter(frame);
            return bytes;
        }
        if let Some(Frame::Substitution { open }) = self.frames.last_mut() {
            match letter {
                '{' => *open += 1,
                '}' if *open == 0 => {
                    self.frames.pop();
                    return 1;
                }
                '}' => *open -= 1,
                _ => {}
            }
        }
        if is_word(letter) {
            let is_word_so_far = self.word.chars().all(is_word);
            if !is_word_so_far {
                self.word.clear();
            }
            if self.word.len() <= WORD_MAX {
                self.word.push(letter);
            }
        } else if !letter.is_whitespace() {
            self.word.clear();
            self.word.push(letter);
        } else if !self.word.ends_with(' ') {
            // A word ends here, and decides what the next `/` is. A prefix of a quote stands directly in front of it.
            self.word.push(' ');
        }
        letter.len_utf8()
    }

    /// Returns the frame that begins at this letter, such as quotes or a comment, and the number of bytes that begin the frame. `None`:
    /// no frame begins here.
    fn begun(&self, letter: char, rest: &str) -> Option<(Frame, usize)> {
        let syntax = self.syntax;
        let until = |end: String, is_comment: bool| Frame::Until { end, is_comment };
        if syntax == Syntax::Lua {
            let comment = rest.strip_prefix("--");
            if let Some((end, bytes)) = long_bracket(comment.unwrap_or(rest)) {
                let dashes = rest.len() - comment.unwrap_or(rest).len();
                return Some((until(end, comment.is_some()), dashes + bytes));
            }
        }
        if let Some(begin) = syntax
            .line_comment()
            .filter(|begin| rest.starts_with(begin))
        {
            return Some((Frame::LineComment, begin.len()));
        }
        if syntax.has_block_comments() && rest.starts_with("/*") {
            return Some((until("*/".to_string(), true), 2));
        }
        if syntax == Syntax::Lisp && rest.starts_with("#|") {
            return Some((until("|#".to_string(), true), 2));
        }
        if letter == '/' && syntax.has_regular_expressions() {
            if self.is_unclear_slash(rest) {
                return Some((Frame::UnclearSlash, 1));
            }
            if !self.is_behind_value() {
                return Some((Frame::RegularExpression { is_class: false }, 1));
            }
        }
        if !matches!(letter, '\'' | '"' | '`') || !syntax.has_quote(letter) {
            return None;
        }
        let word = self.word.as_str();
        if letter == '\'' && syntax.has_primes() {
            let is_behind_word = word.chars().next_back().is_some_and(is_word);
            if is_behind_word && !PREFIXES.contains(&word) {
                return None;
            }
        }
        if syntax == Syntax::R
            && matches!(word, "r" | "R")
            && let Some((end, bytes)) = raw_text_of_r(rest)
        {
            return Some((until(end, false), bytes));
        }
        let is_triple =
            syntax.has_triple(letter) && rest.chars().take(3).filter(|&l| l == letter).count() == 3;
        let frame = Frame::Quoted {
            quote: letter,
            is_triple,
        };
        Some((frame, if is_triple { 3 } else { 1 }))
    }

    /// Whether this `/` may divide as well as begin a regular expression: behind the `)` of a condition or of a call, the `}` of a block
    /// or of an object, and `++`. If no other `/` is on the line, it divides.
    fn is_unclear_slash(&self, rest: &str) -> bool {
        let ends = self.word.trim_end().chars().next_back();
        let line_end = rest.find('\n');
        let line = &rest[1..line_end.unwrap_or(rest.len())];
        matches!(ends, Some(')' | '}' | '+' | '-')) && (line_end.is_none() || line.contains('/'))
    }

    /// Whether the code so far ends with a value, so that `/` divides it.
    fn is_behind_value(&self) -> bool {
        let word = self.word.trim_end();
        match word.chars().next_back() {
            None => false,
            Some(last) if is_word(last) => !OPERATOR_WORDS.contains(&word),
            Some(last) => matches!(last, ')' | ']' | '"' | '$'),
        }
    }

    fn enter(&mut self, frame: Frame) {
        let is_comment = matches!(
            frame,
            Frame::LineComment
                | Frame::Until {
                    is_comment: true,
                    ..
                }
        );
        if !is_comment {
            self.word.clear();
        }
        self.frames.push(frame);
        self.is_lost |= self.frames.len() > NESTED_MAX;
    }

    /// Leaves quotes, a regular expression or a comment.
    fn leave(&mut self) {
        let left = self.frames.pop();
        let is_comment = matches!(
            left,
            Some(Frame::Until {
                is_comment: true,
                ..
            })
        );
        if !is_comment {
            // What is left is a value.
            self.word.replace_range(.., "\"");
        }
    }
}

fn is_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

/// The length of a backslash and of what it escapes.
fn escaped_bytes(rest: &str) -> usize {
    if rest.starts_with("\\\r\n") {
        return 3;
    }
    rest.chars().take(2).map(char::len_utf8).sum()
}

/// `[[` and `[==[` of Lua: what ends the text, and the length of its beginning.
fn long_bracket(rest: &str) -> Option<(String, usize)> {
    let inner = rest.strip_prefix('[')?;
    let level = inner.len() - inner.trim_start_matches('=').len();
    inner[level..].starts_with('[').then(|| {
        let end = format!("]{}]", "=".repeat(level));
        (end, level + 2)
    })
}

/// `r"(…)"` and `r"--[…]--"` of R, from the quote on: what ends the text, and the length of its beginning.
fn raw_text_of_r(rest: &str) -> Option<(String, usize)> {
    let quote = rest.chars().next()?;
    let inner = &rest[quote.len_utf8()..];
    let dashes = inner.len() - inner.trim_start_matches('-').len();
    let bracket = match inner[dashes..].chars().next()? {
        '(' => ')',
        '[' => ']',
        '{' => '}',
        _ => return None,
    };
    let end = format!("{bracket}{}{quote}", "-".repeat(dashes));
    Some((end, dashes + 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns what the last letter of the text, a `@`, stands in. Every other `@` stands for a value of a template.
    fn around(syntax: Syntax, text: &str) -> Around {
        let mut quotes = ProgramQuotes::new(syntax);
        let pieces: Vec<&str> = text.strip_suffix('@').unwrap().split('@').collect();
        for (at, piece) in pieces.iter().enumerate() {
            if at > 0 {
                quotes.value();
            }
            quotes.read(piece);
        }
        quotes.around()
    }

    #[test]
    fn a_literal_may_stand_outside_of_quotes() {
        for (syntax, texts) in [
            (
                Syntax::Python,
                &[
                    "@",
                    "d = @",
                    "# it's\nd = @",
                    "#!/usr/bin/it's\nd = @",
                    "d = 'it\\'s' + \"it's\" + @",
                    "'''it's \"\"\"\n'''\nd = @",
                    "\"\"\"it's\n\"\"\" + @",
                    "'''a\\''''; d = @",
                    "d = '' + @",
                    "d = {'a': @, 'b': @, \"c\": @",
                    "# it's @",
                    "d = 'a' # it's \"\nprint(@",
                    "d = f'{x}' % @",
                    // A text that is not closed is an error of the program.
                    "d = 'a\nprint(@",
                    "d = 'a \\\n b'\nprint(@",
                    "x = 7 // 2 # it's\nd = @",
                    "'a' 'b' \"c\" @",
                ][..],
            ),
            (
                Syntax::JavaScript,
                &[
                    "const d = @",
                    "// it's\nconst d = @",
                    "/* it's ` */ const d = @",
                    "x = 'it\\'s' + \"it's\" + `it's` + @",
                    "x = `a ${ @",
                    "x = `a ${ f({a: 'b'}, `c ${d}`) } b`; y = @",
                    "x = `a ${ {a: @",
                    "x = s.replace(/'/g, \"\\\"\"); y = @",
                    "x = s.split(/[/'`]/); y = @",
                    "return /[`\"']/.test(a) ? @",
                    "if (a) {}\nelse return /'/.test(a) ? @",
                    "x = a\n  / b / @",
                    "x = a / b; y = c / d; z = @",
                    "x = @ / 2; y = 'a' / @",
                    "x = a[0] / 2 + \"'\" / @",
                    "x = `\\`${'`'}`; y = @",
                    "#!/usr/bin/env node\nx = @",
                    "// it's @",
                    "f(a, /it's/, @",
                    "x = (a) / 2;\ny = @",
                    "if (x) /'/.test(y);\nz = @",
                    "x = 'a\\\r\nb'; y = @",
                ],
            ),
            (
                Syntax::Lua,
                &[
                    "-- it's\nx = @",
                    "--[[ it's\n' ]] x = @",
                    "--[==[ ' ]] ]==] x = @",
                    "x = [[it's]] .. @",
                    "x = a[b[1]] .. @",
                    "x = 'it\\'s' .. \"'\" .. @",
                ],
            ),
            (
                Syntax::R,
                &[
                    "# it's\nx <- @",
                    "x <- 'a\nb' ; y <- @",
                    "x <- r\"(it's \"a\")\"; y <- @",
                    "x <- R'--[it's]--'; y <- @",
                    "x <- r'--{'}-'}--'; y <- @",
                    "`a b` <- @",
                    "for (r in 'a') x <- @",
                ],
            ),
            (
                Syntax::Awk,
                &[
                    "BEGIN { x = @",
                    "/\"/ { print @",
                    "# \"\n{ print \"'\", @",
                    "{ print 'a' @",
                    "{ x = $1 / 2; y = @",
                    "$1 ~ /\"'/ { print @",
                ],
            ),
            (
                Syntax::Lisp,
                &[
                    "(f '(a b) @",
                    "; it's \"\n(f @",
                    "(f \"a\n'\" 'b @",
                    "#| \" |# (f @",
                    "(f #\\\" @",
                ],
            ),
            (
                Syntax::Slashes,
                &[
                    "// it's\nx := @",
                    "/* it's ` */ x := @",
                    "x := '\"'; y := @",
                    "fn f<'a>(x: &'a str) {\n g(@",
                    "let n = 1'000 + @",
                    "x = \"\"\"it's \"\"\" + @",
                    "x := `a\\`; y := @",
                ],
            ),
            (
                Syntax::Any,
                &[
                    "# it's\nx = @",
                    "-- don't\nx = @",
                    "REM it is the dog's\nx = @",
                    "let x' = @",
                    "x = 'it\\'s' + \"'\" + @",
                    "x = 'a\nx = @",
                ],
            ),
        ] {
            for text in texts {
                assert_eq!(around(syntax, text), Around::Nothing, "{syntax:?} {text}");
            }
        }
    }

    #[test]
    fn nowhere_else_may_one_stand() {
        use Around::{
            Backquotes, Comment, DoubleQuotes, Interpolation, LongText, RegularExpression,
            SingleQuotes, UnclearSlash,
        };
        for (syntax, text, expected) in [
            (Syntax::Python, "d = json.loads('@", SingleQuotes),
            (Syntax::Python, "d = \"@", DoubleQuotes),
            (Syntax::Python, "d = '''a\n'@", SingleQuotes),
            (Syntax::Python, "d = f\"\"\"a\n\"\" @", DoubleQuotes),
            (Syntax::Python, "d = '# @", SingleQuotes),
            (Syntax::Python, "d = 'a \\\n @", SingleQuotes),
            (Syntax::Python, "d = r'\\' @", SingleQuotes),
            (Syntax::Python, "d = '@", SingleQuotes),
            (Syntax::Python, "d = 'a@b' + '@", SingleQuotes),
            (Syntax::Python, "x = 1 # it's\nd = \"@", DoubleQuotes),
            (Syntax::JavaScript, "x = '@", SingleQuotes),
            (Syntax::JavaScript, "x = `got @", Backquotes),
            (Syntax::JavaScript, "x = `a\n@", Backquotes),
            (Syntax::JavaScript, "x = `a ${ b } @", Backquotes),
            (Syntax::JavaScript, "x = `a ${ `@", Backquotes),
            (Syntax::JavaScript, "x = `a ${ { a: { } } } @", Backquotes),
            (Syntax::JavaScript, "/* @", Comment),
            (Syntax::JavaScript, "x = /@", RegularExpression),
            (Syntax::JavaScript, "x = /[/]@", RegularExpression),
            (Syntax::JavaScript, "return /a@", RegularExpression),
            (Syntax::JavaScript, "x = /'/; y = '@", SingleQuotes),
            // Whether this `/` divides, only the grammar could tell.
            (Syntax::JavaScript, "if (x) /'/.test('@", UnclearSlash),
            (Syntax::JavaScript, "i++ / 2; s = '/@", UnclearSlash),
            (Syntax::JavaScript, "f(x) /2/ 1; s = `\n@", DoubleQuotes),
            (Syntax::JavaScript, "x = 'a\\\r\nb @", SingleQuotes),
            (Syntax::Lisp, "(f #\\\" \"@", DoubleQuotes),
            (Syntax::Lua, "x = [[@", LongText),
            (Syntax::Lua, "x = [=[ ]] @", LongText),
            (Syntax::Lua, "--[[ @", Comment),
            (Syntax::Lua, "x = '@", SingleQuotes),
            (Syntax::R, "x <- \"a\n@", DoubleQuotes),
            (Syntax::R, "x <- r\"(it's @", LongText),
            (Syntax::Awk, "{ print \"@", DoubleQuotes),
            (Syntax::Awk, "/@", RegularExpression),
            (Syntax::Lisp, "(f \"a\n@", DoubleQuotes),
            (Syntax::Slashes, "x := `a\n@", Backquotes),
            (Syntax::Slashes, "x = \"\"\"a\n\"@", DoubleQuotes),
            (Syntax::Slashes, "/* @", Comment),
            (Syntax::Any, "x = '@", SingleQuotes),
            (Syntax::Any, "x = f'@", SingleQuotes),
            (Syntax::Any, "x = \"@", DoubleQuotes),
            (Syntax::Any, "x = `@", Backquotes),
            (Syntax::Interpolating, "puts @", Interpolation),
        ] {
            assert_eq!(around(syntax, text), expected, "{syntax:?} {text}");
        }
    }

    #[test]
    fn texts_in_texts_are_followed_to_a_bound() {
        let mut quotes = ProgramQuotes::new(Syntax::JavaScript);
        quotes.read(&"`${".repeat(10_000));
        assert_eq!(quotes.around(), Around::DoubleQuotes);
        assert!(quotes.frames.len() <= NESTED_MAX + 1);
    }
}
