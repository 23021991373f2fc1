//! A real browser without a screen, and whether everything in it is calm.

use std::cell::RefCell;
use std::path::Path;

use serde_json::{Value, json};

use crate::driver::{Driver, Kind, Refused};
use crate::requests::{self, Request};
use crate::tab::Tab;

pub struct Browser {
    driver: Driver,
    /// The only origin that its pages may ask for anything.
    pub site: String,
    first: String,
    /// The window that takes orders.
    turned_to: RefCell<String>,
    /// Warnings and errors of every console so far: each is told only once.
    heard: RefCell<Vec<String>>,
    excused: RefCell<Vec<String>>,
}

impl Browser {
    /// `site` is the address of a server, as in `http://127.0.0.1:7717`.
    pub fn visiting(site: &str) -> Browser {
        Browser::of_kind(Kind::default(), site)
    }

    /// One that reads the consoles of shared workers too.
    pub fn hearing_workers(site: &str) -> Browser {
        let kind = Kind {
            hears_workers: true,
            ..Kind::default()
        };
        Browser::of_kind(kind, site)
    }

    /// One in which no page has scripts.
    pub fn without_scripts(site: &str) -> Browser {
        let kind = Kind {
            is_plain: true,
            ..Kind::default()
        };
        Browser::of_kind(kind, site)
    }

    fn of_kind(kind: Kind, site: &str) -> Browser {
        let driver = Driver::start(kind);
        let first = driver.get("/window").unwrap();
        let first = first.as_str().unwrap().to_string();
        Browser {
            driver,
            site: site.to_string(),
            turned_to: RefCell::new(first.clone()),
            first,
            heard: RefCell::default(),
            excused: RefCell::default(),
        }
    }

    /// The one that is there from the start.
    pub fn tab(&self) -> Tab<'_> {
        Tab::new(self, &self.first)
    }

    /// One more in the window of the last one. Only one tab of a window is visible: the one that was used last.
    pub fn new_tab(&self) -> Tab<'_> {
        self.new_window_of("tab")
    }

    /// Pages in several windows are visible at the same time.
    pub fn new_window(&self) -> Tab<'_> {
        self.new_window_of("window")
    }

    fn new_window_of(&self, kind: &str) -> Tab<'_> {
        let opened = self.driver.post("/window/new", json!({"type": kind}));
        let opened = opened.unwrap_or_else(|refused| panic!("no new {kind}: {refused:?}"));
        Tab::new(self, opened["handle"].as_str().unwrap())
    }

    /// Everything that pages and workers asked for so far.
    pub fn requests(&self) -> Vec<Request> {
        let all = requests::requests(&self.driver.net_log()).into_iter();
        all.filter(|request| request.initiator.is_some() || self.is_ours(&request.url))
            .collect()
    }

    fn is_ours(&self, url: &str) -> bool {
        let path = url.strip_prefix(&self.site);
        path.is_some_and(|path| path.starts_with('/'))
    }

    /// What contains this is expected in this story: a server that is stopped refuses connections, say.
    pub fn excuse(&self, words: &str) {
        self.excused.borrow_mut().push(words.to_string());
    }

    /// chromedriver meets a shared worker when windows are counted. What that wrote to its console before is not lost;
    /// what it threw before is.
    pub(crate) fn meet_workers(&self) {
        self.driver.get("/window/handles").unwrap();
    }

    /// Warnings and errors of any console, CSP violations among them, in words.
    pub fn console_errors(&self) -> Vec<String> {
        self.meet_workers();
        let told = self.driver.post("/se/log", json!({"type": "browser"}));
        let told = told.unwrap();
        let told = told.as_array().unwrap().iter();
        let told = told.filter(|line| line["level"] == "SEVERE" || line["level"] == "WARNING");
        let word = |line: &Value, key: &str| line[key].as_str().unwrap_or_default().to_string();
        let told = told.map(|line| format!("{}: {}", word(line, "source"), word(line, "message")));
        let mut heard = self.heard.borrow_mut();
        heard.extend(told);
        heard.clone()
    }

    /// What disturbs: on a console, or asked of somebody else than the site.
    pub fn complaints(&self) -> Vec<String> {
        self.complaints_of(self.console_errors())
    }

    fn complaints_of(&self, mut complaints: Vec<String>) -> Vec<String> {
        let requests = self.requests().into_iter();
        let foreign = requests.filter(|request| !self.is_ours(&request.url));
        complaints
            .extend(foreign.map(|request| format!("foreign: {} {}", request.method, request.url)));
        let excused = self.excused.borrow();
        let is_excused = |line: &String| excused.iter().any(|words| line.contains(words));
        complaints.retain(|line| !is_excused(line));
        complaints
    }

    /// No warning, no error, no CSP violation, no request to another origin, so far.
    pub fn assert_calm(&self) {
        assert_eq!(self.complaints(), [""; 0], "not calm");
    }

    /// The story is over, and was calm to its end. Only now everything that was requested is known for certain.
    pub fn ends(self) -> Vec<Request> {
        let heard = self.console_errors();
        self.driver.delete("").unwrap();
        assert_eq!(self.complaints_of(heard), [""; 0], "not calm");
        self.requests()
    }

    /// All of its processes have this in their command line.
    pub fn folder(&self) -> &Path {
        self.driver.folder()
    }

    pub(crate) fn post(&self, window: &str, path: &str, body: Value) -> Result<Value, Refused> {
        self.turn_to(window)?;
        self.driver.post(path, body)
    }

    pub(crate) fn close(&self, window: &str) {
        self.turn_to(window).unwrap();
        self.driver.delete("/window").unwrap();
        self.turned_to.borrow_mut().clear();
    }

    fn turn_to(&self, window: &str) -> Result<(), Refused> {
        if *self.turned_to.borrow() != window {
            self.driver.post("/window", json!({"handle": window}))?;
            *self.turned_to.borrow_mut() = window.to_string();
        }
        Ok(())
    }
}
