//! The index of a pack: which members there are, and in which frame.
//!
//! Written small, since a pack of short turns is small: numbers take as few bytes
//! as they need, and a member says only how it differs from the one before.

use icecore_domain::chunk::{ChunkId, Level};
use icecore_domain::ids::{Branch, Ordinal, SessionNo};

use super::PackMember;
use crate::pack::TextFormat;

pub(super) struct Index {
    pub(super) identity: [u8; 32],
    pub(super) frames: Vec<FrameEntry>,
    pub(super) members: Vec<MemberEntry>,
}

pub(super) struct FrameEntry {
    pub(super) members: usize,
    /// Its length in the pack, tag included.
    pub(super) sealed_bytes: usize,
}

/// One member; its text follows that of the member before.
pub(super) struct MemberEntry {
    pub(super) id: ChunkId,
    pub(super) format: TextFormat,
    pub(super) text_bytes: usize,
}

impl MemberEntry {
    pub(super) fn of(member: &PackMember) -> Self {
        Self { id: member.id, format: member.format, text_bytes: member.text.len() }
    }
}

/// A member's first byte: its level in the lowest two bits, and these.
const JSONL: u8 = 1 << 2;
/// Session and branch are those of the member before.
const SAME_BRANCH: u8 = 1 << 3;
/// The first turn follows the last one of the member before.
const FOLLOWS: u8 = 1 << 4;
const LEVEL_BITS: u8 = 0b11;

impl Index {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = self.identity.to_vec();
        for frame in &self.frames {
            put_number(&mut out, frame.members as u64);
            put_number(&mut out, frame.sealed_bytes as u64);
        }
        let mut before = None;
        for member in &self.members {
            put_member(&mut out, member, before);
            before = Some(member.id);
        }
        out
    }

    pub(super) fn decode(plain: &[u8], frames: usize, members: usize) -> Result<Self, String> {
        let mut input = Input(plain);
        let read = |input: &mut Input<'_>| {
            let identity = *input.chunk::<32>()?;
            let frames = (0..frames).map(|_| frame(input)).collect::<Option<_>>()?;
            let mut before = None;
            let mut next = |_| {
                let member = member(input, before)?;
                before = Some(member.id);
                Some(member)
            };
            let members = (0..members).map(&mut next).collect::<Option<_>>()?;
            Some(Self { identity, frames, members })
        };
        let index = read(&mut input).ok_or("its index cannot be read")?;
        match input.0 {
            [] => Ok(index),
            rest => Err(format!("its index has {} bytes too many", rest.len())),
        }
    }

    /// The frames are all there and hold all the members, within the limit.
    pub(super) fn check_frames(
        &self,
        frames_bytes: usize,
        least_bytes: usize,
        max_text_bytes: usize,
    ) -> Result<(), String> {
        let (mut bytes, mut members) = (0_usize, self.members.as_slice());
        for (number, frame) in self.frames.iter().enumerate() {
            bytes = bytes.saturating_add(frame.sealed_bytes);
            let Some((own, rest)) = members.split_at_checked(frame.members) else {
                return Err(format!("frame {number} has more members than there are"));
            };
            members = rest;
            let text = own.iter().fold(0_usize, |sum, next| sum.saturating_add(next.text_bytes));
            if text > max_text_bytes {
                return Err(format!(
                    "frame {number} says it holds {text} bytes, which is too much"
                ));
            }
            if frame.sealed_bytes < least_bytes {
                return Err(format!("frame {number} is shorter than a frame can be"));
            }
        }
        if !members.is_empty() {
            return Err(format!("{} members are in no frame", members.len()));
        }
        if bytes != frames_bytes {
            return Err(format!("its frames take {frames_bytes} bytes instead of {bytes}"));
        }
        Ok(())
    }
}

fn put_member(out: &mut Vec<u8>, member: &MemberEntry, before: Option<ChunkId>) {
    let ChunkId { session, branch, level, first, last } = member.id;
    let same_branch = before.is_some_and(|id| (id.session, id.branch) == (session, branch));
    let follows = before.is_some_and(|id| id.last.0.wrapping_add(1) == first.0);
    let mut head = level_bits(level);
    head |= if member.format == TextFormat::Jsonl { JSONL } else { 0 };
    head |= if same_branch { SAME_BRANCH } else { 0 };
    head |= if follows { FOLLOWS } else { 0 };
    out.push(head);
    if !same_branch {
        put_number(out, session.0);
        put_number(out, branch.0.into());
    }
    if !follows {
        put_number(out, first.0);
    }
    put_number(out, last.0.wrapping_sub(first.0));
    put_number(out, member.text_bytes as u64);
}

fn frame(input: &mut Input<'_>) -> Option<FrameEntry> {
    Some(FrameEntry { members: input.size()?, sealed_bytes: input.size()? })
}

fn member(input: &mut Input<'_>, before: Option<ChunkId>) -> Option<MemberEntry> {
    let [head] = *input.chunk()?;
    if head & !(LEVEL_BITS | JSONL | SAME_BRANCH | FOLLOWS) != 0 {
        return None;
    }
    let (session, branch) = match head & SAME_BRANCH != 0 {
        true => (before?.session, before?.branch),
        false => (SessionNo(input.number()?), Branch(input.number()?.try_into().ok()?)),
    };
    let first = match head & FOLLOWS != 0 {
        true => before?.last.0.wrapping_add(1),
        false => input.number()?,
    };
    let last = Ordinal(first.wrapping_add(input.number()?));
    let level = level_of(head & LEVEL_BITS)?;
    let id = ChunkId { session, branch, level, first: Ordinal(first), last };
    let format = if head & JSONL != 0 { TextFormat::Jsonl } else { TextFormat::Ctf };
    Some(MemberEntry { id, format, text_bytes: input.size()? })
}

fn level_bits(level: Level) -> u8 {
    match level {
        Level::Micro => 0,
        Level::Mini => 1,
        Level::Macro => 2,
    }
}

fn level_of(bits: u8) -> Option<Level> {
    Level::ALL.into_iter().find(|level| level_bits(*level) == bits)
}

/// Seven bits a byte, lowest first; the high bit says that more follow.
fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn chunk<const N: usize>(&mut self) -> Option<&'a [u8; N]> {
        let (chunk, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(chunk)
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let [byte] = *self.chunk()?;
            let bits = u64::from(byte & 0x7f);
            // The tenth byte has room for one bit.
            if bits << shift >> shift != bits {
                return None;
            }
            number |= bits << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    fn size(&mut self) -> Option<usize> {
        self.number()?.try_into().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_read_back(number in any::<u64>(), shift in 0_u32..64) {
            let number = number >> shift;
            let mut out = Vec::new();
            put_number(&mut out, number);
            let mut input = Input(&out);
            prop_assert_eq!(input.number(), Some(number));
            prop_assert!(input.0.is_empty());
        }

        #[test]
        fn no_bytes_panic(plain in prop::collection::vec(any::<u8>(), 0..200), n in 0_usize..9) {
            if let Ok(index) = Index::decode(&plain, n, n) {
                let _ = index.check_frames(100, 16, 1 << 20);
            }
        }
    }

    #[test]
    fn numbers_beyond_64_bits_are_refused() {
        assert_eq!(Input(&[0xff; 11]).number(), None);
        let mut too_large = [0xff; 10];
        too_large[9] = 2;
        assert_eq!(Input(&too_large).number(), None);
        too_large[9] = 1;
        assert_eq!(Input(&too_large).number(), Some(u64::MAX));
    }

    fn index(frames: &[(usize, usize)], text_bytes: &[usize]) -> Index {
        let id = ChunkId::parse("micro-1.0.1-10").unwrap();
        let member =
            |bytes: &usize| MemberEntry { id, format: TextFormat::Ctf, text_bytes: *bytes };
        let frame = |f: &(usize, usize)| FrameEntry { members: f.0, sealed_bytes: f.1 };
        Index {
            identity: [0; 32],
            frames: frames.iter().map(frame).collect(),
            members: text_bytes.iter().map(member).collect(),
        }
    }

    #[test]
    fn frames_that_do_not_add_up_are_refused() {
        let check = |index: Index| index.check_frames(100, 16, 1000);
        assert_eq!(check(index(&[(1, 40), (2, 60)], &[5, 5, 5])), Ok(()));
        assert!(check(index(&[(1, 40), (2, 61)], &[5, 5, 5])).unwrap_err().contains("take"));
        assert!(check(index(&[(1, 40), (1, 60)], &[5, 5, 5])).unwrap_err().contains("no frame"));
        assert!(check(index(&[(4, 100)], &[5, 5, 5])).unwrap_err().contains("more members"));
        assert!(check(index(&[(1, 100)], &[1001])).unwrap_err().contains("too much"));
        let endless = index(&[(2, 100)], &[usize::MAX, usize::MAX]);
        assert!(check(endless).unwrap_err().contains("too much"));
        assert!(check(index(&[(1, 15), (0, 85)], &[1])).unwrap_err().contains("shorter"));
    }
}
