//! The two inner loops, compiled for the vector instructions that the machine
//! turns out to have. Integers only, so every machine gets the same sums.

use pulp::Arch;

/// Products of `query` with each of the rows that lie one after the other.
pub(crate) fn dots(query: &[i16], rows: &[i8], out: &mut [i32]) {
    debug_assert_eq!(rows.len(), query.len() * out.len());
    Arch::new().dispatch(
        #[inline(always)]
        || {
            for (row, out) in rows.chunks_exact(query.len()).zip(out) {
                *out = dot(query, row);
            }
        },
    );
}

#[inline(always)]
fn dot(query: &[i16], row: &[i8]) -> i32 {
    let row = &row[..query.len()];
    let mut sum = 0;
    // By index: iterators over two slices are not inlined into this loop.
    for at in 0..query.len() {
        sum += i32::from(query[at]) * i32::from(row[at]);
    }
    sum
}

/// In how many bits `query` differs from each of the codes.
pub(crate) fn distances(query: &[u64], codes: &[u64], out: &mut [u16]) {
    debug_assert_eq!(codes.len(), query.len() * out.len());
    Arch::new().dispatch(
        #[inline(always)]
        || match query.len() {
            // Known widths let the loop over words unroll.
            4 => fixed_distances::<4>(query, codes, out),
            6 => fixed_distances::<6>(query, codes, out),
            _ => {
                for (code, out) in codes.chunks_exact(query.len()).zip(out) {
                    *out = distance(query, code);
                }
            }
        },
    );
}

#[inline(always)]
fn fixed_distances<const WORDS: usize>(query: &[u64], codes: &[u64], out: &mut [u16]) {
    for (code, out) in codes.chunks_exact(WORDS).zip(out) {
        *out = distance(&query[..WORDS], &code[..WORDS]);
    }
}

#[inline(always)]
fn distance(a: &[u64], b: &[u64]) -> u16 {
    a.iter().zip(b).map(|(a, b)| (a ^ b).count_ones() as u16).sum()
}

/// The signs of components, one bit each.
pub(crate) fn code(components: &[i8]) -> impl Iterator<Item = u64> {
    components.chunks(64).map(|part| {
        // Eight at a time, since a byte of signs is found without branches.
        let byte = |eight: &[i8]| {
            let bits = (0..).zip(eight).map(|(bit, c): (u32, _)| u8::from(*c > 0) << bit);
            bits.fold(0, |byte, bit| byte | bit)
        };
        (0..)
            .zip(part.chunks(8))
            .fold(0, |word, (place, eight): (u32, _)| word | u64::from(byte(eight)) << (8 * place))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_equal_plain_sums() {
        for dims in [1, 7, 64, 70, 256, 384] {
            let rows: Vec<i8> = (0..dims * 5).map(|n| (n * 37 % 256) as u8 as i8).collect();
            let query: Vec<i16> =
                (0..dims).map(|n| i16::from((n * 91 % 256) as u8 as i8)).collect();
            let mut found = [0; 5];
            dots(&query, &rows, &mut found);
            let narrow: Vec<i8> = query.iter().map(|c| *c as i8).collect();
            let probe: Vec<u64> = code(&narrow).collect();
            let codes: Vec<u64> = rows.chunks(dims).flat_map(code).collect();
            let mut far = [0; 5];
            distances(&probe, &codes, &mut far);
            for (place, row) in rows.chunks(dims).enumerate() {
                let pairs = || query.iter().zip(row);
                let sum: i32 = pairs().map(|(a, b)| i32::from(*a) * i32::from(*b)).sum();
                assert_eq!(found[place], sum);
                let differ = pairs().filter(|(a, b)| (**a > 0) != (**b > 0)).count();
                assert_eq!(usize::from(far[place]), differ);
            }
        }
    }
}
