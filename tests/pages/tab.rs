//! One tab: what a person does in it and sees of it.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::browser::Browser;
use crate::driver::Refused;

/// Nothing on a page takes this long unless it hangs.
const PATIENCE: Duration = Duration::from_secs(30);

/// What WebDriver calls the keys that are not a letter.
#[rustfmt::skip]
const KEYS: &[(&str, char)] = &[
    ("Backspace", '\u{e003}'), ("Tab",      '\u{e004}'), ("Enter",     '\u{e007}'),
    ("Shift",     '\u{e008}'), ("Control",  '\u{e009}'), ("Alt",       '\u{e00a}'),
    ("Escape",    '\u{e00c}'), ("Space",    ' '),        ("PageUp",    '\u{e00e}'),
    ("PageDown",  '\u{e00f}'), ("End",      '\u{e010}'), ("Home",      '\u{e011}'),
    ("ArrowLeft", '\u{e012}'), ("ArrowUp",  '\u{e013}'), ("ArrowRight", '\u{e014}'),
    ("ArrowDown", '\u{e015}'), ("Delete",   '\u{e017}'),
];

#[derive(Debug, Clone, Copy)]
pub enum Theme {
    Light,
    Dark,
}

pub struct Tab<'b> {
    browser: &'b Browser,
    window: String,
}

impl<'b> Tab<'b> {
    pub fn new(browser: &'b Browser, window: &str) -> Tab<'b> {
        Tab {
            browser,
            window: window.to_string(),
        }
    }

    /// A path of the site, or a whole address. Comes back when the page and all that it names is loaded.
    pub fn open(&self, path: &str) {
        let url = match path.starts_with('/') {
            true => format!("{}{path}", self.browser.site),
            false => path.to_string(),
        };
        self.order("/url", json!({"url": url}));
        self.browser.meet_workers();
    }

    pub fn reload(&self) {
        self.order("/refresh", json!({}));
    }

    pub fn back(&self) {
        self.order("/back", json!({}));
    }

    /// Where it is: the path with everything after it.
    pub fn path(&self) -> String {
        let path = "return location.pathname + location.search + location.hash";
        self.words(path, json!([]))
    }

    pub fn title(&self) -> String {
        self.words("return document.title", json!([]))
    }

    /// What a person reads of the first that matches.
    pub fn text(&self, css: &str) -> String {
        let texts = self.texts(css).into_iter();
        let first = { texts }.next();
        first.unwrap_or_else(|| panic!("no {css} at {}", self.look()))
    }

    pub fn texts(&self, css: &str) -> Vec<String> {
        let all = "return Array.from(document.querySelectorAll(arguments[0]), e => e.innerText)";
        let texts = self.script_with(all, json!([css]));
        serde_json::from_value(texts).expect("texts")
    }

    pub fn count(&self, css: &str) -> usize {
        let count = "return document.querySelectorAll(arguments[0]).length";
        self.script_with(count, json!([css])).as_u64().unwrap() as usize
    }

    /// `None`: nothing matches, or it has no such attribute.
    pub fn attribute(&self, css: &str, name: &str) -> Option<String> {
        let attribute =
            "return document.querySelector(arguments[0])?.getAttribute(arguments[1]) ?? null";
        let found = self.script_with(attribute, json!([css, name]));
        found.as_str().map(str::to_string)
    }

    /// Of an input, a select or a text area.
    pub fn value(&self, css: &str) -> String {
        let value = "return document.querySelector(arguments[0]).value";
        self.words(value, json!([css]))
    }

    /// Something that matches has this in its text.
    pub fn shows(&self, css: &str, text: &str) -> bool {
        self.texts(css).iter().any(|found| found.contains(text))
    }

    pub fn await_text(&self, css: &str, text: &str) {
        let what = format!("{css} shows {text:?}");
        self.await_that(&what, |tab| tab.shows(css, text).then_some(()));
    }

    pub fn await_gone(&self, css: &str) {
        let what = format!("no {css}");
        self.await_that(&what, |tab| (tab.count(css) == 0).then_some(()));
    }

    /// Waits for a condition, not for a time; in vain, it tells what the page shows instead.
    pub fn await_that<T>(&self, what: &str, mut look: impl FnMut(&Tab) -> Option<T>) -> T {
        let begun = Instant::now();
        loop {
            if let Some(found) = look(self) {
                return found;
            }
            if begun.elapsed() > PATIENCE {
                self.screenshot("in-vain");
                panic!("in vain: {what}, at {}", self.look());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Clicks the first that matches, as soon as a mouse can reach it.
    pub fn click(&self, css: &str) {
        self.on_element("css selector", css, |element| {
            self.try_order(&format!("{element}/click"), json!({}))
        });
    }

    /// Clicks the button, link or summary that says exactly this.
    pub fn click_on(&self, label: &str) {
        assert!(!label.contains('"'), "XPath has no escape for it");
        let path = ["button", "a", "summary", "label"].map(|name| {
            let is_it = format!("normalize-space()=\"{label}\" or @aria-label=\"{label}\"");
            format!("//{name}[{is_it}]")
        });
        self.on_element("xpath", &path.join("|"), |element| {
            self.try_order(&format!("{element}/click"), json!({}))
        });
    }

    /// Instead of what is in it.
    pub fn type_into(&self, css: &str, text: &str) {
        self.on_element("css selector", css, |element| {
            self.try_order(&format!("{element}/clear"), json!({}))?;
            self.try_order(&format!("{element}/value"), json!({"text": text}))
        });
    }

    /// An option of a select, by its text.
    pub fn choose(&self, css: &str, option: &str) {
        assert!(!option.contains('"'), "XPath has no escape for it");
        let is_it = format!(".//option[normalize-space()=\"{option}\"]");
        self.on_element("css selector", css, |select| {
            let wanted = json!({"using": "xpath", "value": is_it});
            let found = self.try_order(&format!("{select}/element"), wanted)?;
            self.try_order(&format!("{}/click", element(&found)), json!({}))
        });
    }

    /// A key for whatever has the focus: `j`, `Enter`, `Control+k`. Several, one after the other: `g j`.
    pub fn press(&self, keys: &str) {
        for chord in keys.split(' ') {
            let keys: Vec<String> = chord.split('+').map(key).collect();
            let down = keys
                .iter()
                .map(|key| json!({"type": "keyDown", "value": key}));
            let up = keys.iter().rev();
            let up = up.map(|key| json!({"type": "keyUp", "value": key}));
            let actions: Vec<Value> = down.chain(up).collect();
            let keyboard = json!({"type": "key", "id": "keyboard", "actions": actions});
            self.order("/actions", json!({"actions": [keyboard]}));
        }
    }

    /// Runs in the page, as the body of a function; what it returns, or its promise resolves to, comes back.
    pub fn script(&self, script: &str) -> Value {
        self.script_with(script, json!([]))
    }

    /// `arguments` are the elements of a list.
    pub fn script_with(&self, script: &str, arguments: Value) -> Value {
        let begun = Instant::now();
        loop {
            let body = json!({"script": script, "args": arguments});
            match self.try_order("/execute/sync", body) {
                Ok(value) => return value,
                // The page went away under it: the next one has the answer.
                Err(refused) if is_passing(&refused) && begun.elapsed() < PATIENCE => {}
                Err(refused) => panic!("{script}: {refused:?}"),
            }
        }
    }

    fn words(&self, script: &str, arguments: Value) -> String {
        let words = self.script_with(script, arguments);
        words.as_str().expect("words").to_string()
    }

    /// A command of the Chrome DevTools protocol.
    pub fn devtools(&self, command: &str, parameters: Value) -> Value {
        let body = json!({"cmd": command, "params": parameters});
        self.order("/goog/cdp/execute", body)
    }

    /// What the person prefers, until it is said otherwise; with as little motion as possible.
    pub fn theme(&self, theme: Theme) {
        let theme = match theme {
            Theme::Light => "light",
            Theme::Dark => "dark",
        };
        let features = json!([
            {"name": "prefers-color-scheme", "value": theme},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]);
        self.devtools("Emulation.setEmulatedMedia", json!({"features": features}));
    }

    /// Of the page in CSS pixels, whatever the window's.
    pub fn size(&self, width: u32, height: u32) {
        self.resize(width, height, false);
    }

    /// A phone held upright: narrow, and fingers instead of a mouse.
    pub fn phone(&self) {
        self.resize(390, 844, true);
        let touch = json!({"enabled": true});
        self.devtools("Emulation.setTouchEmulationEnabled", touch);
    }

    fn resize(&self, width: u32, height: u32, is_phone: bool) {
        let (command, scale) = ("Emulation.setDeviceMetricsOverride", 1);
        let metrics = json!({"width": width, "height": height, "deviceScaleFactor": scale, "mobile": is_phone});
        self.devtools(command, metrics);
    }

    /// Elements and texts.
    pub fn nodes(&self) -> usize {
        let count = "
            const nodes = document.createNodeIterator(document);
            let count = 0;
            while (nodes.nextNode()) count++;
            return count";
        self.script(count).as_u64().unwrap() as usize
    }

    /// From now on the page itself notes when something that matches first shows this text, and no poll of ours delays it.
    pub fn look_out(&self, css: &str, text: &str) {
        // Seen is what was painted: the task after the next frame.
        let look_out = "
            const [css, text] = arguments;
            const now = () => performance.timeOrigin + performance.now();
            const shows = () => Array.from(document.querySelectorAll(css)).some(e => e.innerText.includes(text));
            const look = () => {
                if (!shows()) return;
                observer.disconnect();
                requestAnimationFrame(() => setTimeout(() => { window.storySeenAt = now(); }));
            };
            window.storySeenAt = null;
            const observer = new MutationObserver(look);
            observer.observe(document, {subtree: true, childList: true, characterData: true, attributes: true});
            look()";
        self.script_with(look_out, json!([css, text]));
    }

    /// When that was, in milliseconds since 1970.
    pub fn await_sight(&self) -> f64 {
        self.await_that("what was looked out for", |tab| {
            tab.script("return window.storySeenAt").as_f64()
        })
    }

    /// The whole page as `NAME.png` for people to look at, if STEPWARD_SCREENSHOTS names a folder.
    pub fn screenshot(&self, name: &str) {
        let Some(folder) = std::env::var_os("STEPWARD_SCREENSHOTS") else {
            return;
        };
        let metrics = self.devtools("Page.getLayoutMetrics", json!({}));
        let side = |key: &str| metrics["cssContentSize"][key].as_f64().unwrap();
        let (width, height) = (side("width"), side("height").min(8_000.0));
        let clip = json!({"x": 0, "y": 0, "width": width, "height": height, "scale": 1});
        let wanted = json!({"captureBeyondViewport": true, "clip": clip});
        let taken = self.devtools("Page.captureScreenshot", wanted);
        let data = taken["data"].as_str().unwrap();
        let engine = base64::engine::general_purpose::STANDARD;
        let png = base64::Engine::decode(&engine, data).unwrap();
        std::fs::create_dir_all(&folder).unwrap();
        let file = std::path::Path::new(&folder).join(format!("{name}.png"));
        std::fs::write(file, png).unwrap();
    }

    pub fn close(self) {
        self.browser.close(&self.window);
    }

    /// Where it is, what a person reads there, and what the consoles say.
    fn look(&self) -> String {
        let shown = "return location + '\\n' + (document.body?.innerText ?? '').slice(0, 4000)";
        let consoles = self.browser.console_errors().join("\n");
        format!("{}\n{consoles}", self.words(shown, json!([])))
    }

    /// Pages change under the hand: what was not reachable is tried again.
    fn on_element(
        &self,
        using: &str,
        wanted: &str,
        mut act: impl FnMut(&str) -> Result<Value, Refused>,
    ) {
        let mut last = None;
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            let looked = self.try_order("/element", json!({"using": using, "value": wanted}));
            match looked.and_then(|found| act(&element(&found))) {
                Ok(_) => return,
                Err(refused) if is_passing(&refused) => last = Some(refused),
                Err(refused) => panic!("{wanted}: {refused:?}"),
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("in vain: {wanted}: {last:?}, at {}", self.look());
    }

    fn order(&self, path: &str, body: Value) -> Value {
        let answer = self.try_order(path, body);
        answer.unwrap_or_else(|refused| panic!("{path}: {refused:?}"))
    }

    fn try_order(&self, path: &str, body: Value) -> Result<Value, Refused> {
        self.browser.post(&self.window, path, body)
    }
}

fn element(found: &Value) -> String {
    let id = found.as_object().and_then(|found| found.values().next());
    let id = id.and_then(Value::as_str).expect("an element");
    format!("/element/{id}")
}

fn key(name: &str) -> String {
    let known = KEYS.iter().find(|(known, _)| *known == name);
    known.map_or(name.to_string(), |(_, key)| key.to_string())
}

/// A page in motion refuses this now, and may not in a moment.
fn is_passing(refused: &Refused) -> bool {
    let passing = [
        "no such element",
        "stale element reference",
        "element click intercepted",
        "element not interactable",
        "invalid element state",
    ];
    let moved = [
        "aborted by navigation",
        "xecution context",
        "navigated or closed",
    ];
    passing.contains(&refused.error.as_str())
        || moved.iter().any(|words| refused.message.contains(words))
}
