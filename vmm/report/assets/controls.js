// Buttons, sliders and lists around the picture; each calls back into main.js.

const by = (id) => document.getElementById(id);

// A dot per checkpoint, workload by workload.
function makeTimeline(go) {
  const timeline = by('timeline');
  let group = null;
  data.steps.forEach((step, at) => {
    if (!group || group.dataset.workload !== step.workload) {
      group = element('div', { class: 'workload' }, element('bdi', { textContent: step.workload }));
      group.dataset.workload = step.workload;
      timeline.append(group);
    }
    const title = `${step.workload}: ${step.step}`;
    const dot = element('button', { type: 'button', class: 'dot ' + step.outcome, title, onclick: () => go(at) });
    dot.setAttribute('aria-label', title);
    group.append(dot);
  });
  by('slider').max = Math.max(0, data.steps.length - 1);
}

function showTime(at) {
  const step = data.steps[at];
  by('slider').value = at;
  by('now').textContent = `${at + 1} of ${data.steps.length}: ${step.workload} - ${step.step}`;
  document.querySelectorAll('#timeline .dot').forEach((dot, place) => {
    if (place === at) dot.setAttribute('aria-current', 'step');
    else dot.removeAttribute('aria-current');
  });
}

function showSpaces(step, chosen, choose) {
  by('spaces').replaceChildren(...data.steps[step].spaces.map((space, at) => {
    const errors = space.findings.filter((finding) => finding.error).length + space.unlisted;
    const name = space.pid === undefined ? space.name : `${space.name} (${space.pid})`;
    const button = element('button', { type: 'button', onclick: () => choose(at) }, element('bdi', { textContent: name }));
    if (errors) button.append(element('span', { class: 'badge', textContent: String(errors) }));
    button.setAttribute('aria-pressed', String(at === chosen));
    return button;
  }));
}

// What the colours mean; states can be switched off, so that the others are seen.
function showLegend(view, toggle) {
  const legend = by('legend');
  const chip = (colour, text, count) => {
    const swatch = element('i', { class: 'swatch' });
    swatch.style.background = `var(--${colour})`;
    const all = [swatch, text];
    if (count !== undefined) all.push(element('b', { textContent: ' ' + count.toLocaleString('en') }));
    return all;
  };
  const plain = (colour, text) => element('span', { class: 'chip' }, ...chip(colour, text));
  const error = plain('finding', 'a rule is broken');
  const hole = plain('hole', 'nothing there');
  if (view.colour === 'state') {
    const counts = view.counts;
    const states = data.states.map((state, at) => {
      if (!counts[at]) return null;
      const button = element('button', { type: 'button', class: 'chip' }, ...chip('state-' + at, state.text, counts[at]));
      button.dataset.state = state.mark;
      button.setAttribute('aria-pressed', String(!view.filters.hidden.has(at)));
      button.title = 'show or fade these';
      button.onclick = () => toggle(at);
      return button;
    });
    legend.replaceChildren(...states.filter(Boolean), hole, error);
    return;
  }
  const lists = {
    block: data.block_states.map((state, at) => plain('block-' + at, state.text)),
    change: CHANGES.map((it) => plain('change-' + it.id, it.text)),
    access: ACCESS.map((text, at) => plain('access-' + at, text)),
    order: [...Array.from({ length: ORDERS }, (_, order) => {
      const size = bytesText(view.space.pageSize * 2 ** order);
      return plain('order-' + order, `${order}${order === ORDERS - 1 ? ' and more' : ''} (${size})`);
    }), plain('plain', 'no folio')],
    finding: [plain('plain', 'mapped')],
    frame: [element('span', { class: 'chip', textContent: 'frames that follow each other as their pages do have one colour' })],
  };
  legend.replaceChildren(...(lists[view.colour] || []), hole, error);
}

function showNotes(view) {
  const { raw } = view.space;
  const step = data.steps[view.step];
  const lines = [];
  for (const reason of [...step.not_judged, ...raw.not_judged]) lines.push(['open', 'not judged: ' + reason]);
  if (!raw.words) lines.push(['open', 'The raw words of this address space were not kept, so there is no picture of it.']);
  if (raw.left_out) {
    lines.push(['open', `${raw.left_out.toLocaleString('en')} entries were left out of this page, which would be too large; the verdict is of all.`]);
  }
  if (raw.unlisted) lines.push(['error', `${raw.unlisted.toLocaleString('en')} more places of findings are counted and not listed.`]);
  for (const finding of raw.findings) {
    if (finding.error && !finding.places.length) lines.push(['error', `${finding.rule}: ${finding.message}`]);
  }
  for (const [region, sizes] of raw.mapped) {
    lines.push(['note', `${region}: ` + sizes.map(([name, bytes]) => `${name} ${bytesText(bytes)}`).join(', ')]);
  }
  for (const note of raw.notes) lines.push(['note', note]);
  by('notes').replaceChildren(...lines.map(([kind, text]) => element('p', { class: kind, textContent: text })));
}

function showTip(tip, lines, x, y, pinned) {
  tip.replaceChildren(element('dl', {}, ...lines.flatMap(([name, text, kind]) => [
    element('dt', { textContent: name, class: kind || '' }), element('dd', { textContent: text, class: kind || '' }),
  ])));
  tip.classList.toggle('pinned', pinned);
  tip.hidden = false;
  const [width, height] = [tip.offsetWidth, tip.offsetHeight];
  const left = x + 18 + width > innerWidth ? Math.max(4, x - width - 14) : x + 18;
  const upper = y + 18 + height > innerHeight ? Math.max(4, y - height - 14) : y + 18;
  tip.style.left = left + 'px';
  tip.style.top = upper + 'px';
}
