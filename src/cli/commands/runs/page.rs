//! A run as a self-contained HTML page without scripts or external resources.

use maud::{Markup, html};

use super::text::{elapsed_ms, format_usage};
use crate::cli::format::{format_duration, format_time};
use crate::cli::html_page::{HtmlPage, page_text};
use crate::events::{RunTimeline, TimelineStep, TimelineStepKind};
use crate::util::shorten;

/// Width of the SVG view box; the image scales with the window.
const WIDTH: u64 = 1_040;
/// Left edge of the bars, to the right of their labels.
const BARS_LEFT: u64 = 210;
const ROW_HEIGHT: u64 = 24;
const BOX_HEIGHT: u64 = 44;
/// Limit on bars in the time line; the table below it has all steps.
const MAX_BARS: usize = 200;
const MAX_RELATED_RUNS: usize = 40;

pub(crate) fn to_html(story: &RunTimeline, family: &[&RunTimeline]) -> String {
    let body = html! {
        h1 { (page_text(&story.agent)) ": " (outcome(story)) }
        p.sub { "run " (story.run_id) ", " (format_time(story.queued)) }
        (facts(story))
        h2 { "Who called whom" }
        (draw_call_tree(story, family))
        h2 { "When" }
        (draw_timeline(story))
        (legend())
        h2 { "Step by step" }
        (steps_table(story))
    };
    let title = format!("Run of {}", story.agent);
    HtmlPage { title: &title, style: include_str!("page.css"), script: None, body }.render()
}

fn outcome(story: &RunTimeline) -> Markup {
    match story.outcome.as_deref() {
        Some("SUCCESS") => html! { span.good { "SUCCESS" } },
        Some(code) => html! { span.bad { (page_text(code)) } },
        None => html! { "still running" },
    }
}

fn facts(story: &RunTimeline) -> Markup {
    let mut rows =
        vec![("took", story.duration_ms.map_or_else(|| "-".to_owned(), format_duration))];
    rows.push(("spent", format_usage(story)));
    rows.extend(story.error.as_ref().map(|error| ("why", error.sentences())));
    rows.extend(story.session_id.as_ref().map(|id| ("conversation", id.clone())));
    rows.extend(story.transcript.as_ref().map(|path| ("transcript", path.clone())));
    html! {
        dl { @for (word, value) in &rows { dt { (word) } dd { (page_text(value)) } } }
    }
}

/// A box in the call tree.
struct AgentBox {
    depth: u64,
    name: String,
    about: String,
    is_own: bool,
}

/// Draws the call tree: caller on the left, its runs in the middle, their subagents on the right.
fn draw_call_tree(story: &RunTimeline, family: &[&RunTimeline]) -> Markup {
    let people = call_tree_boxes(story, family);
    let height = people.len() as u64 * (BOX_HEIGHT + 14) + 4;
    let mut parents: Vec<u64> = Vec::new();
    let mut placed = Vec::new();
    for (row, person) in people.iter().enumerate() {
        let top = row as u64 * (BOX_HEIGHT + 14) + 2;
        parents.truncate(usize::try_from(person.depth).unwrap_or_default());
        placed.push((person, top, parents.last().copied()));
        parents.push(top + BOX_HEIGHT);
    }
    html! {
        svg viewBox={ "0 0 " (WIDTH) " " (height) } role="img" aria-label="Who called whom" {
            @for (person, top, parent) in placed { (draw_agent_box(person, top, parent)) }
        }
    }
}

/// Draws one box, with a line to the bottom of its parent.
fn draw_agent_box(person: &AgentBox, top: u64, parent: Option<u64>) -> Markup {
    let left = person.depth * 190 + 2;
    let class = if person.is_own { "box own" } else { "box" };
    html! {
        @if let Some(parent) = parent {
            path.link d=(format!("M{} {parent}V{}H{left}", left - 170, top + BOX_HEIGHT / 2)) {}
        }
        rect class=(class) x=(left) y=(top) width="330" height=(BOX_HEIGHT) rx="6" {}
        text x=(left + 12) y=(top + 19) { (page_text(&shorten(&person.name, 40))) }
        text.dim x=(left + 12) y=(top + 36) { (page_text(&shorten(&person.about, 48))) }
    }
}

fn call_tree_boxes(story: &RunTimeline, family: &[&RunTimeline]) -> Vec<AgentBox> {
    let session =
        story.caller_field("session_id").map_or_else(String::new, |id| format!("session {id}"));
    let mut people =
        vec![AgentBox { depth: 0, name: "main".to_owned(), about: session, is_own: false }];
    let mut native: Option<&str> = None;
    let mut runs: Vec<&RunTimeline> = family.to_vec();
    runs.sort_by_key(|run| (run.caller_field("agent_id").unwrap_or_default(), run.queued));
    for run in runs.into_iter().take(MAX_RELATED_RUNS) {
        let instance = run.caller_field("agent_id");
        if instance.is_some() && instance != native {
            let about = format!("subagent {}", instance.unwrap_or_default());
            people.push(AgentBox {
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
        let took = run.duration_ms.map_or_else(|| "running".to_owned(), format_duration);
        let ended = run.outcome.as_deref().unwrap_or("running");
        let about = format!("{ended}, {took}");
        let is_own = run.run_id == story.run_id;
        people.push(AgentBox { depth, name: run.agent.clone(), about, is_own });
        let inner = run.steps.iter().filter(|step| step.kind == TimelineStepKind::Subagent);
        people.extend(inner.map(|step| AgentBox {
            depth: depth + 1,
            name: step.name.clone(),
            about: format!(
                "subagent, {}",
                step.duration_ms.map_or_else(|| "running".to_owned(), format_duration)
            ),
            is_own: false,
        }));
    }
    people
}

fn draw_timeline(story: &RunTimeline) -> Markup {
    let last = story.steps.iter().map(|step| end_offset_ms(story, step)).max().unwrap_or_default();
    let whole = story.duration_ms.unwrap_or_default().max(last).max(1);
    let scale = |millis: u64| BARS_LEFT + millis.min(whole) * (WIDTH - BARS_LEFT - 80) / whole;
    let bars: Vec<&TimelineStep> = story.steps.iter().take(MAX_BARS).collect();
    let height = (bars.len() as u64 + 1) * ROW_HEIGHT + 34;
    let ready = story.started.map_or(0, |started| elapsed_ms(story.queued, started));
    let took = story.duration_ms.unwrap_or(last);
    html! {
        svg viewBox={ "0 0 " (WIDTH) " " (height) } role="img" aria-label="Time line" {
            @for part in 0..=4 {
                @let x = scale(whole * part / 4);
                path.grid d=(format!("M{x} 0V{}", height - 20)) {}
                text.dim x=(x + 3) y=(height - 6) { (format_duration(whole * part / 4)) }
            }
            (draw_bar(0, "the run", "wait", (scale(0), scale(ready)), &format!("waited {}", format_duration(ready))))
            (draw_bar(0, "", "event", (scale(ready), scale(took)), &format_duration(took)))
            @for (row, step) in bars.iter().enumerate() {
                @let began = elapsed_ms(story.queued, step.time);
                @let span = (scale(began), scale(end_offset_ms(story, step)));
                @let label = step.duration_ms.map_or_else(String::new, format_duration);
                (draw_bar(row as u64 + 1, &step.name, css_class(step.kind), span, &label))
            }
        }
    }
}

fn draw_bar(row: u64, name: &str, class: &str, (from, to): (u64, u64), label: &str) -> Markup {
    let top = row * ROW_HEIGHT + 5;
    let width = to.saturating_sub(from).max(3);
    html! {
        rect class=(class) x=(from) y=(top) width=(width) height="15" rx="2" { title { (label) } }
        text x="0" y=(top + 12) { (page_text(&shorten(name, 30))) }
        @if class != "wait" {
            text.dim x=(from + width + 6) y=(top + 12) { (label) }
        }
    }
}

fn end_offset_ms(story: &RunTimeline, step: &TimelineStep) -> u64 {
    elapsed_ms(story.queued, step.time) + step.duration_ms.unwrap_or_default()
}

fn css_class(kind: TimelineStepKind) -> &'static str {
    match kind {
        TimelineStepKind::Tool => "tool",
        TimelineStepKind::Running => "running",
        TimelineStepKind::Failed => "failed",
        TimelineStepKind::Denied => "denied",
        TimelineStepKind::Subagent => "subagent",
        TimelineStepKind::Event => "event",
    }
}

fn status_word(kind: TimelineStepKind) -> &'static str {
    match kind {
        TimelineStepKind::Tool => "ran",
        TimelineStepKind::Running => "running",
        TimelineStepKind::Failed => "failed",
        TimelineStepKind::Denied => "denied",
        TimelineStepKind::Subagent => "subagent",
        TimelineStepKind::Event => "",
    }
}

fn legend() -> Markup {
    let entries = [
        ("tool", "tool"),
        ("failed", "failed"),
        ("denied", "denied"),
        ("sub", "subagent"),
        ("event", "event"),
    ];
    html! {
        .legend {
            @for (name, word) in entries { span { i style={ "color:var(--" (name) ")" } {} (word) } }
        }
    }
}

fn steps_table(story: &RunTimeline) -> Markup {
    html! {
        table {
            thead { tr { th { "at" } th { "took" } th { "what" } th {} th { "about" } } }
            tbody {
                @for step in &story.steps {
                    tr {
                        td.num { "+" (format_duration(elapsed_ms(story.queued, step.time))) }
                        td.num { (step.duration_ms.map_or_else(String::new, format_duration)) }
                        td { (page_text(&step.name)) }
                        td.dim { (status_word(step.kind)) }
                        td.about { (page_text(&step.about)) }
                    }
                }
            }
        }
    }
}
