//! Whether everybody can use a page, as far as axe-core can tell.

use std::path::Path;

use serde_json::json;

use crate::tab::{Tab, Theme};

const FILE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/target/npm/node_modules/axe-core/axe.min.js"
);

/// No violation of impact serious or critical, light and dark.
pub fn assert_accessible(tab: &Tab) {
    assert_eq!(violations(tab), [""; 0], "at {}", tab.path());
}

pub fn violations(tab: &Tab) -> Vec<String> {
    let mut violations = Vec::new();
    for theme in [Theme::Light, Theme::Dark] {
        tab.theme(theme);
        let mut found = violations_now(tab);
        // axe-core takes what is transparent to the ground for white, whatever the browser paints there.
        let is_bare = "
            const grounds = [document.documentElement, document.body].map(e => getComputedStyle(e).backgroundColor);
            return grounds.every(ground => ground === 'rgba(0, 0, 0, 0)')";
        if tab.script(is_bare) == true {
            let bare = "the page has no background of its own, so that contrasts are unknown";
            found.push(bare.to_string());
        }
        let found = found.into_iter();
        violations.extend(found.map(|violation| format!("{theme:?}: {violation}")));
    }
    violations
}

/// As the page is: rule, impact, where, and what would help. The minor ones are left out.
fn violations_now(tab: &Tab) -> Vec<String> {
    assert!(
        Path::new(FILE).exists(),
        "{FILE} is not there: tests/all gets it, or: \
         cp tests/pages/npm/* target/npm/ && npm ci --prefix target/npm"
    );
    let source = std::fs::read_to_string(FILE).unwrap();
    // A world of its own: it shares the document with the page, and nothing else. What the page forbids to its scripts by CSP
    // and Trusted Types stays forbidden to them, and the page cannot tell that it is looked at.
    let frames = tab.devtools("Page.getFrameTree", json!({}));
    let frame = &frames["frameTree"]["frame"]["id"];
    let world = json!({"frameId": frame, "worldName": "axe"});
    let world = tab.devtools("Page.createIsolatedWorld", world);
    let context = &world["executionContextId"];
    let loaded = json!({"expression": source, "contextId": context});
    let loaded = tab.devtools("Runtime.evaluate", loaded);
    assert!(loaded["exceptionDetails"].is_null(), "{loaded}");
    let run = "
        axe.run(document, {resultTypes: ['violations']}).then(found => found.violations
            .filter(rule => rule.impact === 'serious' || rule.impact === 'critical')
            .flatMap(rule => rule.nodes
                // A name that is cut short is said whole.
                .filter(node => rule.id !== 'label-content-name-mismatch' || !document.querySelector(node.target.join(' '))?.textContent.includes('…'))
                .map(node =>
                `${rule.impact} ${rule.id} at ${node.target.join(' ')}: ${rule.help}; ${node.failureSummary}`)))";
    let run = json!({
        "expression": run, "contextId": context, "awaitPromise": true, "returnByValue": true,
    });
    let ran = tab.devtools("Runtime.evaluate", run);
    assert!(ran["exceptionDetails"].is_null(), "{ran}");
    serde_json::from_value(ran["result"]["value"].clone()).expect("a list of texts")
}
