//! Reads the descriptions of limiters.

use reverb_core::{LimiterView, RateLimiter, RateLimiterConfig, SelectorKind, TableConfig};

/// A table, its limiter, and the number of its items.
pub struct Limited {
    pub config: TableConfig,
    pub limiter: RateLimiter,
    pub items: u64,
}

impl Limited {
    /// Reads the description of a limiter, such as `queue 10` or `ratio 8 min 100 buffer 4000`, and then what it has
    /// counted: `inserts 5 samples 3 items 5`.
    pub fn new(name: &str, limiter: &str, counts: &str) -> Self {
        let words: Vec<&str> = limiter.split(' ').collect();
        let number = |word: &str| word.parse::<f64>().unwrap_or_else(|_| panic!("{word} in {limiter}"));
        let bound = |word: &str, none: f64| if word == "none" { none } else { number(word) };
        let open = (-f64::MAX, f64::MAX);
        let (sampler, once, samples_per_insert, min_size, (min_diff, max_diff)) = match words[..] {
            ["queue", size] => (SelectorKind::Fifo, true, 1.0, 1.0, (0.0, number(size))),
            ["stack", size] => (SelectorKind::Lifo, true, 1.0, 1.0, (0.0, number(size))),
            ["min_size", size] => (SelectorKind::Uniform, false, 1.0, number(size), open),
            ["ratio", ratio, "min", size, "buffer", buffer] => {
                let (ratio, size, buffer) = (number(ratio), number(size), number(buffer));
                (SelectorKind::Uniform, false, ratio, size, (ratio * size - buffer, ratio * size + buffer))
            }
            ["ratio", ratio, "min", size, "from", least, "to", most] => {
                let bounds = (bound(least, open.0), bound(most, open.1));
                (SelectorKind::Uniform, false, number(ratio), number(size), bounds)
            }
            _ => panic!("not a limiter: {limiter}"),
        };
        let rate_limiter =
            RateLimiterConfig { samples_per_insert, min_size_to_sample: min_size as i64, min_diff, max_diff };
        let config = TableConfig {
            name: name.into(),
            remover: SelectorKind::Fifo,
            sampler,
            max_size: if once { max_diff as u64 } else { 1_000_000 },
            max_times_sampled: i32::from(once),
            rate_limiter: rate_limiter.clone(),
            signature: None,
            max_bytes: None,
            seed: None,
        };
        let mut limiter = RateLimiter::new(rate_limiter);
        let counts: Vec<&str> = counts.split(' ').collect();
        let ["inserts", inserts, "samples", samples, "items", items] = counts[..] else {
            panic!("not what a limiter counts: {counts:?}")
        };
        (limiter.inserts, limiter.samples) = (inserts.parse().unwrap(), samples.parse().unwrap());
        let items = items.parse().unwrap();
        limiter.deletes = limiter.inserts - items as i64;
        Self { config, limiter, items }
    }

    pub fn view(&self) -> LimiterView<'_> {
        LimiterView { table: &self.config, limiter: &self.limiter, items: self.items }
    }
}
