// An address space at one checkpoint, decoded when it is first looked at.

// Pages that may lie between two entries outside of every VMA for them to be drawn together.
const APART = 4096;

class Space {
  constructor(step, raw) {
    this.step = step;
    this.raw = raw;
    this.pageSize = raw.page_size;
    this.blockPages = raw.block_pages;
    this.first = BigInt(raw.first);
    this.runs = readRuns(raw.words);
    this.folios = readFolios(raw.folios);
    const rows = readBlocks(raw.rows);
    this.sections = [];
    let taken = 0;
    for (const vma of raw.vmas) {
      this.sections.push({ ...vma, vma: true, blocks: rows.slice(taken, taken + vma.rows), findings: [] });
      taken += vma.rows;
    }
    this.addOthers();
    this.placeFindings();
  }

  // What is mapped where no VMA is, or none is known.
  addOthers() {
    const inside = this.sections.slice();
    const others = [];
    let next = 0;
    const add = (start, end) => {
      const last = others[others.length - 1];
      if (last && start - last.end <= APART && last.next === next) last.end = end;
      else others.push({ start, end, next, vma: false, permissions: '', name: '', blocks: [], findings: [], orders: {} });
    };
    for (let at = 0; at < this.runs.count; at++) {
      let start = this.runs.start[at];
      const end = this.runs.end[at];
      while (start < end) {
        while (next < inside.length && inside[next].end <= start) next++;
        const vma = inside[next];
        if (vma && vma.start <= start) {
          start = Math.min(end, vma.end);
        } else {
          const until = vma ? Math.min(end, vma.start) : end;
          add(start, until);
          start = until;
        }
      }
    }
    for (const other of others) {
      other.mapped = this.mapped(other.start, other.end) * this.pageSize;
      other.name = this.nameOf(other, inside.length > 0);
    }
    this.sections = inside.concat(others).sort((a, b) => a.start - b.start);
  }

  // What is known of a range without a VMA.
  nameOf(range, vmasAreKnown) {
    if (this.raw.pid !== undefined) return vmasAreKnown ? 'outside of every VMA' : 'no VMA is known';
    const there = this.raw.regions.filter((region) => region.start < range.end && range.start < region.end);
    return there.map((region) => region.name).join(', ');
  }

  mapped(start, end) {
    let pages = 0;
    for (let at = Math.max(0, this.runAt(start)); at < this.runs.count && this.runs.start[at] < end; at++) {
      pages += Math.max(0, Math.min(end, this.runs.end[at]) - Math.max(start, this.runs.start[at]));
    }
    return pages;
  }

  placeFindings() {
    this.findings = [];
    for (const finding of this.raw.findings) {
      for (const [start, end] of finding.places) this.findings.push({ ...finding, start, end });
    }
    this.findings.sort((a, b) => a.start - b.start);
    for (const place of this.findings) {
      for (const section of this.sections) {
        if (section.start < place.end && place.start < section.end) section.findings.push(place);
      }
    }
    for (const section of this.sections) section.wrong = merged(section.findings.filter((place) => place.error));
  }

  // The run that holds a page or is the last before it.
  runAt(page) {
    return lastUpTo(this.runs.count, page, (at) => this.runs.start[at]);
  }

  // The entry that maps a page: its attributes, its number, its first page.
  entry(page) {
    const at = this.runAt(page);
    if (at < 0 || page >= this.runs.end[at]) return null;
    const attributes = this.runs.attributes[at];
    const place = Math.floor((page - this.runs.start[at]) / data.attributes[attributes].pages);
    return {
      attributes,
      number: this.runs.number[at] + place * this.runs.step[at],
      start: this.runs.start[at] + place * data.attributes[attributes].pages,
    };
  }

  // The folio behind a page: its order, what it is, the page's place in it.
  folio(page) {
    const at = lastUpTo(this.folios.length, page, (place) => this.folios[place].start);
    if (at < 0 || page >= this.folios[at].end) return null;
    const run = this.folios[at];
    const { order, text } = data.folio_kinds[run.kind];
    return { order, text, place: (run.place + page - run.start) % 2 ** order };
  }

  section(page) {
    const at = lastUpTo(this.sections.length, page, (place) => this.sections[place].start);
    return at >= 0 && page < this.sections[at].end ? this.sections[at] : null;
  }

  blockRow(section, page) {
    const block = Math.floor(page / this.blockPages);
    const at = lastUpTo(section.blocks.length, block, (place) => section.blocks[place].start);
    return at >= 0 && block < section.blocks[at].end ? section.blocks[at] : null;
  }

  // Why a block is as it is; why it is not folded is no matter where it is broken.
  reason(row) {
    return row.reason < 0 || data.block_states[row.state].mark === '!' ? '' : data.reasons[row.reason];
  }

  findingsAt(page) {
    const all = this.findings.filter((finding) => finding.start <= page && page < finding.end);
    const errors = all.filter((finding) => finding.error);
    // What is legal is no matter where something is wrong; and a remark may be of many blocks, and no word on this one.
    return errors.length ? errors : all.filter((finding) => finding.end - finding.start <= this.blockPages);
  }

  va(page) {
    return this.first + BigInt(page) * BigInt(this.pageSize);
  }

  vaText(page) {
    return '0x' + this.va(page).toString(16).padStart(12, '0');
  }
}

// Ranges without what they have in common, of ranges by their start.
function merged(places) {
  const ranges = [];
  for (const { start, end } of places) {
    const last = ranges[ranges.length - 1];
    if (last && start <= last[1]) last[1] = Math.max(last[1], end);
    else ranges.push([start, end]);
  }
  return ranges;
}

// Whether a rule is broken in a range.
function errorIn(section, start, end) {
  const at = lastUpTo(section.wrong.length, end - 1, (place) => section.wrong[place][0]);
  return at >= 0 && section.wrong[at][1] > start;
}

// The raw word of an entry, put together again.
function wordOf(attributes, number) {
  const value = BigInt(number) * BigInt(attributes.unit);
  const field = attributes.field;
  const high = (value >> BigInt(field.shift)) & BigInt(field.high);
  return BigInt(attributes.base) | (value & BigInt(field.in_place)) | high;
}

const hex = (value, digits) => '0x' + value.toString(16).padStart(digits, '0');

function bytesText(bytes) {
  const units = ['B', 'K', 'M', 'G', 'T', 'P'];
  let at = 0;
  while (bytes >= 1024 && at < units.length - 1 && (bytes % 1024 === 0 || bytes >= 4096)) {
    bytes /= 1024;
    at++;
  }
  return (Number.isInteger(bytes) ? bytes : bytes.toFixed(1)) + units[at];
}

const spaces = new Map();

// One that was looked at is kept; the oldest is forgotten where there are many.
function spaceOf(step, at) {
  const key = step + '/' + at;
  let space = spaces.get(key);
  if (!space) {
    space = new Space(step, data.steps[step].spaces[at]);
    spaces.set(key, space);
    if (spaces.size > 12) spaces.delete(spaces.keys().next().value);
  }
  return space;
}

// The same process at the checkpoint before, if it was looked at there.
function spaceBefore(step, raw) {
  const workload = data.steps[step].workload;
  for (let at = step - 1; at >= 0 && data.steps[at].workload === workload; at--) {
    const place = data.steps[at].spaces.findIndex((other) => other.pid === raw.pid && other.name === raw.name);
    if (place >= 0) return spaceOf(at, place);
  }
  return null;
}
