//! Price table to estimate the cost of a turn until its `result` frame reports the exact cost.
//!
//! Prices are those observed in 2.1.197 and 2.1.325, the lower one where they differ, so that no run is stopped for
//! money it did not spend. The CLI enforces its own budget with its own prices as well.

use super::frame::TokenUsage;

/// US dollars per million tokens.
#[derive(Clone, Copy)]
struct TokenPrice {
    input: f64,
    output: f64,
    cache_read: f64,
}

const fn price(read: f64, written: f64, from_cache: f64) -> TokenPrice {
    TokenPrice { input: read, output: written, cache_read: from_cache }
}

/// Prices by substring of the model name; the first match applies.
const PRICES: [(&str, TokenPrice); 13] = [
    ("haiku-5-5", price(0.1, 0.5, 0.01)),
    ("haiku-4-5", price(1.0, 5.0, 0.1)),
    ("3-5-haiku", price(0.8, 4.0, 0.08)),
    ("haiku", price(0.1, 0.5, 0.01)),
    ("sonnet-5-5", price(2.0, 10.0, 0.1)),
    ("sonnet-5", price(2.0, 10.0, 0.2)),
    ("sonnet-4", price(3.0, 15.0, 0.3)),
    ("sonnet", price(2.0, 10.0, 0.1)),
    ("opus-4", price(5.0, 25.0, 0.5)),
    ("opus", price(4.0, 20.0, 0.2)),
    ("fable-5-2", price(8.0, 40.0, 0.2)),
    ("fable-5", price(10.0, 50.0, 1.0)),
    ("fable", price(8.0, 40.0, 0.2)),
];
/// Both versions price unknown models like their newest `opus`.
const UNKNOWN_MODEL_PRICE: TokenPrice = price(4.0, 20.0, 0.2);
/// Cache writes cost 25 % more than uncached input.
const CACHE_WRITE_FACTOR: f64 = 1.25;

/// Cost of `usage` in US dollars.
#[expect(clippy::cast_precision_loss, reason = "nobody uses so many tokens")]
pub(crate) fn cost_usd(model: &str, usage: TokenUsage) -> f64 {
    let known = PRICES.iter().find(|(part, _)| model.contains(part));
    let price = known.map_or(UNKNOWN_MODEL_PRICE, |(_, price)| *price);
    let sum = usage.input_tokens as f64 * price.input
        + usage.output_tokens as f64 * price.output
        + usage.cache_read_input_tokens as f64 * price.cache_read
        + usage.cache_creation_input_tokens as f64 * price.input * CACHE_WRITE_FACTOR;
    sum / 1e6
}
