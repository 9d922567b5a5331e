//! Benchmarks of the catalog.

fn main() {}
