// A list of things to do, as Speedometer's programs keep one: each item is objects, strings and listeners under a tree of
// nodes; a hundred are added, done and removed, and after each change the list is drawn anew and kept as text.
'use strict';

class Node {
    constructor(tag, attributes = {}, children = []) {
        Object.assign(this, { tag, attributes, children, listeners: new Map(), parent: null });
        for (const child of children) if (child instanceof Node) child.parent = this;
    }

    on(event, listener) {
        if (!this.listeners.has(event)) this.listeners.set(event, []);
        this.listeners.get(event).push(listener);
        return this;
    }

    // An event goes to a node and on to those above it.
    dispatch(event) {
        for (let node = this; node; node = node.parent) {
            for (const listener of node.listeners.get(event) ?? []) listener(node);
        }
    }

    toString() {
        const attributes = Object.entries(this.attributes).map(([name, value]) => ` ${name}="${value}"`).join('');
        return `<${this.tag}${attributes}>${this.children.map(String).join('')}</${this.tag}>`;
    }
}

class List {
    constructor() {
        this.items = [];
        this.kept = '';
        this.drawn = null;
    }

    draw() {
        const rows = this.items.map((item) => {
            const box = new Node('input', { type: 'checkbox', checked: item.done }).on('click', () => this.toggle(item));
            const button = new Node('button', { class: 'destroy' }).on('click', () => this.remove(item));
            const title = new Node('label', {}, [item.title]);
            return new Node('li', { id: item.id, class: item.done ? 'completed' : 'active' }, [box, title, button]);
        });
        this.drawn = new Node('ul', { class: 'todo-list' }, rows);
        this.kept = JSON.stringify(this.items);
        this.text = String(this.drawn);
    }

    add(title) {
        this.items.push({ id: this.items.length, title, done: false, history: [`added ${title}`] });
        this.draw();
    }

    toggle(item) {
        item.done = !item.done;
        item.history.push(item.done ? 'done' : 'to do');
        this.draw();
    }

    remove(item) {
        this.items = this.items.filter((other) => other !== item);
        this.draw();
    }
}

const ITEMS = 100;
const rounds = Number(process.argv[2]);
const archive = [];
for (let round = 0; round < rounds; round++) {
    const list = new List();
    for (let i = 0; i < ITEMS; i++) list.add(`Something to do ${round}.${i}`);
    for (let i = 0; i < ITEMS; i++) list.drawn.children[i].children[0].dispatch('click');
    archive.push(JSON.parse(list.kept));
    while (list.items.length) list.drawn.children[0].children[2].dispatch('click');
}
const done = archive.flat().filter((item) => item.done && item.history.length === 2);
if (done.length !== rounds * ITEMS) throw new Error(`expected ${rounds * ITEMS} items done and found ${done.length}`);
