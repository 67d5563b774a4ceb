// What is looked at, and what happens when that changes.

const state = {
  step: 0, space: 0, colour: 'state', zoom: null,
  filters: { vmas: 'step', findings: false, hidden: new Set(), text: '' },
  table: 'blocks', first: 0, pinned: null,
};
const [frame, canvas, tip] = [by('frame'), by('canvas'), by('tip')];
let view = null;
let drawing = 0;
let playing = 0;

// The page that an address in hexadecimal is in; null where a text is none.
function asPage(text, space = view && view.space) {
  const words = text.trim().toLowerCase();
  if (!space || !/^(0x)?[0-9a-f]{6,16}$/.test(words)) return null;
  const va = BigInt(words.startsWith('0x') ? words : '0x' + words);
  return va < space.first ? null : Number((va - space.first) / BigInt(space.pageSize));
}

function shownSections(space) {
  const { vmas, findings, text } = state.filters;
  const step = data.steps[state.step];
  const about = space.raw.pid === undefined ? [] : step.about;
  const words = text.trim().toLowerCase();
  const page = asPage(words, space);
  return space.sections.filter((section) => {
    const wrong = section.wrong.length > 0;
    if (findings && !wrong) return false;
    if (words) {
      const inside = page !== null && section.start <= page && page < section.end;
      const named = (section.name + ' ' + section.permissions + ' ' + space.vaText(section.start)).toLowerCase().includes(words);
      return inside || named;
    }
    if (wrong || vmas === 'all') return true;
    if (vmas === 'step' && about.length) return about.some(([start, end]) => section.start < end && start < section.end);
    return section.mapped > 0 || !section.vma;
  });
}

// Makes the view anew; `keep` is the page that stays where it is, at its height in the frame.
function refresh(keep) {
  const step = data.steps[state.step];
  if (!step.spaces.length) {
    view = null;
    showTime(state.step);
    by('spaces').replaceChildren();
    by('notes').replaceChildren(...step.not_judged.map((text) => element('p', { class: 'open', textContent: 'not judged: ' + text })));
    by('nothing').hidden = false;
    by('depth').style.height = '0';
    canvas.getContext('2d').clearRect(0, 0, canvas.width, canvas.height);
    by('table').replaceChildren();
    return;
  }
  state.space = Math.min(state.space, step.spaces.length - 1);
  const space = spaceOf(state.step, state.space);
  const shown = shownSections(space);
  const most = Math.min(innerHeight * 0.68, 900);
  const width = frame.clientWidth;
  const layout = state.zoom ? new Layout(space, width, state.zoom, shown) : fittingLayout(space, width, most, shown);
  view = {
    step: state.step, space, shown, colour: state.colour, filters: state.filters,
    before: spaceBefore(state.step, space.raw),
    layout,
    passes: (entry, wrong) => {
      if (state.filters.findings && !wrong) return false;
      return !entry || !state.filters.hidden.has(data.attributes[entry.attributes].state);
    },
  };
  view.counts = countStates(space, shown);
  frame.style.height = Math.round(Math.max(220, Math.min(most, view.layout.height + 8))) + 'px';
  showFilters(space);
  by('depth').style.height = view.layout.height + 'px';
  by('nothing').hidden = shown.length > 0;
  if (keep) scrollTo(keep.page, keep.at);
  showTime(state.step);
  showSpaces(state.step, state.space, (at) => { state.space = at; unpin(); refresh(); });
  showLegend(view, toggleState);
  showNotes(view);
  by('zoom').value = ZOOMS.indexOf(layout.cell);
  state.first = 0;
  showTable();
  paint();
}

function countStates(space, shown) {
  const counts = data.states.map(() => 0);
  const { runs } = space;
  for (const section of shown) {
    for (let at = Math.max(0, space.runAt(section.start)); at < runs.count && runs.start[at] < section.end; at++) {
      const pages = Math.min(section.end, runs.end[at]) - Math.max(section.start, runs.start[at]);
      if (pages > 0) counts[data.attributes[runs.attributes[at]].state] += pages;
    }
  }
  return counts;
}

function paint() {
  if (drawing) return;
  drawing = requestAnimationFrame(() => {
    drawing = 0;
    if (!view) return;
    draw(canvas, view, frame.scrollTop);
    if (!frame.dataset.drawn) frame.dataset.drawn = String(Math.round(performance.now()));
    frame.dataset.step = String(state.step);
    mark();
  });
}

function showTable() {
  if (!view) return;
  // The kernel half has no rows of blocks.
  const table = state.table === 'blocks' && view.space.raw.pid === undefined ? 'entries' : state.table;
  for (const button of by('tabs').children) button.setAttribute('aria-pressed', String(button.dataset.table === table));
  const { shown, more } = fillTable(by('table'), table, view, state.first, (page) => lookAt(page));
  by('rows-back').disabled = state.first === 0;
  by('rows-on').disabled = !more;
  by('rows-now').textContent = shown ? `${state.first + 1} to ${state.first + shown}` : 'none';
}

function toggleState(at) {
  const { hidden } = state.filters;
  if (!hidden.delete(at)) hidden.add(at);
  refresh(middle());
}

// The page at the top of what is seen, to stay there.
function middle() {
  if (!view) return null;
  const top = frame.scrollTop;
  const from = view.layout.itemAt(top);
  for (let at = Math.max(0, from); at < view.layout.items.length; at++) {
    const item = view.layout.items[at];
    if (item.kind !== 'rows' || item.top + item.height <= top) continue;
    const row = item.from + Math.max(0, Math.floor((top - item.top) / view.layout.pitch));
    const page = Math.max(item.section.start, row * view.layout.rowPages);
    return { page, at: view.layout.place(page).y - top };
  }
  return null;
}

function scrollTo(page, at) {
  const place = view && view.layout.place(page);
  if (place) frame.scrollTop = Math.max(0, place.y - at);
}

function flip(to) {
  const next = Math.max(0, Math.min(data.steps.length - 1, to));
  if (next === state.step && view) return;
  const keep = middle();
  const pid = view && view.space.raw.pid;
  state.step = next;
  const same = data.steps[next].spaces.findIndex((space) => space.pid === pid);
  state.space = Math.max(0, same);
  unpin();
  refresh(keep);
  remember();
}

function play(on) {
  clearInterval(playing);
  playing = on ? setInterval(() => (state.step + 1 < data.steps.length ? flip(state.step + 1) : play(false)), 900) : 0;
  by('play').textContent = on ? '⏸ pause' : '▶ play';
}

function zoomTo(cell, page) {
  const keep = page || middle();
  state.zoom = cell;
  refresh(keep);
}

function zoomBy(change, page) {
  if (!view) return;
  const at = ZOOMS.indexOf(view.layout.cell) + change;
  if (at >= 0 && at < ZOOMS.length) zoomTo(ZOOMS[at], page);
}

// Shows a page, whatever the filters were, and pins what is said of it.
function lookAt(page) {
  if (!view) return;
  const section = view.space.section(page);
  if (!section) return;
  if (!view.shown.includes(section)) {
    Object.assign(state.filters, { vmas: 'all', findings: false, text: '' });
    refresh();
  }
  const place = view.layout.place(page);
  if (!place) return;
  frame.scrollTop = Math.max(0, place.y - frame.clientHeight / 3);
  frame.scrollIntoView({ block: 'nearest' });
  state.pinned = page;
  const box = canvas.getBoundingClientRect();
  showTip(tip, describe(view, page, section), box.left + place.x + 8, box.top + place.y - frame.scrollTop + 8, true);
  paint();
}

function unpin() {
  state.pinned = null;
  tip.hidden = true;
  by('cell').hidden = true;
}

// A frame around the page that is spoken of.
function mark(hovered) {
  const page = hovered ?? state.pinned;
  const place = page === null || page === undefined ? null : view && view.layout.place(page);
  const cell = by('cell');
  cell.hidden = !place || !place.width;
  if (cell.hidden) return;
  cell.style.left = place.x - 2 + 'px';
  cell.style.top = place.y - 2 + 'px';
  cell.style.width = Math.max(3, place.width) + 3 + 'px';
  cell.style.height = Math.max(3, place.height) + 3 + 'px';
}

function under(event) {
  if (!view) return null;
  const box = canvas.getBoundingClientRect();
  return view.layout.pageAt(event.clientX - box.left, event.clientY - box.top + frame.scrollTop);
}

function showFilters(space) {
  const known = space.raw.pid !== undefined && data.steps[state.step].about.length > 0;
  by('vmas').options[0].disabled = !known;
  by('vmas').value = state.filters.vmas === 'step' && !known ? 'mapped' : state.filters.vmas;
  by('only-findings').checked = state.filters.findings;
  by('text').value = state.filters.text;
}

// The address of the page says what is looked at, so that it can be sent to somebody.
function remember() {
  history.replaceState(null, '', `#step=${state.step}&space=${state.space}&colour=${state.colour}`);
}

function fromAddress() {
  const asked = new URLSearchParams(location.hash.slice(1));
  const number = (name, limit) => {
    const value = Number(asked.get(name));
    return asked.has(name) && Number.isInteger(value) && value >= 0 && value < limit ? value : null;
  };
  const step = number('step', data.steps.length);
  if (step !== null) state.step = step;
  state.space = number('space', data.steps[state.step]?.spaces.length || 0) ?? 0;
  if (Object.hasOwn(COLOURS, asked.get('colour'))) state.colour = by('colour').value = asked.get('colour');
  const wanted = number('finding', 1e9);
  if (wanted === null || !data.steps.length) return refresh();
  const { spaces } = data.steps[state.step];
  const at = spaces.findIndex((space) => space.findings.some((finding) => finding.number === wanted));
  if (at < 0) return refresh();
  state.space = at;
  refresh();
  const finding = spaces[at].findings.find((it) => it.number === wanted);
  if (finding.places.length) lookAt(finding.places[0][0]);
}

function listen() {
  const on = (id, event, what) => by(id).addEventListener(event, what);
  on('first', 'click', () => flip(0));
  on('previous', 'click', () => flip(state.step - 1));
  on('next', 'click', () => flip(state.step + 1));
  on('last', 'click', () => flip(data.steps.length - 1));
  on('play', 'click', () => play(!playing));
  on('slider', 'input', (event) => flip(Number(event.target.value)));
  on('colour', 'change', (event) => {
    state.colour = event.target.value;
    // What was switched off in the legend could not be switched on in another one.
    state.filters.hidden.clear();
    refresh(middle());
    remember();
  });
  on('vmas', 'change', (event) => { state.filters.vmas = event.target.value; refresh(); });
  on('only-findings', 'change', (event) => { state.filters.findings = event.target.checked; refresh(); });
  on('text', 'input', (event) => {
    state.filters.text = event.target.value;
    const page = asPage(event.target.value);
    refresh(page === null ? null : { page, at: 80 });
  });
  on('zoom', 'input', (event) => zoomTo(ZOOMS[Number(event.target.value)]));
  on('in', 'click', () => zoomBy(1));
  on('out', 'click', () => zoomBy(-1));
  on('fit', 'click', () => zoomTo(null));
  on('rows-back', 'click', () => { state.first = Math.max(0, state.first - ROWS); showTable(); });
  on('rows-on', 'click', () => { state.first += ROWS; showTable(); });
  frame.addEventListener('scroll', () => { if (state.pinned === null) tip.hidden = true; paint(); });
  frame.addEventListener('mousemove', (event) => {
    if (state.pinned !== null) return;
    const found = under(event);
    mark(found ? found.page : null);
    if (found) showTip(tip, describe(view, found.page, found.section), event.clientX, event.clientY, false);
    else tip.hidden = true;
  });
  frame.addEventListener('mouseleave', () => { if (state.pinned === null) unpin(); });
  frame.addEventListener('click', (event) => {
    const found = under(event);
    if (!found || state.pinned === found.page) return unpin();
    state.pinned = found.page;
    mark();
    showTip(tip, describe(view, found.page, found.section), event.clientX, event.clientY, true);
  });
  frame.addEventListener('wheel', (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    const found = under(event);
    const at = event.clientY - canvas.getBoundingClientRect().top;
    zoomBy(event.deltaY < 0 ? 1 : -1, found && { page: found.page, at });
  }, { passive: false });
  document.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey || /^(text|search)$/.test(event.target.type || '')) return;
    if (['SELECT'].includes(event.target.tagName) || (event.target.type === 'range' && event.key.startsWith('Arrow'))) return;
    const keys = {
      ArrowLeft: () => flip(state.step - 1), ArrowRight: () => flip(state.step + 1),
      Home: () => flip(0), End: () => flip(data.steps.length - 1),
      '+': () => zoomBy(1), '=': () => zoomBy(1), '-': () => zoomBy(-1), 0: () => zoomTo(null), Escape: unpin,
    };
    if (event.key === ' ' && !['BUTTON', 'INPUT', 'SUMMARY'].includes(event.target.tagName)) keys[' '] = () => play(!playing);
    if (!keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  });
  let size = `${frame.clientWidth} ${frame.clientHeight}`;
  new ResizeObserver(() => {
    const now = `${frame.clientWidth} ${frame.clientHeight}`;
    if (now === size) return;
    size = now;
    refresh(middle());
  }).observe(frame);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => { readInk(); paint(); });
  addEventListener('hashchange', fromAddress);
}

// For programs that look at the page: where a VA is in the window, and to go there.
window.folioscope = {
  lookAt(va) {
    lookAt(Number((BigInt(va) - view.space.first) / BigInt(view.space.pageSize)));
  },
  where(va) {
    const page = Number((BigInt(va) - view.space.first) / BigInt(view.space.pageSize));
    const place = view.layout.place(page);
    const box = canvas.getBoundingClientRect();
    return place && { x: box.left + place.x, y: box.top + place.y - frame.scrollTop, width: place.width, height: place.height };
  },
};

readInk();
makeTimeline(flip);
by('zoom').max = ZOOMS.length - 1;
// Only where somebody has read the folios.
if (!data.folio_kinds.length) delete COLOURS.order;
for (const [id, colour] of Object.entries(COLOURS)) by('colour').append(element('option', { value: id, textContent: colour.title }));
for (const [id, table] of Object.entries(TABLES)) {
  const tab = element('button', { type: 'button', textContent: table.title, onclick: () => { state.table = id; state.first = 0; showTable(); } });
  tab.dataset.table = id;
  by('tabs').append(tab);
}
if (data.steps.length) {
  // The first that is wrong is what one wants to see.
  const wrong = data.steps.findIndex((step) => step.outcome === 'errors');
  state.step = Math.max(0, wrong);
  fromAddress();
  listen();
} else {
  by('explorer').hidden = true;
}
