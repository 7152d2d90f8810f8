//! Rows that can be scrolled.

use super::rows::Row;

/// Rows, and where among them one looks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pane {
    rows: Vec<Row>,
    /// Of these, those that stand before what is still coming.
    settled: usize,
    height: usize,
    /// Rows below the last that is shown.
    below: usize,
}

impl Pane {
    /// Takes other rows for a height. Whoever looks at the end goes on to; whoever looks
    /// at something else goes on to see that.
    pub fn lay(&mut self, rows: Vec<Row>, height: usize) {
        let (top, is_end) = (self.top(), self.below == 0);
        let is_longer = rows.len() >= self.rows.len() && self.rows.first() == rows.first();
        let seen = self.rows.get(top).map(|row| row.item);
        let same_top = is_longer && self.rows.get(top) == rows.get(top);
        self.settled = rows.len();
        self.rows = rows;
        self.height = height;
        if is_end {
            return;
        }
        let found = match (same_top, seen) {
            (true, _) => Some(top),
            (false, Some(item)) => self.rows.iter().position(|row| row.item >= item),
            (false, None) => None,
        };
        match found {
            Some(top) => self.show_from(top),
            None => self.below = 0,
        }
    }

    /// Puts what is still coming behind the rows, in place of what came before.
    pub fn lay_tail(&mut self, tail: Vec<Row>) {
        let top = self.top();
        self.rows.truncate(self.settled);
        self.rows.extend(tail);
        if self.below > 0 {
            self.show_from(top);
        }
    }

    /// The rows that are shown.
    pub fn shown(&self) -> &[Row] {
        let top = self.top();
        &self.rows[top..(top + self.height).min(self.rows.len())]
    }

    /// Rows below what is shown.
    pub fn below(&self) -> usize {
        self.below
    }

    /// Rows above what is shown.
    pub fn top(&self) -> usize {
        self.rows.len().saturating_sub(self.height).saturating_sub(self.below)
    }

    /// So many rows up.
    pub fn up(&mut self, rows: usize) {
        self.below = self.below.saturating_add(rows).min(self.most());
    }

    /// So many rows down.
    pub fn down(&mut self, rows: usize) {
        self.below = self.below.saturating_sub(rows);
    }

    /// A page up, with a row that was seen before.
    pub fn page_up(&mut self) {
        self.up(self.height.saturating_sub(1).max(1));
    }

    /// A page down.
    pub fn page_down(&mut self) {
        self.down(self.height.saturating_sub(1).max(1));
    }

    /// To the first row.
    pub fn home(&mut self) {
        self.below = self.most();
    }

    /// To the last row.
    pub fn end(&mut self) {
        self.below = 0;
    }

    /// Shows the first row of an item for which `is_it`, or its first, in the upper third.
    pub fn show(&mut self, item: usize, is_it: impl Fn(&Row) -> bool) {
        let of_item = |row: &Row| row.item == item;
        let found = self.rows.iter().position(|row| of_item(row) && is_it(row));
        if let Some(at) = found.or_else(|| self.rows.iter().position(of_item)) {
            self.show_from(at.saturating_sub(self.height / 3));
        }
    }

    /// Shows the end, or the beginning of an item if it does not all fit.
    pub fn show_last(&mut self, item: usize) {
        self.below = 0;
        if let Some(at) = self.rows.iter().position(|row| row.item == item)
            && at < self.top()
        {
            self.show_from(at);
        }
    }

    /// Shows from the first row of an item on.
    pub fn show_from_item(&mut self, item: usize) {
        let first = self.rows.iter().position(|row| row.item == item);
        self.show_from(first.unwrap_or_default());
    }

    fn show_from(&mut self, top: usize) {
        self.below = self.rows.len().saturating_sub(self.height).saturating_sub(top);
    }

    fn most(&self) -> usize {
        self.rows.len().saturating_sub(self.height)
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::Look;
    use super::*;

    fn rows(count: usize) -> Vec<Row> {
        let row = |n: usize| Row { parts: vec![(Look::Plain, n.to_string())], item: n / 2 };
        (0..count).map(row).collect()
    }

    fn shown(pane: &Pane) -> String {
        pane.shown().iter().map(Row::text).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn what_is_looked_at_stays_while_more_comes() {
        let mut pane = Pane::default();
        pane.lay(rows(10), 4);
        assert_eq!(shown(&pane), "6 7 8 9");
        pane.lay(rows(12), 4);
        assert_eq!(shown(&pane), "8 9 10 11");
        pane.up(3);
        assert_eq!(shown(&pane), "5 6 7 8");
        pane.lay(rows(20), 4);
        assert_eq!(shown(&pane), "5 6 7 8");
        assert_eq!((pane.below(), pane.top()), (11, 5));
        pane.lay(rows(20), 6);
        assert_eq!(shown(&pane), "5 6 7 8 9 10");
        pane.end();
        pane.page_up();
        assert_eq!(shown(&pane), "9 10 11 12 13 14");
        pane.home();
        pane.page_down();
        assert_eq!(shown(&pane), "5 6 7 8 9 10");
    }

    #[test]
    fn what_is_still_coming_is_seen_at_the_end_alone() {
        let mut pane = Pane::default();
        pane.lay(rows(10), 4);
        pane.lay_tail(rows(2));
        assert_eq!(shown(&pane), "8 9 0 1");
        pane.up(2);
        pane.lay_tail(rows(5));
        assert_eq!(shown(&pane), "6 7 8 9");
        pane.end();
        pane.lay_tail(Vec::new());
        assert_eq!(shown(&pane), "6 7 8 9");
    }

    #[test]
    fn nothing_is_scrolled_out_of_sight() {
        let mut pane = Pane::default();
        pane.lay(rows(3), 4);
        pane.up(100);
        assert_eq!(shown(&pane), "0 1 2");
        pane.lay(rows(9), 2);
        pane.up(100);
        assert_eq!(shown(&pane), "0 1");
        pane.lay(rows(0), 2);
        assert_eq!(shown(&pane), "");
        pane.lay(rows(9), 0);
        assert_eq!(shown(&pane), "");
    }

    #[test]
    fn an_item_is_shown_where_it_has_what_was_looked_for() {
        let mut pane = Pane::default();
        pane.lay(rows(30), 6);
        pane.show(4, |row| row.text() == "9");
        assert_eq!(shown(&pane), "7 8 9 10 11 12");
        pane.show(0, |_| false);
        assert_eq!(shown(&pane), "0 1 2 3 4 5");
    }
}
