//! The plot of one row: two bars and the goal, as a self-contained SVG.

use crate::{Goal, Row};

const LEFT: f64 = 170.0;
const WIDTH: f64 = 420.0;

/// The SVG text. The background is white, so that the plot is readable on light and dark pages.
pub fn svg(row: &Row) -> String {
    let goal = match row.goal {
        Goal::AtMost(most) => row.theirs * most,
        Goal::AtLeastTimesFaster(times) => row.theirs / times,
    };
    let longest = row.ours.max(row.theirs).max(goal);
    let scale = |value: f64| (value / longest * WIDTH).max(1.0);
    let at = LEFT + scale(goal);
    let bar = |y: u32, name: &str, value: f64, colour: &str| {
        let (width, middle) = (scale(value), y + 17);
        let label = LEFT + width + 6.0;
        format!(
            "<text x=\"{:.0}\" y=\"{middle}\" text-anchor=\"end\">{}</text>\
             <rect x=\"{LEFT}\" y=\"{y}\" width=\"{width:.1}\" height=\"26\" fill=\"{colour}\"/>\
             <text x=\"{label:.1}\" y=\"{middle}\">{}</text>\n",
            LEFT - 8.0,
            escaped(name),
            format_number(value, row.unit)
        )
    };
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 720 150\" font-family=\"sans-serif\" font-size=\"13\" role=\"img\">\n\
         <title>{title}</title>\n<rect width=\"720\" height=\"150\" fill=\"#ffffff\"/>\n\
         <text x=\"10\" y=\"24\" font-size=\"15\">{title}</text>\n{}{}\
         <line x1=\"{at:.1}\" y1=\"38\" x2=\"{at:.1}\" y2=\"112\" stroke=\"#b00020\" stroke-dasharray=\"4 3\"/>\n\
         <text x=\"{at:.1}\" y=\"132\" text-anchor=\"middle\" fill=\"#b00020\">goal</text>\n</svg>\n",
        bar(44, row.baseline, row.theirs, "#9aa5b1"),
        bar(80, "Adjutant", row.ours, "#2a6f97"),
        title = escaped(row.title),
    )
}

/// A number with its unit: two decimals below 10, none above.
pub fn format_number(value: f64, unit: &str) -> String {
    if value < 10.0 { format!("{value:.2} {unit}") } else { format!("{value:.0} {unit}") }
}

fn escaped(text: &str) -> String {
    text.replace('`', "").replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
