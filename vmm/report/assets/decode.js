// From packed bytes to numbers: what src/pack.rs, src/words.rs and src/data.rs have written.

const data = JSON.parse(document.getElementById('data').textContent);

class Reader {
  constructor(text) {
    if (Uint8Array.fromBase64) {
      this.bytes = Uint8Array.fromBase64(text);
    } else {
      const raw = atob(text);
      this.bytes = new Uint8Array(raw.length);
      for (let at = 0; at < raw.length; at++) this.bytes[at] = raw.charCodeAt(at);
    }
    this.at = 0;
  }

  more() {
    return this.at < this.bytes.length;
  }

  // Below 2^53, so no bit is lost; shifts would keep 32.
  number() {
    let byte = this.bytes[this.at++];
    if (byte < 128) return byte;
    let sum = byte & 127;
    let weight = 128;
    do {
      byte = this.bytes[this.at++];
      sum += (byte & 127) * weight;
      weight *= 128;
    } while (byte > 127);
    return sum;
  }

  signed() {
    const number = this.number();
    return number % 2 ? -(number + 1) / 2 : number / 2;
  }
}

// Runs of entries by address: where each starts (in pages), how many entries, how many pages each maps, which attributes,
// the first entry's number and how it goes on.
function readRuns(text) {
  const reader = new Reader(text || '');
  let room = 1024;
  let count = 0;
  let runs = null;
  const grow = () => {
    const wider = (type, old) => {
      const array = new type(room);
      if (old) array.set(old);
      return array;
    };
    runs = {
      start: wider(Float64Array, runs && runs.start),
      end: wider(Float64Array, runs && runs.end),
      attributes: wider(Uint16Array, runs && runs.attributes),
      number: wider(Float64Array, runs && runs.number),
      step: wider(Float64Array, runs && runs.step),
    };
  };
  grow();
  let page = 0;
  let next = 0;
  while (reader.more()) {
    if (count === room) {
      room *= 2;
      grow();
    }
    page += reader.number();
    const entries = reader.number() + 1;
    const attributes = reader.number();
    const number = next + reader.signed();
    const step = entries > 1 ? reader.signed() : 0;
    runs.start[count] = page;
    page += entries * data.attributes[attributes].pages;
    runs.end[count] = page;
    runs.attributes[count] = attributes;
    runs.number[count] = number;
    runs.step[count] = step;
    next = number + entries * step;
    count++;
  }
  runs.count = count;
  return runs;
}

// Runs of pages by the folios behind them: where each starts and ends, the kind of folio, the first page's place in its own.
function readFolios(text) {
  const reader = new Reader(text || '');
  const runs = [];
  let end = 0;
  while (reader.more()) {
    const start = end + reader.number();
    end = start + reader.number() + 1;
    runs.push({ start, end, kind: reader.number(), place: reader.number() });
  }
  return runs;
}

// Rows of blocks, VMA by VMA.
function readBlocks(text) {
  const reader = new Reader(text || '');
  const rows = [];
  let end = 0;
  while (reader.more()) {
    const start = end + reader.signed();
    end = start + reader.number();
    rows.push({
      start, end,
      state: reader.number(),
      reason: reader.number() - 1,
      pattern: reader.number(),
      rules: reader.number(),
    });
  }
  return rows;
}

// The last place of a sorted array (or of what `of` gives of it) that is not above `value`; -1 where there is none.
function lastUpTo(count, value, of) {
  let low = 0;
  let high = count;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (of(middle) <= value) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}
