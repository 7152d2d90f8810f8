//! Pictures for a terminal: clear without colour, better with it.

pub mod budget;
pub mod hits;
pub mod layers;
pub mod models;
pub mod plot;
pub mod usage;

use icecore::layers::Tier;

use crate::printer::{Printer, Tone};

/// A tier's colour.
pub fn tone(tier: Tier) -> Tone {
    match tier {
        Tier::Hot => Tone::Hot,
        Tier::Warm => Tone::Warm,
        Tier::Cold => Tone::Cold,
    }
}

/// A tier's texture: snow, firn, ice.
pub fn glyph(tier: Tier, printer: &Printer) -> char {
    match (tier, printer.is_ascii()) {
        (Tier::Hot, false) => '░',
        (Tier::Warm, false) => '▒',
        (Tier::Cold, false) => '█',
        (Tier::Hot, true) => '.',
        (Tier::Warm, true) => 'o',
        (Tier::Cold, true) => '#',
    }
}
