//! What a template mentions, and where it goes, known without rendering it.
//!
//! Values are followed from where they are mentioned through loops, `set`, macros and filters to where they are printed.
//! Whatever is not certain counts as reaching the output, unfiltered.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

use minijinja::machinery::Span;
use minijinja::machinery::ast::{
    BinOpKind, Call, CallArg, Expr, Macro, Spanned, Stmt, UnaryOpKind,
};
use minijinja::value::Value;

use super::{TemplateFault, engine, faults};
use crate::domain::limits::clip;
use crate::language::shell::{Around, Program, Ways};

/// A place where a template speaks of its context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mention {
    /// As far as it is fixed: `steps`, `build`, `output`, `image`. Subscripts that are constants count.
    pub path: Vec<String>,
    /// Bytes of that expression in the template.
    pub span: Range<usize>,
    /// What is applied to the value before it is printed, inner to outer.
    pub filters: Vec<String>,
    /// It reaches the output, as opposed to a condition alone.
    pub printed: bool,
    /// The value reaches the output on at least one path on which it is not made a number, and whose last filter is not `unsafe`.
    pub exposed: bool,
    /// `default` or `is defined` allows it to be missing.
    pub has_default: bool,
}

/// A value of others that would become part of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptFault {
    pub mention: Mention,
    pub why: Why,
    /// In the text of a shell.
    pub around: Around,
}

/// The worst comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// Neither `sh` nor `json` nor `unsafe` is its last filter.
    Unfiltered,
    /// A quoted word where no word may stand.
    Place,
    /// A quoted word of a shell, and no shell reads it.
    NoShell,
    /// JSON where the program looks into texts in double quotes.
    NoJson,
    /// JSON where no literal may stand. Version 0.1 did not look at the quotes of languages other than shells.
    JsonPlace,
}

/// What others decide: in a script it needs a filter. What is in an environment may have come from any of them.
const UNTRUSTED: &[&str] = &["input", "steps", "each", "body", "headers", "env"];
const SAFE_FILTERS: &[&str] = &["sh", "json", "unsafe"];
/// Filters that give a number or a boolean, whatever they are applied to. What they are given as an argument may come out as it is:
/// `int(default=input.x)`.
const NUMBER_FILTERS: &[&str] = &["abs", "bool", "count", "float", "int", "length", "round"];
/// Of `loop`, what is counted and not taken from the items.
const COUNTERS: &[&str] = &[
    "index",
    "index0",
    "first",
    "last",
    "length",
    "revindex",
    "revindex0",
    "depth",
    "depth0",
];

/// What the template speaks of, in the order of its text. Variables of its own are not mentions; what they stand for is.
pub fn mentions(text: &str) -> Result<Vec<Mention>, TemplateFault> {
    Ok(walk(text, None)?.mentions)
}

/// Where something untrusted reaches the text of a script and is not made harmless for who reads it: the worst fault of each place,
/// up to `FAULTS_MAX` of them.
pub fn script_faults(text: &str, program: Program) -> Result<Vec<ScriptFault>, TemplateFault> {
    Ok(walk(text, Some(program))?.faults)
}

/// Every mention whose value, or a part of it, can reach the output as text and without `| unsafe` as its last filter.
pub fn exposed(text: &str) -> Result<Vec<Mention>, TemplateFault> {
    let mut mentions = mentions(text)?;
    mentions.retain(|mention| mention.exposed);
    Ok(mentions)
}

fn walk(text: &str, program: Option<Program>) -> Result<Walk<'_>, TemplateFault> {
    let mut walk = Walk {
        text,
        mentions: Vec::new(),
        faults: Vec::new(),
        program,
        shell: Ways::new(program.unwrap_or(Program::Unknown)),
        shell_work: Cell::new(0),
        flow_steps: 0,
        chains: Chains::new(),
        scopes: vec![BTreeMap::new()],
        branches: 0,
        sinks: Vec::new(),
        defined: BTreeSet::new(),
    };
    if !crate::domain::task::is_template(text) {
        return Ok(walk);
    }
    let template = engine::parsed(text)?;
    walk.statement(&template);
    if walk.is_exhausted() {
        return Err(TemplateFault {
            message: format!(
                "the template is too intricate: its variables, loops and filters hand values on more than {FLOW_STEPS_MAX} times"
            ),
            span: 0..0,
        });
    }
    // Without the paths that begin with another of them, only the last one in front of a path can be its beginning.
    let mut defined: Vec<Vec<String>> = std::mem::take(&mut walk.defined).into_iter().collect();
    defined.dedup_by(|path, before| path.starts_with(before));
    for mention in &mut walk.mentions {
        let behind = defined.partition_point(|path| *path <= mention.path);
        let before = behind.checked_sub(1).map(|at| &defined[at]);
        mention.has_default |= before.is_some_and(|before| mention.path.starts_with(before));
    }
    walk.mentions.sort_by_key(|mention| mention.span.start);
    walk.faults.sort_by_key(|fault| fault.mention.span.start);
    walk.faults.dedup();
    Ok(walk)
}

/// A value on its way: which mention it came from, and what was done to it since.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Flow {
    mention: usize,
    /// Number of what was done to it, in `Chains`.
    chain: usize,
}

type Flows = BTreeSet<Flow>;

/// What was done to values: filters by their names, anything else that changes a value by a sign. Many values went the same way, so
/// each chain is kept once. A chain is a shorter chain and one link more; number 0 is the empty chain.
struct Chains<'t> {
    all: Vec<Chain<'t>>,
    numbers: HashMap<(usize, &'t str), usize>,
}

#[derive(Clone, Copy)]
struct Chain<'t> {
    before: usize,
    last: &'t str,
    length: usize,
}

impl<'t> Chains<'t> {
    fn new() -> Chains<'t> {
        let empty = Chain {
            before: 0,
            last: "",
            length: 0,
        };
        Chains {
            all: vec![empty],
            numbers: HashMap::new(),
        }
    }

    /// A sign on a value that nothing was done to yet changes nothing. A chain that would be too long, or one too many, begins anew:
    /// what decides is the last link.
    fn longer(&mut self, chain: usize, by: &'t str) -> usize {
        if chain == 0 && !is_name(by) {
            return 0;
        }
        let is_short = self.all[chain].length < CHAIN_MAX && self.all.len() < CHAINS_MAX;
        let before = if is_short { chain } else { 0 };
        *self.numbers.entry((before, by)).or_insert_with(|| {
            self.all.push(Chain {
                before,
                last: by,
                length: self.all[before].length + 1,
            });
            self.all.len() - 1
        })
    }

    fn last(&self, chain: usize) -> Option<&'t str> {
        (chain != 0).then(|| self.all[chain].last)
    }

    fn gives_number(&self, mut chain: usize) -> bool {
        while let Some(last) = self.last(chain) {
            if NUMBER_FILTERS.contains(&last) {
                return true;
            }
            chain = self.all[chain].before;
        }
        false
    }

    /// The names of the filters, inner to outer.
    fn filters(&self, mut chain: usize) -> Vec<String> {
        let mut names = Vec::new();
        while let Some(last) = self.last(chain) {
            if is_name(last) {
                names.push(last.to_string());
            }
            chain = self.all[chain].before;
        }
        names.reverse();
        names
    }
}

const CHAIN_MAX: usize = 32;
const CHAINS_MAX: usize = 50_000;
const FLOWS_MAX: usize = 64;
/// Faults that are kept of one text. Nobody reads more, and a text may print one value at very many places.
const FAULTS_MAX: usize = 1_000;
/// Bytes to which a fault shortens each name of its path.
const FAULT_NAME_MAX: usize = 200;
/// How often the values of one text may be handed on, all values together. The bounds of the work are on the text alone and not on time, so
/// that a text means the same on every machine.
const FLOW_STEPS_MAX: usize = 4_000_000;
/// Work of reading one script by all ways through it, about in bytes. Loops in loops are read again and again.
const SHELL_WORK_MAX: usize = 8 << 20;

#[derive(Clone, Default)]
struct Bound {
    flows: Flows,
    /// Set in a branch alone, so it may still be what the context calls so.
    or_context: bool,
}

struct Walk<'t> {
    text: &'t str,
    mentions: Vec<Mention>,
    faults: Vec<ScriptFault>,
    /// Who reads the script. `None`: it is no script, and nobody asks for faults.
    program: Option<Program>,
    /// The script as far as it was read. Only scripts are read in which the place of a value matters (`is_read`).
    shell: Ways,
    /// Work that reading the script has cost so far.
    shell_work: Cell<usize>,
    /// How often values were handed on so far.
    flow_steps: usize,
    chains: Chains<'t>,
    scopes: Vec<BTreeMap<String, Bound>>,
    /// How many branches we are in, since the innermost scope began.
    branches: usize,
    /// What blocks that are kept instead of printed have caught.
    sinks: Vec<Flows>,
    defined: BTreeSet<Vec<String>>,
}

impl<'t> Walk<'t> {
    fn statements(&mut self, statements: &[Stmt<'t>]) {
        for statement in statements {
            self.statement(statement);
        }
    }

    fn is_exhausted(&self) -> bool {
        self.flow_steps > FLOW_STEPS_MAX
    }

    /// Whether the place of a value in the script matters: the program is a shell, or a language in which JSON is a literal.
    fn is_read(&self) -> bool {
        matches!(self.program, Some(Program::Shell | Program::Other(_)))
    }

    fn beginning(&self) -> Ways {
        Ways::new(self.program.unwrap_or(Program::Unknown))
    }

    /// Counts the work of one statement of the script. Returns whether the work so far is within its bound.
    fn may_read(&self, shell: &Ways, statement: &Stmt<'t>) -> bool {
        let bytes = match statement {
            Stmt::EmitRaw(raw) => raw.raw.len(),
            _ => 0,
        };
        let work = self.shell_work.get().saturating_add(shell.work(bytes));
        self.shell_work.set(work);
        work <= SHELL_WORK_MAX
    }

    fn statement(&mut self, statement: &Stmt<'t>) {
        if self.is_exhausted() {
            return;
        }
        if self.is_read() && !self.may_read(&self.shell, statement) {
            self.shell = Ways::lost();
        }
        match statement {
            Stmt::Template(template) => self.statements(&template.children),
            Stmt::EmitExpr(emit) => {
                let flows = self.expression(&emit.expr);
                self.print(flows, emit.span());
            }
            Stmt::EmitRaw(raw) => {
                if self.is_read() {
                    self.shell.read(raw.raw);
                }
            }
            Stmt::ForLoop(each) => {
                let items = self.expression(&each.iter);
                let items = self.changed(items, "for");
                let without = self.shell.clone();
                self.shell = self.around_loop(without.clone(), &each.body);
                self.scoped(|walk| {
                    walk.bind(&each.target, items.clone());
                    if let Some(filter) = &each.filter_expr {
                        let judged = walk.expression(filter);
                        walk.judge(&judged);
                    }
                    walk.name("loop", items.clone());
                    walk.statements(&each.body);
                });
                let after = std::mem::replace(&mut self.shell, without);
                self.scoped(|walk| walk.statements(&each.else_body));
                let other = std::mem::replace(&mut self.shell, Ways::lost());
                self.shell = after.or(other);
            }
            Stmt::IfCond(condition) => {
                let judged = self.expression(&condition.expr);
                self.judge(&judged);
                self.branches += 1;
                let before = self.shell.clone();
                self.statements(&condition.true_body);
                let after = std::mem::replace(&mut self.shell, before);
                self.statements(&condition.false_body);
                let other = std::mem::replace(&mut self.shell, Ways::lost());
                self.shell = after.or(other);
                self.branches -= 1;
            }
            Stmt::WithBlock(with) => self.scoped(|walk| {
                for (target, value) in &with.assignments {
                    let flows = walk.expression(value);
                    walk.bind(target, flows);
                }
                walk.statements(&with.body);
            }),
            Stmt::Set(set) => {
                let flows = self.expression(&set.expr);
                self.bind(&set.target, flows);
            }
            Stmt::SetBlock(set) => {
                let caught = self.caught(|walk| walk.scoped(|walk| walk.statements(&set.body)));
                let flows = match &set.filter {
                    Some(filter) => self.filtered(filter, caught),
                    None => caught,
                };
                self.bind(&set.target, flows);
            }
            Stmt::FilterBlock(block) => {
                let caught = self.caught(|walk| walk.scoped(|walk| walk.statements(&block.body)));
                let flows = self.filtered(&block.filter, caught);
                self.print(flows, block.span());
            }
            Stmt::Macro(declared) => {
                let flows = self.macro_body(declared);
                self.name(declared.name, flows);
            }
            Stmt::CallBlock(block) => {
                let mut flows = self.call(&block.call);
                let body = self.macro_body(&block.macro_decl);
                flows.extend(self.changed(body, "()"));
                self.few(&mut flows);
                self.print(flows, block.span());
            }
            Stmt::Do(call) => {
                let judged = self.call(&call.call);
                self.judge(&judged);
            }
            // Refused by `check`.
            Stmt::AutoEscape(_)
            | Stmt::Block(_)
            | Stmt::Import(_)
            | Stmt::FromImport(_)
            | Stmt::Extends(_)
            | Stmt::Include(_) => {}
        }
    }

    /// What the script may be at the beginning of a loop's body: the first time, or after any number of times.
    fn around_loop(&mut self, before: Ways, body: &[Stmt<'t>]) -> Ways {
        if !self.is_read() {
            return before;
        }
        let mut around = before;
        loop {
            let after = self.passed(around.clone(), body);
            if around.contains(&after) {
                return around;
            }
            around = around.or(after);
        }
    }

    /// What the script may be behind these statements.
    fn passed(&mut self, mut shell: Ways, statements: &[Stmt<'t>]) -> Ways {
        for statement in statements {
            if !self.may_read(&shell, statement) {
                return Ways::lost();
            }
            match statement {
                Stmt::EmitRaw(raw) => shell.read(raw.raw),
                Stmt::EmitExpr(_) | Stmt::FilterBlock(_) | Stmt::CallBlock(_) => shell.value(),
                Stmt::IfCond(condition) => {
                    let other = self.passed(shell.clone(), &condition.false_body);
                    shell = self.passed(shell, &condition.true_body).or(other);
                }
                Stmt::ForLoop(each) => {
                    let without = self.passed(shell.clone(), &each.else_body);
                    let around = self.around_loop(shell, &each.body);
                    shell = self.passed(around, &each.body).or(without);
                }
                Stmt::WithBlock(with) => shell = self.passed(shell, &with.body),
                _ => {}
            }
        }
        shell
    }

    /// What a macro prints is what calling it gives. Its arguments are judged where they are given.
    fn macro_body(&mut self, declared: &Spanned<Macro<'t>>) -> Flows {
        let defaults = declared.defaults.iter();
        let mut flows: Flows = Flows::new();
        for default in defaults {
            let given = self.expression(default);
            flows.extend(self.changed(given, "()"));
        }
        let caught = self.caught(|walk| {
            walk.scoped(|walk| {
                for argument in &declared.args {
                    walk.bind(argument, Flows::new());
                }
                walk.name("caller", Flows::new());
                // It may call itself.
                walk.name(declared.name, Flows::new());
                walk.statements(&declared.body);
            });
        });
        flows.extend(caught);
        self.few(&mut flows);
        flows
    }

    fn scoped(&mut self, inner: impl FnOnce(&mut Self)) {
        self.scopes.push(BTreeMap::new());
        let branches = std::mem::take(&mut self.branches);
        inner(self);
        self.branches = branches;
        self.scopes.pop();
    }

    fn caught(&mut self, inner: impl FnOnce(&mut Self)) -> Flows {
        self.sinks.push(Flows::new());
        // What is kept is read from its own beginning, and once more as a whole where it is printed.
        let own = self.beginning();
        let shell = std::mem::replace(&mut self.shell, own);
        inner(self);
        self.shell = shell;
        self.sinks.pop().expect("pushed above")
    }

    fn print(&mut self, flows: Flows, at: Span) {
        self.flow_steps += flows.len();
        if self.program.is_some() {
            self.judge_places(&flows, at);
            if self.is_read() {
                self.shell.value();
            }
        }
        if let Some(mut sink) = self.sinks.pop() {
            sink.extend(flows);
            self.few(&mut sink);
            self.sinks.push(sink);
            return;
        }
        for flow in flows {
            let mention = &mut self.mentions[flow.mention];
            mention.printed = true;
            let is_accepted = self.chains.last(flow.chain) == Some("unsafe");
            mention.exposed |= !is_accepted && !self.chains.gives_number(flow.chain);
            if mention.filters.is_empty() {
                mention.filters = self.chains.filters(flow.chain);
            }
        }
    }

    /// Keeps the worst fault of each place: a variable may stand for many values.
    fn judge_places(&mut self, flows: &Flows, at: Span) {
        let around = self.shell.around();
        let is_kept = !self.sinks.is_empty();
        let printed_at = faults::bytes(self.text, at);
        let mut worst: BTreeMap<(usize, usize), (Why, Flow)> = BTreeMap::new();
        for &flow in flows {
            let Some(why) = self.fault_of(flow, around, is_kept) else {
                continue;
            };
            let span = &self.mentions[flow.mention].span;
            let in_it = printed_at.start <= span.start && span.end <= printed_at.end;
            let place = if in_it { span } else { &printed_at };
            let found = worst.entry((place.start, place.end)).or_insert((why, flow));
            *found = (*found).min((why, flow));
        }
        for ((start, end), (why, flow)) in worst {
            if self.faults.len() >= FAULTS_MAX {
                return;
            }
            let mut mention = self.mentions[flow.mention].clone();
            for name in &mut mention.path {
                *name = clip(name, FAULT_NAME_MAX);
            }
            mention.span = start..end;
            mention.printed = true;
            mention.filters = self.chains.filters(flow.chain);
            self.faults.push(ScriptFault {
                mention,
                why,
                around,
            });
        }
    }

    fn fault_of(&self, flow: Flow, around: Around, is_kept: bool) -> Option<Why> {
        let program = self.program?;
        let is_untrusted = is_untrusted(&self.mentions[flow.mention].path);
        match self.chains.last(flow.chain) {
            Some("sh") if program == Program::Shell => {
                (around != Around::Nothing).then_some(Why::Place)
            }
            Some("sh") if program == Program::Unknown => None,
            Some("sh") => (is_untrusted && !is_kept).then_some(Why::NoShell),
            // Of one line, so that it does not end a text which the shell leaves alone.
            Some("json") if around == Around::QuotedHereDocument => None,
            Some("json") if !is_untrusted => None,
            Some("json") => match program {
                Program::Shell | Program::Interpolating => (!is_kept).then_some(Why::NoJson),
                Program::Other(_) => (around != Around::Nothing).then_some(Why::JsonPlace),
                Program::Unknown => None,
            },
            last => {
                (is_untrusted && !last.is_some_and(is_safe) && !is_kept).then_some(Why::Unfiltered)
            }
        }
    }

    /// These decide something, and are not printed.
    fn judge(&mut self, flows: &Flows) {
        self.flow_steps += flows.len();
        for flow in flows {
            let mention = &mut self.mentions[flow.mention];
            if mention.filters.is_empty() && !mention.printed {
                mention.filters = self.chains.filters(flow.chain);
            }
        }
    }

    fn name(&mut self, name: &str, flows: Flows) {
        let scope = self.scopes.last_mut().expect("there is always one");
        let known = scope.get(name).cloned();
        let mut bound = match (self.branches > 0, known) {
            (true, Some(mut bound)) => {
                bound.flows.extend(flows);
                bound
            }
            (true, None) => {
                let outer = self.scopes.iter().rev().find_map(|scope| scope.get(name));
                let mut bound = outer.cloned().unwrap_or(Bound {
                    flows: Flows::new(),
                    or_context: true,
                });
                bound.flows.extend(flows);
                bound
            }
            (false, _) => Bound {
                flows,
                or_context: false,
            },
        };
        self.few(&mut bound.flows);
        let scope = self.scopes.last_mut().expect("there is always one");
        scope.insert(name.to_string(), bound);
    }

    fn bind(&mut self, target: &Expr<'t>, flows: Flows) {
        match target {
            Expr::Var(variable) => self.name(variable.id, flows),
            Expr::List(list) => self.bind_each(&list.items, flows),
            Expr::Tuple(tuple) => self.bind_each(&tuple.items, flows),
            // There is nothing whose attributes could be set.
            _ => {}
        }
    }

    fn bind_each(&mut self, targets: &[Expr<'t>], flows: Flows) {
        let flows = self.changed(flows, "[]");
        for target in targets {
            self.bind(target, flows.clone());
        }
    }

    fn bound(&self, name: &str) -> Option<&Bound> {
        self.scopes.iter().rev().find_map(|scope| scope.get(name))
    }

    fn union<'e>(&mut self, expressions: impl IntoIterator<Item = &'e Expr<'t>>) -> Flows
    where
        't: 'e,
    {
        let mut flows = Flows::new();
        for expression in expressions {
            flows.extend(self.expression(expression));
        }
        self.few(&mut flows);
        flows
    }

    fn expression(&mut self, expression: &Expr<'t>) -> Flows {
        if self.is_exhausted() {
            return Flows::new();
        }
        match expression {
            Expr::Var(_) | Expr::GetAttr(_) | Expr::GetItem(_) => self.path(expression),
            Expr::Const(_) => Flows::new(),
            Expr::Slice(slice) => {
                let flows = self.expression(&slice.expr);
                for bound in [&slice.start, &slice.stop, &slice.step]
                    .into_iter()
                    .flatten()
                {
                    let judged = self.expression(bound);
                    self.judge(&judged);
                }
                self.changed(flows, "[:]")
            }
            Expr::UnaryOp(unary) => {
                let flows = self.expression(&unary.expr);
                match unary.op {
                    UnaryOpKind::Neg => self.changed(flows, "-"),
                    UnaryOpKind::Not => {
                        self.judge(&flows);
                        Flows::new()
                    }
                }
            }
            Expr::BinOp(binary) => {
                let flows = self.union([&binary.left, &binary.right]);
                match binary.op {
                    BinOpKind::Eq
                    | BinOpKind::Ne
                    | BinOpKind::Lt
                    | BinOpKind::Lte
                    | BinOpKind::Gt
                    | BinOpKind::Gte
                    | BinOpKind::In => {
                        self.judge(&flows);
                        Flows::new()
                    }
                    _ => flows,
                }
            }
            Expr::Compare(compare) => {
                let others = compare.ops.iter().map(|op| &op.expr);
                let judged = self.union(std::iter::once(&compare.expr).chain(others));
                self.judge(&judged);
                Flows::new()
            }
            Expr::IfExpr(choice) => {
                let judged = self.expression(&choice.test_expr);
                self.judge(&judged);
                self.union(std::iter::once(&choice.true_expr).chain(&choice.false_expr))
            }
            Expr::Filter(_) => self.filtered(expression, Flows::new()),
            Expr::Test(test) => {
                let tested = self.expression(&test.expr);
                self.judge(&tested);
                let judged = self.arguments(&test.args);
                self.judge(&judged);
                if matches!(test.name, "defined" | "undefined") && is_path(&test.expr) {
                    for flow in &tested {
                        self.mentions[flow.mention].has_default = true;
                        self.defined
                            .insert(self.mentions[flow.mention].path.clone());
                    }
                }
                Flows::new()
            }
            Expr::Call(call) => self.call(call),
            Expr::List(list) => {
                let flows = self.union(&list.items);
                self.changed(flows, "[]")
            }
            Expr::Tuple(tuple) => {
                let flows = self.union(&tuple.items);
                self.changed(flows, "[]")
            }
            Expr::Map(map) => {
                let flows = self.union(map.keys.iter().chain(&map.values));
                self.changed(flows, "{}")
            }
        }
    }

    /// A filter and all that it is applied to; at the bottom of a block's filters is what the block caught.
    fn filtered(&mut self, expression: &Expr<'t>, caught: Flows) -> Flows {
        let Expr::Filter(filter) = expression else {
            return self.expression(expression);
        };
        let flows = match &filter.expr {
            Some(inner @ Expr::Filter(_)) => self.filtered(inner, caught),
            Some(inner) => {
                let flows = self.expression(inner);
                if matches!(filter.name, "default" | "d") && is_path(inner) {
                    for flow in &flows {
                        self.mentions[flow.mention].has_default = true;
                    }
                }
                flows
            }
            None => caught,
        };
        let arguments = self.arguments(&filter.args);
        // Only the value in front of such a filter becomes a number.
        let by = match NUMBER_FILTERS.contains(&filter.name) {
            true => "()",
            false => filter.name,
        };
        let mut flows = self.changed(flows, filter.name);
        flows.extend(self.changed(arguments, by));
        self.few(&mut flows);
        flows
    }

    fn arguments(&mut self, arguments: &[CallArg<'t>]) -> Flows {
        let given = arguments.iter().map(|argument| match argument {
            CallArg::Pos(value)
            | CallArg::Kwarg(_, value)
            | CallArg::PosSplat(value)
            | CallArg::KwargSplat(value) => value,
        });
        self.union(given)
    }

    fn call(&mut self, call: &Spanned<Call<'t>>) -> Flows {
        let mut flows = match &call.expr {
            // Of a macro, what it prints; of a function of ours, nothing.
            Expr::Var(function) => match self.bound(function.id) {
                Some(bound) => bound.flows.clone(),
                None => Flows::new(),
            },
            Expr::GetAttr(method) => {
                let flows = self.expression(&method.expr);
                self.changed(flows, "()")
            }
            other => {
                let flows = self.expression(other);
                self.changed(flows, "()")
            }
        };
        let given = self.arguments(&call.args);
        flows.extend(self.changed(given, "()"));
        self.few(&mut flows);
        flows
    }

    fn path(&mut self, expression: &Expr<'t>) -> Flows {
        let mut parts = Vec::new();
        let mut at = expression;
        // What follows a subscript that is not fixed is not fixed either.
        let mut known_to = expression;
        let (root, begins) = loop {
            match at {
                Expr::Var(variable) => break (variable.id, variable.span()),
                Expr::GetAttr(attribute) => {
                    parts.push(attribute.name.to_string());
                    at = &attribute.expr;
                }
                Expr::GetItem(item) => {
                    match constant(&item.subscript_expr) {
                        Some(part) => parts.push(part),
                        None => {
                            let judged = self.expression(&item.subscript_expr);
                            self.judge(&judged);
                            parts.clear();
                            known_to = &item.expr;
                        }
                    }
                    at = &item.expr;
                }
                other => {
                    let flows = self.expression(other);
                    return self.changed(flows, ".");
                }
            }
        };
        let counts = root == "loop"
            && parts
                .last()
                .is_some_and(|part| COUNTERS.contains(&part.as_str()));
        let mut flows = Flows::new();
        if let Some(bound) = self.bound(root) {
            let or_context = bound.or_context;
            if !counts {
                flows = bound.flows.clone();
                self.flow_steps += flows.len();
                if !parts.is_empty() || !std::ptr::eq(known_to, expression) {
                    flows = self.changed(flows, ".");
                }
            }
            if !or_context {
                return flows;
            }
        } else if engine::FUNCTIONS.contains(&root) && parts.is_empty() {
            return flows;
        }
        parts.push(root.to_string());
        parts.reverse();
        // The span of an attribute begins at its dot.
        let ends = faults::bytes(self.text, known_to.span()).end;
        let begins = faults::bytes(self.text, begins);
        flows.insert(self.mention(parts, begins.start..ends.max(begins.end)));
        flows
    }

    /// Something was done to all of them.
    fn changed(&mut self, flows: Flows, by: &'t str) -> Flows {
        self.flow_steps += flows.len();
        let longer = flows.into_iter().map(|flow| Flow {
            chain: self.chains.longer(flow.chain, by),
            ..flow
        });
        longer.collect()
    }

    /// Keeps the number of them small, and those that matter most.
    fn few(&mut self, flows: &mut Flows) {
        self.flow_steps += flows.len();
        if flows.len() <= FLOWS_MAX {
            return;
        }
        let mut all: Vec<Flow> = std::mem::take(flows).into_iter().collect();
        all.sort_by_key(|flow| {
            let untrusted = is_untrusted(&self.mentions[flow.mention].path);
            (
                !untrusted,
                self.chains.last(flow.chain).is_some_and(is_safe),
            )
        });
        all.truncate(FLOWS_MAX);
        flows.extend(all);
    }

    fn mention(&mut self, path: Vec<String>, span: Range<usize>) -> Flow {
        self.mentions.push(Mention {
            path,
            span,
            filters: Vec::new(),
            printed: false,
            exposed: false,
            has_default: false,
        });
        Flow {
            mention: self.mentions.len() - 1,
            chain: 0,
        }
    }
}

fn constant(expression: &Expr<'_>) -> Option<String> {
    let value: Value = expression.as_const()?;
    match value.as_str() {
        Some(text) => Some(text.to_string()),
        None if value.is_integer() => Some(value.to_string()),
        None => None,
    }
}

fn is_path(expression: &Expr<'_>) -> bool {
    matches!(
        expression,
        Expr::Var(_) | Expr::GetAttr(_) | Expr::GetItem(_)
    )
}

fn is_name(link: &str) -> bool {
    link.starts_with(|c: char| c.is_ascii_alphabetic()) && link != "for"
}

fn is_untrusted(path: &[String]) -> bool {
    path.first()
        .is_some_and(|root| UNTRUSTED.contains(&root.as_str()))
}

fn is_safe(last_filter: &str) -> bool {
    SAFE_FILTERS.contains(&last_filter)
}

/// Refuses what no template may say, before anything of it is compiled.
pub(super) fn check(text: &str, template: &Stmt<'_>) -> Result<(), TemplateFault> {
    let mut check = Check {
        text,
        macros: BTreeSet::new(),
        fault: None,
    };
    check.statement(template, true);
    check.statement(template, false);
    check.fault.map_or(Ok(()), Err)
}

struct Check<'t> {
    text: &'t str,
    macros: BTreeSet<String>,
    fault: Option<TemplateFault>,
}

impl Check<'_> {
    fn refuse(&mut self, message: &str, span: Span) {
        let span = faults::bytes(self.text, span);
        self.fault
            .get_or_insert_with(|| faults::refused(message, span));
    }

    fn statement(&mut self, statement: &Stmt<'_>, names: bool) {
        let one_text = "a template is one text: it has no blocks of others and includes none";
        if let (true, Stmt::Macro(declared)) = (names, statement) {
            self.macros.insert(declared.name.to_string());
        }
        let (expressions, bodies) = parts(statement);
        for body in bodies {
            for statement in body {
                self.statement(statement, names);
            }
        }
        if names {
            return;
        }
        for expression in expressions {
            self.expression(expression);
        }
        match statement {
            Stmt::AutoEscape(node) => self.refuse(
                "nothing is escaped here; use the filter escape",
                node.span(),
            ),
            Stmt::Block(node) => self.refuse(one_text, node.span()),
            Stmt::Import(node) => self.refuse(one_text, node.span()),
            Stmt::FromImport(node) => self.refuse(one_text, node.span()),
            Stmt::Extends(node) => self.refuse(one_text, node.span()),
            Stmt::Include(node) => self.refuse(one_text, node.span()),
            Stmt::CallBlock(node) => self.call(&node.call),
            Stmt::Do(node) => self.call(&node.call),
            _ => {}
        }
    }

    fn call(&mut self, call: &Spanned<Call<'_>>) {
        if let Expr::Var(function) = &call.expr {
            let known = engine::FUNCTIONS.contains(&function.id)
                || self.macros.contains(function.id)
                || matches!(function.id, "caller" | "loop");
            if !known {
                let span = faults::bytes(self.text, function.span());
                let names = engine::FUNCTIONS.iter().copied();
                let fault = faults::unknown("the function", function.id, names, span);
                self.fault.get_or_insert(fault);
            }
        } else {
            self.expression(&call.expr);
        }
        for argument in &call.args {
            self.argument(argument);
        }
    }

    fn argument(&mut self, argument: &CallArg<'_>) {
        match argument {
            CallArg::Pos(value)
            | CallArg::Kwarg(_, value)
            | CallArg::PosSplat(value)
            | CallArg::KwargSplat(value) => self.expression(value),
        }
    }

    fn expression(&mut self, expression: &Expr<'_>) {
        match expression {
            Expr::Var(_) | Expr::Const(_) => {}
            Expr::Slice(slice) => {
                self.expression(&slice.expr);
                for bound in [&slice.start, &slice.stop, &slice.step]
                    .into_iter()
                    .flatten()
                {
                    self.expression(bound);
                }
            }
            Expr::UnaryOp(unary) => self.expression(&unary.expr),
            Expr::BinOp(binary) => {
                self.expression(&binary.left);
                self.expression(&binary.right);
                // Constants are computed while compiling, where nothing is bounded.
                let is_text =
                    |side: &Expr<'_>| side.as_const().is_some_and(|value| !value.is_number());
                let multiplies = matches!(binary.op, BinOpKind::Mul);
                if self.fault.is_none()
                    && multiplies
                    && (is_text(&binary.left) || is_text(&binary.right))
                {
                    self.refuse("* multiplies numbers", binary.span());
                }
            }
            Expr::Compare(compare) => {
                self.expression(&compare.expr);
                for op in &compare.ops {
                    self.expression(&op.expr);
                }
            }
            Expr::IfExpr(choice) => {
                self.expression(&choice.test_expr);
                self.expression(&choice.true_expr);
                if let Some(otherwise) = &choice.false_expr {
                    self.expression(otherwise);
                }
            }
            Expr::Filter(filter) => {
                if let Some(inner) = &filter.expr {
                    self.expression(inner);
                }
                for argument in &filter.args {
                    self.argument(argument);
                }
                if !engine::filter_names().any(|name| name == filter.name) {
                    let span = faults::bytes(self.text, filter.span());
                    let fault =
                        faults::unknown("the filter", filter.name, engine::filter_names(), span);
                    self.fault.get_or_insert(fault);
                }
            }
            Expr::Test(test) => {
                self.expression(&test.expr);
                for argument in &test.args {
                    self.argument(argument);
                }
                if !engine::is_test(test.name) {
                    let span = faults::bytes(self.text, test.span());
                    let tests = engine::TESTS.iter().copied();
                    let fault = faults::unknown("the test", test.name, tests, span);
                    self.fault.get_or_insert(fault);
                }
            }
            Expr::GetAttr(attribute) => self.expression(&attribute.expr),
            Expr::GetItem(item) => {
                self.expression(&item.expr);
                self.expression(&item.subscript_expr);
            }
            Expr::Call(call) => self.call(call),
            Expr::List(list) => list.items.iter().for_each(|item| self.expression(item)),
            Expr::Tuple(tuple) => tuple.items.iter().for_each(|item| self.expression(item)),
            Expr::Map(map) => {
                let all = map.keys.iter().chain(&map.values);
                all.for_each(|item| self.expression(item));
            }
        }
    }
}

type Parts<'a, 't> = (Vec<&'a Expr<'t>>, Vec<&'a [Stmt<'t>]>);

/// The expressions and the bodies that a statement is made of; calls of statements are not among them.
fn parts<'a, 't>(statement: &'a Stmt<'t>) -> Parts<'a, 't> {
    match statement {
        Stmt::Template(node) => (vec![], vec![&node.children]),
        Stmt::EmitExpr(node) => (vec![&node.expr], vec![]),
        Stmt::ForLoop(node) => {
            let expressions = std::iter::once(&node.iter).chain(&node.filter_expr);
            (expressions.collect(), vec![&node.body, &node.else_body])
        }
        Stmt::IfCond(node) => (vec![&node.expr], vec![&node.true_body, &node.false_body]),
        Stmt::WithBlock(node) => {
            let values = node.assignments.iter().map(|(_, value)| value);
            (values.collect(), vec![&node.body])
        }
        Stmt::Set(node) => (vec![&node.expr], vec![]),
        Stmt::SetBlock(node) => (node.filter.iter().collect(), vec![&node.body]),
        Stmt::FilterBlock(node) => (vec![&node.filter], vec![&node.body]),
        Stmt::Macro(node) => (node.defaults.iter().collect(), vec![&node.body]),
        Stmt::CallBlock(node) => {
            let declared = &node.macro_decl;
            (declared.defaults.iter().collect(), vec![&declared.body])
        }
        Stmt::EmitRaw(_)
        | Stmt::Do(_)
        | Stmt::AutoEscape(_)
        | Stmt::Block(_)
        | Stmt::Import(_)
        | Stmt::FromImport(_)
        | Stmt::Extends(_)
        | Stmt::Include(_) => (vec![], vec![]),
    }
}

/// The longest text between tags that may be copied more than once.
pub(super) fn longest_repeated_raw(template: &Stmt<'_>) -> usize {
    fn longest(statement: &Stmt<'_>, repeated: bool) -> usize {
        if let (true, Stmt::EmitRaw(raw)) = (repeated, statement) {
            return raw.raw.len();
        }
        let repeats = matches!(
            statement,
            Stmt::ForLoop(_) | Stmt::Macro(_) | Stmt::CallBlock(_)
        );
        let (_, bodies) = parts(statement);
        let inner = bodies.into_iter().flatten();
        inner
            .map(|statement| longest(statement, repeated || repeats))
            .max()
            .unwrap_or(0)
    }
    longest(template, false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::language::program_quotes::Syntax;

    /// `path` or `path|filters`, `?` for what has a default, `(…)` for what is not printed.
    fn told(text: &str) -> Vec<String> {
        let mentions = mentions(text).unwrap_or_else(|fault| panic!("{text}: {fault}"));
        let told = mentions.iter().map(|mention| {
            assert!(
                text[mention.span.clone()].starts_with(&mention.path[0]),
                "{text}: {:?}",
                &text[mention.span.clone()]
            );
            let mut told = mention.path.join(".");
            for filter in &mention.filters {
                told.extend(["|", filter]);
            }
            if mention.has_default {
                told.push('?');
            }
            if mention.printed {
                told
            } else {
                format!("({told})")
            }
        });
        told.collect()
    }

    #[test]
    fn mentions_are_found_wherever_they_are() {
        for (text, expected) in [
            ("plain", vec![]),
            (
                "{{ input.a }} ü {{ steps.b.output['c d'][0] }}",
                vec!["input.a", "steps.b.output.c d.0"],
            ),
            ("{{ input.a | upper | sh }}", vec!["input.a|upper|sh"]),
            ("{{ input[env.x].y }}", vec!["input", "(env.x)"]),
            ("{{ input.a | default('x') }}", vec!["input.a|default?"]),
            (
                "{{ input.a | default(input.b) }}",
                vec!["input.a|default?", "input.b|default"],
            ),
            ("{% if input.a %}x{% endif %}", vec!["(input.a)"]),
            (
                "{% if input.a is defined %}{{ input.a.b }}{% endif %}",
                vec!["(input.a?)", "input.a.b?"],
            ),
            (
                "{{ 'x' if input.a == 1 else input.b }}",
                vec!["(input.a)", "input.b"],
            ),
            ("{{ not input.a }}", vec!["(input.a)"]),
            (
                "{% for x in input.l if x.ok %}{{ x.n }}{{ loop.index }}{% else %}{{ env.y }}{% endfor %}",
                vec!["input.l", "env.y"],
            ),
            (
                "{% for x in input.l %}{{ loop.index }}{% endfor %}",
                vec!["(input.l)"],
            ),
            (
                "{% set x = input.a %}{{ x | upper }}",
                vec!["input.a|upper"],
            ),
            ("{% set x = input.a %}", vec!["(input.a)"]),
            ("{% set input = 1 %}{{ input.a }}", vec![]),
            (
                "{% if job.id %}{% set input = 1 %}{% endif %}{{ input.a }}",
                vec!["(job.id)", "input.a"],
            ),
            (
                "{% with y = secret.t %}{{ y }}{% endwith %}{{ y }}",
                vec!["secret.t", "y"],
            ),
            (
                "{% set x %}{{ input.a }}{% endset %}{{ x }}",
                vec!["input.a"],
            ),
            (
                "{% filter upper %}{{ input.a | trim }}{% endfilter %}",
                vec!["input.a|trim|upper"],
            ),
            (
                "{% macro m(a, b=env.d) %}{{ a }}{{ input.z }}{% endmacro %}{{ m(input.y) }}",
                vec!["env.d", "input.z", "input.y"],
            ),
            (
                "{{ [input.a, {'k': input.b}] | json }}",
                vec!["input.a|json", "input.b|json"],
            ),
            (
                "{{ (input.a ~ '-' ~ input.b) | sh }}",
                vec!["input.a|sh", "input.b|sh"],
            ),
            ("{{ input.a[1:input.n] }}", vec!["input.a", "(input.n)"]),
            (
                "{% raw %}{{ input.a }}{% endraw %}{%# {{ input.b }} #%}",
                vec![],
            ),
            ("{{ range(input.n) | join }}", vec!["input.n|join"]),
        ] {
            assert_eq!(told(text), expected, "{text}");
        }
    }

    #[test]
    fn the_span_is_the_expression() {
        let text = "ü\n  {{ 'é' ~ steps.build.output[\"x\"].y | upper }}";
        let mention = &mentions(text).unwrap()[0];
        assert_eq!(&text[mention.span.clone()], "steps.build.output[\"x\"].y");
    }

    #[test]
    fn what_is_filtered_or_trusted_may_become_code() {
        for text in [
            "echo plain",
            "{{ input.a | sh }}",
            "{{ input.a | upper | sh }}",
            "{{ input.a | unsafe }} {{ input.a|json|sh }}",
            "{{ secret.x }} {{ job.id }}",
            "echo \"$(basename {{ input.a | sh }})\" # it's",
            "cat <<'EOF'\n{{ input.a | json }}\nEOF\necho {{ input.a | sh }}",
            "{% if input.a %}echo \"a\"{% else %}echo 'b'{% endif %} {{ input.a | sh }}",
            "{% if input.a == 'x' %}yes{% endif %}",
            "{{ input.a == 'x' }} {{ input.a is defined }} {{ 'a' in input.l }}",
            "{% for x in input.l %}{{ x | sh }} {{ loop.index }}{% endfor %}",
            "{% set x = input.a | sh %}{{ x }}",
            "{% set x = input.a %}{% set x = 'b' %}{{ x }}",
            "{{ input.a | sh ~ ' ' ~ (input.b | sh) }}",
            "{{ (input.a ~ input.b) | sh }}",
            "{{ 'x' if input.a else 'y' }}",
            "{{ (input.a if input.b else input.c) | sh }}",
            "{% filter sh %}{{ input.a }}{% endfilter %}",
            "{% set x %}{{ input.a }}{% endset %}{{ x | sh }}",
            "{% macro m() %}{{ input.a | sh }}{% endmacro %}{{ m() }}",
            "{{ input.list | map('upper') | sh }}",
            "{{ [input.a, input.b] | sh }}",
        ] {
            assert_eq!(script_faults(text, Program::Shell), Ok(vec![]), "{text}");
        }
    }

    #[test]
    fn what_is_untrusted_and_unfiltered_is_found() {
        for (text, place) in [
            ("{{ input.a }}", "input.a"),
            ("{{ steps.b.output.c }}", "steps.b.output.c"),
            ("{{ each.item }}", "each.item"),
            ("{{ body.x }}", "body.x"),
            ("{{ headers['x'] }}", "headers['x']"),
            ("{{ input }}", "input"),
            ("{{ input.a | upper }}", "input.a"),
            ("{{ input.a | sh | upper }}", "input.a"),
            ("{{ input.a | sh | replace(\"'\", '') }}", "input.a"),
            ("{{ (input.a | sh)[1:] }}", "input.a"),
            ("{{ (input.a | sh)[0] }}", "input.a"),
            ("{{ [input.a | sh] }}", "input.a"),
            ("{{ [input.a | sh] | join(' ') }}", "input.a"),
            ("{{ 'x' ~ input.a }}", "input.a"),
            ("{{ 'x' + input.a }}", "input.a"),
            ("{{ (input.a | sh) ~ input.b }}", "input.b"),
            ("{{ input.a or 'x' }}", "input.a"),
            ("{{ input.a if env.b else 'c' }}", "input.a"),
            ("{{ env.A }}", "env.A"),
            ("{{ 'c' if env.b else input.a }}", "input.a"),
            ("{{ job.a | default(input.b) }}", "input.b"),
            ("{{ job.a | replace('x', input.b) }}", "input.b"),
            ("{{ input[env.x] }}", "input"),
            ("{{ input | attr('a') }}", "input"),
            ("{{ input.items() }}", "input"),
            ("{% for x in input.l %}{{ x }}{% endfor %}", "x"),
            ("{% for x in input.l | sh %}{{ x }}{% endfor %}", "x"),
            ("{% for k, v in input.m | items %}{{ v }}{% endfor %}", "v"),
            (
                "{% for x in input.l %}{{ loop.previtem }}{% endfor %}",
                "loop.previtem",
            ),
            ("{% set x = input.a %}{{ x }}", "x"),
            (
                "{% set x = input.a %}{% set y = x ~ '!' %}{{ y | lower }}",
                "y",
            ),
            ("{% set x = input.a | sh %}{{ x | upper }}", "x"),
            (
                "{% if env.b %}{% set x = input.a %}{% else %}{% set x = 'b' %}{% endif %}{{ x }}",
                "x",
            ),
            (
                "{% if env.b %}{% set input = 'b' %}{% endif %}{{ input }}",
                "input",
            ),
            ("{% with x = input.a %}{{ x }}{% endwith %}", "x"),
            ("{% set x, y = input.a %}{{ y }}", "y"),
            ("{% set x %}{{ input.a }}{% endset %}{{ x }}", "x"),
            (
                "{% set x | upper %}{{ input.a | sh }}{% endset %}{{ x }}",
                "x",
            ),
            ("{% filter upper %}{{ input.a }}{% endfilter %}", "input.a"),
            (
                "{% filter upper %}{{ input.a | sh }}{% endfilter %}",
                "input.a",
            ),
            ("{% macro m() %}{{ input.a }}{% endmacro %}{{ m() }}", "m()"),
            (
                "{% macro m(x) %}{{ x }}{% endmacro %}{{ m(input.a) }}",
                "input.a",
            ),
            (
                "{% macro m(x) %}{{ x | upper }}{% endmacro %}{{ m(input.a | sh) }}",
                "input.a",
            ),
            (
                "{% macro m(x=input.a) %}{{ x }}{% endmacro %}{{ m() }}",
                "m()",
            ),
            (
                "{% macro m() %}{{ caller() }}{% endmacro %}{% call m() %}{{ input.a }}{% endcall %}",
                "input.a",
            ),
        ] {
            let found = script_faults(text, Program::Shell)
                .unwrap_or_else(|fault| panic!("{text}: {fault}"));
            assert!(!found.is_empty(), "{text}");
            assert_eq!(found[0].why, Why::Unfiltered, "{text}");
            let shown = &text[found[0].mention.span.clone()];
            assert!(shown.contains(place), "{text}: {shown}");
            let other = Program::Other(Syntax::Python);
            for program in [Program::Shell, other, Program::Unknown] {
                assert!(
                    super::super::render_script(text, program, &super::super::Context::new())
                        .is_err()
                );
            }
        }
    }

    #[test]
    fn ways_that_meet_again_are_one() {
        for text in [
            "run {% if job.id %}--id {{ job.id }}{% endif %} {{ input.a | sh }}",
            "run {% if job.id %}'a b'{% else %}\"c\"{% endif %} {{ input.a | sh }}",
            "{% for i in input.list %}run '{{ job.id }}' {{ i | sh }} # one of them\n{% endfor %}run {{ input.a | sh }}",
            "{% for i in input.list %}{% if i %}run {{ i | sh }}{% endif %}; {% else %}run\n{% endfor %}{{ input.a | sh }}",
        ] {
            let found = script_faults(text, Program::Shell).unwrap();
            assert_eq!(found, [], "{text}");
        }
    }

    /// Each of them could be passed twice as often as the one around it.
    #[test]
    fn loops_in_loops_are_read_in_bounded_time() {
        let depth = 30;
        let begin = "{% for i in [1] %}{% if i %}'{% endif %}".repeat(depth);
        let text = format!(
            "{begin}{{{{ input.a | sh }}}}{}",
            "{% endfor %}".repeat(depth)
        );
        // It may be refused for its depth as well.
        let found = script_faults(&text, Program::Shell);
        assert!(found.is_err() || found.is_ok_and(|found| !found.is_empty()));
    }

    #[test]
    fn a_long_text_in_loops_is_read_a_bounded_number_of_times() {
        let text = "echo it is long\n".repeat(3_000);
        let nested = |depth: usize| {
            let begin = "{% for i in [1] %}".repeat(depth);
            let end = "{% endfor %}".repeat(depth);
            format!("{begin}{text}{{{{ input.a | sh }}}}{end}")
        };
        let deep = nested(12);
        let read = walk(&deep, Some(Program::Shell)).unwrap();
        // One statement more may be counted by each of the loops.
        let work = read.shell_work.get();
        assert!(work < SHELL_WORK_MAX + 20 * deep.len(), "{work}");
        // Nobody knows what stands around the value then.
        assert_eq!(read.faults[0].why, Why::Place);
        assert_eq!(script_faults(&nested(2), Program::Shell), Ok(vec![]));
    }

    /// A variable that stands for as many values as are followed, each with a long chain of filters.
    fn many_values() -> String {
        let inputs: Vec<String> = (0..64).map(|at| format!("input.a{at}")).collect();
        let filters = "|capitalize".repeat(31);
        format!(
            "{{% set x = [{}] %}}{{% set y = x{filters} %}}",
            inputs.join(",")
        )
    }

    #[test]
    fn a_place_has_one_fault_and_a_text_a_bounded_number() {
        let faults_of = |prints: usize| {
            let text = many_values() + &"{{ y }}\n".repeat(prints);
            script_faults(&text, Program::Shell).unwrap()
        };
        assert_eq!(faults_of(10).len(), 10);
        assert_eq!(faults_of(2 * FAULTS_MAX).len(), FAULTS_MAX);
        // Those that stand for themselves have places of their own.
        let two = script_faults("{{ [input.a, input.b] }}", Program::Shell);
        assert_eq!(two.unwrap().len(), 2);
        let long = format!(
            "{{% set x = each.{} %}}{{{{ x }}}}",
            "a".repeat(FAULT_NAME_MAX * 10)
        );
        let long = script_faults(&long, Program::Shell).unwrap();
        assert!(long[0].mention.path[1].len() <= FAULT_NAME_MAX);
    }

    #[test]
    fn the_worst_fault_of_a_place_is_the_one_that_is_kept() {
        let text = "{% if job.id %}{% set x = input.a | sh %}{% else %}{% set x = input.b %}{% endif %}'{{ x }}'";
        let found = script_faults(text, Program::Shell).unwrap();
        let found: Vec<_> = found.iter().map(|f| (f.why, &*f.mention.path[1])).collect();
        assert_eq!(found, [(Why::Unfiltered, "b")]);
    }

    /// Thousands of branches may each give a variable one value more, and thousands of places may print it.
    #[test]
    fn a_variable_stands_for_a_bounded_number_of_values() {
        let steps = |times: usize| {
            let set = "{% if 1 %}{% set x = input.a %}{% endif %}\n".repeat(times);
            let text = set + &"{{ x }}\n".repeat(times);
            let walk = walk(&text, None).unwrap();
            assert!(walk.scopes[0]["x"].flows.len() <= FLOWS_MAX);
            walk.flow_steps
        };
        assert!(steps(4_000) < 5 * steps(1_000));
    }

    #[test]
    fn a_text_that_hands_on_too_much_is_refused() {
        let line = format!("{{{{ [{}] }}}}\n", ["y"; 450].join(","));
        let text = many_values() + &line.repeat(200);
        let found = script_faults(&text, Program::Shell);
        assert_eq!(found.as_ref().err(), mentions(&text).err().as_ref());
        let why = found.unwrap_err().message;
        assert!(why.contains("too intricate"), "{why}");
    }

    #[test]
    fn a_chain_that_is_too_long_keeps_its_last_link() {
        let long = format!("{{{{ input.a{} | sh }}}}", "|upper".repeat(3 * CHAIN_MAX));
        assert_eq!(script_faults(&long, Program::Shell), Ok(vec![]));
        let long = format!("{{{{ input.a | sh{} }}}}", "|upper".repeat(CHAIN_MAX));
        assert_eq!(script_faults(&long, Program::Shell).unwrap().len(), 1);
    }

    #[test]
    fn a_tested_path_stands_for_all_that_begin_with_it() {
        let text = "{{ input.a.b is defined }}{{ input.a.b.c is defined }}{{ input.a.b.z }}{{ input.a }}{{ input.a.bc }}";
        let defaults: Vec<bool> = mentions(text)
            .unwrap()
            .iter()
            .map(|m| m.has_default)
            .collect();
        assert_eq!(defaults, [true, true, true, false, false]);
    }

    #[test]
    fn a_filter_helps_only_where_it_fits() {
        use Program::{Interpolating, Shell};
        const OTHER: Program = Program::Other(Syntax::Python);
        const NODE: Program = Program::Other(Syntax::JavaScript);
        for (text, program, why) in [
            ("echo \"a {{ input.a | sh }}\"", Shell, Why::Place),
            ("echo 'a {{ input.a | sh }}'", Shell, Why::Place),
            ("echo ${{ input.a | sh }}", Shell, Why::Place),
            ("echo $ {{- input.a | sh }}", Shell, Why::Place),
            ("cat <<EOF\n{{ input.a | sh }}\nEOF", Shell, Why::Place),
            // A line of the value may be the end of it.
            ("cat <<'EOF'\n{{ input.a | sh }}\nEOF", Shell, Why::Place),
            ("# {{ input.a | sh }}", Shell, Why::Place),
            (
                "{% set x = input.a | sh %}echo \"{{ x }}\"",
                Shell,
                Why::Place,
            ),
            (
                "{% macro m() %}\"{{ input.a | sh }}\"{% endmacro %}{{ m() }}",
                Shell,
                Why::Place,
            ),
            (
                "echo {% if job.id %}\"{% endif %}{{ input.a | sh }}",
                Shell,
                Why::Place,
            ),
            // The quote that one way opens, another takes for the end of its own.
            (
                "echo {% if job.id %}'{% endif %} ' {{ input.a | sh }}",
                Shell,
                Why::Place,
            ),
            (
                "echo a{% if job.id %} {% endif %}# it's\necho {{ input.a | sh }}",
                Shell,
                Why::Place,
            ),
            // The second time round, the quote of the first is open.
            (
                "{% for i in [1, 2] %}echo {{ input.a | sh }} '{% endfor %}",
                Shell,
                Why::Place,
            ),
            (
                "{% for i in [1, 2] %}'{% endfor %} {{ input.a | sh }}",
                Shell,
                Why::Place,
            ),
            (
                "{% for i in [] %}echo \"{% else %}echo {% endfor %}{{ input.a | sh }}",
                Shell,
                Why::Place,
            ),
            ("echo \"{{ secret.a | sh }}\"", Shell, Why::Place),
            ("echo {{ input.a | json }}", Shell, Why::NoJson),
            ("cat <<EOF\n{{ input.a | json }}\nEOF", Shell, Why::NoJson),
            ("puts {{ input.a | json }}", Interpolating, Why::NoJson),
            ("print({{ input.a | sh }})", OTHER, Why::NoShell),
            ("print('{{ input.a | json }}')", OTHER, Why::JsonPlace),
            (
                "{% set x = input.a | json %}print(\"{{ x }}\")",
                OTHER,
                Why::JsonPlace,
            ),
            (
                "{% set x %}'{{ input.a | json }}'{% endset %}print({{ x }})",
                OTHER,
                Why::JsonPlace,
            ),
            // A quote of one way that is open at the value, and one that the second time round is open.
            (
                "print({% if job.id %}'{% endif %}{{ input.a | json }})",
                OTHER,
                Why::JsonPlace,
            ),
            (
                "{% for i in [1, 2] %}f({{ input.a | json }}, '''{% endfor %}",
                OTHER,
                Why::JsonPlace,
            ),
            ("f(`a {{ input.a | json }}`)", NODE, Why::JsonPlace),
            ("/* {{ input.a | json }} */", NODE, Why::JsonPlace),
            (
                "puts {{ input.a | json }}",
                Program::Other(Syntax::Interpolating),
                Why::JsonPlace,
            ),
        ] {
            let found = script_faults(text, program).unwrap();
            let whys: Vec<Why> = found.iter().map(|fault| fault.why).collect();
            assert_eq!(whys, [why], "{text}");
            let context = super::super::Context::new();
            assert!(super::super::render_script(text, program, &context).is_err());
        }
        for (text, program) in [
            ("print({{ input.a | json }})", OTHER),
            (
                "# it's\nprint({{ input.a | json }}) # {{ input.a | json }}",
                OTHER,
            ),
            (
                "print('{{ input.a | json | unsafe }}', '{{ secret.a | json }}')",
                OTHER,
            ),
            (
                "{% for i in input.l %}f({{ i | json }}, 'a') # it's\n{% endfor %}g({{ input.a | json }})",
                OTHER,
            ),
            (
                "f({% if job.id %}'a'{% else %}\"b\"{% endif %}, {{ input.a | json }})",
                OTHER,
            ),
            (
                "x = f({% if job.id %}'a',{% endif %} {% if env.b %}'b',{% endif %} {{ input.a | json }})",
                OTHER,
            ),
            (
                "f(`a ${ {{ input.a | json }} }`) // it's {{ input.a | json }}",
                NODE,
            ),
        ] {
            assert_eq!(script_faults(text, program), Ok(vec![]), "{text}");
        }
    }
}
