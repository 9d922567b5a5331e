//! One renderer for all tables, and wrapped text, in the width of the terminal.
//!
//! A table that is too wide wraps text between words and shortens paths in the middle. If that is not enough it drops
//! columns, and at last prints each row as a block of lines. docs/reference/tables.md has the order for each table.

use std::fmt::{self, Display, Formatter};

use unicode_width::UnicodeWidthStr;

use super::output;
use crate::util::strip_control_chars;

const GAP: usize = 2;
/// Columns of text become narrower than this only if their content is; otherwise other columns are dropped first.
const MIN_TEXT_WIDTH: usize = 16;
/// Width that is left of a path at least.
const MIN_PATH_WIDTH: usize = 24;
const LINE_INDENT: usize = 4;

/// A column: its header, alignment, and what may happen to it in a narrow terminal.
#[derive(Debug)]
pub(crate) struct Column {
    header: String,
    is_number: bool,
    wraps: bool,
    drop_rank: Option<u8>,
}

impl Column {
    /// Text, which wraps between words.
    pub(crate) fn text(header: impl Into<String>) -> Self {
        Self { header: header.into(), is_number: false, wraps: true, drop_rank: None }
    }

    /// Ids, states and times, which never wrap.
    pub(crate) fn whole(header: impl Into<String>) -> Self {
        Self { wraps: false, ..Self::text(header) }
    }

    /// Numbers, which are aligned to the right and never wrap.
    pub(crate) fn number(header: impl Into<String>) -> Self {
        Self { is_number: true, ..Self::whole(header) }
    }

    /// Lets the column be dropped if the table is too wide; the lowest rank goes first.
    pub(crate) fn drop(self, rank: u8) -> Self {
        Self { drop_rank: Some(rank), ..self }
    }

    /// Returns the smallest width for these cells in which no word is split.
    fn min_width(&self, cells: &[&str], natural: usize) -> usize {
        if !self.wraps {
            return natural;
        }
        let words = cells.iter().flat_map(|cell| cell.split_whitespace());
        let need = |word: &str| match is_path(word) {
            true => word.width().min(MIN_PATH_WIDTH),
            false => word.width(),
        };
        words.map(need).max().unwrap_or_default().max(natural.min(MIN_TEXT_WIDTH))
    }
}

#[derive(Debug)]
pub(crate) struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(columns: impl IntoIterator<Item = Column>) -> Self {
        Self { columns: columns.into_iter().collect(), rows: Vec::new() }
    }

    /// Adds a row. Escape sequences and control characters are removed; a line break starts a new line in the cell.
    pub(crate) fn add_row<C: AsRef<str>>(&mut self, cells: impl IntoIterator<Item = C>) {
        let clean = |cell: C| strip_control_chars(cell.as_ref()).replace('\t', " ");
        self.rows.push(cells.into_iter().map(clean).collect());
    }

    /// Renders the table at most `width` columns wide, or without a limit.
    pub(crate) fn render(&self, width: Option<usize>) -> String {
        let widths = match width {
            Some(width) => self.fit(width),
            None => {
                Some(self.filled().map(|column| (column, self.natural_width(column))).collect())
            }
        };
        let lines = match (widths, width) {
            (Some(widths), _) => self.aligned_lines(&widths),
            (None, width) => self.block_lines(width.unwrap_or(usize::MAX)),
        };
        lines.join("\n")
    }

    /// Returns the columns that are not empty in every row.
    fn filled(&self) -> impl Iterator<Item = usize> {
        (0..self.columns.len()).filter(|column| self.cells(*column).any(|cell| !cell.is_empty()))
    }

    fn cells(&self, column: usize) -> impl Iterator<Item = &str> {
        self.rows.iter().map(move |row| row.get(column).map_or("", String::as_str))
    }

    fn with_header(&self, column: usize) -> Vec<&str> {
        let header = self.columns.get(column).map_or("", |column| column.header.as_str());
        std::iter::once(header).chain(self.cells(column)).collect()
    }

    fn natural_width(&self, column: usize) -> usize {
        let cells = self.with_header(column);
        cells.iter().flat_map(|cell| cell.lines()).map(UnicodeWidthStr::width).max().unwrap_or(0)
    }

    /// Returns the columns to show with their widths, or `None` if even those that cannot be dropped do not fit.
    fn fit(&self, width: usize) -> Option<Vec<(usize, usize)>> {
        let mut shown: Vec<ColumnFit> = Vec::new();
        for (index, column) in self.columns.iter().enumerate() {
            let natural = self.natural_width(index);
            let min = column.min_width(&self.with_header(index), natural);
            shown.push(ColumnFit { index, natural, min, drop_rank: column.drop_rank });
        }
        let filled: Vec<usize> = self.filled().collect();
        shown.retain(|column| filled.contains(&column.index));
        loop {
            let used = shown.iter().map(|column| column.min + GAP).sum::<usize>();
            if let Some(spare) = (width + GAP).checked_sub(used) {
                return Some(spread(&shown, spare));
            }
            let rank = shown.iter().filter_map(|column| column.drop_rank).min()?;
            shown.retain(|column| column.drop_rank != Some(rank));
        }
    }

    fn aligned_lines(&self, widths: &[(usize, usize)]) -> Vec<String> {
        let header: Vec<String> = self.columns.iter().map(|column| column.header.clone()).collect();
        let header = header.iter().any(|text| !text.is_empty()).then_some(&header);
        header.into_iter().chain(&self.rows).flat_map(|row| self.row_lines(row, widths)).collect()
    }

    fn row_lines(&self, row: &[String], widths: &[(usize, usize)]) -> Vec<String> {
        let cells: Vec<Vec<String>> = widths
            .iter()
            .map(|(column, width)| {
                let lines = row.get(*column).map_or("", String::as_str).lines();
                lines.flat_map(|line| wrap(line, *width, 0)).collect()
            })
            .collect();
        let height = cells.iter().map(Vec::len).max().unwrap_or_default();
        (0..height)
            .map(|line| {
                let mut text = String::new();
                for ((column, width), cell) in widths.iter().zip(&cells) {
                    let part = cell.get(line).map_or("", String::as_str);
                    let padding = " ".repeat(width.saturating_sub(part.width()));
                    match self.columns.get(*column).is_some_and(|column| column.is_number) {
                        true => text += &(padding + part),
                        false => text += &(part.to_owned() + &padding),
                    }
                    text += &" ".repeat(GAP);
                }
                text.trim_end().to_owned()
            })
            .collect()
    }

    /// Returns each row as a block: the first cell, and below it one line per further cell with its header.
    fn block_lines(&self, width: usize) -> Vec<String> {
        let mut lines = Vec::new();
        for row in &self.rows {
            for (column, (cell, Column { header, .. })) in row.iter().zip(&self.columns).enumerate()
            {
                let text = cell.split_whitespace().collect::<Vec<_>>().join(" ");
                match (column, text.as_str(), header.as_str()) {
                    (0, ..) => lines.extend(wrap(&text, width, GAP)),
                    (_, "", _) => {}
                    (_, text, "") => lines.extend(wrap(&format!("  {text}"), width, LINE_INDENT)),
                    (_, text, header) => {
                        lines.extend(wrap(&format!("  {header}: {text}"), width, LINE_INDENT));
                    }
                }
            }
        }
        lines
    }
}

impl Display for Table {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(output::width().map(usize::from)))
    }
}

/// Widths of a column that may be shown.
struct ColumnFit {
    index: usize,
    natural: usize,
    min: usize,
    drop_rank: Option<u8>,
}

/// Shares `spare` among the columns that need more than their minimum; those that need least are served first.
fn spread(columns: &[ColumnFit], mut spare: usize) -> Vec<(usize, usize)> {
    let mut by_need: Vec<&ColumnFit> = columns.iter().collect();
    by_need.sort_by_key(|column| column.natural.saturating_sub(column.min));
    let mut widths = Vec::new();
    for (served, column) in by_need.iter().enumerate() {
        let share = spare / (by_need.len() - served);
        let extra = column.natural.saturating_sub(column.min).min(share);
        spare -= extra;
        widths.push((column.index, column.min + extra));
    }
    widths.sort_unstable();
    widths
}

/// Wraps a line of a log to the width of the terminal, with an indent on continuation lines.
pub(crate) fn wrap_line(text: &str) -> String {
    match output::width() {
        Some(width) => wrap(text, usize::from(width), LINE_INDENT).join("\n"),
        None => text.to_owned(),
    }
}

/// Breaks a line between words; continuation lines begin with `indent` spaces, or fewer in front of a long word.
///
/// A path that is longer than a line is shortened in the middle, any other such word is split.
fn wrap(text: &str, width: usize, indent: usize) -> Vec<String> {
    if text.width() <= width {
        return vec![text.to_owned()];
    }
    let mut lines = Vec::new();
    let mut line = " ".repeat(text.len() - text.trim_start().len());
    let mut is_blank = true;
    for word in text.split_whitespace() {
        for piece in pieces(word, width.max(1)) {
            let gap = usize::from(!is_blank);
            if line.width() + gap + piece.width() <= width {
                line += &" ".repeat(gap);
            } else {
                if !is_blank {
                    lines.push(line);
                }
                line = " ".repeat(indent.min(width.saturating_sub(piece.width())));
            }
            line += &piece;
            is_blank = false;
        }
    }
    lines.push(line);
    lines
}

/// Returns the word, or a path shortened to `width`, or the pieces of any other word that is longer than `width`.
fn pieces(word: &str, width: usize) -> Vec<String> {
    if word.width() <= width {
        return vec![word.to_owned()];
    }
    if is_path(word) {
        return vec![shorten_middle(word, width)];
    }
    let mut pieces = vec![String::new()];
    for c in word.chars() {
        if let Some(piece) = pieces.last_mut() {
            if piece.width() + c.to_string().width() <= width || piece.is_empty() {
                piece.push(c);
            } else {
                pieces.push(c.to_string());
            }
        }
    }
    pieces
}

fn is_path(word: &str) -> bool {
    word.contains('/')
}

/// Replaces the middle of a text by `…`; the end keeps more, because it has the name of the file.
fn shorten_middle(text: &str, width: usize) -> String {
    let take = |chars: &mut dyn Iterator<Item = char>, room: usize| {
        let mut used = 0;
        let fits = |c: &char| {
            used += c.to_string().width();
            used <= room
        };
        chars.take_while(fits).collect::<String>()
    };
    let room = width.saturating_sub(1);
    let start = take(&mut text.chars(), room / 3);
    let end = take(&mut text.chars().rev(), room - room / 3);
    format!("{start}…{}", end.chars().rev().collect::<String>())
}

/// Wraps `text` behind `heading` to the width of the terminal, with a hanging indent.
///
/// Words are never split: words longer than a line are paths, which users copy.
pub(crate) fn wrap_behind_heading(heading: &str, text: &str) -> String {
    let width = output::width().map_or(usize::MAX, usize::from);
    let indent = heading.chars().count();
    let (mut lines, mut line) = (String::new(), heading.to_owned());
    for word in text.split_whitespace() {
        let used = line.chars().count();
        if used > indent && used + 1 + word.chars().count() > width {
            lines += &line;
            lines.push('\n');
            line = " ".repeat(indent);
        } else if used > indent {
            line.push(' ');
        }
        line += word;
    }
    lines + &line
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn runs() -> Table {
        let mut table = Table::new([
            Column::whole("RUN"),
            Column::text("AGENT"),
            Column::number("COST").drop(1),
            Column::text("DOING"),
        ]);
        table.add_row(["8f3a21bc", "web-search", "$0.0312", "Bash: curl the page of the day"]);
        table.add_row([
            "77aa00ff",
            "helper",
            "$12.5000",
            "Read: /srv/project/very/deep/folder/file.rs",
        ]);
        table
    }

    #[test]
    fn a_table_without_a_limit_is_not_cut() {
        insta::assert_snapshot!(runs().render(None), @r"
        RUN       AGENT           COST  DOING
        8f3a21bc  web-search   $0.0312  Bash: curl the page of the day
        77aa00ff  helper      $12.5000  Read: /srv/project/very/deep/folder/file.rs
        ");
    }

    #[test]
    fn text_wraps_paths_are_shortened_columns_are_dropped_and_rows_become_blocks() {
        insta::assert_snapshot!(runs().render(Some(56)), @r"
        RUN       AGENT           COST  DOING
        8f3a21bc  web-search   $0.0312  Bash: curl the page of
                                        the day
        77aa00ff  helper      $12.5000  Read:
                                        /srv/pr…p/folder/file.rs
        ");
        insta::assert_snapshot!(runs().render(Some(46)), @r"
        RUN       AGENT       DOING
        8f3a21bc  web-search  Bash: curl the page of
                              the day
        77aa00ff  helper      Read:
                              /srv/pr…p/folder/file.rs
        ");
        insta::assert_snapshot!(runs().render(Some(24)), @r"
        8f3a21bc
          AGENT: web-search
          COST: $0.0312
          DOING: Bash: curl the
            page of the day
        77aa00ff
          AGENT: helper
          COST: $12.5000
          DOING: Read:
        /srv/pr…p/folder/file.rs
        ");
    }

    #[test]
    fn wide_characters_and_escapes_do_not_break_the_alignment() {
        let mut table = Table::new([Column::text("A"), Column::text("B")]);
        table.add_row(["日本", "\u{1b}[31mred\u{1b}[0m"]);
        table.add_row(["x", "y"]);
        assert_eq!(table.render(None), "A     B\n日本  red\nx     y");
    }

    proptest! {
        #[test]
        fn no_line_is_wider_and_no_shorter_word_is_split(
            rows in prop::collection::vec(prop::collection::vec("[a-z日 ]{0,30}", 3), 1..4),
            width in 2..100_usize,
        ) {
            let mut table = Table::new(["ONE", "TWO", "THREE"].map(Column::text));
            for row in &rows {
                table.add_row(row);
            }
            let text = table.render(Some(width));
            for line in text.lines() {
                prop_assert!(line.width() <= width, "{text}");
            }
            let found: Vec<&str> = text.split_whitespace().collect();
            for word in rows.iter().flatten().flat_map(|cell| cell.split_whitespace()) {
                prop_assert!(word.width() > width || found.contains(&word), "`{word}` is split: {text}");
            }
        }
    }
}
