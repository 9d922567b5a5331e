//! Compares the speed of two builds of Adjutant in alternating rounds.
//!
//! `ADJUTANT_OLD=/path/to/old ADJUTANT_NEW=/path/to/new cargo bench --bench compare [-- MEASUREMENT…]` prints one row per
//! quantity: the median of the old build, the median of the new build, and the median of the per-round ratios new/old.
//! Exit code 1: a ratio is above 1.05 (throughput: below 1/1.05), or a measurement was skipped while `CI` is set.
//! Exit code 2: a variable or an argument is wrong. `benches/README.md` describes the rows.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::panic,
    clippy::needless_pass_by_value,
    clippy::cast_precision_loss,
    unreachable_pub,
    reason = "a measurement that fails says so by panicking"
)]

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/delegation.rs"]
mod delegation;
mod gateways;
mod pair;
mod row;
mod runs;
#[expect(clippy::unnecessary_wraps, reason = "the signature of every measurement")]
mod starts;
#[allow(dead_code, reason = "the tests use the rest of it")]
#[path = "../../tests/it/support/mod.rs"]
mod support;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs, io};

use tempfile::TempDir;

use pair::{Pair, Programs};
use row::Row;

const DEFAULT_ROUNDS: usize = 15;

/// Rows of one measurement; `None` where an external program is missing.
type Measure = fn(&Programs, rounds: usize) -> Option<Vec<Row>>;

const MEASUREMENTS: [(&str, Measure); 9] = [
    ("execute-tool", gateways::execute_tool),
    ("execute-tool-http", gateways::execute_tool_over_http),
    ("denied-call", gateways::denied_call),
    ("cold", runs::cold),
    ("warm", runs::warm),
    ("live", runs::live),
    ("start-serve", starts::serve),
    ("start-gateway", starts::gateway),
    ("start-matrix", starts::matrix),
];

fn main() -> ExitCode {
    // `cargo test --benches` only checks that the program starts.
    if !env::args().any(|argument| argument == "--bench") {
        return ExitCode::SUCCESS;
    }
    match Comparison::from_environment() {
        Ok(comparison) => comparison.run(),
        Err(why) => {
            eprintln!("error: {why}");
            ExitCode::from(2)
        }
    }
}

struct Comparison {
    programs: Programs,
    /// Holds the copies until the end.
    _folder: TempDir,
    rounds: usize,
    measurements: Vec<(&'static str, Measure)>,
}

impl Comparison {
    fn from_environment() -> Result<Self, String> {
        let old = program("ADJUTANT_OLD")?
            .ok_or("ADJUTANT_OLD is not set; it is the path of the build to compare with")?;
        let this_build = || PathBuf::from(env!("CARGO_BIN_EXE_adjutant"));
        let new = program("ADJUTANT_NEW")?.unwrap_or_else(this_build);
        let (rounds, measurements) = (rounds()?, selected()?);
        println!("old: {}\nnew: {}", old.display(), new.display());
        let (programs, folder) = copies(&Pair { old, new }).map_err(|error| error.to_string())?;
        Ok(Self { programs, _folder: folder, rounds, measurements })
    }

    fn run(&self) -> ExitCode {
        println!("rounds: {}, after one warm-up round that is not counted\n", self.rounds);
        row::print_header();
        let (mut missing, mut above) = (Vec::new(), Vec::new());
        for (name, measure) in &self.measurements {
            let Some(rows) = measure(&self.programs, self.rounds) else {
                println!("{name}: SKIPPED, an external program is missing (see above)");
                missing.push(*name);
                continue;
            };
            rows.iter().for_each(Row::print);
            above.extend(rows.into_iter().filter(|row| !row.is_within_limit()).map(|row| row.name));
        }
        conclude(&missing, &above)
    }
}

fn conclude(missing: &[&str], above: &[&str]) -> ExitCode {
    println!();
    if !missing.is_empty() {
        println!("NOT MEASURED: {}", missing.join(", "));
    }
    if above.is_empty() {
        println!("every measured row is within the limit");
    } else {
        println!("OVER THE LIMIT: {}", above.join(", "));
    }
    let is_incomplete = !missing.is_empty() && env::var_os("CI").is_some();
    ExitCode::from(u8::from(is_incomplete || !above.is_empty()))
}

/// Copies of both binaries in one folder below `target`. One binary on two file systems differs by 10 to 20 % in its
/// start-up time.
fn copies(programs: &Programs) -> io::Result<(Programs, TempDir)> {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let copy = |path: &Path, side: &str| {
        let copied = folder.path().join(side).join("adjutant");
        fs::create_dir(folder.path().join(side))?;
        fs::copy(path, &copied).map(|_| copied)
    };
    let programs = Pair { old: copy(&programs.old, "old")?, new: copy(&programs.new, "new")? };
    Ok((programs, folder))
}

/// The program that a variable names. The path is made absolute: measurements run in other folders.
fn program(variable: &str) -> Result<Option<PathBuf>, String> {
    let Some(path) = env::var_os(variable) else { return Ok(None) };
    let path = PathBuf::from(path);
    match path.canonicalize() {
        Ok(found) if found.is_file() => Ok(Some(found)),
        Ok(_) => Err(format!("{variable}: `{}` is not a file", path.display())),
        Err(error) => Err(format!("{variable}: `{}`: {error}", path.display())),
    }
}

fn rounds() -> Result<usize, String> {
    let Ok(text) = env::var("ADJUTANT_BENCH_ROUNDS") else { return Ok(DEFAULT_ROUNDS) };
    let rounds = text.parse().ok().filter(|rounds| *rounds > 0);
    rounds.ok_or_else(|| format!("ADJUTANT_BENCH_ROUNDS: `{text}` is not a number above 0"))
}

/// The measurements named on the command line; all of them where none is named.
fn selected() -> Result<Vec<(&'static str, Measure)>, String> {
    let named: Vec<String> = env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let known = MEASUREMENTS.map(|(name, _)| name);
    if let Some(unknown) = named.iter().find(|word| !known.contains(&word.as_str())) {
        return Err(format!("no measurement `{unknown}`; there are {}", known.join(", ")));
    }
    let is_selected = |name: &str| named.is_empty() || named.iter().any(|word| word == name);
    Ok(MEASUREMENTS.into_iter().filter(|(name, _)| is_selected(name)).collect())
}
