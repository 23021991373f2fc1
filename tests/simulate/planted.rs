//! Planted bugs prove that the simulation can fail: each must be found within so many seeds.

use libtest_mimic::{Failed, Trial};
use stepward::planted::{Bug, plant};

use crate::breach_of;

const SEEDS_MAX: u64 = 200;

pub fn trials() -> impl Iterator<Item = Trial> {
    let found = |bug: Bug| Trial::test(format!("planted_{bug:?}_is_found"), move || find(bug));
    Bug::ALL.iter().copied().map(found)
}

fn find(bug: Bug) -> Result<(), Failed> {
    plant(Some(bug));
    let breach = (1..=SEEDS_MAX).find_map(|seed| Some((seed, breach_of(seed).err()?)));
    plant(None);
    match breach {
        None => Err(format!("{bug:?} was not found in {SEEDS_MAX} seeds").into()),
        Some((seed, breach)) => {
            let breach = breach.lines().next().unwrap_or_default();
            let breach: String = breach.chars().take(150).collect();
            println!("{bug:?} was found by seed {seed}: {breach}");
            Ok(())
        }
    }
}
