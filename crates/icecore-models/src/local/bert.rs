//! BERT's encoder: word pieces in, one direction out.
//!
//! Texts of a batch lie one after the other without padding: what is linear
//! runs over all of them at once, and attention over each by itself.

use ndarray::linalg::general_mat_mul;
use ndarray::{Array1, Array2, ArrayView2, ArrayViewMut2, Axis, Slice, Zip};

use super::LocalModelError;
use super::manifest::{Manifest, Pooling};
use super::pack::Pack;
use super::safetensors::Tensors;

const ROWS: Axis = Axis(0);
const COLUMNS: Axis = Axis(1);

/// The weights of an encoder.
pub(super) struct Bert {
    words: Array2<f32>,
    /// Position and segment, added up when loaded: there is one segment only.
    places: Array2<f32>,
    entry_norm: Norm,
    layers: Vec<Layer>,
    heads: usize,
    pooling: Pooling,
    gelu: Gelu,
}

struct Layer {
    query_key_value: Linear,
    attention_out: Linear,
    attention_norm: Norm,
    inner: Linear,
    outer: Linear,
    outer_norm: Norm,
}

struct Linear {
    weight: Array2<f32>,
    bias: Array1<f32>,
}

struct Norm {
    weight: Array1<f32>,
    bias: Array1<f32>,
    epsilon: f32,
}

impl Bert {
    /// Takes the weights that the manifest describes, named as BERT's are.
    pub(super) fn load(tensors: &Tensors<'_>, about: &Manifest) -> Result<Self, LocalModelError> {
        let get = |name: &str, shape: &[usize]| tensors.get(name, shape);
        let names = Names { weight: ".weight", bias: ".bias" };
        let load = Loader { get: &get, names, epsilon: about.layer_norm_eps };
        let tables = [
            "embeddings.word_embeddings.weight",
            "embeddings.position_embeddings.weight",
            "embeddings.token_type_embeddings.weight",
            "embeddings.LayerNorm",
        ];
        load.encoder(tables, about, |number| load.layer(number, about.dims, about.inner))
    }

    /// The same, named as in a pack, where query, key and value are one.
    pub(super) fn unpack(pack: &Pack<'_>, about: &Manifest) -> Result<Self, LocalModelError> {
        let get = |name: &str, shape: &[usize]| pack.get(name, shape);
        let names = Names { weight: ".w", bias: ".b" };
        let load = Loader { get: &get, names, epsilon: about.layer_norm_eps };
        let tables = ["word_emb", "pos_emb", "type_emb", "emb_ln"];
        load.encoder(tables, about, |number| load.packed_layer(number, about.dims, about.inner))
    }

    /// One direction for each text, of length one. No text may be empty or
    /// longer than the positions go.
    pub(super) fn encode(&self, texts: &[&[u32]]) -> Vec<Array1<f32>> {
        let mut ranges = Vec::with_capacity(texts.len());
        let mut start = 0;
        for text in texts {
            ranges.push(start..start + text.len());
            start += text.len();
        }
        let mut states = self.entry(texts, start);
        for layer in &self.layers {
            layer.apply(&mut states, &ranges, self.heads, &self.gelu);
        }
        ranges
            .iter()
            .map(|range| self.pool(states.slice_axis(ROWS, Slice::from(range.clone()))))
            .collect()
    }

    fn entry(&self, texts: &[&[u32]], count: usize) -> Array2<f32> {
        let mut states = Array2::zeros((count, self.words.ncols()));
        let places = texts.iter().flat_map(|text| text.iter().enumerate());
        for (mut row, (place, word)) in states.rows_mut().into_iter().zip(places) {
            row.assign(&self.words.row(*word as usize));
            row += &self.places.row(place);
        }
        self.entry_norm.apply(&mut states);
        states
    }

    fn pool(&self, states: ArrayView2<'_, f32>) -> Array1<f32> {
        let mut pooled = match self.pooling {
            Pooling::Mean => states.sum_axis(ROWS),
            Pooling::First => states.row(0).to_owned(),
        };
        let length = pooled.dot(&pooled).sqrt();
        if length > 0.0 {
            pooled /= length;
        }
        pooled
    }
}

impl Layer {
    fn apply(
        &self,
        states: &mut Array2<f32>,
        texts: &[std::ops::Range<usize>],
        heads: usize,
        gelu: &Gelu,
    ) {
        let mixed = self.query_key_value.apply(states.view());
        let mut attended = Array2::zeros(states.raw_dim());
        for text in texts {
            let text = Slice::from(text.clone());
            let mut part = attended.slice_axis_mut(ROWS, text);
            attend(mixed.slice_axis(ROWS, text), heads, &mut part);
        }
        *states += &self.attention_out.apply(attended.view());
        self.attention_norm.apply(states);

        let mut inner = self.inner.apply(states.view());
        inner.mapv_inplace(|value| gelu.at(value));
        *states += &self.outer.apply(inner.view());
        self.outer_norm.apply(states);
    }
}

/// Attention within one text: fills `attended`, head by head.
fn attend(mixed: ArrayView2<'_, f32>, heads: usize, attended: &mut ArrayViewMut2<'_, f32>) {
    let hidden = attended.ncols();
    let width = hidden / heads;
    let scale = 1.0 / (width as f32).sqrt();
    for head in 0..heads {
        let columns = |kind: usize| {
            let start = kind * hidden + head * width;
            Slice::from(start..start + width)
        };
        let [query, key, value] = [0, 1, 2].map(|kind| mixed.slice_axis(COLUMNS, columns(kind)));
        let mut scores = query.dot(&key.t());
        for mut row in scores.rows_mut() {
            let most = row.fold(f32::NEG_INFINITY, |most, score| most.max(*score));
            row.mapv_inplace(|score| ((score - most) * scale).exp());
            let sum = row.sum();
            row /= sum;
        }
        let mut part = attended.slice_axis_mut(COLUMNS, columns(0));
        general_mat_mul(1.0, &scores, &value, 0.0, &mut part);
    }
}

impl Linear {
    fn apply(&self, input: ArrayView2<'_, f32>) -> Array2<f32> {
        let mut output = Array2::zeros((input.nrows(), self.weight.nrows()));
        output.rows_mut().into_iter().for_each(|mut row| row.assign(&self.bias));
        general_mat_mul(1.0, &input, &self.weight.t(), 1.0, &mut output);
        output
    }
}

impl Norm {
    fn apply(&self, states: &mut Array2<f32>) {
        for mut row in states.rows_mut() {
            let count = row.len() as f32;
            let mean = row.sum() / count;
            let variance =
                row.fold(0.0, |sum, value| sum + (value - mean) * (value - mean)) / count;
            let scale = 1.0 / (variance + self.epsilon).sqrt();
            Zip::from(&mut row).and(&self.weight).and(&self.bias).for_each(
                |value, weight, bias| {
                    *value = (*value - mean) * scale * weight + bias;
                },
            );
        }
    }
}

/// Reads a tensor of a name and a shape.
type Get<'a> = &'a dyn Fn(&str, &[usize]) -> Result<Vec<f32>, LocalModelError>;

/// What a file calls the two parts of a linear map.
struct Names {
    weight: &'static str,
    bias: &'static str,
}

/// Names tensors and gives them their shapes.
struct Loader<'a> {
    get: Get<'a>,
    names: Names,
    epsilon: f32,
}

impl Loader<'_> {
    fn encoder(
        &self,
        [words, places, segments, norm]: [&str; 4],
        about: &Manifest,
        layer: impl Fn(usize) -> Result<Layer, LocalModelError>,
    ) -> Result<Bert, LocalModelError> {
        let hidden = about.dims;
        let segments = self.matrix(segments, about.segments, hidden)?;
        let places = self.matrix(places, about.positions, hidden)?;
        let from = Slice::from(about.first_position..);
        Ok(Bert {
            words: self.matrix(words, about.vocab, hidden)?,
            places: &places.slice_axis(ROWS, from) + &segments.row(0),
            entry_norm: self.norm(norm, hidden)?,
            layers: (0..about.layers).map(layer).collect::<Result<_, _>>()?,
            heads: about.heads,
            pooling: about.pooling,
            gelu: Gelu::new(),
        })
    }

    fn packed_layer(
        &self,
        number: usize,
        hidden: usize,
        inner: usize,
    ) -> Result<Layer, LocalModelError> {
        let name = |part: &str| format!("l{number}.{part}");
        Ok(Layer {
            query_key_value: self.linear(&name("qkv"), 3 * hidden, hidden)?,
            attention_out: self.linear(&name("ao"), hidden, hidden)?,
            attention_norm: self.norm(&name("aln"), hidden)?,
            inner: self.linear(&name("f1"), inner, hidden)?,
            outer: self.linear(&name("f2"), hidden, inner)?,
            outer_norm: self.norm(&name("fln"), hidden)?,
        })
    }

    fn layer(&self, number: usize, hidden: usize, inner: usize) -> Result<Layer, LocalModelError> {
        let name = |part: &str| format!("encoder.layer.{number}.{part}");
        let parts = ["query", "key", "value"]
            .map(|part| self.linear(&name(&format!("attention.self.{part}")), hidden, hidden));
        let [query, key, value] = parts;
        let (query, key, value) = (query?, key?, value?);
        let weight = ndarray::concatenate![ROWS, query.weight, key.weight, value.weight];
        let bias = ndarray::concatenate![ROWS, query.bias, key.bias, value.bias];
        Ok(Layer {
            query_key_value: Linear { weight, bias },
            attention_out: self.linear(&name("attention.output.dense"), hidden, hidden)?,
            attention_norm: self.norm(&name("attention.output.LayerNorm"), hidden)?,
            inner: self.linear(&name("intermediate.dense"), inner, hidden)?,
            outer: self.linear(&name("output.dense"), hidden, inner)?,
            outer_norm: self.norm(&name("output.LayerNorm"), hidden)?,
        })
    }

    fn linear(&self, name: &str, rows: usize, columns: usize) -> Result<Linear, LocalModelError> {
        let weight = self.matrix(&format!("{name}{}", self.names.weight), rows, columns)?;
        Ok(Linear { weight, bias: self.row(&format!("{name}{}", self.names.bias), rows)? })
    }

    fn norm(&self, name: &str, size: usize) -> Result<Norm, LocalModelError> {
        let weight = self.row(&format!("{name}{}", self.names.weight), size)?;
        let bias = self.row(&format!("{name}{}", self.names.bias), size)?;
        Ok(Norm { weight, bias, epsilon: self.epsilon })
    }

    fn row(&self, name: &str, size: usize) -> Result<Array1<f32>, LocalModelError> {
        Ok(Array1::from_vec((self.get)(name, &[size])?))
    }

    fn matrix(
        &self,
        name: &str,
        rows: usize,
        columns: usize,
    ) -> Result<Array2<f32>, LocalModelError> {
        let numbers = (self.get)(name, &[rows, columns])?;
        Array2::from_shape_vec((rows, columns), numbers)
            .map_err(|error| LocalModelError::Weights { reason: error.to_string() })
    }
}

/// GELU by a table with straight lines between: off by at most two millionths,
/// at a tenth of the cost of the error function.
struct Gelu(Vec<f32>);

impl Gelu {
    /// Beyond it the function is zero or its argument, as far as f32 can tell.
    const REACH: f32 = 6.0;
    const STEPS: f32 = 256.0;

    fn new() -> Self {
        let count = (2.0 * Self::REACH * Self::STEPS) as usize + 2;
        let at = |step: usize| {
            let value = step as f32 / Self::STEPS - Self::REACH;
            0.5 * value * (1.0 + libm::erff(value * std::f32::consts::FRAC_1_SQRT_2))
        };
        Self((0..count).map(at).collect())
    }

    fn at(&self, value: f32) -> f32 {
        // Also what is no number goes through here, and stays what it is.
        if value.is_nan() || value.abs() >= Self::REACH {
            return value.max(0.0) + value * 0.0;
        }
        let place = (value + Self::REACH) * Self::STEPS;
        let step = place as usize;
        let share = place - step as f32;
        self.0[step] + (self.0[step + 1] - self.0[step]) * share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gelu_is_near_enough() {
        let gelu = Gelu::new();
        for step in -7000..7000 {
            let value = step as f32 / 1000.0;
            let exact = 0.5 * value * (1.0 + libm::erff(value * std::f32::consts::FRAC_1_SQRT_2));
            assert!((gelu.at(value) - exact).abs() < 2e-6, "{value}");
        }
        assert!(gelu.at(f32::NAN).is_nan());
    }
}
