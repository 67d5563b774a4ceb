// SPDX-License-Identifier: GPL-2.0-only
//! The map: what a process's memory looks like, for people.
//!
//! One line per block with one character per page, equal lines as one; a VMA with many different
//! blocks gets one character per block instead, and its broken blocks page by page below.
//! Everything fits in 100 columns and says the same without colour.

use std::collections::BTreeMap;
use std::io::{self, Write};

use anstyle::{AnsiColor, Style};

use verdict::{BlockRow, BlockState, ProcessVerdict, VmaVerdict};

/// The legend, printed below a map.
pub const LEGEND: &str = "\
pages   = contiguous   - writable   r read-only   z zero page or special   . hole
        n PROT_NONE   s swapped   m moved or marked   # part of a larger block   ? reserved
blocks  [folded]   (could be folded)   !broken!   otherwise as its pages say
        where a block is one character: = folded  e could be folded  o cannot be  p in part
        # block descriptor  C contiguous blocks  s away  . empty  ! broken
";

/// How to draw.
#[derive(Clone, Copy, Debug)]
pub struct MapOptions {
    /// Use ANSI colours: on a terminal only.
    pub colour: bool,
    /// A VMA with more different lines than this gets one character per block.
    pub lines: usize,
    /// Show VMAs in which nothing is mapped.
    pub empty: bool,
}

impl Default for MapOptions {
    fn default() -> MapOptions {
        MapOptions {
            colour: false,
            lines: 24,
            empty: false,
        }
    }
}

/// Characters of a page line, and of a line of blocks.
const WIDTH: usize = 64;
/// Columns of a line that is not a finding's, nor the reason why something was not judged.
const COLUMNS: usize = 100;
/// Broken blocks that are shown page by page below a VMA's overview.
const BROKEN_SHOWN: usize = 8;

/// Draws all VMAs of a process.
pub fn draw(
    out: &mut impl Write,
    verdict: &ProcessVerdict,
    options: &MapOptions,
) -> io::Result<()> {
    let bold = paint(options, Style::new().bold());
    let blocks = verdict.blocks();
    let states = BlockState::COUNTED
        .iter()
        .filter_map(|state| Some(format!("{} {}", blocks.get(state)?, state.name())))
        .collect::<Vec<_>>()
        .join(", ");
    let who = format!("{} ({})", verdict.process.name, verdict.process.pid);
    write!(out, "{bold}{who}{bold:#}")?;
    let text = format!(
        "  pages of {}, blocks of {}: {}",
        bytes(verdict.page_size),
        bytes(verdict.block_size),
        if states.is_empty() { "none" } else { &states }
    );
    wrapped(out, who.chars().count(), &text)?;
    for vma in &verdict.vmas {
        if vma.mapped > 0 || options.empty || broken(vma) {
            draw_vma(out, verdict, vma, options)?;
        }
    }
    Ok(())
}

/// Ends a line that has `column` characters with `text`, and goes on in the next where a word would be beyond the
/// last column.
pub(crate) fn wrapped(out: &mut impl Write, mut column: usize, text: &str) -> io::Result<()> {
    for (index, word) in text.split(' ').enumerate() {
        let length = word.chars().count();
        if index > 0 && column + 1 + length > COLUMNS {
            write!(out, "\n    ")?;
            column = 4;
        } else if index > 0 {
            write!(out, " ")?;
            column += 1;
        }
        write!(out, "{word}")?;
        column += length;
    }
    writeln!(out)
}

/// Recorded orders, the largest first.
pub(crate) fn orders(orders: &BTreeMap<i8, u64>) -> String {
    let order = |(order, count): (&i8, &u64)| match order {
        -1 => format!("none x{count}"),
        order => format!("{order} x{count}"),
    };
    let orders: Vec<String> = orders.iter().rev().map(order).collect();
    orders.join(" ")
}

fn broken(vma: &VmaVerdict) -> bool {
    vma.blocks.contains_key(&BlockState::Broken)
}

fn draw_vma(
    out: &mut impl Write,
    verdict: &ProcessVerdict,
    vma: &VmaVerdict,
    options: &MapOptions,
) -> io::Result<()> {
    let bold = paint(options, Style::new().bold());
    let mut facts = vec![format!(
        "{} of {} mapped",
        bytes(vma.mapped),
        bytes(vma.end.0 - vma.start.0)
    )];
    if vma.contiguous > 0 {
        facts.push(format!("{} contiguous", bytes(vma.contiguous)));
    }
    if vma.largest_run > verdict.page_size {
        facts.push(format!("largest run {}", bytes(vma.largest_run)));
    }
    if !vma.orders.is_empty() {
        facts.push(format!("orders {}", orders(&vma.orders)));
    }
    writeln!(
        out,
        "{bold}{:012x}-{:012x} {} {}{bold:#}",
        vma.start.0, vma.end.0, vma.permissions, vma.name
    )?;
    wrapped(out, 0, &format!("  {}", facts.join(", ")))?;
    // Lines of more than WIDTH pages take more than one.
    let pages = verdict.block_size / verdict.page_size;
    let lines = vma.rows.len() * (pages as usize).div_ceil(WIDTH);
    if lines <= options.lines {
        let line = |row| page_line(out, row, &remark(row), options);
        return vma.rows.iter().try_for_each(line);
    }
    overview(out, verdict, vma, options)?;
    let broken = || {
        vma.rows
            .iter()
            .filter(|row| row.state == BlockState::Broken)
    };
    for row in broken().take(BROKEN_SHOWN) {
        page_line(out, row, &remark(row), options)?;
    }
    match broken().count().saturating_sub(BROKEN_SHOWN) {
        0 => Ok(()),
        more => writeln!(
            out,
            "  … and {more} more lines of broken blocks, see the findings"
        ),
    }
}

/// The end of a row: how many blocks, and remarks on each.
fn remark(row: &BlockRow) -> String {
    let mut remarks = Vec::new();
    if row.blocks > 1 {
        remarks.push(format!("x{}", row.blocks));
    }
    match row.state {
        // The holes are there to be seen.
        BlockState::Partial => remarks.extend(row.absent_text()),
        _ => remarks.push(row.why()),
    }
    remarks.retain(|remark| !remark.is_empty());
    remarks.join("  ")
}

/// One row, page by page.
fn page_line(
    out: &mut impl Write,
    row: &BlockRow,
    remark: &str,
    options: &MapOptions,
) -> io::Result<()> {
    let (open, close) = match row.state {
        BlockState::Folded | BlockState::ContiguousBlock => ('[', ']'),
        BlockState::Eligible => ('(', ')'),
        BlockState::Broken => ('!', '!'),
        _ => (' ', ' '),
    };
    let colour = paint(options, style(row.state));
    let pages: Vec<char> = row.pages.chars().collect();
    let chunks: Vec<&[char]> = pages.chunks(WIDTH).collect();
    for (index, chunk) in chunks.iter().enumerate() {
        let (first, last) = (index == 0, index + 1 == chunks.len());
        match first {
            true => write!(out, "  {:012x} ", row.va.0)?,
            false => write!(out, "{:15}", "")?,
        }
        // 15 columns for the address, 2 for the frame, 1 between.
        let room = if last {
            (COLUMNS - 18).saturating_sub(chunk.len())
        } else {
            0
        };
        let remark: String = remark.chars().take(room).collect();
        let mut text = String::from(if first { open } else { ' ' });
        text.extend(chunk.iter());
        text.push(if last { close } else { ' ' });
        // No blanks at the end of a line.
        if remark.is_empty() {
            text.truncate(text.trim_end().len());
        }
        write!(out, "{colour}{text}{colour:#}")?;
        match remark.is_empty() {
            true => writeln!(out)?,
            false => writeln!(out, " {remark}")?,
        }
    }
    Ok(())
}

/// Lines of an overview that are equal: where the first starts, runs of states, how many lines.
struct Lines {
    va: u64,
    states: Vec<(BlockState, u64)>,
    count: u64,
}

/// One character per block, equal lines as one. A VMA may have a billion blocks, nearly all of
/// them alike: whole lines within one row are counted and not made.
fn overview(
    out: &mut impl Write,
    verdict: &ProcessVerdict,
    vma: &VmaVerdict,
    options: &MapOptions,
) -> io::Result<()> {
    let mut rows = vma.rows.iter().map(|row| (row.state, row.blocks));
    let Some(first) = vma.rows.first() else {
        return Ok(());
    };
    let width = WIDTH as u64;
    let mut va = first.va.0;
    // What is left of the row at hand, and the line that is not printed yet with its number.
    let mut left = rows.next();
    let mut pending: Option<Lines> = None;
    while left.is_some() {
        let mut line: Vec<(BlockState, u64)> = Vec::new();
        let mut room = width;
        let mut lines = 1;
        while let Some((state, count)) = left.filter(|_| room > 0) {
            let taken = if room == width && count >= width {
                lines = count / width;
                room = 0;
                lines * width
            } else {
                let taken = count.min(room);
                room -= taken;
                taken
            };
            let shown = if lines > 1 { width } else { taken };
            match line.last_mut().filter(|last| last.0 == state) {
                Some(last) => last.1 += shown,
                None => line.push((state, shown)),
            }
            left = if count > taken {
                Some((state, count - taken))
            } else {
                rows.next()
            };
        }
        match &mut pending {
            Some(same) if same.states == line => same.count += lines,
            _ => {
                let new = Lines {
                    va,
                    states: line,
                    count: lines,
                };
                if let Some(done) = pending.replace(new) {
                    block_line(out, &done, options)?;
                }
            }
        }
        va += lines * width * verdict.block_size;
    }
    pending.map_or(Ok(()), |last| block_line(out, &last, options))
}

fn block_line(out: &mut impl Write, lines: &Lines, options: &MapOptions) -> io::Result<()> {
    write!(out, "  {:012x} |", lines.va)?;
    for &(state, length) in &lines.states {
        let colour = paint(options, style(state));
        let text = character(state).to_string().repeat(length as usize);
        write!(out, "{colour}{text}{colour:#}")?;
    }
    write!(out, "|")?;
    match lines.count {
        1 => writeln!(out),
        count => writeln!(out, " x{count} lines"),
    }
}

fn character(state: BlockState) -> char {
    match state {
        BlockState::Broken => '!',
        BlockState::Folded => '=',
        BlockState::Eligible => 'e',
        BlockState::NotEligible => 'o',
        BlockState::Partial => 'p',
        BlockState::Away => 's',
        BlockState::Block => '#',
        BlockState::ContiguousBlock => 'C',
        BlockState::Empty => '.',
    }
}

fn style(state: BlockState) -> Style {
    let colour = |colour: AnsiColor| Style::new().fg_color(Some(colour.into()));
    match state {
        BlockState::Broken => colour(AnsiColor::Red).bold().invert(),
        BlockState::Folded | BlockState::ContiguousBlock => colour(AnsiColor::Green),
        BlockState::Block => colour(AnsiColor::Cyan),
        BlockState::Eligible => colour(AnsiColor::Yellow),
        BlockState::Away => colour(AnsiColor::Magenta),
        BlockState::Empty => Style::new().dimmed(),
        BlockState::NotEligible | BlockState::Partial => Style::new(),
    }
}

pub(crate) fn paint(options: &MapOptions, style: Style) -> Style {
    if options.colour {
        style
    } else {
        Style::new()
    }
}

/// A size as people write it, exact: 64K, 2M, 1.5M, 4100 bytes as `4100`.
pub(crate) fn bytes(size: u64) -> String {
    for (shift, unit) in [(40, "T"), (30, "G"), (20, "M"), (10, "K")] {
        if size >> shift == 0 {
            continue;
        }
        let part = size << (64 - shift) >> (64 - shift);
        if part == 0 {
            return format!("{}{unit}", size >> shift);
        }
        // One digit behind the point where that is exact enough to be read as such.
        if size % (1 << shift) % (1 << (shift - 1)) == 0 {
            return format!("{}.5{unit}", size >> shift);
        }
    }
    match size % 1024 {
        0 => format!("{}K", size >> 10),
        _ => size.to_string(),
    }
}
