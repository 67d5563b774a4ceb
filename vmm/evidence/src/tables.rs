// SPDX-License-Identifier: GPL-2.0-only
//! All tables of a half, read once.

use stage1::{Descend, PhysMemory, Regime, Shown, Table, Visitor};

/// Goes into each table once: KASAN's shadow leads to few from everywhere.
#[derive(Default)]
struct Once(Shown);

impl<'m> Visitor<'m> for Once {
    fn table(&mut self, table: &Table<'m>) -> Descend {
        match self.0.again(table) {
            true => Descend::Skip,
            false => Descend::Into,
        }
    }
}

/// Reads all tables.
pub fn walk_all<M: PhysMemory + ?Sized>(memory: &M, regime: &Regime) {
    stage1::walk(
        memory,
        regime,
        regime.first,
        regime.last,
        &mut Once::default(),
    );
}
