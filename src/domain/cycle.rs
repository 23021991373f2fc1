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
    // Where each node stands on the path, and which places of the path are taken by members of circles, from the first on: so an arrow
    // that leads back costs no walk along the path.
    let mut places = vec![0; arrows.len()];
    let mut taken: Vec<usize> = Vec::new();
    let mut found = Vec::new();
    for start in 0..arrows.len() {
        // A stack of our own: a chain may be 10,000 long.
        let mut path: Vec<(u32, usize)> = Vec::new();
        if marks[start] == Mark::Unseen {
            marks[start] = Mark::OnPath;
            places[start] = 0;
            path.push((start as u32, 0));
        }
        while let Some((node, arrow)) = path.last_mut() {
            let Some(&target) = arrows[*node as usize].get(*arrow) else {
                marks[*node as usize] = Mark::Done;
                path.pop();
                taken.pop_if(|place| *place == path.len());
                continue;
            };
            *arrow += 1;
            match marks[target as usize] {
                Mark::Done => {}
                Mark::Unseen => {
                    marks[target as usize] = Mark::OnPath;
                    places[target as usize] = path.len();
                    path.push((target, 0));
                }
                Mark::OnPath => {
                    let first = places[target as usize];
                    if taken.last().is_none_or(|&place| place < first) {
                        taken.extend(first..path.len());
                        found.push(path[first..].iter().map(|&(node, _)| node).collect());
                    }
                }
            }
        }
    }
    found
}
