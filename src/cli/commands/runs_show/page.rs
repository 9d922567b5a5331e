//! A run as a page: everything in one file, nothing fetched, readable in light and dark, without a script.

use std::fmt::Write;

use super::text::{duration, since, spent};
use crate::base::{one_line, shorten};
use crate::record::{RunStory, Step, StepKind};

const STYLE: &str = include_str!("../../story/page.css");
/// The picture's own measure; it grows and shrinks with the window.
const WIDTH: u64 = 1_040;
/// Where the bars begin, right of their names.
const LEFT: u64 = 210;
const ROW: u64 = 24;
const BOX: u64 = 44;
/// More would be no picture any more; the table below has all.
const MOST_BARS: usize = 200;
const MOST_RELATIVES: usize = 40;

pub(super) fn html(story: &RunStory, family: &[&RunStory]) -> String {
    let mut page = String::new();
    let name = escape(&story.agent);
    let _ = write!(
        page,
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <title>Run of {name}</title>\n<style>\n{STYLE}</style>\n\
         <h1>{name}: {}</h1>\n<p class=\"sub\">run {}, {}</p>\n{}\
         <h2>Who called whom</h2>\n{}<h2>When</h2>\n{}{}<h2>Step by step</h2>\n{}</html>",
        outcome(story),
        story.run_id,
        story.queued.strftime("%Y-%m-%d %H:%M:%S UTC"),
        facts(story),
        tree(story, family),
        time_line(story),
        legend(),
        table(story),
    );
    page
}

fn outcome(story: &RunStory) -> String {
    match story.outcome.as_deref() {
        Some("SUCCESS") => "<span class=\"good\">SUCCESS</span>".to_owned(),
        Some(code) => format!("<span class=\"bad\">{}</span>", escape(code)),
        None => "still running".to_owned(),
    }
}

fn facts(story: &RunStory) -> String {
    let mut rows = vec![("took", story.duration_ms.map_or_else(|| "-".to_owned(), duration))];
    rows.push(("spent", spent(story)));
    rows.extend(story.error.as_ref().map(|error| ("why", one_line(error))));
    rows.extend(story.session_id.as_ref().map(|id| ("conversation", id.clone())));
    rows.extend(story.transcript.as_ref().map(|path| ("transcript", path.clone())));
    let rows: Vec<String> = rows
        .iter()
        .map(|(word, value)| format!("<dt>{word}</dt><dd>{}</dd>", escape(value)))
        .collect();
    format!("<dl>{}</dl>\n", rows.concat())
}

/// A box in the picture of the tree.
struct Person {
    depth: u64,
    name: String,
    about: String,
    is_own: bool,
}

/// The caller on the left, its runs in the middle, their own subagents on the right.
fn tree(story: &RunStory, family: &[&RunStory]) -> String {
    let people = people(story, family);
    let height = people.len() as u64 * (BOX + 14) + 4;
    let mut picture = format!(
        "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"Who called whom\">\n"
    );
    let mut parents: Vec<u64> = Vec::new();
    for (row, person) in people.iter().enumerate() {
        let top = row as u64 * (BOX + 14) + 2;
        let left = person.depth * 190 + 2;
        parents.truncate(usize::try_from(person.depth).unwrap_or_default());
        if let Some(parent) = parents.last() {
            let (x, y) = (left - 170, top + BOX / 2);
            let _ = writeln!(picture, "<path class=\"link\" d=\"M{x} {parent}V{y}H{left}\"/>");
        }
        parents.push(top + BOX);
        let own = if person.is_own { " own" } else { "" };
        let _ = writeln!(
            picture,
            "<rect class=\"box{own}\" x=\"{left}\" y=\"{top}\" width=\"330\" height=\"{BOX}\" rx=\"6\"/>\
             <text x=\"{x}\" y=\"{name_y}\">{}</text><text class=\"dim\" x=\"{x}\" y=\"{about_y}\">{}</text>",
            escape(&shorten(&person.name, 40)),
            escape(&shorten(&person.about, 48)),
            x = left + 12,
            name_y = top + 19,
            about_y = top + 36,
        );
    }
    picture.push_str("</svg>\n");
    picture
}

fn people(story: &RunStory, family: &[&RunStory]) -> Vec<Person> {
    let session =
        story.caller_text("session_id").map_or_else(String::new, |id| format!("session {id}"));
    let mut people =
        vec![Person { depth: 0, name: "main".to_owned(), about: session, is_own: false }];
    let mut native: Option<&str> = None;
    let mut runs: Vec<&RunStory> = family.to_vec();
    runs.sort_by_key(|run| (run.caller_text("agent_id").unwrap_or_default(), run.queued));
    for run in runs.into_iter().take(MOST_RELATIVES) {
        let instance = run.caller_text("agent_id");
        if instance.is_some() && instance != native {
            let about = format!("subagent {}", instance.unwrap_or_default());
            people.push(Person {
                depth: 1,
                name: run.caller_name().to_owned(),
                about,
                is_own: false,
            });
        } else if instance.is_none()
            && let [main] = people.as_mut_slice()
        {
            run.caller_name().clone_into(&mut main.name);
        }
        native = instance;
        let depth = 1 + u64::from(instance.is_some());
        let took = run.duration_ms.map_or_else(|| "running".to_owned(), duration);
        let ended = run.outcome.as_deref().unwrap_or("running");
        let about = format!("{ended}, {took}");
        let is_own = run.run_id == story.run_id;
        people.push(Person { depth, name: run.agent.clone(), about, is_own });
        let inner = run.steps.iter().filter(|step| step.kind == StepKind::Subagent);
        people.extend(inner.map(|step| Person {
            depth: depth + 1,
            name: step.name.clone(),
            about: format!(
                "subagent, {}",
                step.duration_ms.map_or_else(|| "running".to_owned(), duration)
            ),
            is_own: false,
        }));
    }
    people
}

fn time_line(story: &RunStory) -> String {
    let last = story.steps.iter().map(|step| end_of(story, step)).max().unwrap_or_default();
    let whole = story.duration_ms.unwrap_or_default().max(last).max(1);
    let scale = |millis: u64| LEFT + millis.min(whole) * (WIDTH - LEFT - 80) / whole;
    let bars: Vec<&Step> = story.steps.iter().take(MOST_BARS).collect();
    let height = (bars.len() as u64 + 1) * ROW + 34;
    let mut picture =
        format!("<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"Time line\">\n");
    for part in 0..=4 {
        let x = scale(whole * part / 4);
        let _ = writeln!(
            picture,
            "<path class=\"grid\" d=\"M{x} 0V{}\"/><text class=\"dim\" x=\"{}\" y=\"{}\">{}</text>",
            height - 20,
            x + 3,
            height - 6,
            duration(whole * part / 4),
        );
    }
    let ready = story.started.map_or(0, |started| since(story.queued, started));
    bar(
        &mut picture,
        0,
        "the run",
        "wait",
        (scale(0), scale(ready)),
        &format!("waited {}", duration(ready)),
    );
    let took = story.duration_ms.unwrap_or(last);
    bar(&mut picture, 0, "", "event", (scale(ready), scale(took)), &duration(took));
    for (row, step) in bars.iter().enumerate() {
        let began = since(story.queued, step.time);
        let span = (scale(began), scale(end_of(story, step)));
        let label = step.duration_ms.map_or_else(String::new, duration);
        bar(&mut picture, row as u64 + 1, &step.name, class(step.kind), span, &label);
    }
    picture.push_str("</svg>\n");
    picture
}

fn bar(
    picture: &mut String,
    row: u64,
    name: &str,
    class: &str,
    (from, to): (u64, u64),
    label: &str,
) {
    let top = row * ROW + 5;
    let width = to.saturating_sub(from).max(3);
    let text = top + 12;
    let _ = writeln!(
        picture,
        "<rect class=\"{class}\" x=\"{from}\" y=\"{top}\" width=\"{width}\" height=\"15\" rx=\"2\"><title>{label}</title></rect>\
         <text x=\"0\" y=\"{text}\">{}</text>",
        escape(&shorten(name, 30)),
    );
    if class != "wait" {
        let after = from + width + 6;
        let _ = writeln!(picture, "<text class=\"dim\" x=\"{after}\" y=\"{text}\">{label}</text>");
    }
}

fn end_of(story: &RunStory, step: &Step) -> u64 {
    since(story.queued, step.time) + step.duration_ms.unwrap_or_default()
}

fn class(kind: StepKind) -> &'static str {
    match kind {
        StepKind::Tool => "tool",
        StepKind::Running => "running",
        StepKind::Failed => "failed",
        StepKind::Denied => "denied",
        StepKind::Subagent => "subagent",
        StepKind::Event => "event",
    }
}

fn word(kind: StepKind) -> &'static str {
    match kind {
        StepKind::Tool => "ran",
        StepKind::Running => "running",
        StepKind::Failed => "failed",
        StepKind::Denied => "denied",
        StepKind::Subagent => "subagent",
        StepKind::Event => "",
    }
}

fn legend() -> String {
    let entry = |name: &str, word: &str| {
        format!("<span><i style=\"color:var(--{name})\"></i>{word}</span>")
    };
    let entries = [
        ("tool", "tool"),
        ("failed", "failed"),
        ("denied", "denied"),
        ("sub", "subagent"),
        ("event", "event"),
    ];
    let all: Vec<String> = entries.iter().map(|(name, word)| entry(name, word)).collect();
    format!("<div class=\"legend\">{}</div>\n", all.concat())
}

fn table(story: &RunStory) -> String {
    let mut rows = String::new();
    for step in &story.steps {
        let _ = writeln!(
            rows,
            "<tr><td class=\"num\">+{}</td><td class=\"num\">{}</td><td>{}</td><td class=\"dim\">{}</td><td class=\"about\">{}</td></tr>",
            duration(since(story.queued, step.time)),
            step.duration_ms.map_or_else(String::new, duration),
            escape(&step.name),
            word(step.kind),
            escape(&step.about),
        );
    }
    format!(
        "<table><thead><tr><th>at</th><th>took</th><th>what</th><th></th><th>about</th></tr></thead>\n<tbody>\n{rows}</tbody></table>\n"
    )
}

/// What an agent wrote is text here, never markup.
fn escape(text: &str) -> String {
    one_line(text)
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
