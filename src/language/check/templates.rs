//! What templates speak of: known names, at places that have them, and nothing untrusted in a program.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

use super::super::arguments::{Choice, Role};
use super::super::decode::{ActionParts, Does, Place, SpecParts, StepParts, TaskParts, Text};
use super::super::diagnostic::Problem;
use super::super::shell::{Around, Program};
use super::super::source::Span;
use super::super::template::{self, Mention, ScriptFault, Why};
use super::super::tree::Kind;
use super::super::words::listed;
use super::Checker;
use super::graph::{Ancestors, Graph};
use super::inside::inside;
use super::secret_inputs::SecretHolders;
use super::untrusted::{ActionUses, Origins, TaskAnswers};
use crate::domain::task::Action;
use crate::domain::value::{ValueSpec, input_variable};

const ROOTS: &[&str] = &[
    "input", "steps", "each", "env", "job", "secret", "hook", "body", "headers", "schedule",
];
/// What the template language itself brings.
const BUILT_IN: &[&str] = &[
    "range",
    "dict",
    "namespace",
    "debug",
    "loop",
    "self",
    "caller",
];
const JOB: &[&str] = &["id", "task", "attempt", "started_at", "scheduled_at"];
const EACH: &[&str] = &["item", "index"];
const STEP: &[&str] = &["output", "status", "error"];
const SCHEDULE: &[&str] = &["name", "at"];
const HOOK: &[&str] = &[
    "job",
    "task",
    "status",
    "step",
    "reason",
    "message",
    "summary",
    "failed_steps",
    "created_at",
    "started_at",
    "ended_at",
    "url",
];

/// What a text may speak of.
struct Scope<'s> {
    /// The thing that `input` belongs to.
    what: &'s str,
    inputs: &'s Inputs<'s>,
    secret_holders: &'s SecretHolders<'s>,
    /// Added by the step itself.
    more_inputs: HashSet<&'s str>,
    /// `false`: not all inputs are known, so none is called unknown.
    inputs_known: bool,
    looped: bool,
    /// The task's and the step's. `None`: not all of it is known.
    env: Option<[&'s BTreeMap<String, String>; 2]>,
    steps: Option<Steps<'s>>,
}

/// The inputs of a task or action, in their order and by name: all its texts look into them.
struct Inputs<'s> {
    all: Vec<&'s ValueSpec>,
    by_name: HashMap<&'s str, &'s ValueSpec>,
}

impl<'s> Inputs<'s> {
    fn new(inputs: &'s [SpecParts]) -> Inputs<'s> {
        let all: Vec<&ValueSpec> = inputs.iter().map(|input| &input.spec).collect();
        let by_name = all.iter().rev().map(|&spec| (spec.name.as_str(), spec));
        Inputs {
            by_name: by_name.collect(),
            all,
        }
    }
}

struct Steps<'s> {
    task: &'s TaskParts<'s>,
    graph: &'s Graph<'s>,
    /// The step that speaks. `None`: not of a step.
    position: Option<u32>,
    ancestors: Option<&'s Ancestors>,
}

impl<'t> Checker<'_, 't> {
    pub fn action_templates<'d>(
        &mut self,
        action: &'d ActionParts<'t>,
        uses: &'d ActionUses<'d, 't>,
    ) {
        let origins = Origins::of_action(action, uses, self.problems.budget());
        let inputs = Inputs::new(&action.inputs);
        let secret_holders = SecretHolders::of(&action.inputs, &[]);
        let scope = Scope {
            what: &action.owner.what,
            inputs: &inputs,
            secret_holders: &secret_holders,
            more_inputs: HashSet::new(),
            inputs_known: true,
            looped: false,
            env: None,
            steps: None,
        };
        let mut is_readable = true;
        for text in &action.texts {
            is_readable &= self.text(text, &scope, &origins);
        }
        if let Some(manifest) = action.manifest.as_ref().filter(|_| is_readable) {
            self.manifest(manifest, &origins);
        }
    }

    pub fn templates<'d>(
        &mut self,
        task: &'d TaskParts<'t>,
        graph: &Graph<'t>,
        answers: &'d TaskAnswers<'d>,
    ) {
        let inputs = Inputs::new(&task.inputs);
        let secret_holders = SecretHolders::of(&task.inputs, &task.steps);
        let scope = |looped, steps| Scope {
            what: &task.owner.what,
            inputs: &inputs,
            secret_holders: &secret_holders,
            more_inputs: HashSet::new(),
            inputs_known: task.inputs_known,
            looped,
            env: None,
            steps,
        };
        let of_task = scope(false, None);
        let origins = Origins::of_task(task, answers, self.problems.budget());
        for text in &task.texts {
            self.text(text, &of_task, &origins);
        }
        // All steps have ended when a hook runs.
        let ended = Steps {
            task,
            graph,
            position: None,
            ancestors: None,
        };
        let of_hook = scope(false, Some(ended));
        for hook in &task.hooks {
            for text in &hook.texts {
                self.text(text, &of_hook, &origins);
            }
        }
        for schedule in &task.schedules {
            for text in &schedule.texts {
                self.text(text, &of_task, &origins);
            }
        }
        for webhook in &task.webhooks {
            for text in &webhook.texts {
                self.text(text, &of_task, &origins);
            }
        }
        // Only a task whose templates look at other steps needs to know who comes before whom.
        let looks =
            |step: &StepParts<'_>| step.texts.iter().any(|text| text.text.contains("steps"));
        let needs = graph.sound && task.steps.iter().any(looks);
        let ancestors = needs.then(|| Ancestors::of(&graph.dependencies));
        for (position, step) in task.steps.iter().enumerate() {
            if step.texts.is_empty() && step.manifest.is_none() {
                continue;
            }
            let mut scope = scope(
                step.looped,
                Some(Steps {
                    task,
                    graph,
                    position: Some(position as u32),
                    ancestors: ancestors.as_ref(),
                }),
            );
            if let (Does::Own { .. }, Some(entry)) = (&step.does, step.input_entry)
                && let Kind::Map(entries) = &entry.value.kind
            {
                scope.more_inputs = entries
                    .iter()
                    .map(|entry| entry.key.text.as_str())
                    .collect();
            }
            if task.whole && step.whole && !matches!(step.does, Does::Uses { .. }) {
                scope.env = Some([&task.draft.env, &step.policies.env]);
            }
            let origins = origins.of_step(step);
            let mut is_readable = true;
            for text in &step.texts {
                is_readable &= self.text(text, &scope, &origins);
            }
            if let Some(manifest) = step.manifest.as_ref().filter(|_| is_readable) {
                self.manifest(manifest, &origins);
            }
        }
    }

    /// Returns whether the templates of the text can be read and speak of nothing unknown.
    fn text(&mut self, text: &Text<'t>, scope: &Scope<'_>, origins: &Origins<'_, '_>) -> bool {
        if self.problems.is_out_of_time() {
            return false;
        }
        let errors_before = self.problems.errors();
        // Version 0.1 did not look for unknown names in `language`.
        let is_former_language = text.role == Role::Choice(Choice::Language)
            && self.problems.is_accepted_by_0_1(text.node.span.file);
        if !is_former_language {
            self.text_mentions(text, scope);
        }
        if self.problems.errors() > errors_before {
            return false;
        }
        self.judge(text, origins);
        true
    }

    /// Says what is wrong with the values in a text that becomes code or decides something.
    pub(super) fn judge(&mut self, text: &Text<'_>, origins: &Origins<'_, '_>) {
        match text.role {
            Role::Data => {}
            Role::Code(program) => self.untrusted(text, program),
            Role::Choice(choice) => self.chosen(text, choice, origins),
        }
    }

    fn text_mentions(&mut self, text: &Text<'t>, scope: &Scope<'_>) {
        let mentions = match template::mentions(&text.text) {
            Ok(mentions) => mentions,
            Err(fault) => {
                let span = self.at(text, fault.span);
                let problem = self
                    .problems
                    .error("E040", span, "the template cannot be read");
                let why = fault.message;
                problem.label(
                    why.strip_prefix("the template cannot be read: ")
                        .unwrap_or(&why),
                );
                if text.place == Place::Script && !why.contains("raw") {
                    problem.help("braces that are not a template: {% raw %}{{ … }}{% endraw %}");
                }
                if text.from_file {
                    problem.help("the place is in the file that is named here");
                }
                return;
            }
        };
        self.stored_secrets(text, &mentions, scope.secret_holders);
        // `steps.build-app` reads as a difference; what follows the minus is no name of its own.
        let mut torn = false;
        for mention in &mentions {
            torn |= self.mention(mention, text, scope, torn);
        }
    }

    pub(super) fn at(&self, text: &Text<'_>, range: Range<usize>) -> Span {
        if let Some(part) = &text.part {
            return self.in_manifest(text, part, range);
        }
        match text.from_file {
            true => text.node.span,
            false => inside(self.sources, text, range),
        }
    }

    /// `true` if a name was torn apart by a minus.
    fn mention(
        &mut self,
        mention: &Mention,
        text: &Text<'_>,
        scope: &Scope<'_>,
        torn: bool,
    ) -> bool {
        let Some(root) = mention.path.first().map(String::as_str) else {
            return false;
        };
        let span = self.at(text, mention.span.clone());
        let second = mention.path.get(1).map(String::as_str);
        if !ROOTS.contains(&root) {
            if !BUILT_IN.contains(&root) && !torn {
                self.unknown_root(root, second, span, text.place);
            }
            return false;
        }
        if let Some(why) = unavailable(root, text.place, scope) {
            let message = format!("`{root}` is not available here");
            self.problems
                .error("E044", span, message)
                .label(why.0)
                .help(why.1);
            return false;
        }
        let Some(second) = second else {
            if matches!(root, "steps" | "secret") {
                let message = format!("`{root}` without the name of one");
                self.problems
                    .error("E049", span, message)
                    .label("only those that are named in the text are there")
                    .help(match root {
                        "steps" => "name the step plainly: `steps.NAME`",
                        _ => "name the secret plainly: `secret.NAME`",
                    });
            }
            return false;
        };
        match root {
            "input" => return self.input(second, mention, span, text, scope),
            "steps" => return self.step_mention(second, mention, span, scope),
            "secret" => self.secret(second, span),
            "env" => self.variable(second, mention, span, scope),
            "job" => self.member(root, second, JOB, span),
            "each" => self.member(root, second, EACH, span),
            "schedule" => self.member(root, second, SCHEDULE, span),
            "hook" => self.member(root, second, HOOK, span),
            _ => {}
        }
        false
    }

    fn unknown_root(&mut self, root: &str, second: Option<&str>, span: Span, place: Place) {
        let message = format!("`{root}` is not known in templates");
        let problem = self.problems.error("E041", span, message);
        problem.label("no such name");
        let other_tool = match (root, second) {
            ("github" | "matrix" | "runner" | "needs", _) => Some("GitHub Actions"),
            ("secrets", _) => None,
            ("vars" | "inputs", _) => None,
            _ => None,
        };
        if let Some(tool) = other_tool {
            problem.help(format!("`{root}` is a word of {tool}"));
        }
        let meant = match root {
            "secrets" => Some("secret"),
            "inputs" | "params" => Some("input"),
            "needs" | "step" => Some("steps"),
            "item" | "matrix" => Some("each"),
            _ => self.suggestions.nearest(root, ROOTS.iter().copied()),
        };
        match meant {
            Some("each") if root == "item" => {
                problem.help("did you mean `each.item`?");
            }
            Some(near) => {
                problem.help(format!("did you mean `{near}`?"));
            }
            None => {
                let here: Vec<&str> = ROOTS
                    .iter()
                    .copied()
                    .filter(|root| has(place, root))
                    .collect();
                problem.help(format!("here are {}", listed(here)));
            }
        }
    }

    fn variable(&mut self, name: &str, mention: &Mention, span: Span, scope: &Scope<'_>) {
        let Some(env) = scope.env else {
            return;
        };
        if mention.has_default || env.iter().any(|env| env.contains_key(name)) {
            return;
        }
        let known = || env.iter().flat_map(|env| env.keys()).map(String::as_str);
        let may_suggest = self.may_suggest();
        let message = format!("neither the task nor the step has `{name}` in its `env`");
        let problem = self.problems.error("E041", span, message);
        problem.label("no such variable");
        if !may_suggest {
            return;
        }
        match self.suggestions.nearest(name, known()) {
            Some(near) => problem.help(format!("did you mean `env.{near}`?")),
            None if known().next().is_none() => problem.help(format!(
                "what the worker has itself, a script reads as \"${name}\""
            )),
            None => problem.help(format!("there are {}", listed(known()))),
        };
    }

    fn member(&mut self, root: &str, name: &str, known: &[&str], span: Span) {
        if known.contains(&name) {
            return;
        }
        let message = format!("`{root}` has no `{name}`");
        let problem = self.problems.error("E041", span, message);
        problem.label("no such name");
        match self.suggestions.nearest(name, known.iter().copied()) {
            Some(near) => problem.help(format!("did you mean `{root}.{near}`?")),
            None => problem.help(format!("it has {}", listed(known.iter().copied()))),
        };
    }

    fn input(
        &mut self,
        name: &str,
        mention: &Mention,
        span: Span,
        text: &Text<'_>,
        scope: &Scope<'_>,
    ) -> bool {
        let adds = matches!(text.place, Place::Script | Place::Worker);
        if adds && scope.more_inputs.contains(name) {
            return false;
        }
        if scope.inputs.by_name.contains_key(name) {
            return false;
        }
        if !scope.inputs_known || mention.has_default {
            return false;
        }
        let known = || {
            let inputs = scope.inputs.all.iter();
            inputs
                .map(|input| input.name.as_str())
                .chain(scope.more_inputs.iter().copied().filter(|_| adds))
        };
        let may_suggest = self.may_suggest();
        let message = format!("{} has no input `{name}`", scope.what);
        let problem = self.problems.error("E041", span, message);
        problem.label("no such input");
        if !may_suggest {
            return false;
        }
        if let Some(whole) = torn_name(name, known()) {
            problem.help(format!("a name with `-` is written `input[\"{whole}\"]`"));
            return true;
        }
        match self.suggestions.nearest(name, known()) {
            Some(near) => problem.help(format!("did you mean `input.{near}`?")),
            None if known().next().is_none() => problem.help(format!(
                "it takes no inputs yet; name it: `input: {{ {name}: {{ type: string }} }}`"
            )),
            None => problem.help(format!("it takes {}", listed(known()))),
        };
        false
    }

    fn step_mention(
        &mut self,
        name: &str,
        mention: &Mention,
        span: Span,
        scope: &Scope<'_>,
    ) -> bool {
        let Some(steps) = &scope.steps else {
            return false;
        };
        let known = || steps.task.steps.iter().map(|step| step.key.text.as_str());
        let Some(&other) = steps.graph.positions.get(name) else {
            if !steps.task.flow_known {
                return false;
            }
            let may_suggest = self.may_suggest();
            let message = format!("{} has no step `{name}`", steps.task.owner.what);
            let problem = self.problems.error("E047", span, message);
            problem.label("no such step");
            if !may_suggest {
                return false;
            }
            if let Some(whole) = torn_name(name, known()) {
                problem.help(format!("a name with `-` is written `steps[\"{whole}\"]`"));
                return true;
            }
            match self.suggestions.nearest(name, known()) {
                Some(near) => problem.help(format!("did you mean `steps.{near}`?")),
                None => problem.help(format!("its steps are {}", listed(known()))),
            };
            return false;
        };
        let step = &steps.task.steps[other as usize];
        if let Some(third) = mention.path.get(2) {
            self.member(&format!("steps.{name}"), third, STEP, span);
            // What is entered at an approval is its output.
            let outputs = match &step.does {
                Does::Own {
                    action: Action::Approval { .. },
                    asks,
                } => asks,
                _ => &step.policies.outputs,
            };
            if third == "output"
                && let Some(fourth) = mention.path.get(3)
                && !outputs.is_empty()
                && !step.looped
                && !mention.has_default
            {
                let names: Vec<&str> = outputs.iter().map(|spec| spec.spec.name.as_str()).collect();
                self.member(&format!("steps.{name}.output"), fourth, &names, span);
            }
        }
        let (Some(position), Some(ancestors)) = (steps.position, steps.ancestors) else {
            return false;
        };
        if other == position {
            let message = format!("step `{name}` uses its own output");
            self.problems
                .error("E042", span, message)
                .label("not there before it ran")
                .also(step.key.span, "this step");
        } else if !ancestors.contains(position, other) {
            let own = &steps.task.steps[position as usize];
            let message = format!("step `{}` does not wait for `{name}`", own.key.text);
            self.problems
                .error("E042", span, message)
                .label(format!("`{name}` may not have ended when this is needed"))
                .also(own.key.span, "this step")
                .help(format!("add `{name}` to its `depends_on`"));
        }
        false
    }

    fn secret(&mut self, name: &str, span: Span) {
        if self.names.secrets.contains_key(name) || !self.names.all_known {
            return;
        }
        let may_suggest = self.may_suggest();
        let message = format!("there is no secret `{name}`");
        let problem = self.problems.error("E043", span, message);
        problem.label("no such secret");
        if !may_suggest {
            return;
        }
        match self
            .suggestions
            .nearest(name, self.names.secrets.keys().copied())
        {
            Some(near) => problem.help(format!("did you mean `secret.{near}`?")),
            None => problem.help(format!(
                "say where it is found: `secrets: {{ {name}: {{ env: STEPWARD_SECRET_{} }} }}`",
                name.to_uppercase().replace('-', "_")
            )),
        };
    }

    fn untrusted(&mut self, text: &Text<'_>, program: Program) {
        let faults = template::script_faults(&text.text, program).unwrap_or_default();
        for fault in faults {
            let part = text.part.as_ref();
            if let Some(reference) = part.and_then(|part| part.reference(&fault.mention.span)) {
                self.reference_in_code(text, program, &fault, &reference.name);
                continue;
            }
            match fault.why {
                Why::Unfiltered => self.unfiltered(text, program, &fault),
                _ => self.misplaced(text, program, &fault),
            }
        }
    }

    /// Version 0.1 looked at scripts only, and not at the code in argument lists. In scripts it did not look at what stands around JSON.
    fn code_fault(
        &mut self,
        code: &'static str,
        text: &Text<'_>,
        fault: &ScriptFault,
        message: String,
    ) -> &mut Problem {
        let span = self.at(text, fault.mention.span.clone());
        match text.place {
            Place::Script if fault.why != Why::JsonPlace => {
                self.problems.error(code, span, message)
            }
            _ => self.new_rule(code, text, span, message),
        }
    }

    /// A reference that Kubernetes replaces before the program reads its text.
    fn reference_in_code(
        &mut self,
        text: &Text<'_>,
        program: Program,
        fault: &ScriptFault,
        name: &str,
    ) {
        let code = match fault.why {
            Why::Unfiltered => "E045",
            _ => "E048",
        };
        let source = fault.mention.path.join(".");
        let message = format!("`$({name})` becomes part of the program");
        let problem = self.code_fault(code, text, fault, message);
        problem
            .label("whoever gives this value decides what is run")
            .help(format!(
                "Kubernetes replaces `$({name})` before the program starts; the value comes from `{source}`"
            ));
        if let Some(help) = read_variable(name, program, fault.around) {
            problem.help(help);
        }
    }

    fn unfiltered(&mut self, text: &Text<'_>, program: Program, fault: &ScriptFault) {
        let mention = &fault.mention;
        let span = self.at(text, mention.span.clone());
        let written = &text.text[mention.span.clone()];
        // A name of the template's own stands for the value: what is written is not what is meant.
        let root = mention.path.first();
        let is_itself = root.is_some_and(|root| written.starts_with(root.as_str()));
        let expression = match is_itself {
            true => written.to_string(),
            false => mention.path.join("."),
        };
        let is_shown = self.sources[span.file as usize].slice(span) == written;
        let message = format!("`{expression}` becomes part of the program");
        let problem = self.code_fault("E045", text, fault, message);
        problem.label("whoever gives this value decides what is run");
        let mut or = "";
        if is_itself && let Some(help) = from_environment(fault, program) {
            problem.help(help);
            or = "or ";
        }
        let filter = match (program, fault.around) {
            (Program::Shell, Around::Nothing) => "sh",
            (Program::Shell, Around::QuotedHereDocument) | (Program::Other(_), Around::Nothing) => {
                "json"
            }
            (Program::Other(_), Around::Interpolation) => return,
            (Program::Other(_), around) => {
                problem.help(format!(
                    "`| json` does not help {}: it makes a literal of its own",
                    around.words()
                ));
                return;
            }
            (Program::Shell, around) => {
                problem.help(format!(
                    "`| sh` does not help {}: it makes a quoted word of its own",
                    around.words()
                ));
                return;
            }
            (Program::Interpolating | Program::Unknown, _) => return,
        };
        let made = match filter {
            "sh" => "make one quoted word of it",
            _ => "write it as JSON",
        };
        if !is_itself || !is_alone(&text.text, mention) {
            problem.help(format!(
                "{or}{made}: put the whole expression in parentheses, {{{{ (…) | {filter} }}}}; `| unsafe` says that it is meant"
            ));
            return;
        }
        problem.help(format!(
            "{or}{made}: {{{{ {expression} | {filter} }}}}; `| unsafe` says that it is meant"
        ));
        if is_shown && !text.from_file && mention.filters.is_empty() {
            problem.fix(span, format!("{written} | {filter}"));
        }
    }

    /// A filter that is right elsewhere.
    fn misplaced(&mut self, text: &Text<'_>, program: Program, fault: &ScriptFault) {
        let name = fault.mention.path.join(".");
        let (message, label) = match fault.why {
            Why::NoShell => (
                format!("`{name} | sh` is quoted for a shell"),
                match text.place {
                    Place::Script => "no shell reads this script".to_string(),
                    _ => "no shell runs this program".to_string(),
                },
            ),
            Why::JsonPlace if fault.around != Around::Interpolation => (
                format!(
                    "`{name} | json` is not one literal {}",
                    fault.around.words()
                ),
                "its quotes do not hold here: whoever gives this value may decide what is run"
                    .to_string(),
            ),
            Why::NoJson | Why::JsonPlace => (
                format!("`{name} | json` becomes part of the program"),
                "what stands in double quotes is run here".to_string(),
            ),
            _ => (
                format!("`{name} | sh` is not one word {}", fault.around.words()),
                "its quotes do not hold here: whoever gives this value may decide what is run"
                    .to_string(),
            ),
        };
        let problem = self.code_fault("E048", text, fault, message);
        problem.label(label);
        if let Some(help) = from_environment(fault, program) {
            problem.help(help);
        }
        match (fault.why, fault.around) {
            (Why::NoShell, Around::Nothing) if matches!(program, Program::Other(_)) => {
                problem.help("or write it as JSON: `| json`");
            }
            (Why::NoShell, _) => {}
            (Why::NoJson, Around::Nothing) if program == Program::Shell => {
                problem.help("or make one quoted word of the JSON: `| json | sh`");
            }
            (Why::NoJson, _) | (Why::JsonPlace, Around::Interpolation) => {}
            (
                Why::JsonPlace,
                Around::SingleQuotes | Around::DoubleQuotes | Around::Backquotes | Around::LongText,
            ) => {
                problem.help(
                    "or take away the quotes around it: JSON brings its own, and is a whole literal",
                );
            }
            (_, Around::Dollar) => {
                problem.help("`${{ … }}` is an expression of GitHub Actions: leave the `$` out");
            }
            (_, Around::QuotedHereDocument) => {
                problem.help("a line of the value may be the one that ends it; JSON is of one line: `| json`");
            }
            (_, around) => {
                problem.help(format!("or take it out: it stands {}", around.words()));
            }
        }
    }
}

/// How to read the same value from the environment, at this place.
fn from_environment(fault: &ScriptFault, program: Program) -> Option<String> {
    let [root, name] = fault.mention.path.as_slice() else {
        return None;
    };
    let variable = match root.as_str() {
        "input" => input_variable(name),
        "each" => format!("EACH_{}", name.to_uppercase()),
        "env" => name.clone(),
        _ => return None,
    };
    read_variable(&variable, program, fault.around)
}

fn read_variable(variable: &str, program: Program, around: Around) -> Option<String> {
    let written = match (program, around) {
        (Program::Shell, Around::DoubleQuotes | Around::HereDocument) => format!("${variable}"),
        (Program::Shell, Around::SingleQuotes) => {
            format!("end the quotes before it, \"${variable}\", and begin them anew")
        }
        (Program::Shell, Around::Comment | Around::QuotedHereDocument) => return None,
        (Program::Shell, _) => format!("\"${variable}\""),
        _ => format!("it is the variable {variable}"),
    };
    Some(format!("read it from the environment: {written}"))
}

/// Whether it is all that its `{{ … }}` says, but for filters.
fn is_alone(text: &str, mention: &Mention) -> bool {
    let before = text[..mention.span.start].trim_end();
    let after = text[mention.span.end..].trim_start();
    let begins = before.ends_with("{{") || before.ends_with("{{-");
    begins && ["}}", "-}}", "|"].iter().any(|end| after.starts_with(end))
}

/// The known name of which a minus left only the beginning.
fn torn_name<'n>(name: &str, known: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let mut known = known;
    known.find(|whole| {
        whole
            .strip_prefix(name)
            .is_some_and(|rest| rest.starts_with('-'))
    })
}

/// Whether texts of this kind can speak of it.
fn has(place: Place, root: &str) -> bool {
    let here: &[&str] = match place {
        Place::Script | Place::Worker | Place::StepEnv | Place::WorkInput => {
            &["input", "steps", "each", "env", "job", "secret"]
        }
        Place::TaskEnv => &["input", "job", "secret"],
        Place::When | Place::ForEach | Place::Message => &["input", "steps", "job"],
        Place::CallInput => &["input", "steps", "each", "job"],
        Place::Concurrency => &["input"],
        Place::HookInput => &["hook", "input", "job", "steps"],
        Place::ScheduleInput => &["schedule"],
        Place::WebhookInput => &["body", "headers"],
    };
    here.contains(&root)
}

/// Why a name that exists is not there at this place, and what to do.
fn unavailable(
    root: &str,
    place: Place,
    scope: &Scope<'_>,
) -> Option<(&'static str, &'static str)> {
    if has(place, root) {
        return match root {
            "each" if !scope.looped => Some((
                "this is not a loop",
                "add `for_each:` to the step, or use `input`",
            )),
            "steps" if scope.steps.is_none() => Some((
                "an action knows no steps",
                "give the value to the action under `input:`",
            )),
            _ => None,
        };
    }
    Some(match root {
        "secret" => (
            "it would be stored",
            "secrets are only in what a worker is given: `script`, `command`, `env` and the like",
        ),
        "body" | "headers" => (
            "only the input of a webhook has a request",
            "give it to the task as an input: `webhooks: { NAME: { input: … } }`",
        ),
        "hook" => (
            "only the input of a hook has an ended job",
            "use it under `on_error`, `on_success`, `on_cancel` or `on_suspended`",
        ),
        "schedule" => (
            "only the input of a schedule has it",
            "use `job.scheduled_at`, or give it to the task as an input",
        ),
        "each" => (
            "not known before the loop begins",
            "use `each` in what the step runs or in its `input`",
        ),
        "env" => (
            "only what is run on a worker has an environment",
            "use `input`",
        ),
        "input" => (
            "the task has not been given its inputs yet",
            "this text is what makes them",
        ),
        "job" => ("there is no job yet", "use `job` in the steps"),
        _ => (
            "no step of this job is known here",
            "use `steps` in the steps that depend on them",
        ),
    })
}
