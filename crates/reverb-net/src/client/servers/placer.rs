//! Which shard of a cluster gets new items.

use parking_lot::Mutex;
use rand::Rng;
use rand::rngs::SmallRng;
use reverb_service::Load;

/// Chooses the emptier of two random shards. That keeps all of them about equally full, also where many clients choose by
/// loads that they have heard of a while ago.
#[derive(Debug)]
pub struct Placer(Mutex<SmallRng>);

impl Placer {
    /// Makes one that draws from this generator.
    pub fn new(rng: SmallRng) -> Self {
        Self(Mutex::new(rng))
    }

    /// Returns the place of a shard among `count`, which is at least 1.
    pub fn choose(&self, count: usize, load: impl Fn(usize) -> Load) -> usize {
        if count < 2 {
            return 0;
        }
        let (one, step) = {
            let mut rng = self.0.lock();
            (rng.random_range(0..count), rng.random_range(1..count))
        };
        let other = (one + step) % count;
        // Where inserts wait, further ones would wait, too, however few bytes there are.
        let fullness = |place| {
            let Load { bytes, waiting_inserts } = load(place);
            (waiting_inserts > 0, bytes)
        };
        if fullness(other) < fullness(one) { other } else { one }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    fn counts(loads: &[(u64, u64)], draws: usize) -> Vec<usize> {
        let placer = Placer::new(SmallRng::seed_from_u64(1));
        let mut counts = vec![0; loads.len()];
        for _ in 0..draws {
            let load = |place: usize| Load { bytes: loads[place].0, waiting_inserts: loads[place].1 };
            counts[placer.choose(loads.len(), load)] += 1;
        }
        counts
    }

    #[test]
    fn the_emptier_of_two_is_chosen() {
        assert_eq!(counts(&[(5, 0)], 10), [10]);
        assert_eq!(counts(&[(5, 0), (4, 0)], 100), [0, 100]);
        assert_eq!(counts(&[(5, 0), (1 << 40, 0)], 100), [100, 0]);
        // The fullest of three is never the emptier of two.
        let of_three = counts(&[(5, 0), (9, 0), (7, 0)], 900);
        assert!(of_three[1] == 0 && of_three[0] > 500 && of_three[2] > 200, "{of_three:?}");
    }

    #[test]
    fn one_where_inserts_wait_is_fuller_than_any_where_none_do() {
        assert_eq!(counts(&[(5, 1), (1 << 40, 0)], 100), [0, 100]);
        assert_eq!(counts(&[(5, 1), (6, 9)], 100), [100, 0]);
    }

    #[test]
    fn equal_ones_are_chosen_equally_often() {
        let all = counts(&[(7, 0); 4], 4000);
        assert!(all.iter().all(|&count| (800..1200).contains(&count)), "{all:?}");
    }
}
