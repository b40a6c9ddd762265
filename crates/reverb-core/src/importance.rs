//! Importance weights that correct for prioritised draws: Schaul et al. 2016, "Prioritized Experience Replay", §3.4.

/// Returns `(N · P(i))^-beta` for each draw, divided by the largest of them if `normalize`, where N is the size of the
/// table and P(i) the probability of the draw. Costs one power for each draw.
///
/// The product is computed in double precision; the power is computed and returned in single precision.
pub fn importance_weights(
    draws: impl Iterator<Item = (f64, i64)> + Clone,
    beta: f64,
    normalize: bool,
) -> impl Iterator<Item = f32> {
    let expected = |(probability, table_size): (f64, i64)| probability * table_size as f64;
    let scale = match normalize {
        // The smallest product has the largest weight.
        true => draws.clone().map(expected).fold(f64::INFINITY, f64::min),
        false => 1.0,
    };
    let exponent = -beta as f32;
    draws.map(move |draw| ((expected(draw) / scale) as f32).powf(exponent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_the_formula_over_their_maximum() {
        let draws = [(0.5, 10), (0.25, 10), (0.1, 20)];
        let plain: Vec<f32> = importance_weights(draws.into_iter(), 0.4, false).collect();
        let want = draws.map(|(p, n)| (p * n as f64).powf(-0.4) as f32);
        for (got, want) in plain.iter().zip(want) {
            assert!((got / want - 1.0).abs() < 1e-6);
        }
        let scaled: Vec<f32> = importance_weights(draws.into_iter(), 0.4, true).collect();
        let greatest = plain.iter().copied().fold(0.0, f32::max);
        for (scaled, plain) in scaled.iter().zip(plain) {
            assert!((scaled - plain / greatest).abs() < 1e-6);
        }
        assert!(scaled.contains(&1.0));
    }
}
