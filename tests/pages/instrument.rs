//! The instrument itself: it notices what it is there to notice, and leaves nothing behind.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use serde_json::json;

use crate::axe::{assert_accessible, violations};
use crate::browser::Browser;
use crate::house::{House, await_that, processes};
use crate::site::{Page, Site};
use crate::tab::Theme;

const STYLE: &str = "
    html { background: #fff; color: #111 }
    @media (prefers-color-scheme: dark) { html { background: #111; color: #eee } }";

/// A page with this body and this module.
fn pages(body: &str, script: &str) -> Vec<Page> {
    pages_at("/", body, script)
}

fn pages_at(path: &str, body: &str, script: &str) -> Vec<Page> {
    let text = format!(
        "<!doctype html><html lang=en><meta charset=utf-8><title>A story</title>\
         <meta name=viewport content='width=device-width'><link rel=icon href=/icon.svg>\
         <link rel=stylesheet href=/style.css><main>{body}</main><script type=module src={path}page.js></script>"
    );
    let icon = "<svg xmlns='http://www.w3.org/2000/svg'/>";
    let page = |path: &str, kind, text: &str| (path.to_string(), kind, text.to_string());
    vec![
        page(path, "text/html", &text),
        page(&format!("{path}page.js"), "text/javascript", script),
        page("/icon.svg", "image/svg+xml", icon),
        page("/style.css", "text/css", STYLE),
    ]
}

/// The way in which our pages start their shared worker.
const STARTS_WORKER: &str = "
    const policy = trustedTypes.createPolicy('story', {createScriptURL: url => url});
    const worker = new SharedWorker(policy.createScriptURL('/worker.js'), {type: 'module'});
    worker.port.onmessage = message => { document.querySelector('h1').textContent = message.data; };
    worker.port.start();
    window.worker = worker;";

fn with_worker(mut pages: Vec<Page>, worker: &str) -> Vec<Page> {
    let worker = format!(
        "{worker};
         let ports = 0;
         onconnect = ({{ports: [port]}}) => {{
            port.onmessage = () => {{ throw new Error('lost'); }};
            port.postMessage(`port ${{++ports}}`);
         }};"
    );
    pages.push(("/worker.js".to_string(), "text/javascript", worker));
    pages
}

#[test]
fn a_page_with_a_worker_under_the_strict_policy_is_calm() {
    let worker = "fetch('/style.css?from=worker')";
    let site = Site::strict(with_worker(pages("<h1>none</h1>", STARTS_WORKER), worker));
    let browser = Browser::hearing_workers(&site.url());

    let first = browser.tab();
    first.open("/");
    first.await_text("h1", "port 1");
    let others: Vec<_> = (2..=10).map(|_| browser.new_tab()).collect();
    for (port, tab) in (2..).zip(&others) {
        tab.open("/");
        tab.await_text("h1", &format!("port {port}"));
    }

    let requests = browser.requests();
    let count = |path: &str| {
        let url = format!("{}{path}", site.url());
        let same = requests.iter().filter(|request| request.url == url);
        same.count()
    };
    assert_eq!(count("/"), 10);
    assert_eq!(count("/style.css?from=worker"), 1);
    assert_accessible(&first);
    browser.assert_calm();
    browser.ends();
}

/// Body and module of a page, and what is to be noticed of it.
type Trouble<'t> = (&'t str, &'t str, &'t str);

/// Each is noticed before the next page is opened, and none is forgotten at the end.
fn assert_noticed(site: fn(Vec<Page>) -> Site, troubles: &[Trouble]) {
    let path = |n: usize| format!("/{n}/");
    let all = troubles.iter().enumerate();
    let pages = all.flat_map(|(n, (body, script, _))| pages_at(&path(n), body, script));
    let site = site(pages.collect());
    let browser = Browser::visiting(&site.url());
    let tab = browser.tab();
    let mut known = 0;
    for (n, (_, _, trouble)) in troubles.iter().enumerate() {
        assert_eq!(browser.complaints().len(), known, "before {trouble}");
        tab.open(&path(n));
        await_complaint(&browser, known, trouble);
        known = browser.complaints().len();
    }
    assert_not_calm(browser);
}

/// Behind those that are known already.
fn await_complaint(browser: &Browser, known: usize, trouble: &str) {
    await_that(trouble, || {
        let complaints = browser.complaints();
        let new = complaints[known..].iter();
        { new }.find(|line| line.contains(trouble)).map(|_| ())
    });
}

fn assert_not_calm(browser: Browser) {
    let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| browser.ends()));
    let said = *ended.unwrap_err().downcast::<String>().unwrap();
    assert!(said.contains("not calm"), "{said}");
}

/// The same for what a shared worker does.
fn assert_noticed_of_worker(site: fn(Vec<Page>) -> Site, worker: &str, trouble: &str) {
    let site = site(with_worker(pages("<h1>x</h1>", STARTS_WORKER), worker));
    let browser = Browser::hearing_workers(&site.url());
    browser.tab().open("/");
    await_complaint(&browser, 0, trouble);
    assert_not_calm(browser);
}

#[test]
fn errors_on_any_console_are_noticed() {
    #[rustfmt::skip]
    assert_noticed(Site::strict, &[
        ("", "console.error('so', 'sad')",        "console-api: "),
        ("", "console.warn('beware')",            "beware"),
        ("", "throw new Error('lost')",           "Uncaught Error: lost"),
        ("", "Promise.reject(new Error('left'))", "Error: left"),
        ("", "fetch('/nowhere')",                 "404 (Not Found)"),
    ]);
    assert_noticed_of_worker(Site::strict, "console.error('so sad')", "so sad");

    let site = Site::strict(with_worker(pages("<h1>x</h1>", STARTS_WORKER), ""));
    let browser = Browser::hearing_workers(&site.url());
    let tab = browser.tab();
    tab.open("/");
    tab.await_text("h1", "port 1");
    browser.assert_calm();
    tab.script("worker.port.postMessage('throw')");
    await_complaint(&browser, 0, "Uncaught Error: lost");
    assert_not_calm(browser);
}

#[test]
fn violations_of_the_policy_are_noticed() {
    #[rustfmt::skip]
    assert_noticed(Site::strict, &[
        ("", "document.body.innerHTML = '<p>'", "security: "),
        ("", "new SharedWorker('/worker.js')",  "security: "),
        ("", "try { eval('1') } catch {}",      "security: "),
        ("<script>1</script>",                           "", "security: "),
        ("<p style='color: red'>x</p>",                  "", "security: "),
        ("<button onclick='x()'>x</button>",             "", "security: "),
        ("<img alt=x src='http://127.0.0.1:9/x.png'>",   "", "security: "),
        ("<link rel=stylesheet href='//127.0.0.1:9/x'>", "", "security: "),
    ]);
}

#[test]
fn requests_to_another_origin_are_noticed() {
    let other = Site::lax(pages("", "")).url();
    let foreign = format!("foreign: GET {other}");
    let fetch = format!("fetch('{other}/style.css')");
    let goes = format!("location = '{other}/'");
    let image = format!("<img alt=x src={other}/icon.svg>");
    let style = format!("<link rel=stylesheet href={other}/style.css>");
    #[rustfmt::skip]
    assert_noticed(Site::lax, &[
        ("",     &fetch, &foreign),
        (&image, "",     &foreign),
        (&style, "",     &foreign),
        ("",     &goes,  &foreign),
    ]);
    assert_noticed_of_worker(Site::lax, &fetch, &foreign);
}

#[test]
fn an_excuse_holds_for_what_it_names() {
    let site = Site::strict(pages("<h1>x</h1>", "console.error('known trouble')"));
    let browser = Browser::visiting(&site.url());
    browser.excuse("known trouble");
    let tab = browser.tab();
    tab.open("/");
    tab.await_that("the console has it", |_| {
        (!browser.console_errors().is_empty()).then_some(())
    });
    browser.ends();
}

#[test]
fn a_person_reads_clicks_types_and_presses_keys() {
    let body = "
        <h1>Hello</h1> <p hidden>secret</p> <p class=item>one</p> <p class=item data-n=2>two</p>
        <form action=/ method=get>
            <label>Name <input name=name value=nobody></label>
            <label>Size <select name=size><option>small</option><option>large</option></select></label>
            <button>Run it</button>
        </form>
        <button id=late disabled>Late</button> <output></output>";
    let script = "
        const output = document.querySelector('output');
        const late = document.querySelector('#late');
        late.onclick = () => { output.textContent = 'clicked late'; late.remove(); };
        document.onkeydown = event => { output.textContent += `${event.ctrlKey ? '^' : ''}${event.key} `; };
        setTimeout(() => { late.disabled = false; }, 200)";
    let site = Site::strict(pages(body, script));
    let browser = Browser::visiting(&site.url());
    let tab = browser.tab();
    tab.open("/");

    assert_eq!(tab.title(), "A story");
    assert_eq!(tab.text("h1"), "Hello");
    assert_eq!(tab.texts(".item"), ["one", "two"]);
    assert_eq!(tab.count(".item"), 2);
    assert_eq!(tab.attribute(".item + .item", "data-n").unwrap(), "2");
    assert_eq!(tab.attribute("h1", "data-n"), None);
    assert!(!tab.text("main").contains("secret"));

    tab.await_that("it can be clicked", |tab| {
        tab.attribute("#late", "disabled").is_none().then_some(())
    });
    tab.click("#late");
    assert_eq!(tab.text("output"), "clicked late");
    tab.await_gone("#late");
    tab.script("document.activeElement.blur(); document.querySelector('output').textContent = ''");
    tab.press("g j Escape Control+k");
    assert_eq!(tab.text("output"), "g j Escape ^Control ^k");

    assert_eq!(tab.value("[name=name]"), "nobody");
    tab.type_into("[name=name]", "Ada & <b>");
    tab.choose("[name=size]", "large");
    tab.click_on("Run it");
    tab.await_that("the form is sent", |tab| {
        (tab.path() == "/?name=Ada+%26+%3Cb%3E&size=large").then_some(())
    });
    tab.back();
    assert_eq!(tab.path(), "/");
    tab.screenshot("instrument");
    browser.ends();
}

#[test]
fn a_tab_has_a_theme_and_a_size_and_tells_when_it_saw_something() {
    let body = "<h1>Hello</h1>";
    let site = Site::strict(pages(body, ""));
    let browser = Browser::visiting(&site.url());
    let tab = browser.tab();
    tab.open("/");
    let is_dark = "return matchMedia('(prefers-color-scheme: dark)').matches";
    tab.theme(Theme::Dark);
    assert_eq!(tab.script(is_dark), true);
    tab.theme(Theme::Light);
    assert_eq!(tab.script(is_dark), false);

    tab.phone();
    tab.reload();
    assert_eq!(
        tab.script("return [innerWidth, innerHeight]"),
        json!([390, 844])
    );
    tab.size(320, 500);
    assert_eq!(
        tab.script("return [innerWidth, innerHeight]"),
        json!([320, 500])
    );
    assert_eq!(tab.nodes(), 15);

    tab.look_out("h1", "later");
    let change = "
        const change = () => { document.querySelector('h1').textContent = 'Now it is later'; window.changedAt = Date.now(); };
        setTimeout(change, 100)";
    tab.script(change);
    let seen_at = tab.await_sight();
    let took = seen_at - tab.script("return window.changedAt").as_f64().unwrap();
    assert!((-1.0..500.0).contains(&took), "{took} ms");

    let visible = "return document.visibilityState";
    let window = browser.new_window();
    window.open("/");
    assert_eq!(window.script(visible), "visible");
    assert_eq!(tab.script(visible), "visible");
    window.close();
    tab.await_text("h1", "later");
    browser.ends();
}

#[test]
fn what_only_some_people_cannot_read_is_found() {
    let with_style = |style: &str| {
        let mut pages = pages("<h1>Hello</h1><p>Can you read me?</p>", "");
        pages.last_mut().unwrap().2 = style.to_string();
        Site::strict(pages)
    };
    let found = |style: &str| {
        let site = with_style(style);
        let browser = Browser::visiting(&site.url());
        let tab = browser.tab();
        tab.open("/");
        let found = violations(&tab);
        browser.ends();
        found
    };
    assert_eq!(found(STYLE), [""; 0]);

    let pale = "@media (prefers-color-scheme: dark) { p { color: #333 } }";
    let pale = found(&format!("{STYLE} {pale}"));
    assert_eq!(pale.len(), 1, "{pale:#?}");
    let begins = "Dark: serious color-contrast at p: Elements must meet minimum color contrast";
    assert!(pale[0].starts_with(begins), "{pale:#?}");

    let no_background =
        "Dark: the page has no background of its own, so that contrasts are unknown";
    let bare = found(":root { color-scheme: light dark }");
    assert!(bare.contains(&no_background.to_string()), "{bare:#?}");
}

#[test]
fn the_real_server_answers_the_browser_and_is_missed_when_it_is_gone() {
    let mut house = House::with("{}");
    let browser = Browser::visiting(&house.url());
    let tab = browser.tab();
    tab.open("/api/jobs");
    tab.await_text("body", "items");
    house.kill_server();
    house.start_server();
    tab.reload();
    tab.await_text("body", "items");
    browser.excuse("favicon.ico");
    browser.ends();
    house.check();
}

#[test]
fn a_browser_without_scripts_runs_none() {
    let site = Site::strict(pages(
        "<h1>Hello</h1>",
        "document.querySelector('h1').textContent = 'ran'",
    ));
    let browser = Browser::without_scripts(&site.url());
    let tab = browser.tab();
    tab.open("/");
    tab.reload();
    assert_eq!(tab.text("h1"), "Hello");
    let requests = browser.ends();
    assert!(
        !requests
            .iter()
            .any(|request| request.url.ends_with("page.js"))
    );
}

#[test]
fn a_story_that_panics_leaves_no_process() {
    let told = std::thread::spawn(|| {
        let site = Site::strict(pages("<h1>x</h1>", ""));
        let browser = Browser::visiting(&site.url());
        browser.tab().open("/");
        let folder = browser.folder().display().to_string();
        assert!(processes(&folder).len() > 4);
        std::panic::panic_any(folder);
    });
    let folder = told.join().unwrap_err().downcast::<String>().unwrap();
    assert_eq!(processes(&folder), [0; 0]);
}

/// The other side of the next story.
#[test]
#[ignore = "a_program_that_is_killed_leaves_no_process runs it"]
fn waits_with_a_browser() {
    let browser = Browser::visiting("http://127.0.0.1:9");
    println!("\nfolder {}", browser.folder().display());
    // Nobody says anything: it ends with whoever started it.
    let _ = std::io::stdin().read(&mut [0]);
}

#[test]
fn a_program_that_is_killed_leaves_no_process() {
    let mut killed = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "instrument::waits_with_a_browser"])
        .args(["--ignored", "--nocapture"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(killed.stdout.take().unwrap()).lines();
    let folder = lines.find_map(|line| Some(line.unwrap().strip_prefix("folder ")?.to_string()));
    let folder = folder.expect("it has a browser");
    assert!(processes(&folder).len() > 4);
    killed.kill().unwrap();
    killed.wait().unwrap();
    await_that("nothing is left", || {
        processes(&folder).is_empty().then_some(())
    });
    // Whoever is killed cannot tidy up.
    std::fs::remove_dir_all(folder).unwrap();
}
