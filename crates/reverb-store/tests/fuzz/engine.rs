//! The fuzzing loop: damages an input, runs a target on it, and checks the outcome.

use crate::memory::peak_of;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const MAX_INPUT_BYTES: usize = 64 << 10;
/// Maximum number of seeds; and the number and size in bytes of those that are stored in the folder on request.
const MAX_SEEDS: usize = 10_000;
const MAX_KEPT: usize = 40;
const MAX_KEPT_BYTES: usize = 1 << 10;
/// Numbers at which an encoding changes or an overflow occurs.
const EDGES: [u64; 12] =
    [0, 1, 0x7f, 0x80, 0xff, 0xffff, 1 << 20, 0x7fff_ffff, 0xffff_ffff, 1 << 40, i64::MAX as u64, u64::MAX];

/// What is run on each input.
#[derive(Clone, Copy)]
pub struct Target {
    /// Its name, and that of its folder of inputs.
    pub name: &'static str,
    /// Returns the outcome of an input as text.
    pub run: fn(&[u8]) -> String,
    /// Maximum number of bytes that may be allocated for an input.
    pub most_bytes: usize,
    /// Number of inputs of an ordinary run.
    pub inputs: u64,
}

/// Runs a target. An input with a new outcome becomes a seed.
pub fn fuzz(target: Target, seeds: Vec<Vec<u8>>) {
    let Target { name, inputs, .. } = target;
    let seconds = std::env::var("REVERB_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok());
    let limit = seconds.map(Duration::from_secs);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/fuzz").join(name);
    let mut pool = seeds;
    pool.extend(kept(&folder));
    let mut heard = HashSet::new();
    for input in &pool {
        heard.insert(check(&folder, input, &target));
    }
    let mut random = if limit.is_some() { SmallRng::from_os_rng() } else { SmallRng::seed_from_u64(0) };
    let is_keeping = std::env::var_os("REVERB_FUZZ_KEEP").is_some();
    let (begun, mut count) = (Instant::now(), 0);
    while limit.map_or(count < inputs, |limit| begun.elapsed() < limit) {
        count += 1;
        let input = damage(&pool, &mut random);
        if heard.insert(check(&folder, &input, &target)) && pool.len() < MAX_SEEDS {
            if is_keeping && heard.len() <= MAX_KEPT && input.len() <= MAX_KEPT_BYTES {
                keep(&folder, "seed", &input);
            }
            pool.push(input);
        }
    }
    assert!(heard.len() > 1, "{name}: the only outcome was {heard:?}");
    println!("{name}: {count} inputs in {:.0} s, {} outcomes", begun.elapsed().as_secs_f64(), heard.len());
}

/// Inputs that earlier runs have stored.
fn kept(folder: &Path) -> Vec<Vec<u8>> {
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder).map_or_else(|_| Vec::new(), |files| files.map(|file| file.unwrap().path()).collect());
    paths.sort();
    paths.into_iter().map(|path| std::fs::read(path).unwrap()).collect()
}

fn keep(folder: &Path, kind: &str, input: &[u8]) -> PathBuf {
    let hash = twox_hash::XxHash3_128::oneshot(input) as u32;
    let path = folder.join(format!("{kind}-{hash:08x}"));
    std::fs::create_dir_all(folder).unwrap();
    std::fs::write(&path, input).unwrap();
    path
}

/// Runs a target on an input and returns the outcome without numbers and quoted text.
fn check(folder: &Path, input: &[u8], target: &Target) -> String {
    let (result, peak) = peak_of(|| catch_unwind(AssertUnwindSafe(|| (target.run)(input))));
    match result {
        Ok(words) if peak <= target.most_bytes => {
            let plain = words.split(['`', '\'', '"']).step_by(2).collect::<String>();
            plain.chars().filter(char::is_ascii_alphabetic).take(60).collect()
        }
        Ok(words) => panic!("{peak} bytes were allocated for {}: {words}", keep(folder, "found", input).display()),
        Err(_) => panic!("a panic for {}", keep(folder, "found", input).display()),
    }
}

/// A seed with a few random changes.
fn damage(pool: &[Vec<u8>], random: &mut SmallRng) -> Vec<u8> {
    let mut input = pool[random.random_range(0..pool.len())].clone();
    for _ in 0..1 << random.random_range(0..5) {
        let at = random.random_range(0..=input.len());
        let most = 1 << random.random_range(0..8);
        let length = random.random_range(0..=(input.len() - at).min(most));
        match random.random_range(0..8) {
            0 if at < input.len() => input[at] ^= 1 << random.random_range(0..8),
            1 if at < input.len() => input[at] = random.random(),
            2 => drop(input.drain(at..at + length)),
            3 => input.truncate(at),
            4 => {
                let piece = input[at..at + length].repeat(random.random_range(1..4));
                insert(&mut input, at, &piece);
            }
            5 => {
                let other = &pool[random.random_range(0..pool.len())];
                let from = random.random_range(0..=other.len());
                let piece = &other[from..(from + 64).min(other.len())];
                insert(&mut input, at, piece);
            }
            6 => {
                let number = number(random).to_le_bytes();
                for (byte, new) in input[at..].iter_mut().zip(&number[..1 << random.random_range(0..4)]) {
                    *byte = *new;
                }
            }
            _ => {
                let mut varint = Vec::new();
                prost::encoding::encode_varint(number(random), &mut varint);
                if random.random() {
                    input.drain(at..at + length.min(varint.len()));
                }
                insert(&mut input, at, &varint);
            }
        }
    }
    input.truncate(MAX_INPUT_BYTES);
    input
}

fn number(random: &mut SmallRng) -> u64 {
    let edge = EDGES[random.random_range(0..EDGES.len())];
    if random.random() { edge } else { edge.wrapping_add(random.random_range(0..3)).wrapping_sub(1) }
}

fn insert(input: &mut Vec<u8>, at: usize, piece: &[u8]) {
    input.splice(at..at, piece.iter().copied());
}
