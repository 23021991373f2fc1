//! Chance that can be replayed: the same seed, the same story, on every machine.

/// SplitMix64.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        // Neighbouring seeds must not tell neighbouring stories.
        let mut dice = Dice(seed.wrapping_mul(0xD134_2543_DE82_EF95));
        dice.roll(2);
        dice
    }

    /// 0 to `sides` - 1.
    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % sides
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.roll(100) < percent
    }

    /// From `low` to `high`, both included.
    pub fn between(&mut self, low: i64, high: i64) -> i64 {
        low + self.roll((high - low + 1) as u64) as i64
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        match from.is_empty() {
            true => None,
            false => Some(&from[self.roll(from.len() as u64) as usize]),
        }
    }
}
