//! What tokens cost, as the CLI counts them: for the time until its `result` says it to the cent.
//!
//! The prices are those that 2.1.197 and 2.1.325 were seen to count with; where they differ, the lower one, so that
//! nobody is stopped for money that was not spent. The CLI knows its prices better, and holds its own limit beside ours.

use super::frame::Usage;

/// Dollars for a million tokens.
#[derive(Clone, Copy)]
struct Price {
    read: f64,
    written: f64,
    from_cache: f64,
}

const fn price(read: f64, written: f64, from_cache: f64) -> Price {
    Price { read, written, from_cache }
}

/// What a model's name holds, the first that fits.
const PRICES: [(&str, Price); 13] = [
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
/// Both versions count a model that they do not know like their newest `opus`.
const UNKNOWN: Price = price(4.0, 20.0, 0.2);
/// Writing to the cache costs a quarter more than reading.
const TO_CACHE: f64 = 1.25;

/// What these tokens of this model cost, in dollars.
#[expect(clippy::cast_precision_loss, reason = "nobody uses so many tokens")]
pub(super) fn cost_usd(model: &str, usage: Usage) -> f64 {
    let known = PRICES.iter().find(|(part, _)| model.contains(part));
    let price = known.map_or(UNKNOWN, |(_, price)| *price);
    let sum = usage.input_tokens as f64 * price.read
        + usage.output_tokens as f64 * price.written
        + usage.cache_read_input_tokens as f64 * price.from_cache
        + usage.cache_creation_input_tokens as f64 * price.read * TO_CACHE;
    sum / 1e6
}
