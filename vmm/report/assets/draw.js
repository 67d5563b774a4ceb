// The picture: cells as pixels, for what is visible alone; then outlines and words over them.

const FAINT = 0.16;

// Colours of the style sheet, as numbers for pixels; read again when light and dark change.
const ink = {};

function readInk() {
  const style = getComputedStyle(document.documentElement);
  const probe = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const read = (name) => style.getPropertyValue('--' + name).trim();
  const pixel = (name, alpha) => {
    probe.clearRect(0, 0, 1, 1);
    probe.fillStyle = read(name);
    probe.fillRect(0, 0, 1, 1);
    const [red, green, blue] = probe.getImageData(0, 0, 1, 1).data;
    return ((alpha * 255) << 24 | blue << 16 | green << 8 | red) >>> 0;
  };
  const both = (name) => ({ full: pixel(name, 1), faint: pixel(name, FAINT), css: read(name) });
  ink.states = data.states.map((_, at) => both('state-' + at));
  ink.blocks = data.block_states.map((_, at) => both('block-' + at));
  ink.hole = both('hole');
  ink.plain = both('plain');
  ink.finding = both('finding');
  ink.changes = CHANGES.map((change) => both('change-' + change.id));
  ink.access = ACCESS.map((_, at) => both('access-' + at));
  ink.orders = Array.from({ length: ORDERS }, (_, at) => both('order-' + at));
  ink.frames = Array.from({ length: 12 }, (_, at) => both('frame-' + at));
  for (const name of ['text', 'muted', 'line', 'outline', 'accent', 'head', 'background']) ink[name] = read(name);
}

const CHANGES = [
  { id: 'same', text: 'as before' },
  { id: 'came', text: 'came' },
  { id: 'gone', text: 'went' },
  { id: 'folded', text: 'folded' },
  { id: 'unfolded', text: 'unfolded' },
  { id: 'moved', text: 'other page frame' },
  { id: 'changed', text: 'other attributes' },
];
// Orders that have a colour of their own; the last stands for all that are larger.
const ORDERS = 11;
const ACCESS = ['old and clean', 'young', 'dirty', 'young and dirty'];
const folds = (attributes) => ['=', 'C'].includes(data.states[attributes.state].mark);

function change(before, now) {
  if (!before || !now) return before ? 2 : now ? 1 : 0;
  const [one, two] = [data.attributes[before.attributes], data.attributes[now.attributes]];
  if (folds(one) !== folds(two)) return folds(two) ? 3 : 4;
  if (one.address !== two.address || before.number !== now.number || before.start !== now.start) return 5;
  return before.attributes === now.attributes ? 0 : 6;
}

// The ways to colour a page: for an entry (or null) the place in a list of inks.
const COLOURS = {
  state: { title: 'state of the entry', of: (view, page, entry) => (entry ? ink.states[data.attributes[entry.attributes].state] : ink.hole) },
  block: {
    title: 'state of the block',
    of: (view, page, entry, section) => {
      const row = view.space.blockRow(section, page);
      return row ? ink.blocks[row.state] : entry ? ink.plain : ink.hole;
    },
  },
  finding: {
    title: 'finding',
    of: (view, page, entry, section, wrong) => (wrong ? ink.finding : entry ? ink.plain : ink.hole),
  },
  change: {
    title: 'change since the checkpoint before',
    of: (view, page, entry) => {
      const before = view.before && view.before.entry(page);
      if (!view.before) return entry ? ink.plain : ink.hole;
      if (!before && !entry) return ink.hole;
      return ink.changes[change(before, entry)];
    },
  },
  access: {
    title: 'accessed and dirty',
    of: (view, page, entry) => {
      if (!entry) return ink.hole;
      const attributes = data.attributes[entry.attributes];
      return ink.access[(attributes.young ? 1 : 0) + (attributes.dirty ? 2 : 0)];
    },
  },
  order: {
    title: 'order of the folio',
    of: (view, page, entry) => {
      const folio = entry && view.space.folio(page);
      return folio ? ink.orders[Math.min(folio.order, ink.orders.length - 1)] : entry ? ink.plain : ink.hole;
    },
  },
  frame: {
    title: 'page frame (a colour for each run of frames)',
    of: (view, page, entry) => {
      if (!entry) return ink.hole;
      const attributes = data.attributes[entry.attributes];
      if (!attributes.address) return ink.plain;
      const run = entry.number * (attributes.unit / view.space.pageSize) - entry.start;
      return ink.frames[Math.abs(Math.imul(run % 0x7fffffff, 0x9e3779b1) >>> 8) % ink.frames.length];
    },
  },
};

// What is drawn: a space, its layout, how it is coloured, what is not faint.
function draw(canvas, view, top) {
  const ratio = window.devicePixelRatio || 1;
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  const context = canvas.getContext('2d');
  context.setTransform(1, 0, 0, 1, 0, 0);
  context.clearRect(0, 0, canvas.width, canvas.height);
  if (!canvas.width || !canvas.height) return;
  const image = context.createImageData(canvas.width, canvas.height);
  const pixels = new Uint32Array(image.data.buffer);
  const visible = [];
  const { layout } = view;
  for (let at = Math.max(0, layout.itemAt(top)); at < layout.items.length && layout.items[at].top < top + height; at++) {
    const item = layout.items[at];
    visible.push(item);
    if (item.kind !== 'rows') continue;
    const first = Math.max(item.from, item.from + Math.floor((top - item.top) / layout.pitch));
    for (let row = first; row < item.to; row++) {
      const y = item.top + (row - item.from) * layout.pitch - top;
      if (y >= height) break;
      drawRow(pixels, canvas.width, canvas.height, ratio, view, item.section, row, y);
    }
  }
  context.putImageData(image, 0, 0);
  context.scale(ratio, ratio);
  for (const item of visible) drawOver(context, view, item, top, height, width);
}

function drawRow(pixels, width, height, ratio, view, section, row, y) {
  const { layout, space } = view;
  const { cell } = layout;
  const { runs } = space;
  const from = Math.max(section.start, row * layout.rowPages);
  const to = Math.min(section.end, (row + 1) * layout.rowPages);
  const upper = Math.max(0, Math.round(y * ratio));
  const lower = Math.min(height, Math.round((y + cell) * ratio));
  if (upper >= lower) return;
  const line = upper * width;
  const colour = COLOURS[view.colour].of;
  let at = space.runAt(from);
  const wrongs = errorIn(section, from, to);
  const entry = { attributes: 0, number: 0, start: 0 };
  for (let page = from; page < to; page++) {
    while (at + 1 < runs.count && runs.start[at + 1] <= page) at++;
    let found = null;
    if (at >= 0 && page < runs.end[at] && page >= runs.start[at]) {
      const pages = data.attributes[runs.attributes[at]].pages;
      const place = pages === 1 ? page - runs.start[at] : Math.floor((page - runs.start[at]) / pages);
      entry.attributes = runs.attributes[at];
      entry.number = runs.number[at] + place * runs.step[at];
      entry.start = runs.start[at] + place * pages;
      found = entry;
    }
    const wrong = wrongs && errorIn(section, page, page + 1);
    const paint = colour(view, page, found, section, wrong);
    const value = view.passes(found, wrong) ? paint.full : paint.faint;
    const x = layout.x(page - row * layout.rowPages);
    // Pages of one descriptor are drawn without a gap.
    const joined = found && data.attributes[found.attributes].pages > 1;
    const right = x + cell - (cell >= 4 && !joined ? 1 : 0) + (joined ? layout.gap : 0);
    const [start, end] = [Math.round(x * ratio), Math.min(width, Math.round(right * ratio))];
    if (end - start === 1) pixels[line + start] = value;
    else if (start < end) pixels.fill(value, line + start, line + end);
  }
  for (let next = upper + 1; next < lower; next++) pixels.copyWithin(next * width, line, line + width);
}

const FONT = '11px ui-monospace, "DejaVu Sans Mono", monospace';
const WORDS = '13px system-ui, "DejaVu Sans", sans-serif';

function drawOver(context, view, item, top, height, width) {
  const { layout, space } = view;
  const { section } = item;
  const y = item.top - top;
  context.textBaseline = 'middle';
  if (item.kind === 'head') {
    context.fillStyle = ink.line;
    context.fillRect(0, y + 5, width, 1);
    context.font = 'bold ' + FONT;
    context.fillStyle = ink.text;
    const range = space.vaText(section.start) + '-' + space.va(section.end).toString(16);
    context.fillText(range, 2, y + 20);
    let x = 2 + context.measureText(range).width + 12;
    context.fillText(section.permissions, x, y + 20);
    x += section.permissions ? context.measureText(section.permissions).width + 12 : 0;
    context.font = WORDS;
    context.fillText(section.name.slice(0, 120), x, y + 20);
    x += context.measureText(section.name.slice(0, 120)).width + (section.name ? 14 : 0);
    context.fillStyle = section.wrong.length ? ink.finding.css : ink.muted;
    context.fillText(summary(space, section), x, y + 20);
    return;
  }
  if (item.kind === 'bar') {
    context.font = WORDS;
    context.fillStyle = ink.muted;
    const pages = item.end - item.start;
    const text = `nothing in ${bytesText(pages * space.pageSize)} from ${space.vaText(item.start)}`;
    context.fillText('⋮', GUTTER - 12, y + BAR / 2);
    context.fillText(text, GUTTER, y + BAR / 2);
    return;
  }
  const first = Math.max(item.from, item.from + Math.floor(-y / layout.pitch));
  const every = Math.max(1, Math.ceil(14 / layout.pitch));
  for (let row = first; row < item.to; row++) {
    const at = y + (row - item.from) * layout.pitch;
    if (at >= height) break;
    if ((row - item.from) % every === 0) {
      context.font = FONT;
      context.fillStyle = ink.muted;
      context.fillText(space.vaText(row * layout.rowPages), 2, at + Math.max(layout.cell / 2, 6));
    }
    outline(context, view, section, row, at);
  }
}

// Blocks: folded ones and broken ones have a frame.
function outline(context, view, section, row, y) {
  const { layout, space } = view;
  for (let place = 0; place < layout.blocks; place++) {
    const start = row * layout.rowPages + place * space.blockPages;
    const end = start + space.blockPages;
    if (end <= section.start || start >= section.end) continue;
    const known = space.blockRow(section, Math.max(start, section.start));
    const wrong = errorIn(section, start, end);
    const state = known ? data.block_states[known.state].mark : '';
    const broken = wrong || state === '!';
    // What could be folded is legal: a hint where there is room for it.
    const framed = state === '=' ? layout.cell >= 4 : state === 'e' && layout.cell >= 8;
    if (!broken && !framed) continue;
    const from = layout.x(Math.max(start, section.start) - row * layout.rowPages);
    const to = layout.x(Math.min(end, section.end) - 1 - row * layout.rowPages) + layout.cell;
    context.strokeStyle = broken ? ink.finding.css : state === '=' ? ink.outline : ink.muted;
    context.lineWidth = broken ? 2 : 1;
    context.setLineDash(state === 'e' && !broken ? [3, 3] : []);
    const grow = broken ? 1.5 : 1;
    context.strokeRect(from - grow, y - grow, to - from + 2 * grow - (layout.cell >= 4 ? 1 : 0), layout.cell + 2 * grow);
  }
  context.setLineDash([]);
}

function summary(space, section) {
  const parts = [bytesText((section.end - section.start) * space.pageSize)];
  if (section.vma) {
    parts.push(section.mapped ? `${bytesText(section.mapped)} mapped` : 'nothing mapped');
    if (section.contiguous) parts.push(`${bytesText(section.contiguous)} contiguous`);
    const folios = Object.entries(section.folios || {}).reverse();
    if (folios.length) parts.push('folios ' + folios.map(([order, bytes]) => `${order}: ${bytesText(bytes)}`).join(', '));
    const orders = Object.entries(section.orders).filter(([order]) => order !== '-1');
    if (orders.length) parts.push('orders chosen ' + orders.reverse().map(([order, count]) => `${order}×${count}`).join(' '));
  }
  const errors = new Set(section.findings.filter((place) => place.error).map((place) => place.rule));
  if (errors.size) parts.push('BROKEN: ' + [...errors].join(' '));
  return parts.join(' · ');
}
