//! A `claude` that misbehaves on purpose.

fn main() {}
