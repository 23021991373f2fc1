//! Classifies each word of an argument list by what the receiving program does with it: data, code, or a choice of what runs.
//!
//! A program that is not an interpreter receives all its arguments as data. An interpreter takes the text after `-c` or `-e` for a
//! program, and its other options decide what is loaded. Wrappers such as `env` and `timeout` start the program that they are given.

use std::collections::BTreeSet;

use super::program_quotes::Syntax;
use super::shell::{Program, SHELLS, base_name};
use super::template::{self, TemplateFault};
use crate::domain::task::is_template;

/// The role of a text: what the program that receives it does with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The text is passed on and never run.
    Data,
    /// The text is run as a program.
    Code(Program),
    /// The text decides which program, library or folder is used.
    Choice(Choice),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    Image,
    Entrypoint,
    WorkingFolder,
    Language,
    /// The first word of a command, or the program that a wrapper starts.
    Program,
    /// An option of an interpreter or of a wrapper.
    Option,
    /// The file that an interpreter runs.
    ScriptFile,
    /// The value of a variable in `LOADER_VARIABLES`.
    Variable,
    /// The name of a variable in a reference `$(NAME)`, which Kubernetes replaces.
    Reference,
    /// A field of a pod's manifest that decides with which rights the pod runs and what it can reach.
    PodField,
}

/// One word of an argument list, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Word<'a> {
    Known(&'a str),
    /// The word contains a template; this is the text in front of it.
    Template {
        prefix: &'a str,
    },
}

impl<'a> Word<'a> {
    /// A word as it stands in a definition.
    fn written(text: &'a str) -> Word<'a> {
        if !is_template(text) {
            return Word::Known(text);
        }
        let begins = [text.find("{{"), text.find("{%")];
        let begins = begins.into_iter().flatten().min().unwrap_or(0);
        Word::Template {
            prefix: &text[..begins],
        }
    }

    fn known(self) -> Option<&'a str> {
        match self {
            Word::Known(text) => Some(text),
            Word::Template { .. } => None,
        }
    }

    /// The text of the word up to its first template.
    fn literal(self) -> &'a str {
        match self {
            Word::Known(text) | Word::Template { prefix: text } => text,
        }
    }
}

/// The variables with which programs, dynamic linkers and interpreters are told what to load or to run. The list is closed so that
/// everybody can know it: `docs/security.md` repeats it.
pub const LOADER_VARIABLES: &[&str] = &[
    // The program that is found, and the dynamic linker. `LD_*` and `DYLD_*` are complete.
    "PATH",
    "GCONV_PATH",
    "GLIBC_TUNABLES",
    "OPENSSL_CONF",
    "OPENSSL_ENGINES",
    "OPENSSL_MODULES",
    "GTK_MODULES",
    "QT_PLUGIN_PATH",
    // The folders in which programs find their settings.
    "HOME",
    "XDG_CONFIG_HOME",
    "XDG_CONFIG_DIRS",
    "XDG_DATA_HOME",
    "XDG_DATA_DIRS",
    "USERPROFILE",
    "APPDATA",
    // Shells.
    "BASH_ENV",
    "BASH_LOADABLES_PATH",
    "ZDOTDIR",
    "FPATH",
    "IFS",
    "CDPATH",
    "PS4",
    "PROMPT_COMMAND",
    "SHELLOPTS",
    "BASHOPTS",
    "SHELL",
    "PSModulePath",
    // Python, Perl, Ruby, Node.
    "PYTHONPATH",
    "PYTHONSTARTUP",
    "PYTHONHOME",
    "PYTHONUSERBASE",
    "PYTHONINSPECT",
    "PYTHONBREAKPOINT",
    "PYTHONPLATLIBDIR",
    "PYTHONWARNINGS",
    "PYTEST_ADDOPTS",
    "PYTEST_PLUGINS",
    "PERL5LIB",
    "PERLLIB",
    "PERL5OPT",
    "PERL5DB",
    "PERL5SHELL",
    "RUBYOPT",
    "RUBYLIB",
    "BUNDLE_GEMFILE",
    "GEM_PATH",
    "GEM_HOME",
    "NODE_OPTIONS",
    "NODE_PATH",
    // Java, .NET, PHP, R, Julia, Erlang, awk, Tcl. `LUA_*` is complete.
    "JAVA_TOOL_OPTIONS",
    "_JAVA_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "JAVA_OPTS",
    "MAVEN_OPTS",
    "GRADLE_OPTS",
    "GRADLE_USER_HOME",
    "MAVEN_ARGS",
    "SBT_OPTS",
    "ANT_OPTS",
    "JAVA_HOME",
    "CLASSPATH",
    "DOTNET_STARTUP_HOOKS",
    "CORECLR_PROFILER_PATH",
    "CORECLR_PROFILER_PATH_32",
    "CORECLR_PROFILER_PATH_64",
    "COR_PROFILER_PATH",
    "COR_PROFILER_PATH_32",
    "COR_PROFILER_PATH_64",
    "DOTNET_ADDITIONAL_DEPS",
    "GUILE_LOAD_PATH",
    "CAML_LD_LIBRARY_PATH",
    "PHPRC",
    "PHP_INI_SCAN_DIR",
    "R_PROFILE",
    "R_PROFILE_USER",
    "R_ENVIRON",
    "R_ENVIRON_USER",
    "R_LIBS",
    "JULIA_LOAD_PATH",
    "JULIA_DEPOT_PATH",
    "ERL_AFLAGS",
    "ERL_FLAGS",
    "ERL_ZFLAGS",
    "ERL_LIBS",
    "ELIXIR_ERL_OPTIONS",
    "AWKPATH",
    "AWKLIBPATH",
    "TCLLIBPATH",
    // Programs that other programs start. `GIT_CONFIG*`, `TF_CLI_ARGS*` and `ANSIBLE_*` are complete.
    "GIT_SSH",
    "GIT_SSH_COMMAND",
    "GIT_PROXY_COMMAND",
    "GIT_EXEC_PATH",
    "GIT_EXTERNAL_DIFF",
    "GIT_TEMPLATE_DIR",
    "GIT_DIR",
    "GIT_ASKPASS",
    "GIT_EDITOR",
    "GIT_SEQUENCE_EDITOR",
    "GIT_PAGER",
    "HGRCPATH",
    "SSH_ASKPASS",
    "SUDO_ASKPASS",
    "SUDO_EDITOR",
    "SVN_SSH",
    "RSYNC_RSH",
    "RSYNC_CONNECT_PROG",
    "BORG_RSH",
    "BORG_PASSCOMMAND",
    "RESTIC_PASSWORD_COMMAND",
    "RCLONE_PASSWORD_COMMAND",
    "TAR_OPTIONS",
    "EDITOR",
    "VISUAL",
    "PAGER",
    "MANPAGER",
    "SYSTEMD_PAGER",
    "AWS_PAGER",
    "GH_PAGER",
    "PSQL_PAGER",
    "PSQL_EDITOR",
    "BROWSER",
    "LESSOPEN",
    "LESSCLOSE",
    "VIMINIT",
    "EXINIT",
    "RIPGREP_CONFIG_PATH",
    "KUBECONFIG",
    "KUBECTL_EXTERNAL_DIFF",
    "KUBE_EDITOR",
    "AWS_CONFIG_FILE",
    "AWS_SHARED_CREDENTIALS_FILE",
    "TF_CLI_CONFIG_FILE",
    "HELM_PLUGINS",
    "CURL_HOME",
    "WGETRC",
    "PSQLRC",
    "INPUTRC",
    // The machine on which containers are started.
    "DOCKER_HOST",
    "DOCKER_CONTEXT",
    "DOCKER_CONFIG",
    "DOCKER_CERT_PATH",
    "DOCKER_TLS",
    "DOCKER_TLS_VERIFY",
    "CONTAINER_HOST",
    "CONTAINERS_CONF",
    "BUILDKIT_HOST",
    // Compilers and build tools. `CARGO_TARGET_*`, `NPM_CONFIG_*` and `PIP_*` are complete.
    "CC",
    "CXX",
    "CPP",
    "LD",
    "AR",
    "GCC_EXEC_PREFIX",
    "COMPILER_PATH",
    "CFLAGS",
    "CXXFLAGS",
    "CPPFLAGS",
    "LDFLAGS",
    "CARGO_HOME",
    "CARGO_BUILD_RUSTC",
    "CARGO_BUILD_RUSTC_WRAPPER",
    "CARGO_BUILD_RUSTFLAGS",
    "CARGO_ENCODED_RUSTFLAGS",
    "RUSTUP_HOME",
    "RUSTUP_TOOLCHAIN",
    "RUSTDOC",
    "RUSTDOCFLAGS",
    "MAKEFLAGS",
    "GNUMAKEFLAGS",
    "MAKEFILES",
    "RUSTC",
    "RUSTC_WRAPPER",
    "RUSTC_WORKSPACE_WRAPPER",
    "RUSTFLAGS",
    "GOFLAGS",
    "GOENV",
    "GOROOT",
    "GOTOOLCHAIN",
    "GOPROXY",
    "YARN_RC_FILENAME",
    "UV_INDEX_URL",
    "CONDARC",
];
/// Every variable whose name begins so is one of them.
pub const LOADER_PREFIXES: &[&str] = &[
    "LD_",
    "DYLD_",
    "GIT_CONFIG",
    "BASH_FUNC_",
    "LUA_",
    "TF_CLI_ARGS",
    "ANSIBLE_",
    "CARGO_TARGET_",
    "NPM_CONFIG_",
    "npm_config_",
    "PIP_",
];

/// Whether the value of this variable decides what is loaded or run.
pub fn is_loader_variable(name: &str) -> bool {
    LOADER_VARIABLES.contains(&name)
        || LOADER_PREFIXES
            .iter()
            .any(|prefix| name.starts_with(prefix))
}

/// Meaning of the first word after the options of an interpreter.
#[derive(Clone, Copy, PartialEq)]
enum Operand {
    /// The file that it runs.
    ScriptFile,
    /// The program itself, unless an option has given one.
    Code,
    /// Data, such as the name of a database.
    Data,
    /// The first one is data (a host, a database), everything behind it is code.
    DataThenCode,
    /// Every one is part of one program.
    AllCode,
    /// Every one decides what is run: `make NAME=VALUE` runs the `$(shell …)` of the value.
    Choice,
}

struct Interpreter {
    names: &'static [&'static str],
    program: Program,
    /// Letters of options whose value is code.
    code: &'static str,
    /// Options of several letters whose value is code: `--eval CODE` and `--eval=CODE`.
    code_words: &'static [&'static str],
    /// Letters of options that have another value.
    values: &'static str,
    /// Letters of options that may have a value in the same word, and never in the next one: `-i.bak`.
    attached: &'static str,
    /// Letters of options that read the program from a file or a module, so that no operand is the program.
    files: &'static str,
    /// Options of several letters that have no value, or one in the same word. Any other may have its value in the next word.
    flag_words: &'static [&'static str],
    /// Letters that are not listed are options without a value. Otherwise such a letter may have its value in the next word.
    knows_letters: bool,
    operand: Operand,
    /// A letter may be followed by its value in the same word: `-e'print 1'`. Otherwise other letters follow it: `-lc`.
    joins_values: bool,
    /// Whatever follows the code is data.
    code_ends_options: bool,
    /// Options may stand behind operands.
    permutes: bool,
    /// Other options of this interpreter decide what is loaded, so an untrusted value must not become an option.
    is_strict: bool,
}

const LANGUAGE: Interpreter = Interpreter {
    names: &[],
    program: Program::Other(Syntax::Any),
    code: "e",
    code_words: &["--eval"],
    values: "",
    attached: "",
    files: "",
    flag_words: &[],
    knows_letters: true,
    operand: Operand::ScriptFile,
    joins_values: true,
    code_ends_options: false,
    permutes: false,
    is_strict: true,
};

/// A program that is no language, and takes some of its arguments for code.
const TOOL: Interpreter = Interpreter {
    program: Program::Interpolating,
    operand: Operand::Data,
    permutes: true,
    is_strict: false,
    ..LANGUAGE
};

const INTERPRETERS: &[Interpreter] = &[
    Interpreter {
        names: SHELLS,
        program: Program::Shell,
        code: "c",
        code_words: &[],
        values: "oO",
        flag_words: &["--login", "--posix", "--restricted", "--verbose", "--debug"],
        joins_values: false,
        code_ends_options: true,
        ..LANGUAGE
    },
    Interpreter {
        names: &[
            "fish", "csh", "tcsh", "nu", "xonsh", "elvish", "ysh", "rc", "es", "ion", "scsh",
            "sash", "toysh",
        ],
        program: Program::Interpolating,
        code: "cC",
        code_words: &["--command", "--commands", "--init-command"],
        knows_letters: false,
        joins_values: false,
        code_ends_options: true,
        ..LANGUAGE
    },
    Interpreter {
        names: &[
            "python",
            "pypy",
            "ipython",
            "bpython",
            "jython",
            "micropython",
            "hy",
        ],
        program: Program::Other(Syntax::Python),
        code: "c",
        code_words: &["--command"],
        values: "WX",
        files: "m",
        code_ends_options: true,
        ..LANGUAGE
    },
    Interpreter {
        names: &["perl"],
        program: Program::Interpolating,
        code: "eE",
        values: "I",
        attached: "MmFix",
        ..LANGUAGE
    },
    Interpreter {
        names: &["ruby", "irb", "jruby"],
        program: Program::Interpolating,
        values: "rICE",
        attached: "KxiFW",
        ..LANGUAGE
    },
    Interpreter {
        names: &["node", "nodejs", "bun", "iojs", "qjs", "mujs", "rhino"],
        program: Program::Other(Syntax::JavaScript),
        code: "ep",
        code_words: &["--eval", "--print"],
        values: "rC",
        flag_words: &[
            "--check",
            "--enable-source-maps",
            "--expose-gc",
            "--experimental-strip-types",
            "--experimental-vm-modules",
            "--inspect",
            "--inspect-brk",
            "--interactive",
            "--preserve-symlinks",
            "--test",
            "--throw-deprecation",
            "--trace-deprecation",
            "--trace-uncaught",
            "--trace-warnings",
            "--watch",
        ],
        joins_values: false,
        ..LANGUAGE
    },
    Interpreter {
        names: &["php"],
        program: Program::Interpolating,
        code: "rRBE",
        code_words: &[
            "--run",
            "--process-code",
            "--process-begin",
            "--process-end",
        ],
        values: "dcztSfF",
        ..LANGUAGE
    },
    Interpreter {
        names: &["lua", "luajit", "texlua"],
        program: Program::Other(Syntax::Lua),
        values: "l",
        ..LANGUAGE
    },
    Interpreter {
        names: &[
            "julia",
            "elixir",
            "groovy",
            "scala",
            "kotlin",
            "kotlinc",
            "swift",
            "clojure",
            "clj",
            "racket",
            "sbcl",
            "erl",
            "ghc",
            "osascript",
            "expect",
            "guile",
            "tclsh",
            "dart",
            "raku",
            "ts-node",
            "tsx",
            "coffee",
            "bb",
            "janet",
            "octave",
            "gnuplot",
            "sage",
            "ocaml",
            "csi",
        ],
        program: Program::Interpolating,
        code: "eEcp",
        code_words: &["--eval", "--print", "--rpc-eval", "-eval"],
        knows_letters: false,
        ..LANGUAGE
    },
    Interpreter {
        names: &["Rscript", "R"],
        program: Program::Other(Syntax::R),
        values: "gfd",
        flag_words: &["--vanilla", "--slave", "--quiet", "--silent", "--verbose"],
        ..LANGUAGE
    },
    Interpreter {
        names: &["awk", "gawk", "mawk", "nawk"],
        program: Program::Other(Syntax::Awk),
        code_words: &["--source"],
        values: "vFilW",
        files: "fE",
        flag_words: &["--posix", "--traditional", "--csv", "--sandbox"],
        operand: Operand::Code,
        is_strict: false,
        ..LANGUAGE
    },
    Interpreter {
        // GNU sed runs commands: `s/x/id/e`.
        names: &["sed", "gsed"],
        code_words: &["--expression"],
        values: "l",
        attached: "i",
        files: "f",
        flag_words: &[
            "--quiet",
            "--silent",
            "--regexp-extended",
            "--in-place",
            "--null-data",
            "--separate",
            "--unbuffered",
            "--posix",
            "--sandbox",
            "--follow-symlinks",
        ],
        operand: Operand::Code,
        permutes: true,
        ..TOOL
    },
    Interpreter {
        names: &["su", "runuser", "script"],
        program: Program::Shell,
        code: "c",
        code_words: &["--command", "--session-command"],
        values: "gGswu",
        knows_letters: false,
        is_strict: true,
        ..TOOL
    },
    Interpreter {
        names: &["sg"],
        program: Program::Shell,
        code: "",
        code_words: &[],
        operand: Operand::DataThenCode,
        permutes: false,
        is_strict: true,
        ..TOOL
    },
    Interpreter {
        names: &["make", "gmake", "bmake"],
        code: "",
        operand: Operand::Choice,
        is_strict: true,
        ..TOOL
    },
    Interpreter {
        // The program that makes the connection is given to a shell.
        names: &["rsync"],
        program: Program::Shell,
        code_words: &["--rsh", "--rsync-path"],
        values: "fBTM",
        ..TOOL
    },
    Interpreter {
        names: &["scp", "sftp"],
        code: "",
        code_words: &[],
        values: "BbcDFiJloPRSsX",
        is_strict: true,
        ..TOOL
    },
    Interpreter {
        names: &["ssh"],
        program: Program::Shell,
        code: "",
        code_words: &[],
        values: "BbcDEeFIiJLlmOopQRSWw",
        operand: Operand::DataThenCode,
        permutes: false,
        is_strict: true,
        ..TOOL
    },
    Interpreter {
        names: &["watch", "parallel", "eval", "hyperfine", "entr"],
        program: Program::Shell,
        code: "",
        code_words: &[],
        values: "nj",
        operand: Operand::AllCode,
        permutes: false,
        ..TOOL
    },
    Interpreter {
        names: &["npm", "pnpm"],
        program: Program::Shell,
        code: "c",
        code_words: &["--call"],
        values: "pwC",
        ..TOOL
    },
    Interpreter {
        names: &["npx"],
        program: Program::Shell,
        code: "c",
        code_words: &["--call"],
        values: "pw",
        flag_words: &["--yes", "--quiet", "--silent", "--offline"],
        permutes: false,
        ..TOOL
    },
    Interpreter {
        names: &["nix-shell"],
        program: Program::Shell,
        code: "",
        code_words: &["--run", "--command"],
        values: "AIp",
        ..TOOL
    },
    Interpreter {
        names: &["nix", "nix-build", "nix-instantiate"],
        code: "E",
        code_words: &["--expr"],
        values: "AI",
        ..TOOL
    },
    Interpreter {
        names: &["nodemon"],
        program: Program::Shell,
        code: "x",
        code_words: &["--exec"],
        values: "eiwd",
        ..TOOL
    },
    Interpreter {
        names: &["ncat", "nc", "netcat"],
        program: Program::Shell,
        code: "ce",
        code_words: &["--sh-exec", "--exec", "--lua-exec"],
        values: "dgGimpqswx",
        ..TOOL
    },
    Interpreter {
        names: &["tar", "gtar", "bsdtar"],
        program: Program::Shell,
        code: "IF",
        code_words: &[
            "--use-compress-program",
            "--to-command",
            "--checkpoint-action",
            "--rsh-command",
            "--info-script",
            "--new-volume-script",
        ],
        values: "bCfgHKLNTVX",
        flag_words: &["--checkpoint"],
        ..TOOL
    },
    Interpreter {
        names: &["split", "sort"],
        program: Program::Shell,
        code: "",
        code_words: &["--filter", "--compress-program"],
        values: "",
        ..TOOL
    },
    // Clients of databases: most of them can also start a shell.
    Interpreter {
        names: &["psql", "duckdb"],
        code: "c",
        code_words: &["--command"],
        values: "dfFhLopPRTUv",
        ..TOOL
    },
    Interpreter {
        names: &["mysql", "mariadb", "cqlsh", "mongo", "mongosh", "redis-cli"],
        code_words: &["--execute", "--eval"],
        values: "hPuDSa",
        ..TOOL
    },
    Interpreter {
        names: &["clickhouse-client", "clickhouse", "snowsql"],
        code: "q",
        code_words: &["--query"],
        values: "hudmf",
        ..TOOL
    },
    Interpreter {
        names: &["sqlite"],
        code: "",
        code_words: &["-cmd"],
        operand: Operand::DataThenCode,
        permutes: false,
        ..TOOL
    },
    Interpreter {
        names: &["vim", "nvim", "vi", "ex", "gdb", "emacs"],
        code: "c",
        code_words: &["--cmd", "-ex", "--eval", "-eval-command", "--eval-command"],
        ..TOOL
    },
];

/// Programs that take code only behind one of their subcommands.
const SUBCOMMANDS: &[(&str, &str, Interpreter)] = &[
    (
        "git",
        "rebase",
        Interpreter {
            program: Program::Shell,
            code: "x",
            code_words: &["--exec"],
            values: "sX",
            ..TOOL
        },
    ),
    (
        "vagrant",
        "ssh",
        Interpreter {
            program: Program::Shell,
            code: "c",
            code_words: &["--command"],
            ..TOOL
        },
    ),
];

/// A program that runs the file, the class or the package that its first operand names.
struct FileRunner {
    name: &'static str,
    /// The first operand, if the file stands behind it.
    subcommand: Option<&'static str>,
    /// Options that name more files, packages or settings, in the next word.
    values: &'static [&'static str],
}

const fn file_runner(
    name: &'static str,
    subcommand: Option<&'static str>,
    values: &'static [&'static str],
) -> FileRunner {
    FileRunner {
        name,
        subcommand,
        values,
    }
}

impl FileRunner {
    /// Whether a value behind this text is in an option of the runner that names code, or decides which option it is.
    fn is_value_of_option(&self, prefix: &str) -> bool {
        let mut options = self.values.iter();
        let is_joined = options.any(|option| {
            let rest = prefix.strip_prefix(option);
            rest.is_some_and(|rest| rest.starts_with('=') || (rest.is_empty() && option.len() == 2))
        });
        let mut agents = JAVA_AGENT_OPTIONS.iter();
        is_joined
            || matches!(prefix, "-" | "--")
            || (self.name == "java" && agents.any(|agent| prefix.starts_with(agent)))
    }
}

/// Names of interpreters and tools that are often something else among arguments: a language, a container, a subcommand. They count
/// only where a program has to stand.
const USUAL_WORDS: &[&str] = &["es", "rc", "ion", "nc", "tar", "sort", "split"];

/// Beginnings of options of `java` that name code, with the value in the same word.
const JAVA_AGENT_OPTIONS: &[&str] = &[
    "-javaagent:",
    "-agentpath:",
    "-agentlib:",
    "-Xbootclasspath",
];

const FILE_RUNNERS: &[FileRunner] = &[
    file_runner(
        "java",
        None,
        &[
            "-cp",
            "-classpath",
            "--class-path",
            "-p",
            "--module-path",
            "-m",
            "--module",
            "--add-modules",
            "--limit-modules",
            "--patch-module",
            "--add-opens",
            "--add-exports",
            "--add-reads",
        ],
    ),
    file_runner(
        "deno",
        Some("run"),
        &["-c", "--config", "--import-map", "--preload"],
    ),
    file_runner("bun", Some("run"), &[]),
    file_runner("bun", Some("x"), &[]),
    file_runner("bunx", None, &[]),
    file_runner("npx", None, &["-p", "--package"]),
    file_runner("pipx", Some("run"), &["--spec", "--index-url", "--python"]),
    file_runner("uvx", None, &["--from", "--with", "--index-url"]),
];

/// An interpreter of which nothing is known but that it may be one.
const UNKNOWN: Interpreter = Interpreter {
    program: Program::Unknown,
    code: "ce",
    code_words: &["--eval", "--command", "--execute"],
    knows_letters: false,
    joins_values: false,
    code_ends_options: true,
    is_strict: false,
    ..LANGUAGE
};

/// A program that starts the program which its arguments name.
struct Wrapper {
    names: &'static [&'static str],
    /// Letters of options that have a value in the next word.
    values: &'static str,
    /// Letters of options that have none. A letter that is in neither list may have a value in the next word.
    flags: &'static str,
    /// Letters of options whose value a shell runs.
    code: &'static str,
    /// Number of words between the options of a wrapper and its program.
    operands: usize,
}

const fn wrapper_of(
    names: &'static [&'static str],
    values: &'static str,
    flags: &'static str,
    operands: usize,
) -> Wrapper {
    Wrapper {
        names,
        values,
        flags,
        code: "",
        operands,
    }
}

const WRAPPERS: &[Wrapper] = &[
    wrapper_of(&["env"], "uC", "iv", 0),
    wrapper_of(&["nohup", "builtin", "eatmydata", "coproc"], "", "", 0),
    wrapper_of(&["busybox", "toybox", "catatonit"], "", "", 0),
    wrapper_of(&["setsid"], "", "cfw", 0),
    wrapper_of(&["command"], "", "pvV", 0),
    wrapper_of(&["unbuffer"], "", "p", 0),
    wrapper_of(&["fakeroot"], "lisb", "u", 0),
    wrapper_of(&["firejail", "setpriv", "pkexec", "bwrap"], "", "", 0),
    wrapper_of(&["xvfb-run"], "efnpsw", "al", 0),
    wrapper_of(&["unshare"], "RwSGl", "cfimnprTuUC", 0),
    wrapper_of(&["time"], "fo", "apqv", 0),
    wrapper_of(&["dumb-init"], "r", "cv", 0),
    wrapper_of(&["tini"], "pe", "glsvw", 0),
    wrapper_of(&["caffeinate"], "tw", "dimsu", 0),
    wrapper_of(&["nice"], "n", "", 0),
    wrapper_of(&["ionice"], "cnpPu", "t", 0),
    wrapper_of(&["stdbuf"], "ioe", "", 0),
    wrapper_of(&["systemd-run"], "pHMEu", "dGPqrSt", 0),
    wrapper_of(&["nsenter"], "tSGWN", "aeFmuinpUCTrwZ", 0),
    wrapper_of(&["prlimit"], "po", "", 0),
    wrapper_of(&["numactl"], "NmipPC", "alsH", 0),
    wrapper_of(&["sudo", "doas"], "ugpChrtTUDRa", "AbBEeHiKklnNPSsvV", 0),
    wrapper_of(&["xargs"], "IdnPLasEJRS", "0eiloprtx", 0),
    wrapper_of(
        &["strace", "ltrace"],
        "eopsuEabIOPSX",
        "cCdDfFhiknqrtTvwxyz",
        0,
    ),
    wrapper_of(&["sshpass"], "pfdP", "ev", 0),
    wrapper_of(&["timeout"], "ks", "fpv", 1),
    wrapper_of(&["chroot"], "", "", 1),
    wrapper_of(&["gosu", "su-exec", "setuidgid", "s6-setuidgid"], "", "", 1),
    wrapper_of(&["faketime"], "", "fm", 1),
    wrapper_of(&["chrt"], "TPD", "abdfimorRv", 1),
    wrapper_of(&["taskset"], "", "ac", 1),
    Wrapper {
        code: "c",
        ..wrapper_of(&["flock"], "wE", "enosuxF", 1)
    },
    Wrapper {
        code: "c",
        ..wrapper_of(&["runuser"], "ugGsw", "flmpP", 0)
    },
];

/// Options of several letters of wrappers that have no value, or one in the same word. Any other may have its value in the next word.
const WRAPPER_FLAGS: &[&str] = &[
    "--background",
    "--close",
    "--ctty",
    "--exclusive",
    "--foreground",
    "--fork",
    "--ignore-environment",
    "--interactive",
    "--login",
    "--null",
    "--preserve-env",
    "--preserve-status",
    "--pty",
    "--quiet",
    "--set-home",
    "--shared",
    "--verbose",
    "--wait",
];

/// A program that starts another one somewhere among its arguments, at a place that depends on options that are not known here.
struct Launcher {
    names: &'static [&'static str],
    /// The started program stands somewhere behind one of these words. Without any, it stands behind the name.
    starters: &'static [&'static str],
}

const LAUNCHERS: &[Launcher] = &[
    Launcher {
        names: &["docker", "podman", "nerdctl", "docker-compose"],
        starters: &["exec", "run", "create", "unshare", "machine"],
    },
    Launcher {
        names: &["kubectl", "oc", "crictl"],
        starters: &["exec", "run", "debug", "rsh", "--"],
    },
    Launcher {
        names: &["find"],
        starters: &["-exec", "-execdir", "-ok", "-okdir"],
    },
    Launcher {
        names: &["poetry", "uv", "pipenv", "conda"],
        starters: &["run"],
    },
    Launcher {
        names: &["npm", "pnpm", "yarn", "bundle", "ip"],
        starters: &["exec", "x", "dlx"],
    },
    Launcher {
        names: &["nix"],
        starters: &["run", "shell", "develop"],
    },
    Launcher {
        names: &["npx", "nix-shell"],
        starters: &[],
    },
];

/// Options of programs that start containers. Any other may have its value in the next word.
const CONTAINER_FLAGS: &[&str] = &[
    "-i",
    "-t",
    "-d",
    "-T",
    "-it",
    "-ti",
    "--detach",
    "--init",
    "--interactive",
    "--privileged",
    "--quiet",
    "--read-only",
    "--rm",
    "--tty",
];

/// Options of `docker exec` and the like whose value is the next word. `-l` of `podman exec` has none.
const CONTAINER_EXEC_VALUES: &[&str] = &[
    "-e",
    "-u",
    "-w",
    "--detach-keys",
    "--env",
    "--env-file",
    "--user",
    "--workdir",
];

/// Options of `docker run` and `docker create` and the like whose value is the next word.
const CONTAINER_RUN_VALUES: &[&str] = &[
    "-a",
    "-c",
    "-e",
    "-h",
    "-l",
    "-m",
    "-p",
    "-u",
    "-v",
    "-w",
    "--add-host",
    "--annotation",
    "--attach",
    "--cap-add",
    "--cap-drop",
    "--cgroup-parent",
    "--cgroupns",
    "--cidfile",
    "--cpu-shares",
    "--cpus",
    "--cpuset-cpus",
    "--detach-keys",
    "--device",
    "--dns",
    "--dns-search",
    "--entrypoint",
    "--env",
    "--env-file",
    "--expose",
    "--gpus",
    "--group-add",
    "--health-cmd",
    "--hostname",
    "--ip",
    "--ipc",
    "--label",
    "--label-file",
    "--link",
    "--log-driver",
    "--log-opt",
    "--mac-address",
    "--memory",
    "--mount",
    "--name",
    "--net",
    "--network",
    "--network-alias",
    "--pid",
    "--pids-limit",
    "--platform",
    "--publish",
    "--restart",
    "--runtime",
    "--security-opt",
    "--shm-size",
    "--stop-signal",
    "--stop-timeout",
    "--sysctl",
    "--tmpfs",
    "--ulimit",
    "--user",
    "--userns",
    "--volume",
    "--volumes-from",
    "--workdir",
];

/// Whether this is an option of several letters that has no value in the next word.
fn is_flag_word(option: &str, flags: &[&str]) -> bool {
    option.contains('=') || option.starts_with("--no") || flags.contains(&option)
}

/// The interpreter of this name, with or without its path, version and `.exe`.
fn interpreter(word: &str) -> Option<&'static Interpreter> {
    let name = base_name(word);
    let name = name.strip_suffix(".exe").unwrap_or(name);
    let unversioned = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
    INTERPRETERS
        .iter()
        .find(|known| known.names.contains(&name) || known.names.contains(&unversioned))
}

fn wrapper(word: &str) -> Option<&'static Wrapper> {
    let name = base_name(word);
    WRAPPERS.iter().find(|known| known.names.contains(&name))
}

fn launcher(word: &str) -> Option<&'static Launcher> {
    let name = base_name(word);
    LAUNCHERS.iter().find(|known| known.names.contains(&name))
}

/// PowerShell and `cmd` take everything behind one of their options for the program.
#[derive(Clone, Copy, PartialEq)]
enum WindowsShell {
    /// Runs the file that its first operand names.
    Pwsh,
    /// Runs its operands as a program.
    PowerShell,
    Cmd,
}

impl WindowsShell {
    fn of(program: &str) -> Option<WindowsShell> {
        let program = base_name(program).to_ascii_lowercase();
        match program.strip_suffix(".exe").unwrap_or(&program) {
            "pwsh" => Some(WindowsShell::Pwsh),
            "powershell" => Some(WindowsShell::PowerShell),
            "cmd" => Some(WindowsShell::Cmd),
            _ => None,
        }
    }

    /// Whether everything behind this option is the program.
    fn is_code_option(self, option: &str) -> bool {
        let option = option.to_ascii_lowercase();
        let is_prefix_of = |word: &str| option.len() > 1 && word.starts_with(&option);
        match self {
            WindowsShell::Cmd => ["/c", "/k", "/r"]
                .iter()
                .any(|code| option.starts_with(code)),
            _ => is_prefix_of("-command") || is_prefix_of("-encodedcommand") || option == "-ec",
        }
    }

    fn is_file_option(self, option: &str) -> bool {
        let option = option.to_ascii_lowercase();
        self != WindowsShell::Cmd && option.len() > 1 && "-file".starts_with(&option)
    }
}

/// The role of each word of `entrypoint`, and behind them of `command`, as they are written in a definition. Where both are one list,
/// `entrypoint` is empty. The name of an image tells which interpreter runs a command that begins with an option, because the
/// official images start their interpreter.
pub fn roles(image: Option<&str>, entrypoint: &[&str], command: &[&str]) -> Vec<Role> {
    let words = entrypoint.iter().chain(command);
    let words: Vec<Word<'_>> = words.map(|text| Word::written(text)).collect();
    roles_of(image, entrypoint.len(), &words, &|_| true)
}

/// Classifies the words after rendering: `made` are the rendered words of the templates in `written`.
pub fn rendered_roles(
    image: Option<&str>,
    (entrypoint, command): (&[&str], &[&str]),
    (made_entrypoint, made_command): (&[&str], &[&str]),
) -> Vec<Role> {
    let made = made_entrypoint.iter().chain(made_command);
    let made: Vec<Word<'_>> = made.map(|text| Word::Known(text)).collect();
    let written: Vec<&&str> = entrypoint.iter().chain(command).collect();
    // A value that happens to be the name of an interpreter, and stands where data does, is none.
    let is_literal = |at: usize| written.get(at).is_some_and(|text| !is_template(text));
    roles_of(image, made_entrypoint.len(), &made, &is_literal)
}

/// Refuses an untrusted value in the text that an interpreter runs. Which words are such a text is known for certain only after
/// rendering: the interpreter and its options may come from templates. Returns the key of the refused word.
pub fn check_rendered(
    image: &str,
    (entrypoint, command): (&[String], &[String]),
    (made_entrypoint, made_command): (&[String], &[String]),
) -> Result<(), (&'static str, TemplateFault)> {
    fn borrowed(words: &[String]) -> Vec<&str> {
        words.iter().map(String::as_str).collect()
    }
    let written = (&*borrowed(entrypoint), &*borrowed(command));
    let made = (&*borrowed(made_entrypoint), &*borrowed(made_command));
    let roles = rendered_roles(Some(image), written, made);
    let entrypoint = entrypoint.iter().map(|word| ("entrypoint", word));
    let command = command.iter().map(|word| ("command", word));
    for ((key, written), role) in entrypoint.chain(command).zip(roles) {
        if let Role::Code(program) = role {
            template::check_code(written, program).map_err(|fault| (key, fault))?;
        }
    }
    Ok(())
}

fn roles_of(
    image: Option<&str>,
    entrypoint: usize,
    words: &[Word<'_>],
    may_scan: &dyn Fn(usize) -> bool,
) -> Vec<Role> {
    let mut list = ArgumentList::new(words);
    let begins_with_option = words
        .first()
        .is_some_and(|word| word.literal().starts_with('-'));
    if begins_with_option && entrypoint == 0 {
        if let Some(found) = image.and_then(image_name).and_then(interpreter) {
            list.interpreted(found, 0);
        }
    } else if entrypoint > 0 && words[0] == Word::Known("") {
        // An empty entrypoint removes that of the image: the next word is the program.
        list.program(1);
    } else {
        list.program(0);
    }
    // Many entrypoints only start the program that the command names.
    let is_literal = matches!(words.get(entrypoint), Some(Word::Known(_)));
    let mut positions = list.positions.iter();
    if entrypoint > 0
        && is_literal
        && may_scan(entrypoint)
        && let Some(at) = positions.position(|&position| position == entrypoint)
    {
        list.program(at);
    }
    list.scan(may_scan);
    let mut roles = list.roles;
    for role in &mut roles[..entrypoint] {
        if *role == Role::Data {
            *role = Role::Choice(Choice::Entrypoint);
        }
    }
    roles
}

/// `docker.io/library/python:3.12@sha256:…` names `python`.
fn image_name(image: &str) -> Option<&str> {
    let last = image.rsplit('/').next()?;
    last.split([':', '@']).next()
}

struct ArgumentList<'w> {
    words: Vec<Word<'w>>,
    /// The position of each word in the list that was given: `env -S` makes several words of one.
    positions: Vec<usize>,
    roles: Vec<Role>,
    /// Words that are programs and whose arguments have been read.
    read: BTreeSet<usize>,
    /// Number of programs whose arguments were read so far.
    programs: usize,
    /// Number of texts that were split into words so far.
    splits: usize,
    /// Only code counts, and only so many words are read: what is read is perhaps no program.
    is_guess: bool,
}

/// How far behind the name of an interpreter its code is looked for, where it is not certain that the name is a program.
const GUESSED_WORDS_MAX: usize = 64;
const SPLITS_MAX: usize = 8;
/// Where more words than this may be a program, the whole list counts as code.
const PROGRAMS_MAX: usize = 64;

impl<'w> ArgumentList<'w> {
    fn new(words: &[Word<'w>]) -> ArgumentList<'w> {
        ArgumentList {
            words: words.to_vec(),
            positions: (0..words.len()).collect(),
            roles: vec![Role::Data; words.len()],
            read: BTreeSet::new(),
            programs: 0,
            splits: 0,
            is_guess: false,
        }
    }

    fn set(&mut self, at: usize, role: Role) {
        let Some(&position) = self.positions.get(at) else {
            return;
        };
        let weight = |role: Role| match role {
            Role::Data => 0,
            Role::Choice(_) => 1,
            Role::Code(_) => 2,
        };
        // Several programs may read a word. Code counts more than a choice. Of two programs that run a word, the first decides: what
        // `ssh host python -c` is given, a shell reads.
        let is_counted = !self.is_guess || matches!(role, Role::Code(_));
        if is_counted && weight(role) > weight(self.roles[position]) {
            self.roles[position] = role;
        }
    }

    /// The word at `at` is a program, or may be one.
    fn program(&mut self, at: usize) {
        let Some(&word) = self.words.get(at) else {
            return;
        };
        if !self.read.insert(at) {
            return;
        }
        self.programs += 1;
        if self.programs > PROGRAMS_MAX {
            if self.programs == PROGRAMS_MAX + 1 {
                self.rest_is_code(0, Program::Unknown);
            }
            return;
        }
        let Some(name) = word.known() else {
            self.set(at, Role::Choice(Choice::Program));
            self.interpreted(&UNKNOWN, at + 1);
            return;
        };
        let base = base_name(name);
        if let Some(found) = wrapper(name) {
            // The last one first: reading a program may split a word behind it into several.
            for program in self.wrapped(found, base == "env", at + 1).into_iter().rev() {
                self.program(program);
            }
        }
        if let Some(shell) = WindowsShell::of(name) {
            self.rest_behind_option(shell, at + 1);
        } else if let Some(found) = interpreter(name) {
            self.interpreted(found, at + 1);
        }
        let subcommand = match base {
            "deno" => Some(("eval", Program::Other(Syntax::JavaScript))),
            "bun" => Some(("exec", Program::Shell)),
            "crystal" => Some(("eval", Program::Interpolating)),
            "git" => Some(("foreach", Program::Shell)),
            "su" => Some(("--", Program::Shell)),
            _ => None,
        };
        if let Some((subcommand, program)) = subcommand {
            let mut words = self.words[at + 1..].iter();
            if let Some(found) = words.position(|&word| word == Word::Known(subcommand)) {
                self.rest_is_code(at + 2 + found, program);
            }
        }
        for (program, subcommand, interpreter) in SUBCOMMANDS {
            if base == *program
                && let Some(found) = self.find_word(at + 1, subcommand)
            {
                self.interpreted(interpreter, found + 1);
            }
        }
        if base == "capsh"
            && let Some(found) = self.find_word(at + 1, "--")
            && let Some(shell) = interpreter("sh")
        {
            self.interpreted(shell, found + 1);
        }
        for runner in FILE_RUNNERS.iter().filter(|runner| runner.name == base) {
            self.run_file(runner, at + 1);
        }
        let starts_program = |word: &Word<'_>| match (base, word) {
            ("kubectl" | "oc", Word::Known(text)) => *text == "--",
            ("find", Word::Known(text)) => ["-exec", "-execdir", "-ok", "-okdir"].contains(text),
            _ => false,
        };
        for found in (at + 1..self.words.len()).rev() {
            if starts_program(&self.words[found]) {
                self.program(found + 1);
            }
        }
    }

    fn find_word(&self, begins: usize, text: &str) -> Option<usize> {
        let mut words = self.words.iter().enumerate().skip(begins);
        let (at, _) = words.find(|(_, word)| word.known() == Some(text))?;
        Some(at)
    }

    /// Finds the file or the package that is run. Other options than those of the runner count as options without a value.
    fn run_file(&mut self, runner: &FileRunner, mut at: usize) {
        let mut subcommand = runner.subcommand;
        while let Some(&word) = self.words.get(at) {
            match word {
                Word::Known(option) if option.starts_with('-') => {
                    at += 1;
                    if runner.values.contains(&option) {
                        if let Some(Word::Template { .. }) = self.words.get(at) {
                            self.set(at, Role::Choice(Choice::Option));
                        }
                        at += 1;
                    }
                }
                Word::Known(text) if subcommand == Some(text) => {
                    subcommand = None;
                    at += 1;
                }
                Word::Template { prefix } if prefix.starts_with('-') => {
                    if runner.is_value_of_option(prefix) {
                        self.set(at, Role::Choice(Choice::Option));
                    }
                    at += 1;
                }
                // Also a part of it, such as the version of a package.
                Word::Template { .. } if subcommand.is_none() => {
                    self.set(at, Role::Choice(Choice::ScriptFile));
                    return;
                }
                _ => return,
            }
        }
    }

    /// Returns the positions at which the program of a wrapper may stand: one, unless options are not known. The words of the
    /// wrapper begin at `at`.
    fn wrapped(&mut self, wrapper: &Wrapper, is_env: bool, mut at: usize) -> Vec<usize> {
        let mut operands = wrapper.operands;
        // Number of words that may be values of unknown options, or else are operands or the program.
        let mut uncertain = 0;
        let mut programs = Vec::new();
        let mut options_end = false;
        while let Some(&word) = self.words.get(at) {
            match word {
                Word::Known("--") if !options_end => {
                    // The words so far were options and their values.
                    options_end = true;
                    operands = wrapper.operands;
                    uncertain = programs.len();
                    at += 1;
                }
                Word::Known(text) if is_env && !options_end && split_text(text).is_some() => {
                    at = self.split(split_text(text).unwrap_or_default(), at);
                }
                Word::Known(option)
                    if !options_end && option.starts_with('-') && option.len() > 1 =>
                {
                    match wrapper.read(option) {
                        WrapperOption::Flag => {}
                        WrapperOption::Unknown => uncertain += 1,
                        WrapperOption::Value => {
                            at += 1;
                            if let Some(Word::Template { .. }) = self.words.get(at) {
                                self.set(at, Role::Choice(Choice::Option));
                            }
                        }
                        WrapperOption::Code => {
                            at += 1;
                            self.set(at, Role::Code(Program::Shell));
                        }
                    }
                    at += 1;
                }
                Word::Known(text) if is_env && text.contains('=') => at += 1,
                Word::Template { prefix } if is_env && prefix.contains('=') => {
                    let name = prefix.split('=').next().unwrap_or_default();
                    if prefix.starts_with('-') {
                        self.set(at, Role::Choice(Choice::Option));
                    } else if is_loader_variable(name) {
                        self.set(at, Role::Choice(Choice::Variable));
                    }
                    at += 1;
                }
                Word::Template { prefix } if !options_end && prefix.starts_with('-') => {
                    self.set(at, Role::Choice(Choice::Option));
                    uncertain += usize::from(!prefix.contains('='));
                    at += 1;
                }
                _ if operands > 0 => {
                    if let Word::Template { .. } = word {
                        self.set(at, Role::Choice(Choice::Option));
                    }
                    operands -= 1;
                    at += 1;
                }
                _ => {
                    programs.push(at);
                    if programs.len() > uncertain {
                        break;
                    }
                    at += 1;
                }
            }
        }
        programs
    }

    /// `env -S 'bash -c'` starts what the words of one text say. Returns where those words begin.
    fn split(&mut self, joined: &'w str, at: usize) -> usize {
        let (text, replaced) = match joined.is_empty() {
            false => (Some(joined), 1),
            true => (self.words.get(at + 1).and_then(|word| word.known()), 2),
        };
        self.splits += 1;
        let Some(text) = text else {
            self.set(at + 1, Role::Choice(Choice::Program));
            return self.words.len();
        };
        // Quotes, escapes, variables and comments of `env -S` are not read here.
        if self.splits > SPLITS_MAX || text.contains(['\'', '"', '\\', '$', '#']) {
            self.rest_is_code(at, Program::Unknown);
            return self.words.len();
        }
        let words: Vec<Word<'w>> = text.split_whitespace().map(Word::Known).collect();
        let end = (at + replaced).min(self.words.len());
        let position = self.positions[at + replaced - 1];
        self.positions
            .splice(at..end, words.iter().map(|_| position));
        self.words.splice(at..end, words);
        // The words behind have moved.
        self.read.retain(|&read| read < at);
        at
    }

    /// Reads the arguments of an interpreter, which begin at `at`.
    fn interpreted(&mut self, interpreter: &Interpreter, mut at: usize) {
        let mut has_code = false;
        // A shell has read `-c`: the next operand is the program.
        let mut operand_is_code = interpreter.operand == Operand::Code;
        let mut options_end = false;
        let mut operands = 0;
        let mut is_behind_unknown_option = false;
        let begins = at;
        while let Some(&word) = self.words.get(at) {
            if self.is_guess && at - begins > GUESSED_WORDS_MAX {
                return;
            }
            let text = word.literal();
            let is_template = word.known().is_none();
            // An operand, or the value of the option in front of it: the options may go on behind it.
            let may_be_value = std::mem::take(&mut is_behind_unknown_option);
            if word == Word::Known("--") && !options_end {
                options_end = true;
                at += 1;
                continue;
            }
            let is_option =
                !options_end && text.starts_with(['-', '+']) && (text.len() > 1 || is_template);
            if is_option {
                match self.option(interpreter, text, is_template, at) {
                    OptionReads::Alone => at += 1,
                    OptionReads::Unknown => {
                        is_behind_unknown_option = true;
                        at += 1;
                    }
                    OptionReads::CodeIn(taken) => {
                        has_code = true;
                        at += taken;
                        if interpreter.code_ends_options {
                            return;
                        }
                    }
                    OptionReads::CodeFollows => {
                        operand_is_code = true;
                        at += 1;
                    }
                    OptionReads::FileIn(taken) => {
                        operand_is_code = false;
                        has_code = true;
                        at += taken;
                        if interpreter.code_ends_options {
                            return;
                        }
                    }
                    OptionReads::Value => at += 2,
                }
                continue;
            }
            // An operand, or a template that may become an option.
            let is_code = match interpreter.operand {
                _ if operand_is_code && !has_code => true,
                Operand::AllCode => true,
                Operand::DataThenCode => operands > 0,
                _ => false,
            };
            if is_code {
                self.set(at, Role::Code(interpreter.program));
                // An empty word is the value of an option: `sed -i '' PROGRAM`.
                has_code = !may_be_value && (is_template || !text.is_empty());
            } else if is_template && interpreter.operand == Operand::Choice {
                self.set(at, Role::Choice(Choice::Option));
            } else if is_template
                && text.is_empty()
                && operands == 0
                && interpreter.is_strict
                && !(has_code && interpreter.operand == Operand::ScriptFile)
            {
                if !options_end {
                    self.set(at, Role::Choice(Choice::Option));
                } else if interpreter.operand == Operand::ScriptFile {
                    self.set(at, Role::Choice(Choice::ScriptFile));
                }
            }
            at += 1;
            if may_be_value {
                continue;
            }
            operands += 1;
            let is_over = match interpreter.operand {
                Operand::AllCode | Operand::DataThenCode => false,
                Operand::Code => has_code && !interpreter.permutes,
                _ => !interpreter.permutes,
            };
            if is_over {
                return;
            }
            if matches!(
                interpreter.operand,
                Operand::AllCode | Operand::DataThenCode
            ) {
                options_end = true;
            }
        }
    }

    fn option(
        &mut self,
        interpreter: &Interpreter,
        text: &str,
        is_template: bool,
        at: usize,
    ) -> OptionReads {
        let (name, has_value) = match text.split_once('=') {
            Some((name, _)) => (name, true),
            None => (text, false),
        };
        // Many programs accept the beginning of a long option: `--expr` is `--expression`.
        let is_begun = |word: &str| {
            name.len() > 2 && word.starts_with(name) && !interpreter.flag_words.contains(&name)
        };
        let mut code_words = interpreter.code_words.iter();
        if code_words.any(|word| name == *word || (name.starts_with("--") && is_begun(word))) {
            if has_value {
                self.set(at, Role::Code(interpreter.program));
                return OptionReads::CodeIn(1);
            }
            if is_template {
                self.set(at, Role::Choice(Choice::Option));
                return OptionReads::Unknown;
            }
            self.set(at + 1, Role::Code(interpreter.program));
            return OptionReads::CodeIn(2);
        }
        if text.starts_with("--") {
            if is_template && interpreter.is_strict {
                self.set(at, Role::Choice(Choice::Option));
            }
            return match is_flag_word(text, interpreter.flag_words) {
                true => OptionReads::Alone,
                false => OptionReads::Unknown,
            };
        }
        let letters = &text[1..];
        for (index, letter) in letters.char_indices() {
            let rest = &letters[index + letter.len_utf8()..];
            let is_last = rest.is_empty() && !is_template;
            if interpreter.code.contains(letter) && text.starts_with('-') {
                if !interpreter.joins_values {
                    if is_template {
                        self.set(at, Role::Choice(Choice::Option));
                    }
                    return OptionReads::CodeFollows;
                }
                if is_last {
                    self.set(at + 1, Role::Code(interpreter.program));
                    return OptionReads::CodeIn(2);
                }
                self.set(at, Role::Code(interpreter.program));
                return OptionReads::CodeIn(1);
            }
            if interpreter.attached.contains(letter) {
                if is_template && interpreter.is_strict {
                    self.set(at, Role::Choice(Choice::Option));
                }
                return OptionReads::Alone;
            }
            let is_file = interpreter.files.contains(letter);
            if is_file || interpreter.values.contains(letter) {
                let value_at = if is_last { at + 1 } else { at };
                let is_unknown = matches!(self.words.get(value_at), Some(Word::Template { .. }));
                if is_unknown && (interpreter.is_strict || is_file) {
                    self.set(value_at, Role::Choice(Choice::Option));
                }
                return match (is_file, is_last) {
                    (true, true) => OptionReads::FileIn(2),
                    (true, false) => OptionReads::FileIn(1),
                    // A shell may have its `c` behind an `o`: `-euo pipefail -c` and `-oc pipefail`.
                    (false, _)
                        if !interpreter.joins_values
                            && rest.contains(|c| interpreter.code.contains(c)) =>
                    {
                        OptionReads::CodeFollows
                    }
                    (false, true) => OptionReads::Value,
                    (false, false) => OptionReads::Alone,
                };
            }
        }
        if is_template && interpreter.is_strict {
            self.set(at, Role::Choice(Choice::Option));
        }
        match interpreter.knows_letters && !is_template {
            true => OptionReads::Alone,
            false => OptionReads::Unknown,
        }
    }

    /// Whether all that is left is code.
    fn rest_behind_option(&mut self, shell: WindowsShell, begins: usize) -> bool {
        let mut at = begins;
        let mut may_be_value = false;
        while let Some(&word) = self.words.get(at) {
            if self.is_guess && at - begins > GUESSED_WORDS_MAX {
                return false;
            }
            match word {
                Word::Known(option) if option.starts_with(['-', '/']) => {
                    if shell.is_code_option(option) {
                        // `cmd /cdir` has its program in the same word.
                        self.rest_is_code(at, Program::Interpolating);
                        return true;
                    }
                    if shell.is_file_option(option) {
                        return false;
                    }
                    may_be_value = true;
                }
                Word::Known(_) if may_be_value => may_be_value = false,
                Word::Known(_) if shell == WindowsShell::PowerShell => {
                    self.rest_is_code(at, Program::Interpolating);
                    return true;
                }
                Word::Known(_) => return false,
                Word::Template { .. } => {
                    self.set(at, Role::Choice(Choice::Option));
                    may_be_value = true;
                }
            }
            at += 1;
        }
        false
    }

    fn rest_is_code(&mut self, at: usize, program: Program) {
        for at in at..self.words.len() {
            self.set(at, Role::Code(program));
        }
    }

    /// Interpreters anywhere else, started by a program that we do not know: `kubectl exec pod -- sh -c …`. Only the text behind
    /// `-c` or `-e` counts there, since a word such as `sh` may also be data. Behind a program that is known to start others, every
    /// interpreter counts.
    fn scan(&mut self, may_scan: &dyn Fn(usize) -> bool) {
        self.is_guess = true;
        let launched = self.launched();
        let values = launched.map_or(BTreeSet::new(), |launched| self.container_values(launched));
        for at in 0..self.words.len() {
            if values.contains(&at) {
                continue;
            }
            let is_launched = launched.is_some_and(|launched| at >= launched);
            if !is_launched && !may_scan(self.positions[at]) {
                continue;
            }
            if is_launched && let Some((program, begins)) = self.container_entrypoint(at) {
                if self.container(program, begins) {
                    return;
                }
                continue;
            }
            let Some(mut name) = self.words[at].known() else {
                continue;
            };
            if self.read.contains(&at) {
                continue;
            }
            let next = self.words.get(at + 1);
            let follows_option = next.is_some_and(|word| word.literal().starts_with(['-', '/']));
            if !is_launched && !follows_option {
                continue;
            }
            if is_launched {
                // Official images start their interpreter: `docker run node:20 -e CODE`.
                name = image_name(name).unwrap_or(name);
            }
            if USUAL_WORDS.contains(&base_name(name)) {
                continue;
            }
            if let Some(shell) = WindowsShell::of(name) {
                if self.rest_behind_option(shell, at + 1) {
                    return;
                }
            } else if let Some(found) = interpreter(name)
                && (is_launched || matches!(found.operand, Operand::ScriptFile | Operand::Data))
            {
                self.interpreted(found, at + 1);
            }
        }
    }

    /// Where the words begin among which a launcher starts a program.
    fn launched(&self) -> Option<usize> {
        let mut starters: BTreeSet<&str> = BTreeSet::new();
        let starts = |word: &Word<'w>| {
            let Some(text) = word.known() else {
                return false;
            };
            if starters.contains(text) {
                return true;
            }
            let Some(launcher) = launcher(text) else {
                return false;
            };
            starters.extend(launcher.starters);
            launcher.starters.is_empty()
        };
        Some(self.words.iter().position(starts)? + 1)
    }

    /// Values of options in front of the image of a container, and the name of the container in which `exec` starts a program: none of
    /// them is a program. Behind an option that is not known, nothing is certain any more.
    fn container_values(&self, launched: usize) -> BTreeSet<usize> {
        let mut found = BTreeSet::new();
        let known = |at: usize| self.words.get(at).and_then(|word| word.known());
        let starter = known(launched.saturating_sub(1)).unwrap_or_default();
        // `launched` is behind the word that starts the program.
        let mut before = (0..launched.saturating_sub(1)).filter_map(known);
        let is_container = ["run", "create", "exec"].contains(&starter)
            && before.any(|word| {
                let name = base_name(word);
                ["docker", "podman", "nerdctl", "docker-compose"].contains(&name)
            });
        if !is_container {
            return found;
        }
        let values = match starter {
            "exec" => CONTAINER_EXEC_VALUES,
            _ => CONTAINER_RUN_VALUES,
        };
        let mut at = launched;
        while let Some(&word) = self.words.get(at) {
            let text = word.literal();
            if !text.starts_with('-') {
                if starter == "exec" {
                    found.insert(at);
                }
                break;
            }
            if is_flag_word(text, CONTAINER_FLAGS) {
                at += 1;
            } else if word.known().is_some() && values.contains(&text) {
                found.insert(at + 1);
                at += 2;
            } else {
                break;
            }
        }
        found
    }

    /// Reads `--entrypoint`, with which `docker run` and others replace the program of the image. Returns the program, if it is known,
    /// and where the next word is.
    fn container_entrypoint(&self, at: usize) -> Option<(Option<&'w str>, usize)> {
        let word = self.words[at];
        let value = word.literal().strip_prefix("--entrypoint")?;
        if let Some(program) = value.strip_prefix('=') {
            return Some((word.known().map(|_| program), at + 1));
        }
        let program = self.words.get(at + 1).filter(|_| value.is_empty())?;
        Some((program.known(), at + 2))
    }

    /// This program reads what stands behind the image of a container. Returns whether all that is left is code.
    fn container(&mut self, program: Option<&str>, begins: usize) -> bool {
        // `docker compose` splits the text into words, and `podman` reads JSON.
        let words = program.unwrap_or_default();
        let words = words.split([' ', ',', '[', ']', '"', '\'']);
        let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
        let shell = words.iter().find_map(|word| WindowsShell::of(word));
        let interpreter = match program {
            Some(_) => words.iter().find_map(|word| interpreter(word)),
            None => Some(&UNKNOWN),
        };
        if words.len() > 1 && (shell.is_some() || interpreter.is_some()) {
            self.rest_is_code(begins, Program::Unknown);
            return true;
        }
        for behind in self.behind_image(begins) {
            if let Some(shell) = shell {
                if self.rest_behind_option(shell, behind) {
                    return true;
                }
            } else if let Some(interpreter) = interpreter {
                self.interpreted(interpreter, behind);
            }
        }
        false
    }

    /// The positions behind the words that may be the image of a container. `at` is behind one of the options.
    fn behind_image(&self, at: usize) -> Vec<usize> {
        let mut found = Vec::new();
        let mut may_be_value = false;
        for (at, word) in self.words.iter().enumerate().skip(at) {
            let text = word.literal();
            // What stands behind it is read with this entrypoint.
            if text.starts_with("--entrypoint") {
                break;
            }
            if text.starts_with('-') {
                may_be_value = !is_flag_word(text, CONTAINER_FLAGS);
                continue;
            }
            let is_value = std::mem::take(&mut may_be_value);
            // `-e NAME=VALUE`: no image has this name.
            if text.contains('=') {
                continue;
            }
            found.push(at + 1);
            if !is_value {
                break;
            }
        }
        found
    }
}

/// The text behind `-S` of `env` in the same word, which may be empty. `None`: this is another word.
fn split_text(word: &str) -> Option<&str> {
    if word.starts_with("--") {
        let (name, text) = word.split_once('=').unwrap_or((word, ""));
        let is_begun = name.len() > 2 && "--split-string".starts_with(name);
        return is_begun.then_some(text);
    }
    let (before, text) = word.strip_prefix('-')?.split_once('S')?;
    let are_flags = before.chars().all(|letter| "iv0".contains(letter));
    are_flags.then_some(text)
}

/// Meaning of one option of a wrapper.
enum WrapperOption {
    Flag,
    /// The next word is its value.
    Value,
    /// The next word is run by a shell.
    Code,
    /// The next word may be its value.
    Unknown,
}

impl Wrapper {
    fn read(&self, option: &str) -> WrapperOption {
        if option.starts_with("--") {
            return match option {
                "--command" if !self.code.is_empty() => WrapperOption::Code,
                option if is_flag_word(option, WRAPPER_FLAGS) => WrapperOption::Flag,
                _ => WrapperOption::Unknown,
            };
        }
        let letters = &option[1..];
        for (at, letter) in letters.char_indices() {
            let is_last = at + letter.len_utf8() == letters.len();
            if self.code.contains(letter) && is_last {
                return WrapperOption::Code;
            }
            if self.values.contains(letter) {
                return match is_last {
                    true => WrapperOption::Value,
                    false => WrapperOption::Flag,
                };
            }
            if !self.flags.contains(letter) && !letter.is_ascii_digit() {
                return WrapperOption::Unknown;
            }
        }
        WrapperOption::Flag
    }
}

/// Result of reading one option of an interpreter.
enum OptionReads {
    Alone,
    /// The next word may be its value.
    Unknown,
    /// The option and its code take this number of words.
    CodeIn(usize),
    /// The next operand is the code.
    CodeFollows,
    /// The option and the path of the program file take this number of words.
    FileIn(usize),
    /// The next word is its value.
    Value,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The roles of a list in which every `@` is a template.
    fn role_of(image: Option<&str>, entrypoint: &[&str], command: &[&str]) -> Vec<Role> {
        let written = |words: &[&str]| -> Vec<String> {
            let words = words.iter();
            words
                .map(|word| word.replace('@', "{{ input.x }}"))
                .collect()
        };
        let (entrypoint, command) = (written(entrypoint), written(command));
        let entrypoint: Vec<&str> = entrypoint.iter().map(String::as_str).collect();
        let command: Vec<&str> = command.iter().map(String::as_str).collect();
        roles(image, &entrypoint, &command)
    }

    /// The role of the last word of a command.
    fn last(command: &str) -> Role {
        let words: Vec<&str> = command.split(' ').collect();
        *role_of(None, &[], &words).last().unwrap()
    }

    #[test]
    fn the_text_behind_c_or_e_of_an_interpreter_is_code() {
        for (command, program) in [
            ("sh -c @", Program::Shell),
            ("/bin/sh -c @", Program::Shell),
            ("bash -lc @", Program::Shell),
            ("bash -euo pipefail -c @", Program::Shell),
            ("bash -euxc @", Program::Shell),
            ("bash -c -e @", Program::Shell),
            ("sh -c -- @", Program::Shell),
            ("bash5 --norc -c @", Program::Shell),
            ("busybox sh -c @", Program::Shell),
            ("env sh -c @", Program::Shell),
            ("env A=b -u C sh -c @", Program::Shell),
            ("env -i PATH=/bin sh -c @", Program::Shell),
            ("/usr/bin/env -S bash -c @", Program::Shell),
            ("sudo -u deploy -E sh -c @", Program::Shell),
            ("nice -n 5 timeout -k 5 10 sh -c @", Program::Shell),
            ("xargs -I{} sh -c @", Program::Shell),
            ("gosu app sh -c @", Program::Shell),
            ("kubectl exec pod -- sh -c @", Program::Shell),
            ("find . -exec sh -c @", Program::Shell),
            ("docker run --rm alpine sh -c @", Program::Shell),
            ("su deploy -c @", Program::Shell),
            ("su -c @", Program::Shell),
            ("python -c @", Program::Other(Syntax::Python)),
            ("python3.12 -I -c @", Program::Other(Syntax::Python)),
            (
                "/usr/local/bin/python3 -Ic @",
                Program::Other(Syntax::Python),
            ),
            ("python3 -c@", Program::Other(Syntax::Python)),
            ("perl -e @", Program::Interpolating),
            ("perl -lane @", Program::Interpolating),
            ("perl -MJSON -e @", Program::Interpolating),
            ("perl -e1 -e @", Program::Interpolating),
            ("perl -e@", Program::Interpolating),
            ("ruby -rjson -ne @", Program::Interpolating),
            ("node -e @", Program::Other(Syntax::JavaScript)),
            ("node -pe @", Program::Other(Syntax::JavaScript)),
            ("node --eval @", Program::Other(Syntax::JavaScript)),
            ("node --eval=@", Program::Other(Syntax::JavaScript)),
            ("deno eval @", Program::Other(Syntax::JavaScript)),
            ("php -r @", Program::Interpolating),
            ("php8.2 -d a=b -r @", Program::Interpolating),
            ("lua5.4 -e @", Program::Other(Syntax::Lua)),
            ("awk @", Program::Other(Syntax::Awk)),
            ("awk -F: -v a=b @", Program::Other(Syntax::Awk)),
            ("sed @", Program::Interpolating),
            ("sed -n -e @", Program::Interpolating),
            ("sed --expression=@", Program::Interpolating),
            ("powershell -Command @", Program::Interpolating),
            ("pwsh -NoProfile -c @", Program::Interpolating),
            ("pwsh -Command Get-Item @", Program::Interpolating),
            ("cmd.exe /C dir @", Program::Interpolating),
            ("fish -c @", Program::Interpolating),
            ("ssh host @", Program::Shell),
            ("ssh -p 22 host rm @", Program::Shell),
            ("ssh host python -c @", Program::Shell),
            ("psql -d shop -c @", Program::Interpolating),
            ("mysql shop -e @", Program::Interpolating),
            ("Rscript -e @", Program::Other(Syntax::R)),
            ("julia --eval @", Program::Interpolating),
            ("@ -c @", Program::Unknown),
            // The value of an option that is not known does not end the options.
            ("bash --rcfile /etc/x -c @", Program::Shell),
            ("bash --init-file /etc/x --norc -ec @", Program::Shell),
            (
                "node --require a.js -e @",
                Program::Other(Syntax::JavaScript),
            ),
            (
                "node --import a.js --eval @",
                Program::Other(Syntax::JavaScript),
            ),
            (
                "python3 --check-hash-based-pycs always -c @",
                Program::Other(Syntax::Python),
            ),
            ("julia -L setup.jl -e @", Program::Interpolating),
            ("raku -M JSON -e @", Program::Interpolating),
            ("perl -CSDne @", Program::Interpolating),
            ("awk --field-separator : @", Program::Other(Syntax::Awk)),
            (
                "awk --assign a=b --field-separator : @",
                Program::Other(Syntax::Awk),
            ),
            ("sed --line-length 5 @", Program::Interpolating),
            ("sed -i  @", Program::Interpolating),
            ("sed --expr @", Program::Interpolating),
            ("mysql --exec=@", Program::Interpolating),
            (
                "pwsh -ExecutionPolicy Bypass -Command @",
                Program::Interpolating,
            ),
            ("powershell Get-Item @", Program::Interpolating),
            ("cmd /v:on /cdir @", Program::Interpolating),
            ("kubectl exec pod -- bash --rcfile x -c @", Program::Shell),
            // The same options of programs that start others.
            ("sudo --user root sh -c @", Program::Shell),
            ("sudo --user root @ -c @", Program::Unknown),
            ("nice --adjustment 5 @ -c @", Program::Unknown),
            ("xargs --replace R @ -c @", Program::Unknown),
            ("timeout --signal KILL 5 @ -c @", Program::Unknown),
            ("unshare -R /root @ -c @", Program::Unknown),
            ("sudo --user root awk @", Program::Other(Syntax::Awk)),
            ("sudo --user root env -S awk @", Program::Other(Syntax::Awk)),
            ("env --unset A awk @", Program::Other(Syntax::Awk)),
            ("env -0S awk @", Program::Other(Syntax::Awk)),
            ("env -S 'awk' @", Program::Unknown),
            ("chroot --userspec 1:1 / sh -c @", Program::Shell),
            ("nohup setsid stdbuf -oL unshare -r sh -c @", Program::Shell),
            ("flock -w 5 /lock -c @", Program::Shell),
            ("sshpass -p x ssh host @", Program::Shell),
            ("docker exec web awk @", Program::Other(Syntax::Awk)),
            ("docker run --rm alpine sed @", Program::Interpolating),
            ("find . -exec awk @", Program::Other(Syntax::Awk)),
            ("kubectl exec pod -- ssh host @", Program::Shell),
            ("deno --quiet eval @", Program::Other(Syntax::JavaScript)),
            ("bun exec @", Program::Shell),
            ("rsync -avze @", Program::Shell),
            ("yash -c @", Program::Shell),
            ("posh -c @", Program::Shell),
            ("lksh -c @", Program::Shell),
            ("oksh -c @", Program::Shell),
            // The program that replaces the one of an image reads the words behind the image.
            ("docker run --entrypoint sh img -c @", Program::Shell),
            (
                "docker run --entrypoint=/bin/bash img -lc @",
                Program::Shell,
            ),
            (
                "docker run --rm --entrypoint sh --name web -e A=b img -c @",
                Program::Shell,
            ),
            (
                "podman run -it --entrypoint python3 img -c @",
                Program::Other(Syntax::Python),
            ),
            (
                "docker run --entrypoint awk img @",
                Program::Other(Syntax::Awk),
            ),
            ("docker run --entrypoint @ img -c @", Program::Unknown),
            ("docker run --entrypoint=@ img -c @", Program::Unknown),
            (
                "docker run --entrypoint pwsh img -Command @",
                Program::Interpolating,
            ),
            (
                "docker compose run --entrypoint sh --service-ports web -c @",
                Program::Shell,
            ),
            (
                "nerdctl run --entrypoint [\"sh\",\"-c\"] img @",
                Program::Unknown,
            ),
            (
                "sudo docker create --entrypoint sh img -c @",
                Program::Shell,
            ),
            (
                "docker run --rm node:20 -e @",
                Program::Other(Syntax::JavaScript),
            ),
            (
                "docker run --name node -e A=b node -e @",
                Program::Other(Syntax::JavaScript),
            ),
            (
                "docker run --my-flag node -e @",
                Program::Other(Syntax::JavaScript),
            ),
            ("docker exec node sh -c @", Program::Shell),
            ("podman exec -l sh -c @", Program::Shell),
            (
                "docker exec -e A=b web node -e @",
                Program::Other(Syntax::JavaScript),
            ),
            ("podman run --entrypoint [\"sh\"] img -c @", Program::Shell),
            ("npx -c @", Program::Shell),
            ("npx --yes -p cowsay --call=@", Program::Shell),
            ("npm exec -c @", Program::Shell),
            ("npm exec --package cowsay --call @", Program::Shell),
            ("nix-shell -p jq --run @", Program::Shell),
            ("nix-shell --pure --command @", Program::Shell),
            ("runuser -u app -- awk @", Program::Other(Syntax::Awk)),
            ("runuser -u app awk @", Program::Other(Syntax::Awk)),
            ("runuser app -c @", Program::Shell),
            ("su app -- -c @", Program::Shell),
            ("sg app @", Program::Shell),
            ("podman machine ssh vm @", Program::Shell),
            ("kubectl exec -it pod awk @", Program::Other(Syntax::Awk)),
            (
                "tool kubectl exec pod -- awk @",
                Program::Other(Syntax::Awk),
            ),
            ("npm exec awk @", Program::Other(Syntax::Awk)),
            ("rsync --rsh @", Program::Shell),
            ("ts-node -e @", Program::Interpolating),
            ("qjs -e @", Program::Other(Syntax::JavaScript)),
            ("mujs -e @", Program::Other(Syntax::JavaScript)),
            ("rhino -e @", Program::Other(Syntax::JavaScript)),
            ("bpython -c @", Program::Other(Syntax::Python)),
            ("ocaml -e @", Program::Interpolating),
            ("csi -e @", Program::Interpolating),
            ("ysh -c @", Program::Interpolating),
            ("rc -c @", Program::Interpolating),
            ("toysh -c @", Program::Interpolating),
            ("crystal eval @", Program::Interpolating),
            ("capsh --user=a -- -c @", Program::Shell),
            ("nix eval --expr @", Program::Interpolating),
            ("nix-build -E @", Program::Interpolating),
            ("nodemon --exec @", Program::Shell),
            ("ncat -l 80 --sh-exec @", Program::Shell),
            ("nc -e @", Program::Shell),
            ("tar -xf a.tar -I @", Program::Shell),
            ("tar --use-compress-program=@", Program::Shell),
            ("tar -cf a.tar --checkpoint-action=exec=@", Program::Shell),
            ("split --filter=@", Program::Shell),
            ("git rebase -x @", Program::Shell),
            ("git rebase --exec @", Program::Shell),
            ("git submodule foreach --recursive @", Program::Shell),
            ("vagrant ssh web -c @", Program::Shell),
        ] {
            assert_eq!(last(command), Role::Code(program), "{command}");
        }
    }

    #[test]
    fn arguments_of_programs_and_scripts_are_data() {
        for command in [
            "echo @",
            "echo sh @",
            "echo -e @",
            "grep -e @",
            "grep -c @",
            "tar -c @",
            "curl -X POST @",
            "python train.py @",
            "python train.py -c @",
            "python -m http.server @",
            "sh build.sh @",
            "sh -c exit @",
            "bash -c 'echo-$0' name @",
            "python3 -c pass @",
            "perl -ne print @",
            "node index.js -e @",
            "node --eval 1 @",
            "awk -v x=@",
            "awk {print} @",
            "awk -f prog.awk @",
            "sed -e p @",
            "sed p @",
            "env NAME=@",
            "timeout 5 curl @",
            "sh /scripts/@",
            "psql -d @",
            "apk add python3 @",
            "which sh @",
            "python3 script.py --name @",
            "python3 -u script.py -c @",
            "bash --norc --login build.sh -c @",
            "bash --rcfile /etc/x build.sh -c @",
            "node --enable-source-maps app.js @",
            "node --max-old-space-size=4096 app.js -e @",
            "sed --quiet p @",
            "sudo --user root tool @",
            "sudo --preserve-env=PATH tool @",
            "sudo -u app -- tool -c @",
            "sudo --my-flag -- tool @",
            "bash --my-flag -- build.sh -c @",
            "timeout --signal KILL -- 5 tool @",
            "timeout --foreground 5 tool @",
            "timeout --signal KILL 5 tool @",
            "nice -n 5 tool @",
            "pwsh -File build.ps1 @",
            "docker run --name web -e NAME=@",
            "kubectl logs pod -c @",
            "git checkout -- @",
            "find . -name @",
            "find . -name awk @",
            "scp -- @",
            "ssh -- @",
            "npm run watch -- --env=@",
            "npm run build -- -c @",
            "npx --yes eslint -c @",
            "yarn eval @",
            "yarn watch --env=@",
            "kubectl -n ssh get pods @",
            "kubectl logs awk @",
            "docker build -t awk @",
            "docker compose watch @",
            "docker run --entrypoint sh -e NAME=@",
            "docker run --entrypoint node -e A=b -e NAME=@",
            "docker run --entrypoint sh img build.sh @",
            "docker run --entrypoint sh --rm -e A=b img build.sh -c @",
            "docker run --entrypoint /app img -c @",
            "docker run --rm node:20 app.js -e @",
            "java -jar app.jar @",
            "java -Xmx1g -Dname=@",
            "java -cp /lib Main @",
            "deno run a.ts @",
            "bun run a.ts @",
            "npx prisma migrate @",
            "pipx run cowsay @",
            "tar -czf @",
            "tar --checkpoint=@",
            "tar -xf a.tar -C @",
            "sort -k @",
            "git clean -x @",
            "git rebase @",
            "vagrant up @",
            "nc -z -w 5 host @",
            "nix build @",
            "crystal build @",
            "docker run --name node -e A=@ img",
            "docker run --name node -e A=@",
            "docker run --rm -it --network=web --name node -e B=1 -e A=@",
            "sudo podman create --hostname python3 -e A=@",
            "docker exec -e A=b node tool -p @",
            "docker exec node tool -p @",
            "docker compose exec python tool -c @",
            "docker run -v ruby:/x --name ruby -e A=@",
            "kubectl logs es -c @",
            "kubectl exec deploy/es -c @ -- ls /",
            "systemctl restart es -c @",
            "app --lang es -c @",
            "app nc -c @",
            "java -cp /lib Main --class-path=@",
        ] {
            assert_eq!(last(command), Role::Data, "{command}");
        }
    }

    #[test]
    fn the_program_and_the_options_of_an_interpreter_are_a_choice() {
        for (command, choice) in [
            ("@", Choice::Program),
            ("env @", Choice::Program),
            ("sudo -u deploy @", Choice::Program),
            ("timeout 5 @", Choice::Program),
            ("timeout @", Choice::Option),
            ("env -S @", Choice::Program),
            ("env LD_PRELOAD=@", Choice::Variable),
            ("sh @", Choice::Option),
            ("sh -@", Choice::Option),
            ("sh -- @", Choice::ScriptFile),
            ("bash -o @", Choice::Option),
            ("bash --rcfile=@", Choice::Option),
            ("python -m @", Choice::Option),
            ("python -@", Choice::Option),
            ("node --require=@", Choice::Option),
            ("node -r @", Choice::Option),
            ("perl -M@", Choice::Option),
            ("php -d @", Choice::Option),
            ("awk -f @", Choice::Option),
            ("ssh @", Choice::Option),
            ("pwsh @", Choice::Option),
            ("bash --rcfile @", Choice::Option),
            ("bash --rcfile /etc/x @", Choice::Option),
            ("sudo --user @", Choice::Program),
            ("sudo --user root @", Choice::Program),
            ("nice --adjustment 5 @", Choice::Program),
            ("flock /lock @", Choice::Program),
            ("runuser -u app @", Choice::Program),
            ("python -- @", Choice::ScriptFile),
            ("kubectl exec pod -- @", Choice::Program),
            ("find . -exec @", Choice::Program),
            ("make VERSION=@", Choice::Option),
            ("make deploy @", Choice::Option),
            ("scp -S @", Choice::Option),
            ("deno run @", Choice::ScriptFile),
            ("deno run --allow-net @", Choice::ScriptFile),
            ("deno run --import-map @", Choice::Option),
            ("npx @", Choice::ScriptFile),
            ("npx --yes @", Choice::ScriptFile),
            ("npx -p @", Choice::Option),
            ("bun x @", Choice::ScriptFile),
            ("bun run @", Choice::ScriptFile),
            ("pipx run @", Choice::ScriptFile),
            ("java @", Choice::ScriptFile),
            ("java -jar @", Choice::ScriptFile),
            ("java -cp @", Choice::Option),
            ("java -cp /lib @", Choice::ScriptFile),
            ("java --class-path=@", Choice::Option),
            ("java -javaagent:@", Choice::Option),
            ("java --add-opens a/b=ALL -jar @", Choice::ScriptFile),
            ("npx --package=@", Choice::Option),
            ("npx -p@", Choice::Option),
            ("npx cowsay@@", Choice::ScriptFile),
            ("uvx --from=@", Choice::Option),
            ("pipx run --spec=@", Choice::Option),
            ("deno run --import-map=@", Choice::Option),
        ] {
            assert_eq!(last(command), Role::Choice(choice), "{command}");
        }
    }

    #[test]
    fn the_entrypoint_reads_the_command() {
        let found = role_of(None, &["sh", "-c"], &["@", "@"]);
        assert_eq!(found[2..], [Role::Code(Program::Shell), Role::Data]);
        let found = role_of(None, &["/usr/bin/env", "python3"], &["-c", "@"]);
        assert_eq!(found[3], Role::Code(Program::Other(Syntax::Python)));
        // The words of an entrypoint are a choice, its code is code, and the program of an image is not known.
        let found = role_of(None, &["@"], &["@"]);
        assert_eq!(found[0], Role::Choice(Choice::Program));
        let found = role_of(None, &["/app", "--mode=@"], &["@"]);
        assert_eq!(
            found,
            [
                Role::Choice(Choice::Entrypoint),
                Role::Choice(Choice::Entrypoint),
                Role::Data
            ]
        );
        assert_eq!(
            role_of(Some("docker.io/library/node:20"), &[], &["-e", "@"])[1],
            Role::Code(Program::Other(Syntax::JavaScript))
        );
        assert_eq!(role_of(Some("app:1"), &[], &["-e", "@"])[1], Role::Data);
        // A word that begins with `-` is no program.
        assert_eq!(role_of(Some("app:1"), &[], &["--name=@"]), [Role::Data]);
        let found = role_of(Some("node:20"), &[], &["--eval=@"]);
        assert_eq!(found, [Role::Code(Program::Other(Syntax::JavaScript))]);
    }

    #[test]
    fn an_entrypoint_may_start_the_program_of_the_command() {
        let last = |entrypoint: &[&str], command: &[&str]| {
            *role_of(None, entrypoint, command).last().unwrap()
        };
        // An empty entrypoint is none.
        let found = role_of(None, &[""], &["@", "-c", "@"]);
        assert_eq!(found[1], Role::Choice(Choice::Program));
        assert_eq!(found[3], Role::Code(Program::Unknown));
        assert_eq!(
            last(&[""], &["awk", "@"]),
            Role::Code(Program::Other(Syntax::Awk))
        );
        for entrypoint in [
            &["docker-entrypoint.sh"][..],
            &["/init"],
            &["tini", "--", "/entry.sh"],
            &["sh", "/entry.sh"],
        ] {
            let role = last(entrypoint, &["awk", "@"]);
            assert_eq!(
                role,
                Role::Code(Program::Other(Syntax::Awk)),
                "{entrypoint:?}"
            );
            let role = last(entrypoint, &["ssh", "host", "@"]);
            assert_eq!(role, Role::Code(Program::Shell), "{entrypoint:?}");
            let role = last(entrypoint, &["python", "@"]);
            assert_eq!(role, Role::Choice(Choice::Option), "{entrypoint:?}");
            let role = last(entrypoint, &["serve", "@"]);
            assert_eq!(role, Role::Data, "{entrypoint:?}");
        }
        let role = last(&["env", "-S", "/app -x"], &["awk", "@"]);
        assert_eq!(role, Role::Code(Program::Other(Syntax::Awk)));
        let role = last(&["ssh", "host"], &["python", "-c", "@"]);
        assert_eq!(role, Role::Code(Program::Shell));
        assert_eq!(last(&["/app"], &["@"]), Role::Data);
        assert_eq!(last(&["docker"], &["exec", "@"]), Role::Data);
        // A value that turns out to be the name of a program is data.
        let (entrypoint, written) = (&["/app"][..], &["{{ input.x }}", "{{ input.y }}"][..]);
        let made = (entrypoint, &["awk", "x"][..]);
        let roles = rendered_roles(None, (entrypoint, written), made);
        assert_eq!(roles[1..], [Role::Data, Role::Data]);
    }

    #[test]
    fn rendered_words_are_read_as_they_are() {
        let last = |written: &[&str], made: &[&str]| {
            let roles = rendered_roles(None, (&[], written), (&[], made));
            *roles.last().unwrap()
        };
        let template = "{{ input.x }}";
        for (written, made) in [
            (["docker", "exec", "web", template, "-c", template], "sh"),
            (["sudo", "--user", "root", template, "-c", template], "sh"),
            (["find", ".", "-exec", template, "-c", template], "bash"),
        ] {
            let words = written.map(|word| if word == template { made } else { word });
            assert_eq!(
                last(&written, &words),
                Role::Code(Program::Shell),
                "{words:?}"
            );
        }
        // A value that becomes an option of a program that runs code.
        let written = ["psql", template];
        let role = last(&written, &["psql", "--command=select 1"]);
        assert_eq!(role, Role::Code(Program::Interpolating));
        let written = ["tool", template, "-c", template];
        assert_eq!(last(&written, &["tool", "sh", "-c", "x"]), Role::Data);
    }

    #[test]
    fn a_list_of_many_wrappers_is_read_fast_and_ends_as_code() {
        let words: Vec<&str> = ["sudo", "--user"]
            .into_iter()
            .cycle()
            .take(20_000)
            .collect();
        let words: Vec<&str> = words.into_iter().chain(["@"]).collect();
        let roles = role_of(None, &[], &words);
        assert_eq!(*roles.last().unwrap(), Role::Code(Program::Unknown));
        for repeated in [
            &["docker", "run", "--entrypoint", "sh", "-x", "a"][..],
            &["docker", "run", "--entrypoint=sh", "@"],
            &["docker", "run", "--entrypoint", "sh -c", "@"],
        ] {
            let words = repeated.iter().copied().cycle();
            let words: Vec<&str> = words.take(20_000).collect();
            role_of(None, &[], &words);
        }
    }

    #[test]
    fn the_variables_that_load_code_are_known() {
        for name in [
            "LD_PRELOAD",
            "BASH_ENV",
            "PYTHONPATH",
            "DYLD_INSERT_LIBRARIES",
            "PATH",
            "GIT_CONFIG_KEY_0",
            "HOME",
            "XDG_CONFIG_HOME",
            "CC",
            "CARGO_HOME",
            "NPM_CONFIG_SCRIPT_SHELL",
            "npm_config_registry",
            "DOCKER_HOST",
            "GNUMAKEFLAGS",
            "LUA_INIT_5_4",
            "TF_CLI_ARGS_init",
            "ANSIBLE_LIBRARY",
            "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER",
            "PSModulePath",
        ] {
            assert!(is_loader_variable(name), "{name}");
        }
        for name in [
            "NODE_ENV",
            "ENV",
            "LANG",
            "DOCKER_IMAGE",
            "GIT_AUTHOR_NAME",
            "path",
            "MY_PATH",
        ] {
            assert!(!is_loader_variable(name), "{name}");
        }
    }
}
