//! Circles in a graph of arrows: steps that wait for each other, tasks that call each other.

/// Circles that share no member with one another, each from its first member on.
pub fn cycles(arrows: &[Vec<u32>]) -> Vec<Vec<u32>> {
    #[derive(Clone, Copy, PartialEq)]
    enum Mark {
        Unseen,
        OnPath,
        Done,
    }
    let mut marks = vec![Mark::Unseen; arrows.len()];
    let mut in_circle = vec![false; arrows.len()];
    let mut found = Vec::new();
    for start in 0..arrows.len() {
        // A stack of our own: a chain may be 10,000 long.
        let mut path: Vec<(u32, usize)> = Vec::new();
        if marks[start] == Mark::Unseen {
            marks[start] = Mark::OnPath;
            path.push((start as u32, 0));
        }
        while let Some((node, arrow)) = path.last_mut() {
            let Some(&target) = arrows[*node as usize].get(*arrow) else {
                marks[*node as usize] = Mark::Done;
                path.pop();
                continue;
            };
            *arrow += 1;
            match marks[target as usize] {
                Mark::Done => {}
                Mark::Unseen => {
                    marks[target as usize] = Mark::OnPath;
                    path.push((target, 0));
                }
                Mark::OnPath => {
                    let nodes = path.iter().map(|&(node, _)| node);
                    let circle: Vec<u32> = nodes.skip_while(|&node| node != target).collect();
                    if !circle.iter().any(|&node| in_circle[node as usize]) {
                        circle
                            .iter()
                            .for_each(|&node| in_circle[node as usize] = true);
                        found.push(circle);
                    }
                }
            }
        }
    }
    found
}
