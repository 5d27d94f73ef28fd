//! Rows for people, on lines that fit into the terminal.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

use super::short;
use crate::terminal;

/// A table without borders. A column whose name begins with `>` is aligned to the right. So that a line fits into the terminal,
/// columns whose names begin with `~` are cut, the last one first; then those with `?` are left out, from the right.
/// Where nobody looks at a terminal the table is whole.
pub(crate) fn table<R: IntoIterator<Item = String>>(header: &[&str], rows: impl IntoIterator<Item = R>) -> String {
    let rows = rows.into_iter().map(|row| row.into_iter().collect()).collect();
    let (text, left_out) = table_of_width(header, rows, terminal::width());
    if !left_out.is_empty() {
        eprintln!("the terminal is too narrow for {}; --output json shows all", left_out.join(", "));
    }
    text
}

/// The last column is cut down to this before any other is cut.
const LAST_WIDTH: usize = 20;
/// No column is cut below this.
const LEAST_WIDTH: usize = 12;
/// The other columns are cut down to this before any is left out.
const CUT_WIDTH: usize = 24;
/// Spaces between two columns.
const GAP: u16 = 2;

/// A column: its name, what may become of it, and its cells.
struct Column {
    name: String,
    is_right: bool,
    may_be_cut: bool,
    may_be_left_out: bool,
    cells: Vec<String>,
}

impl Column {
    fn new(title: &str, cells: Vec<String>) -> Self {
        let name = title.trim_start_matches(['>', '~', '?']);
        let marks = &title[..title.len() - name.len()];
        let [is_right, may_be_cut, may_be_left_out] = ['>', '~', '?'].map(|mark| marks.contains(mark));
        Self { name: name.to_uppercase(), is_right, may_be_cut, may_be_left_out, cells }
    }

    fn width(&self) -> usize {
        let cells = self.cells.iter().map(|cell| cell.chars().count());
        cells.chain([self.name.chars().count()]).max().unwrap_or(0)
    }

    /// Cuts it by so much, but not below the least width.
    fn cut(&mut self, by: usize, least: usize) {
        let width = self.width();
        if !self.may_be_cut || by == 0 || width <= least {
            return;
        }
        let left = width.saturating_sub(by).max(least).max(self.name.chars().count());
        for cell in &mut self.cells {
            *cell = short(cell, left);
        }
    }
}

/// The table, and the names of the columns that it leaves out.
fn table_of_width(header: &[&str], rows: Vec<Vec<String>>, width: Option<usize>) -> (String, Vec<String>) {
    let height = rows.len();
    let mut cells: Vec<Vec<String>> = header.iter().map(|_| Vec::with_capacity(height)).collect();
    for row in rows {
        // A row may end before the last column.
        let cells_of_row = row.into_iter().chain(std::iter::repeat_with(String::new));
        cells.iter_mut().zip(cells_of_row).for_each(|(column, cell)| column.push(cell));
    }
    let mut columns: Vec<Column> = header.iter().zip(cells).map(|(title, cells)| Column::new(title, cells)).collect();
    let left_out = width.map(|width| fit(&mut columns, width)).unwrap_or_default();
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(columns.iter().map(|column| &column.name));
    for row in 0..height {
        table.add_row(columns.iter().map(|column| &column.cells[row]));
    }
    for (shown, column) in table.column_iter_mut().zip(&columns) {
        shown.set_padding((0, GAP));
        if column.is_right {
            shown.set_cell_alignment(CellAlignment::Right);
        }
    }
    (trimmed(&table.to_string()), left_out)
}

/// Cuts columns, and leaves others out, until a line fits; gives the names of the latter.
fn fit(columns: &mut Vec<Column>, width: usize) -> Vec<String> {
    let over = |columns: &[Column]| {
        let taken: usize = columns.iter().map(|column| column.width() + usize::from(GAP)).sum();
        // There is no gap behind the last one.
        taken.saturating_sub(usize::from(GAP)).saturating_sub(width)
    };
    let mut left_out = Vec::new();
    let cut = |columns: &mut Vec<Column>, last: usize, others: usize| {
        for number in (0..columns.len()).rev() {
            let least = if number + 1 == columns.len() { last } else { others };
            let by = over(columns);
            columns[number].cut(by, least);
        }
    };
    cut(columns, LAST_WIDTH, CUT_WIDTH);
    while over(columns) > 0
        && let Some(number) = columns.iter().rposition(|column| column.may_be_left_out)
    {
        left_out.insert(0, columns.remove(number).name);
    }
    cut(columns, LEAST_WIDTH, LEAST_WIDTH);
    left_out
}

fn trimmed(text: &str) -> String {
    text.lines().fold(String::new(), |mut text, line| {
        text.push_str(line.trim_end());
        text.push('\n');
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_column_is_cut_at_the_width_of_the_terminal_and_nowhere_else() {
        let error = "the mail server did not answer within 5 seconds, four times in a row";
        let rows = || vec![vec!["01JD8Q4T9W".to_owned(), error.to_owned()]];
        let header = ["event_id", "~last error"];
        let line = |width| table_of_width(&header, rows(), width).0.lines().nth(1).unwrap().to_owned();

        assert_eq!(line(None), format!("01JD8Q4T9W  {error}"));
        assert_eq!(line(Some(60)).chars().count(), 60);
        assert!(line(Some(60)).ends_with('…'), "{}", line(Some(60)));
        assert_eq!(line(Some(10)).chars().count(), 12 + LEAST_WIDTH, "some of it is shown at any width");
        let (whole, _) = table_of_width(&["event_id", "error"], rows(), Some(20));
        assert_eq!(whole.lines().nth(1).unwrap(), line(None), "not asked for");
    }

    #[test]
    fn a_line_fits_into_a_narrow_terminal_without_the_columns_that_may_be_missed() {
        let header = [">seq", "event_id", "status", "~route", "?aggregate_id", "?>failures", "?created", "~last error"];
        let row = |route: &str, aggregate: &str| {
            let cells =
                ["12345", "01M8BT2P1JBQ1B360FNYWNGAWY", "RETRY (blocked)", route, aggregate, "10", "59 min ago", "refused: no"];
            cells.map(str::to_owned).to_vec()
        };
        for (route, aggregate) in
            [("Order/OrderPlaced", "42"), ("Subscription/SubscriptionWasRenewed", "customer-0815-4711-xy")]
        {
            let (text, left_out) = table_of_width(&header, vec![row(route, aggregate)], Some(80));
            assert_eq!(left_out, ["AGGREGATE_ID", "FAILURES", "CREATED"]);
            assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
            assert!(text.contains("01M8BT2P1JBQ1B360FNYWNGAWY"), "commands need the whole ID: {text}");
            let (whole, left_out) = table_of_width(&header, vec![row(route, aggregate)], Some(200));
            assert!(left_out.is_empty() && whole.contains(route) && whole.contains(aggregate), "{whole}");
        }
    }

    #[test]
    fn a_table_is_plain_text_without_spaces_at_the_end() {
        let text = table(&[">n", "name"], [["7".to_owned(), "a".to_owned()], ["10".to_owned(), "bb".to_owned()]]);
        assert_eq!(text, " N  NAME\n 7  a\n10  bb\n");
        assert_eq!(table(&[">n", "name"], [["7".to_owned()]]), "N  NAME\n7\n", "a row may be shorter");
    }
}
