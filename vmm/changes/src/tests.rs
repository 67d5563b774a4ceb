// SPDX-License-Identifier: GPL-2.0-only
//! Every event on made-up views, and what may be taken for it and is not.

mod events;
mod moved;
pub(crate) mod scene;
mod vmas;
mod whole;
