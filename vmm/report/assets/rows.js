// The rows behind the picture, a page of them at a time: blocks, entries, VMAs.

const ROWS = 200;

// A new element; what is text is set as text.
function element(tag, properties, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties || {})) {
    if (name === 'class') made.className = value;
    else if (name in made) made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

const TABLES = {
  blocks: {
    title: 'blocks',
    head: ['VA', 'blocks', 'state', 'pages of each', 'reason', 'broken rules'],
    *rows(view) {
      for (const section of view.shown) {
        for (const row of section.blocks) {
          if (data.block_states[row.state].mark === '.' && view.filters.vmas !== 'all') continue;
          const start = row.start * view.space.blockPages;
          const wrong = data.rule_sets[row.rules];
          if (view.filters.findings && !wrong && !errorIn(section, start, row.end * view.space.blockPages)) continue;
          yield {
            page: Math.max(start, section.start),
            wrong: Boolean(wrong),
            cells: [
              view.space.vaText(start), row.end - row.start, data.block_states[row.state].text,
              data.patterns[row.pattern], view.space.reason(row), wrong,
            ],
          };
        }
      }
    },
  },
  entries: {
    title: 'entries',
    head: ['VA', 'entries', 'level', 'first word', 'first address', 'each next', 'descriptor', 'software'],
    *rows(view) {
      const { space } = view;
      const { runs } = space;
      for (const section of view.shown) {
        for (let at = Math.max(0, space.runAt(section.start)); at < runs.count && runs.start[at] < section.end; at++) {
          if (runs.end[at] <= section.start) continue;
          const attributes = data.attributes[runs.attributes[at]];
          const wrong = errorIn(section, runs.start[at], runs.end[at]);
          if (!view.passes({ attributes: runs.attributes[at] }, wrong)) continue;
          const step = runs.step[at] * attributes.unit;
          yield {
            page: Math.max(runs.start[at], section.start),
            wrong,
            cells: [
              space.vaText(runs.start[at]), (runs.end[at] - runs.start[at]) / attributes.pages, attributes.level,
              hex(wordOf(attributes, runs.number[at]), 16),
              attributes.address ? hex(BigInt(runs.number[at]) * BigInt(attributes.unit), 12) : '',
              step ? (step < 0 ? '-' : '+') + bytesText(Math.abs(step)) : '', attributes.text, attributes.software,
            ],
          };
        }
      }
    },
  },
  vmas: {
    title: 'VMAs',
    head: ['VA', 'end', 'size', 'permissions', 'name', 'mapped', 'contiguous', 'largest run', 'orders'],
    *rows(view) {
      for (const section of view.shown) {
        yield {
          page: section.start,
          wrong: section.wrong.length > 0,
          cells: [
            view.space.vaText(section.start), view.space.vaText(section.end),
            bytesText((section.end - section.start) * view.space.pageSize), section.permissions, section.name,
            bytesText(section.mapped || 0), bytesText(section.contiguous || 0), bytesText(section.largest_run || 0),
            Object.entries(section.orders || {}).map(([order, count]) => `${order}×${count}`).join(' '),
          ],
        };
      }
    },
  },
};

// Fills the table with the rows from `first` on; says whether there are more.
function fillTable(table, kind, view, first, go) {
  const { head, rows } = TABLES[kind];
  const body = element('tbody');
  let at = 0;
  let more = false;
  for (const row of rows(view)) {
    if (at >= first + ROWS) {
      more = true;
      break;
    }
    if (at++ < first) continue;
    const line = element('tr', { class: row.wrong ? 'wrong' : '' });
    row.cells.forEach((cell, place) => {
      const text = place ? String(cell) : element('button', { type: 'button', textContent: cell, onclick: () => go(row.page) });
      line.append(element('td', {}, text));
    });
    body.append(line);
  }
  table.replaceChildren(
    element('thead', {}, element('tr', {}, ...head.map((name) => element('th', { textContent: name })))),
    body,
  );
  return { shown: at - Math.min(first, at), more };
}

// What is known of a page, as lines of a name and a text.
function describe(view, page, section) {
  const { space } = view;
  const entry = space.entry(page);
  const lines = [['VA', space.vaText(page)]];
  if (entry) {
    const attributes = data.attributes[entry.attributes];
    lines.push(['word', hex(wordOf(attributes, entry.number), 16) + `  level ${attributes.level}`]);
    if (attributes.address) {
      const output = BigInt(entry.number) * BigInt(attributes.unit) + BigInt(page - entry.start) * BigInt(space.pageSize);
      lines.push(['PA', `${hex(output, 12)}  pfn ${hex(output / BigInt(space.pageSize), 1)}`]);
    } else if (entry.number) {
      lines.push(['offset', hex(BigInt(entry.number), 1)]);
    }
    lines.push(['entry', data.states[attributes.state].text]);
    lines.push(['fields', attributes.text]);
    if (attributes.software) lines.push(['software', attributes.software]);
  } else {
    lines.push(['entry', 'nothing there']);
  }
  const folio = entry && space.folio(page);
  if (folio) {
    const size = `order ${folio.order} (${bytesText(space.pageSize * 2 ** folio.order)}), page ${folio.place} of ${2 ** folio.order}`;
    lines.push(['folio', folio.text ? `${size}; ${folio.text}` : size]);
  }
  const row = space.blockRow(section, page);
  if (row) {
    const start = Math.floor(page / space.blockPages) * space.blockPages;
    const place = data.patterns[row.pattern];
    lines.push(['block', `${space.vaText(start)}  ${data.block_states[row.state].text}`]);
    if (space.reason(row)) lines.push(['reason', space.reason(row)]);
    const caret = '\n' + ' '.repeat(page % space.blockPages) + '^';
    lines.push(['pages', place + (place.length > 64 ? '' : caret)]);
  }
  if (view.before) {
    const what = CHANGES[change(view.before.entry(page), entry)];
    lines.push(['since before', what.text]);
  }
  lines.push([section.vma ? 'VMA' : 'range', `${space.vaText(section.start)}-${space.va(section.end).toString(16)} ${section.permissions} ${section.name}`]);
  for (const finding of space.findingsAt(page)) {
    lines.push([finding.rule, finding.message, finding.error ? 'wrong' : '']);
  }
  return lines;
}
