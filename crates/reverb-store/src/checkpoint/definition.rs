//! Which options a restored table has: those of its definition on the server, or those in the checkpoint.

use super::options::Definitions;
use reverb_core::{Error, Result, Signature, TableConfig};
use reverb_formats::signature::are_compatible;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The options that can be changed on a running server, besides those of [`LIMITER`].
const CHANGEABLE: [&str; 3] = ["max_size", "max_times_sampled", "max_bytes"];

/// The options of the rate limiter, which are changed together.
const LIMITER: [&str; 4] = ["samples_per_insert", "min_size", "min_diff", "max_diff"];

/// An option of a table that is restored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OptionTexts {
    /// Its name.
    pub name: &'static str,
    /// Its value on the server.
    pub here: String,
    /// Its value in the checkpoint.
    pub saved: String,
    /// The value that holds.
    pub used: String,
}

/// The definition of a restored table.
#[derive(Debug)]
pub struct Merged {
    /// All its options.
    pub config: TableConfig,
    /// The same as texts, beside those it is made of.
    pub options: Vec<OptionTexts>,
}

impl Merged {
    /// Merges the definition `here` of a server with the `saved` one. `defined` are the changeable options with which the
    /// server that saved it had defined the table, if that is known.
    ///
    /// # Errors
    /// [`Error::SignatureMismatch`] if data with one signature cannot be read with the other. [`Error::InvalidArgument`]
    /// if an edited limit contradicts one of the checkpoint.
    pub fn new(
        saved: &TableConfig,
        here: &TableConfig,
        defined: Option<&BTreeMap<String, String>>,
        definitions: Definitions,
    ) -> Result<Self> {
        let signature = merge_signatures(saved, here, definitions)?;
        let config = match definitions {
            Definitions::Here => TableConfig { signature, ..here.clone() },
            Definitions::Saved => TableConfig {
                name: here.name.clone(),
                signature,
                // Checkpoints of the reference do not have these.
                max_bytes: saved.max_bytes.or(here.max_bytes),
                seed: saved.seed.or(here.seed),
                ..saved.clone()
            },
            Definitions::Edited => {
                let values = changeable(here);
                let is_edited = |name: &str| defined.is_none_or(|defined| defined.get(name) != values.get(name));
                let of = |name| if is_edited(name) { here } else { saved };
                let limiter_is_edited = LIMITER.into_iter().any(is_edited);
                let config = TableConfig {
                    name: here.name.clone(),
                    sampler: saved.sampler.clone(),
                    remover: saved.remover.clone(),
                    max_size: of("max_size").max_size,
                    max_times_sampled: of("max_times_sampled").max_times_sampled,
                    max_bytes: of("max_bytes").max_bytes,
                    rate_limiter: if limiter_is_edited { here } else { saved }.rate_limiter.clone(),
                    signature,
                    seed: here.seed,
                };
                if is_edited("max_size") != limiter_is_edited {
                    check_sizes(&config, is_edited("max_size"))?;
                }
                config
            }
        };
        config.validate()?;
        let texts = texts(here).into_iter().zip(texts(saved)).zip(texts(&config));
        let options = texts.map(|(((name, here), (_, saved)), (_, used))| OptionTexts { name, here, saved, used });
        Ok(Self { options: options.collect(), config })
    }

    /// Says which options differ and which of them hold. `None` if none differs.
    pub fn difference(&self, definitions: Definitions) -> Option<String> {
        // Without a signature here, that of the checkpoint takes the same data. A seed decides on nothing that was saved.
        let differ =
            |option: &&OptionTexts| option.here != option.saved && !["signature", "seed"].contains(&option.name);
        let differing: Vec<_> = self.options.iter().filter(differ).collect();
        if differing.is_empty() {
            return None;
        }
        let list = |value: fn(&OptionTexts) -> &str| {
            differing.iter().map(|option| format!("{}={}", option.name, value(option))).collect::<Vec<_>>().join(", ")
        };
        let table = &self.config.name;
        if definitions == Definitions::Edited {
            let used = |option: &&OptionTexts| match option.used == option.here {
                true => format!("{}={} replaces {} of the checkpoint", option.name, option.here, option.saved),
                false => format!("{}={} of the checkpoint holds, not {}", option.name, option.saved, option.here),
            };
            return Some(format!("table `{table}`: {}", differing.iter().map(used).collect::<Vec<_>>().join(", ")));
        }
        let (used, hint) = match definitions {
            Definitions::Here => ("server", ""),
            _ => ("checkpoint", "; override_definitions=True keeps yours"),
        };
        Some(format!(
            "table `{table}` was saved with {} but is defined with {}; those of the {used} are used{hint}",
            list(|option| &option.saved),
            list(|option| &option.here)
        ))
    }
}

/// Checks that a table can be sampled of which either `max_size` or the rate limiter was edited, and the other is that of
/// the checkpoint.
fn check_sizes(config: &TableConfig, max_size_is_edited: bool) -> Result<()> {
    let TableConfig { name, max_size, rate_limiter, .. } = config;
    let min_size = rate_limiter.min_size_to_sample;
    if u64::try_from(min_size).is_ok_and(|min_size| min_size <= *max_size) {
        return Ok(());
    }
    let sizes = [format!("max_size is {max_size}"), format!("rate_limiter.min_size is {min_size}")];
    let [edited, kept] = if max_size_is_edited { [&sizes[0], &sizes[1]] } else { [&sizes[1], &sizes[0]] };
    Err(Error::invalid(format!(
        "[tables.{name}] could never be sampled: {edited}, but {kept} in the checkpoint, which holds because it was not \
         edited. Edit both, or write `override_definitions = true` in the section [checkpoint], which takes all options \
         of the file."
    )))
}

/// Returns the options of a table that a running server can change, as texts by name.
pub fn changeable(config: &TableConfig) -> BTreeMap<String, String> {
    let texts = texts(config).into_iter().filter(|(name, _)| CHANGEABLE.contains(name) || LIMITER.contains(name));
    texts.map(|(name, text)| (name.to_owned(), text)).collect()
}

/// Returns the options of a table as texts. Equal texts mean equal options.
fn texts(config: &TableConfig) -> Vec<(&'static str, String)> {
    let or_none = |value: Option<u64>| value.map_or_else(|| "none".into(), |value| value.to_string());
    let limiter = &config.rate_limiter;
    let bound = |value: f64| if value.abs() < f64::MAX { value.to_string() } else { "none".into() };
    vec![
        ("sampler", config.sampler.to_string()),
        ("remover", config.remover.to_string()),
        ("max_size", config.max_size.to_string()),
        ("max_times_sampled", config.max_times_sampled.max(0).to_string()),
        ("max_bytes", or_none(config.max_bytes)),
        ("samples_per_insert", limiter.samples_per_insert.to_string()),
        ("min_size", limiter.min_size_to_sample.to_string()),
        ("min_diff", bound(limiter.min_diff)),
        ("max_diff", bound(limiter.max_diff)),
        ("signature", config.signature.as_deref().map_or_else(|| "none".into(), signature_text)),
        ("seed", or_none(config.seed)),
    ]
}

fn signature_text(signature: &Signature) -> String {
    signature.specs.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn merge_signatures(
    saved: &TableConfig,
    here: &TableConfig,
    definitions: Definitions,
) -> Result<Option<Arc<Signature>>> {
    Ok(match (&saved.signature, &here.signature) {
        (Some(saved), Some(own)) if !are_compatible(saved, own) => {
            return Err(Error::SignatureMismatch(format!(
                "table `{}` has another signature in the checkpoint ({}) than on the server ({})",
                here.name,
                signature_text(saved),
                signature_text(own)
            )));
        }
        (Some(saved), Some(_)) if definitions == Definitions::Saved => Some(saved.clone()),
        (_, Some(own)) => Some(own.clone()),
        (saved, None) => saved.clone(),
    })
}
