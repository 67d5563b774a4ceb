// Where things are in the picture: sections below each other, rows of blocks in them, what is empty folded away.

const GUTTER = 124;
const HEAD = 34;
const BAR = 22;
const PAD = 7;
// Empty rows that are drawn between two that are not.
const EMPTY_ROWS = 2;
const ZOOMS = [1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 26];

class Layout {
  constructor(space, width, cell, shown) {
    this.space = space;
    this.cell = cell;
    this.gap = cell >= 6 ? 4 : cell >= 3 ? 2 : 0;
    const block = space.blockPages * cell + this.gap;
    const fit = Math.max(1, Math.floor((width - GUTTER) / block));
    // Rows begin at round addresses: a power of two of blocks in each.
    this.blocks = 2 ** Math.floor(Math.log2(fit));
    this.rowPages = this.blocks * space.blockPages;
    this.pitch = cell + (cell >= 6 ? 4 : cell >= 3 ? 1 : 0);
    this.items = [];
    this.height = 0;
    for (const section of shown) this.add(section);
    this.height += PAD;
    this.cells = this.items.reduce((sum, item) => sum + (item.kind === 'rows' ? item.height : 0), 0);
  }

  put(kind, height, more) {
    this.items.push({ kind, top: this.height, height, ...more });
    this.height += height;
  }

  add(section) {
    this.put('head', HEAD, { section });
    const intervals = this.occupied(section);
    const firstRow = Math.floor(section.start / this.rowPages);
    const endRow = Math.ceil(section.end / this.rowPages);
    let at = firstRow;
    for (const [from, to] of intervals) {
      if (from - at > EMPTY_ROWS) this.bar(section, at, from);
      else if (at < from) this.rows(section, at, from);
      this.rows(section, from, to);
      at = to;
    }
    if (endRow - at > EMPTY_ROWS || (at === firstRow && at < endRow)) this.bar(section, at, endRow);
    else if (at < endRow) this.rows(section, at, endRow);
    this.height += PAD;
  }

  rows(section, from, to) {
    const last = this.items[this.items.length - 1];
    if (last.kind === 'rows' && last.section === section && last.to === from) {
      last.to = to;
      last.height = (to - last.from) * this.pitch;
      this.height = last.top + last.height;
    } else {
      this.put('rows', (to - from) * this.pitch, { section, from, to });
    }
  }

  bar(section, from, to) {
    const start = Math.max(section.start, from * this.rowPages);
    const end = Math.min(section.end, to * this.rowPages);
    this.put('bar', BAR, { section, from, to, start, end });
  }

  // Rows that hold an entry or a finding, as ranges.
  occupied(section) {
    const { runs } = this.space;
    const ranges = [];
    const add = (start, end) => {
      const from = Math.floor(Math.max(start, section.start) / this.rowPages);
      const to = Math.floor((Math.min(end, section.end) - 1) / this.rowPages) + 1;
      const last = ranges[ranges.length - 1];
      if (last && from <= last[1] + EMPTY_ROWS) last[1] = Math.max(last[1], to);
      else ranges.push([from, to]);
    };
    const places = section.findings.filter((place) => place.end - place.start < 1e6);
    let next = 0;
    for (let at = Math.max(0, this.space.runAt(section.start)); at < runs.count && runs.start[at] < section.end; at++) {
      for (; next < places.length && places[next].start < runs.start[at]; next++) add(places[next].start, places[next].end);
      if (runs.end[at] > section.start) add(runs.start[at], runs.end[at]);
    }
    for (; next < places.length; next++) add(places[next].start, places[next].end);
    return ranges;
  }

  // The item at a height, or the last before it.
  itemAt(y) {
    return lastUpTo(this.items.length, y, (at) => this.items[at].top);
  }

  // Left edge of a page's cell in its row.
  x(inRow) {
    return GUTTER + inRow * this.cell + Math.floor(inRow / this.space.blockPages) * this.gap;
  }

  // The page under a point, and its section.
  pageAt(x, y) {
    const item = this.items[this.itemAt(y)];
    if (!item || item.kind !== 'rows' || y >= item.top + item.height || x < GUTTER) return null;
    const row = item.from + Math.floor((y - item.top) / this.pitch);
    const block = this.space.blockPages * this.cell + this.gap;
    const place = Math.floor((x - GUTTER) / block);
    const inBlock = Math.floor((x - GUTTER - place * block) / this.cell);
    if (place >= this.blocks || inBlock >= this.space.blockPages) return null;
    const page = row * this.rowPages + place * this.space.blockPages + inBlock;
    return page >= item.section.start && page < item.section.end ? { page, section: item.section } : null;
  }

  // Where a page is: its cell, or the bar that it is folded into.
  place(page) {
    for (const item of this.items) {
      if (item.kind === 'head' || page < item.section.start || page >= item.section.end) continue;
      const row = Math.floor(page / this.rowPages);
      if (row < item.from || row >= item.to) continue;
      if (item.kind === 'bar') return { x: GUTTER, y: item.top, width: 0, height: BAR };
      const inRow = page - row * this.rowPages;
      return { x: this.x(inRow), y: item.top + (row - item.from) * this.pitch, width: this.cell, height: this.cell };
    }
    return null;
  }
}

// With the largest cells with which all that is mapped could be seen at once, were there no words between. Many pages do not fit by far, and are
// laid out once.
function fittingLayout(space, width, height, shown) {
  let fitting = new Layout(space, width, ZOOMS[0], shown);
  for (let at = 1; at <= ZOOMS.indexOf(16); at++) {
    if (fitting.cells > height) break;
    const layout = new Layout(space, width, ZOOMS[at], shown);
    if (layout.cells > height || layout.x(layout.rowPages - 1) > width) break;
    fitting = layout;
  }
  return fitting;
}
