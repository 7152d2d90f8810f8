//! Bars on a terminal, and nothing anywhere else.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::hush;
use crate::printer::Printer;

/// A bar, drawn only where somebody can see it.
pub struct Bar(ProgressBar);

impl Bar {
    /// A bar that says what is being done, for work whose size is known.
    pub fn new(printer: &Printer, doing: &str) -> Self {
        Self::with_template(printer, doing, "{msg:12} {bar:32.cyan} {human_pos}/{human_len}  {eta}")
    }

    /// A sign of life, for work that is not counted as it goes.
    pub fn spinner(printer: &Printer, doing: &str) -> Self {
        Self::with_template(printer, doing, "{msg:12} {spinner:.cyan} {elapsed}")
    }

    fn with_template(printer: &Printer, doing: &str, template: &str) -> Self {
        let bar = match printer.shows_progress() {
            true => ProgressBar::new(0),
            false => ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden()),
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("█▓░"));
        }
        bar.set_message(hush::said(doing).into_owned());
        bar.enable_steady_tick(Duration::from_millis(120));
        Self(bar)
    }

    /// Says what is being done now.
    pub fn doing(&self, doing: &str) {
        self.0.set_message(hush::said(doing).into_owned());
    }

    /// So many of so many are done.
    pub fn at(&self, done: u64, total: u64) {
        self.0.set_length(total);
        self.0.set_position(done);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
