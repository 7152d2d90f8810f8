//! Where on the screen things are, for any size of it.

use ratatui::layout::Rect;

/// From so many columns on both views stand side by side; below, one above the other.
const SIDE_BY_SIDE: u16 = 60;

/// Columns between them.
const BETWEEN: u16 = 2;

/// The input has at most this part of the rows.
const INPUT_PART: u16 = 3;

/// Columns before what is typed.
pub const PROMPT: u16 = 2;

/// The areas of the screen. One that has no room is empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Areas {
    /// The line at the top.
    pub title: Rect,
    /// What people see.
    pub display: Rect,
    /// Its heading, where both views are shown.
    pub display_head: Rect,
    /// What a model is sent, where both views are shown.
    pub sent: Rect,
    /// Its heading.
    pub sent_head: Rect,
    /// The line between both.
    pub between: Rect,
    /// The line above the input.
    pub rule: Rect,
    /// What is typed.
    pub input: Rect,
    /// The line at the bottom.
    pub status: Rect,
}

/// The areas of a screen with so many rows of input.
pub fn areas((width, height): (u16, u16), input_rows: usize, is_both: bool) -> Areas {
    let row = |y: u16, rows: u16| Rect::new(0, y, width, rows);
    let title = u16::from(height >= 8);
    let rule = u16::from(height >= 6);
    let status = u16::from(height >= 3);
    let most = (height / INPUT_PART).max(1);
    let input = u16::try_from(input_rows).unwrap_or(u16::MAX).clamp(1, most);
    let input = input.min(height - title - rule - status);
    let body = height - title - rule - status - input;
    let mut areas = Areas {
        title: row(0, title),
        rule: row(title + body, rule),
        input: row(title + body + rule, input),
        status: row(height - status, status),
        ..Areas::default()
    };
    split(&mut areas, row(title, body), is_both);
    areas
}

fn split(areas: &mut Areas, body: Rect, is_both: bool) {
    if !is_both {
        areas.display = body;
        return;
    }
    let (first, second) = match body.width >= SIDE_BY_SIDE {
        true => {
            let left = (body.width - BETWEEN) / 2;
            let right = body.width - BETWEEN - left;
            areas.between = Rect::new(left, body.y, BETWEEN, body.height);
            let first = Rect { width: left, ..body };
            (first, Rect { x: left + BETWEEN, width: right, ..body })
        }
        false => {
            let upper = body.height / 2;
            let lower = Rect { y: body.y + upper, height: body.height - upper, ..body };
            (Rect { height: upper, ..body }, lower)
        }
    };
    (areas.display_head, areas.display) = headed(first);
    (areas.sent_head, areas.sent) = headed(second);
}

/// A line for a heading and the rest.
fn headed(area: Rect) -> (Rect, Rect) {
    let head = area.height.min(1);
    let rest = Rect { y: area.y + head, height: area.height - head, ..area };
    (Rect { height: head, ..area }, rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_on_the_screen_and_nothing_overlaps() {
        for width in 0..130 {
            for height in 0..40 {
                for (rows, is_both) in [(1, false), (1, true), (9, false), (99, true)] {
                    let a = areas((width, height), rows, is_both);
                    let all = [
                        a.title, a.display_head, a.display, a.between, a.sent_head, a.sent, a.rule,
                        a.input, a.status,
                    ];
                    let cells: u32 = all.iter().map(|area| area.area()).sum();
                    assert_eq!(cells, u32::from(width) * u32::from(height), "{a:?}");
                    let is_inside = |area: &Rect| area.right() <= width && area.bottom() <= height;
                    assert!(all.iter().all(is_inside), "{a:?}");
                }
            }
        }
    }

    #[test]
    fn a_small_screen_shows_what_matters() {
        let shown = |height: u16| {
            let a = areas((20, height), 1, false);
            [a.title, a.display, a.rule, a.input, a.status].map(|area| area.height)
        };
        assert_eq!(shown(24), [1, 20, 1, 1, 1]);
        assert_eq!(shown(6), [0, 3, 1, 1, 1]);
        assert_eq!(shown(3), [0, 1, 0, 1, 1]);
        assert_eq!(shown(1), [0, 0, 0, 1, 0]);
    }
}
