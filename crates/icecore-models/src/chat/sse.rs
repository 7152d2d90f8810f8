//! Server-sent events, as they come in pieces of any size.

/// One event.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Event {
    /// Its name; empty if it has none.
    pub name: String,
    /// Its lines of data, one under the other.
    pub data: String,
}

/// Puts events together.
#[derive(Debug, Default)]
pub struct EventReader {
    /// The line that is not over yet.
    line: Vec<u8>,
    /// A carriage return was last: a line feed after it belongs to it.
    after_return: bool,
    is_begun: bool,
    event: Event,
    has_data: bool,
}

/// Text that is not UTF-8.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotText;

impl EventReader {
    /// Takes the next bytes and gives the events that they complete.
    pub fn take(&mut self, bytes: &[u8]) -> Result<Vec<Event>, NotText> {
        let mut events = Vec::new();
        for byte in bytes {
            let follows_return = std::mem::take(&mut self.after_return);
            match byte {
                b'\n' if follows_return => {}
                b'\n' | b'\r' => {
                    self.after_return = *byte == b'\r';
                    events.extend(self.end_line()?);
                }
                _ => self.line.push(*byte),
            }
        }
        Ok(events)
    }

    /// The last event, if nothing but its empty line is missing.
    pub fn finish(&mut self) -> Result<Option<Event>, NotText> {
        let last = self.end_line()?;
        Ok(last.or_else(|| self.end_event()))
    }

    /// Bytes of the event that is not complete yet.
    pub fn buffered_bytes(&self) -> usize {
        self.line.len() + self.event.data.len()
    }

    fn end_line(&mut self) -> Result<Option<Event>, NotText> {
        let line = std::mem::take(&mut self.line);
        let line = std::str::from_utf8(&line).map_err(|_| NotText)?;
        let is_first = !std::mem::replace(&mut self.is_begun, true);
        let line = if is_first { line.trim_start_matches('\u{feff}') } else { line };
        if line.is_empty() {
            return Ok(self.end_event());
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.event.name),
            "data" => self.add(value),
            // Some builds of llama.cpp tell an error in a field of this name.
            "error" => {
                "error".clone_into(&mut self.event.name);
                self.add(value);
            }
            _ => {}
        }
        Ok(None)
    }

    fn add(&mut self, value: &str) {
        if std::mem::replace(&mut self.has_data, true) {
            self.event.data.push('\n');
        }
        self.event.data.push_str(value);
    }

    fn end_event(&mut self) -> Option<Event> {
        let event = std::mem::take(&mut self.event);
        std::mem::take(&mut self.has_data).then_some(event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, step: usize) -> Vec<Event> {
        let mut reader = EventReader::default();
        let mut events = Vec::new();
        for piece in text.as_bytes().chunks(step) {
            events.extend(reader.take(piece).unwrap());
        }
        events.extend(reader.finish().unwrap());
        events
    }

    fn event(name: &str, data: &str) -> Event {
        Event { name: name.to_owned(), data: data.to_owned() }
    }

    #[test]
    fn events_are_the_same_in_pieces_of_any_size() {
        let text = "\u{feff}: a comment\n\nevent: ping\ndata: {}\n\ndata:two\rdata: lines\r\r\
                    data: für\r\ndata\r\n\r\nid: 7\n\nevent: lost\n\nerror: {\"a\":1}\n\ndata: [DONE]";
        let expected = [
            event("ping", "{}"),
            event("", "two\nlines"),
            event("", "für\n"),
            event("error", "{\"a\":1}"),
            event("", "[DONE]"),
        ];
        for step in 1..=text.len() {
            assert_eq!(read(text, step), expected, "pieces of {step} bytes");
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_refused() {
        assert_eq!(EventReader::default().take(b"data: \xff\n"), Err(NotText));
    }
}
