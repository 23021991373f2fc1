//! The graph on a page: every step is a link that can be reached, named and told apart without colours.

use super::grammar::{Element, elements};
use super::{Dice, HOSTILE, graph, hostile, random};
use stepward::graph::{Graph, Picture, icon};

fn linked(graph: &Graph, selected: Option<usize>) -> String {
    let picture = Picture {
        prefix: "job-42",
        href: &|at| Some(format!("/jobs/42?step={at}&tab=\"log\"")),
        selected,
    };
    graph::svg_linked(graph, &graph::layout(graph), &picture)
}

fn links(svg: &str) -> Vec<Element> {
    let found = elements(svg).into_iter();
    found.filter(|element| element.name == "a").collect()
}

fn words<'e>(element: &'e Element, key: &str) -> Vec<&'e str> {
    let value = element.attributes.get(key);
    value.map_or(Vec::new(), |value| value.split(' ').collect())
}

#[test]
fn a_step_is_a_link_with_a_name_an_icon_and_a_word() {
    let mut job = graph(&[&[], &[0]]);
    job.nodes[1].label = "unit".to_string();
    job.nodes[1].state = Some("failed".to_string());
    job.nodes[1].notes = vec!["exit_code".to_string()];
    let svg = linked(&job, Some(1));
    let links = links(&svg);
    let unit = &links[1];
    assert_eq!(
        unit.attributes["aria-label"],
        "unit, failed, exit_code, script"
    );
    assert_eq!(unit.attributes["href"], "/jobs/42?step=1&tab=\"log\"");
    assert_eq!(unit.attributes["aria-current"], "true");
    assert_eq!(
        words(unit, "class"),
        ["node", "kind-script", "state-failed", "selected"]
    );
    assert!(svg.contains(">✘</text>") && svg.contains(">failed · script</text>"));
    assert!(!links[0].attributes.contains_key("aria-current"));
    assert!(!words(&links[0], "class").contains(&"selected"));
    // A step of a task has no state, and no sign of one.
    assert_eq!(svg.matches(r#"class="icon""#).count(), 1);
    // The picture is no image: what is in an image cannot be reached.
    assert_eq!(elements(&svg)[0].attributes["role"], "group");
}

#[test]
fn a_step_that_leads_nowhere_is_still_told() {
    let picture = Picture {
        prefix: "p",
        href: &|_| None,
        selected: None,
    };
    let task = graph(&[&[]]);
    let svg = graph::svg_linked(&task, &graph::layout(&task), &picture);
    let found = elements(&svg);
    let step = found
        .iter()
        .find(|one| words(one, "class").contains(&"node"));
    let step = step.unwrap();
    assert_eq!(
        (step.name.as_str(), &*step.attributes["role"]),
        ("g", "img")
    );
    assert_eq!(step.attributes["aria-label"], "s0, script");
}

/// Who goes through the links one by one comes to every step after all that it waits for.
#[test]
fn links_come_in_an_order_in_which_steps_could_run() {
    let mut dice = Dice(11);
    for _ in 0..100 {
        let (steps, edges) = (1 + dice.below(60), dice.below(150));
        let mut job = random(&mut dice, steps, edges);
        // Written the other way round: what waits comes first.
        job.nodes.reverse();
        for edge in &mut job.edges {
            edge.from = steps - 1 - edge.from;
            edge.to = steps - 1 - edge.to;
        }
        let links = links(&linked(&job, None));
        assert_eq!(links.len(), steps);
        let place = |at: usize| {
            let named = |link: &Element| link.attributes["data-step"] == job.nodes[at].label;
            links.iter().position(named).unwrap()
        };
        for edge in &job.edges {
            assert!(place(edge.from) < place(edge.to));
        }
    }
}

#[test]
fn two_pictures_on_a_page_share_no_id() {
    let task = graph(&[&[], &[0]]);
    let ids = |prefix: &str| {
        let picture = Picture {
            prefix,
            href: &|_| None,
            selected: None,
        };
        let svg = graph::svg_linked(&task, &graph::layout(&task), &picture);
        let found = elements(&svg);
        let ids = found.iter().filter_map(|one| one.attributes.get("id"));
        let ids: Vec<String> = ids.cloned().collect();
        let ends = found
            .iter()
            .filter_map(|one| one.attributes.get("marker-end"));
        for end in ends {
            assert_eq!(*end, format!("url(#{})", ids[0]));
        }
        ids
    };
    assert_eq!(ids("one"), ["one-arrow"]);
    assert_eq!(ids("two"), ["two-arrow"]);
    assert_eq!(ids("\"><script>"), ["script-arrow"]);
}

#[test]
fn edges_tell_what_they_come_from_and_whether_the_chosen_step_has_them() {
    let mut job = graph(&[&[], &[0], &[1]]);
    job.nodes[0].state = Some("completed".to_string());
    job.nodes[1].state = Some("running".to_string());
    job.edges[1].label = Some("failed".to_string());
    let found = elements(&linked(&job, Some(0)));
    let edges: Vec<Vec<&str>> = found
        .iter()
        .map(|one| words(one, "class"))
        .filter(|words| words.first() == Some(&"edge"))
        .collect();
    assert_eq!(edges[0], ["edge", "from-completed", "of-selected"]);
    assert_eq!(edges[1], ["edge", "conditional", "from-running"]);
}

#[test]
fn hostile_names_stay_names_on_a_page() {
    let graph = hostile();
    let picture = Picture {
        prefix: "job",
        href: &|at| Some(format!("/jobs/1?step={}", HOSTILE[at].replace('\0', ""))),
        selected: Some(1),
    };
    let svg = graph::svg_linked(&graph, &graph::layout(&graph), &picture);
    let found = elements(&svg);
    for element in &found {
        let known = [
            "svg", "title", "defs", "marker", "path", "g", "a", "rect", "text",
        ];
        assert!(known.contains(&element.name.as_str()), "{}", element.name);
        for key in element.attributes.keys() {
            assert!(key != "style" && !key.starts_with("on"), "{key}");
        }
        for word in words(element, "class") {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
            assert!(word.chars().all(is_plain), "{word}");
        }
    }
    let links: Vec<&Element> = found.iter().filter(|one| one.name == "a").collect();
    assert_eq!(links.len(), graph.nodes.len());
    for (link, node) in links.iter().zip(&graph.nodes) {
        assert_eq!(link.attributes["data-step"], node.label);
        assert!(link.attributes["aria-label"].starts_with(&node.label));
    }
}

#[test]
fn every_state_has_a_sign_of_its_own() {
    use stepward::domain::step::StepState;
    let signs: Vec<&str> = StepState::ALL
        .iter()
        .map(|state| icon(state.as_str()))
        .collect();
    let mut different = signs.clone();
    different.sort();
    different.dedup();
    assert_eq!(different.len(), signs.len());
    assert_eq!(icon("preparing"), icon("assigned"));
}

/// A finger needs 24 pixels, an eye 12.
#[test]
fn boxes_can_be_touched_and_texts_be_read() {
    let mut dice = Dice(5);
    let job = random(&mut dice, 30, 60);
    let found = elements(&linked(&job, None));
    let number = |element: &Element, key: &str| -> u32 { element.attributes[key].parse().unwrap() };
    for element in &found {
        match element.name.as_str() {
            "rect" => assert!(number(element, "height") >= 24),
            "text" => assert!(number(element, "font-size") >= 12),
            _ => {}
        }
    }
}
