//! Named tensors in a file: a length, a header in JSON, then plain numbers.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::LocalModelError;

/// A header beyond this is damage; that of a large model has some hundred kilobytes.
const MAX_HEADER_BYTES: usize = 16 * 1024 * 1024;

/// The tensors of one file.
pub(super) struct Tensors<'a> {
    entries: BTreeMap<String, Entry>,
    data: &'a [u8],
}

#[derive(Deserialize)]
struct Entry {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: (usize, usize),
}

impl<'a> Tensors<'a> {
    /// Finds where each tensor lies. Their bytes are looked at when asked for.
    pub(super) fn read(bytes: &'a [u8]) -> Result<Self, LocalModelError> {
        let wrong = |reason: &str| LocalModelError::Weights { reason: reason.to_owned() };
        let (length, rest) =
            bytes.split_first_chunk::<8>().ok_or_else(|| wrong("shorter than its preamble"))?;
        let length = usize::try_from(u64::from_le_bytes(*length)).unwrap_or(usize::MAX);
        if length > MAX_HEADER_BYTES || length > rest.len() {
            return Err(wrong("this is no safetensors file, or it is cut short"));
        }
        let (header, data) = rest.split_at(length);
        let mut header: BTreeMap<String, serde_json::Value> =
            serde_json::from_slice(header).map_err(|error| wrong(&error.to_string()))?;
        header.remove("__metadata__");
        let entries = header
            .into_iter()
            .map(|(name, value)| Ok((name, serde_json::from_value(value)?)))
            .collect::<Result<_, serde_json::Error>>()
            .map_err(|error| wrong(&error.to_string()))?;
        Ok(Self { entries, data })
    }

    /// The numbers of a tensor, which must have this shape.
    pub(super) fn get(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, LocalModelError> {
        let wrong =
            |reason: &str| LocalModelError::Weights { reason: format!("`{name}` {reason}") };
        let entry = self
            .entries
            .get(name)
            .or_else(|| self.entries.get(&format!("bert.{name}")))
            .ok_or_else(|| wrong("is missing"))?;
        if entry.shape != shape {
            return Err(wrong(&format!("has the shape {:?} instead of {shape:?}", entry.shape)));
        }
        let (start, end) = entry.data_offsets;
        let bytes = self.data.get(start..end).ok_or_else(|| wrong("lies beyond the end"))?;
        let numbers: Vec<f32> = match entry.dtype.as_str() {
            "F32" => words(bytes).map(f32::from_le_bytes).collect(),
            "F16" => words(bytes).map(|half| from_f16(u16::from_le_bytes(half))).collect(),
            "BF16" => words(bytes).map(|half| from_bf16(u16::from_le_bytes(half))).collect(),
            other => return Err(wrong(&format!("is of the unknown type {other}"))),
        };
        if numbers.len() != shape.iter().product::<usize>() {
            return Err(wrong("has another size than its shape"));
        }
        if numbers.iter().any(|number| !number.is_finite()) {
            return Err(wrong("holds what is no number"));
        }
        Ok(numbers)
    }
}

fn words<const N: usize>(bytes: &[u8]) -> impl Iterator<Item = [u8; N]> {
    bytes.as_chunks::<N>().0.iter().copied()
}

fn from_bf16(half: u16) -> f32 {
    f32::from_bits(u32::from(half) << 16)
}

fn from_f16(half: u16) -> f32 {
    let sign = if half >> 15 == 1 { -1.0 } else { 1.0 };
    let exponent = i32::from(half >> 10 & 31);
    let fraction = f32::from(half & 1023);
    match exponent {
        0 => sign * fraction * libm::ldexpf(1.0, -24),
        31 => f32::NAN,
        _ => sign * libm::ldexpf(1024.0 + fraction, exponent - 25),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(header: &str, data: &[u8]) -> Vec<u8> {
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header.as_bytes());
        bytes.extend(data);
        bytes
    }

    fn get(header: &str, data: &[u8]) -> Result<Vec<f32>, String> {
        let file = file(header, data);
        let tensors = Tensors::read(&file).map_err(|error| error.to_string())?;
        tensors.get("t", &[2]).map_err(|error| error.to_string())
    }

    #[test]
    fn numbers_of_each_kind_are_read() {
        let header = |kind: &str, end: usize| {
            format!(
                r#"{{"__metadata__":{{"a":"b"}},"t":{{"dtype":"{kind}","shape":[2],"data_offsets":[0,{end}]}}}}"#
            )
        };
        let floats: Vec<u8> =
            [1.5_f32, -2.0].iter().flat_map(|float| float.to_le_bytes()).collect();
        assert_eq!(get(&header("F32", 8), &floats), Ok(vec![1.5, -2.0]));
        assert_eq!(get(&header("F16", 4), &[0x00, 0x3E, 0x00, 0xC0]), Ok(vec![1.5, -2.0]));
        assert_eq!(get(&header("BF16", 4), &[0xC0, 0x3F, 0x00, 0xC0]), Ok(vec![1.5, -2.0]));
        assert!(get(&header("I64", 8), &floats).unwrap_err().contains("unknown type"));
        assert!(get(&header("F32", 9), &floats).unwrap_err().contains("beyond the end"));
        assert!(get(&header("F32", 4), &floats).unwrap_err().contains("another size"));
        assert!(get(&header("F16", 4), &[0, 0x7C, 0, 0]).unwrap_err().contains("no number"));
    }

    #[test]
    fn what_is_missing_or_damaged_is_named() {
        assert!(get("{}", &[]).unwrap_err().contains("`t` is missing"));
        let other = r#"{"t":{"dtype":"F32","shape":[3],"data_offsets":[0,12]}}"#;
        assert!(get(other, &[0; 12]).unwrap_err().contains("[3] instead of [2]"));
        assert!(get("{\"t\":1}", &[]).is_err());
        assert!(Tensors::read(&[1, 2, 3]).is_err());
        assert!(Tensors::read(&[255; 64]).is_err());
    }
}
