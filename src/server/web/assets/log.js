// The log of a step: a window of a few hundred lines over a log of any length. Where somebody scrolls to is fetched; what is asked of
// the whole log is answered by the server. Lines that do not fit a filter, and sections that are closed, take no room.

import { load } from './live.js';

const ROW = 20; // pixels, as in the stylesheet
const PAGE = 200; // lines that are fetched at a time; two such pages are in the document
const KEPT = 8; // pages that are kept besides
const HIGHEST = 8_000_000; // pixels; browsers cannot scroll through much more
const LOOK_MS = 400; // how often a log that may grow is asked

class Viewer {
  constructor(root) {
    this.root = root;
    this.key = root.dataset.keep;
    this.base = root.dataset.log;
    this.pane = root.querySelector('.pane');
    this.space = document.createElement('div');
    this.space.className = 'space';
    this.lines = document.createElement('div');
    this.lines.className = 'lines';
    this.rows = Number(root.dataset.total); // lines that fit
    this.total = this.rows; // lines that there are
    this.marks = null; // where pages of lines that fit begin; null: all lines fit
    this.pages = new Map();
    this.shown = [];
    this.groups = [];
    this.closed = new Set();
    this.open = root.dataset.opensAt === 'follow';
    this.follows = this.open;
    this.current = 0; // the line that a search goes on from
    this.chosen = null; // [first, last]
    this.scrolledTo = 0;
    this.setUp();
  }

  // -- what it is made of

  setUp() {
    this.root.querySelector('[data-log-tools]').hidden = false;
    this.root.querySelector('[data-log-paging]')?.remove();
    this.find = this.root.querySelector('#log-find');
    this.stream = this.root.querySelector('#log-stream');
    this.found = this.root.querySelector('[data-log-found]');
    this.counted = this.root.querySelector('[data-log-count]');
    this.sections = this.root.querySelector('#log-groups');
    this.ticks = {};
    for (const tool of this.root.querySelectorAll('[data-log-do]')) {
      const word = tool.dataset.logDo;
      if (tool.type !== 'checkbox') {
        tool.addEventListener('click', () => this.act(word));
        continue;
      }
      this.ticks[word] = tool;
      tool.addEventListener('change', () => this.act(word));
    }
    this.ticks.follow.checked = this.follows;
    this.find.addEventListener('keydown', (event) => {
      if (event.key !== 'Enter') return;
      event.preventDefault();
      this.seek(event.shiftKey);
    });
    this.find.addEventListener('search', () => this.find.value === '' && this.act('clear'));
    this.stream.addEventListener('change', () => this.filter());
    this.sections.addEventListener('change', () => this.goTo(Number(this.sections.value)));
    this.pane.addEventListener('scroll', () => this.scrolled(), { passive: true });
    this.pane.addEventListener('click', (event) => this.clicked(event));
    this.pane.addEventListener('keydown', (event) => this.pressed(event));
    this.pill = document.createElement('button');
    this.pill.type = 'button';
    this.pill.className = 'pill';
    this.pill.hidden = true;
    this.pill.addEventListener('click', () => this.act('end'));
    this.pane.after(this.pill);
    new ResizeObserver(() => this.place()).observe(this.pane);
    this.pane.querySelector('[data-log-empty]')?.remove();
    this.space.append(this.lines);
    this.pane.replaceChildren(this.space);
    this.begin();
  }

  async begin() {
    this.timer = setTimeout(() => this.look(), LOOK_MS);
    this.loadGroups();
    if (this.goToHash()) return;
    if (this.root.dataset.opensAt === 'error') {
      const { line } = await this.ask('/error');
      if (line) return this.goTo(line, true);
    }
    this.scrollTo(this.rows);
  }

  get isGone() {
    return !this.root.isConnected || this.root.dataset.keep !== this.key;
  }

  // -- asking

  // What the view is of: the same in every question.
  words(more = {}) {
    const skip = this.groups
      .filter((group) => this.closed.has(group.first) && group.last > group.first)
      .map((group) => `${group.first + 1}-${group.last}`);
    const all = {
      attempt: this.root.dataset.attempt,
      stream: this.stream.value,
      only: this.ticks.only.checked ? this.find.value : '',
      find: this.find.value,
      case: this.ticks.case.checked ? '1' : '',
      skip: skip.join(','),
      ...more,
    };
    return new URLSearchParams(Object.entries(all).filter(([, value]) => value !== ''));
  }

  get isWhole() {
    const words = this.words();
    return !words.has('stream') && !words.has('only') && !words.has('skip');
  }

  async ask(what, more) {
    const answer = await fetch(`${this.base}${what}?${this.words(more)}`);
    if (!answer.ok) throw new Error(String(answer.status));
    return answer.json();
  }

  // One page of lines that fit.
  page(number) {
    let page = this.pages.get(number);
    if (page) return page;
    page = this.fetchPage(number).catch(() => {
      // The server is away; what is missing is fetched when it is looked at again.
      this.pages.delete(number);
      return [];
    });
    this.pages.set(number, page);
    for (const known of this.pages.keys()) {
      if (this.pages.size <= KEPT) break;
      if (Math.abs(known - number) > 2) this.pages.delete(known);
    }
    return page;
  }

  async fetchPage(number) {
    const expected = Math.min(PAGE, this.rows - number * PAGE);
    let from = this.marks ? this.marks[number] : number * PAGE + 1;
    const rows = [];
    // Long lines come fewer at a time.
    while (rows.length < expected && from) {
      const { response, status } = await load(`${this.base}?${this.words({ from, n: expected - rows.length })}`);
      if (status !== 200) throw new Error(String(status));
      const lines = response.querySelector('.lines');
      rows.push(...[...lines.children].map((line) => this.dressed(document.importNode(line, true))));
      from = Number(lines.dataset.next) > Number(lines.dataset.total) || !lines.children.length ? 0 : Number(lines.dataset.next);
    }
    return rows;
  }

  // With what only this viewer knows of a line.
  dressed(line) {
    const n = Number(line.id.slice(1));
    line.classList.toggle('chosen', this.chosen !== null && n >= this.chosen[0] && n <= this.chosen[1]);
    const group = this.groups.find(({ first, last }) => first === n && last > first);
    if (group) {
      line.classList.add('head');
      const button = document.createElement('button');
      const isClosed = this.closed.has(n);
      button.type = 'button';
      button.className = 'fold';
      button.dataset.fold = String(n);
      button.setAttribute('aria-expanded', String(!isClosed));
      button.setAttribute('aria-label', `section ${group.title}`);
      button.textContent = isClosed ? '▸' : '▾';
      line.children[1].after(button);
    }
    return line;
  }

  // -- showing

  get view() {
    return this.pane.clientHeight;
  }

  // How many pixels of log a pixel of scrolling is.
  get ratio() {
    const height = this.rows * ROW;
    return height <= HIGHEST ? 1 : (height - this.view) / (HIGHEST - this.view);
  }

  get top() {
    return this.pane.scrollTop * this.ratio;
  }

  place() {
    const height = `${Math.min(this.rows * ROW, HIGHEST)}px`;
    if (this.space.style.height !== height) this.space.style.height = height;
    this.draw();
  }

  // The rows around what is seen, in the place where they belong.
  async draw() {
    if (this.ticks.wrap.checked) return;
    const first = Math.max(0, Math.floor(this.top / ROW));
    const near = Math.floor(first / PAGE);
    const begin = first % PAGE > PAGE / 2 ? near : Math.max(0, near - 1);
    const wanted = [begin, begin + 1].filter((number) => number * PAGE < this.rows);
    const drawing = (this.drawing = Symbol('drawing'));
    const pages = await Promise.all(wanted.map((number) => this.page(number)));
    if (this.drawing !== drawing || this.isGone) return;
    const rows = pages.flat();
    if (rows.length !== this.shown.length || rows.some((row, at) => row !== this.shown[at])) {
      this.shown = rows;
      this.lines.replaceChildren(...rows);
    }
    this.begun = begin * PAGE;
    const top = this.pane.scrollTop - (this.top - this.begun * ROW);
    this.lines.style.top = `${top}px`;
    this.count();
  }

  count() {
    const number = (n) => n.toLocaleString('en');
    const fit = this.isWhole ? '' : `${number(this.rows)} of `;
    const text = `${fit}${number(this.total)} ${this.total === 1 ? 'line' : 'lines'}`;
    if (this.counted.textContent !== text) this.counted.textContent = text;
  }

  scrolled() {
    const { scrollTop, scrollHeight, clientHeight } = this.pane;
    const isAtEnd = scrollTop + clientHeight >= scrollHeight - ROW;
    // Whoever scrolls up wants to read; whoever comes back to the end wants to see what comes.
    if (scrollTop < this.scrolledTo - 2 && !isAtEnd) this.setFollow(false);
    else if (isAtEnd && this.open) this.setFollow(true);
    this.scrolledTo = scrollTop;
    if (isAtEnd) this.pill.hidden = true;
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => this.draw());
  }

  setFollow(follows) {
    this.follows = follows;
    this.ticks.follow.checked = follows;
    if (follows) this.pill.hidden = true;
  }

  // To the row of this number, which then is in the upper third.
  scrollTo(row) {
    this.place();
    const top = Math.max(0, row * ROW - this.view / 3) / this.ratio;
    this.pane.scrollTop = top;
    this.scrolledTo = this.pane.scrollTop;
    if (this.ticks.wrap.checked) return this.drawWrapped(row);
    return this.draw();
  }

  async goTo(line, marks = false) {
    if (!line) return;
    const { index } = this.isWhole ? { index: line - 1 } : await this.ask('/place', { line });
    this.setFollow(false);
    this.current = line;
    if (marks) this.choose(line, line);
    await this.scrollTo(index);
  }

  // Lines of different heights cannot be reckoned with: some of them, in the usual flow.
  async drawWrapped(row = Math.floor(this.top / ROW)) {
    const begin = Math.max(0, Math.floor(row / PAGE) - 1);
    const numbers = [begin, begin + 1, begin + 2].filter((number) => number * PAGE < this.rows);
    const rows = (await Promise.all(numbers.map((number) => this.page(number)))).flat();
    this.shown = [];
    this.lines.replaceChildren(...rows);
    rows[row - begin * PAGE]?.scrollIntoView({ block: 'center' });
    this.count();
  }

  again() {
    this.pages.clear();
    this.shown = [];
    this.place();
    if (this.ticks.wrap.checked) this.drawWrapped();
  }

  // -- what somebody does

  act(word) {
    const acts = {
      next: () => this.seek(false),
      previous: () => this.seek(true),
      clear: () => {
        this.found.textContent = '';
        this.ticks.only.checked = false;
        this.filter();
      },
      only: () => this.filter(),
      case: () => (this.ticks.only.checked ? this.filter() : this.seek(false)),
      wrap: () => {
        this.pane.classList.toggle('wraps', this.ticks.wrap.checked);
        const row = Math.floor(this.top / ROW);
        if (this.ticks.wrap.checked) this.drawWrapped(row);
        else this.scrollTo(row);
      },
      times: () => this.pane.classList.toggle('times', this.ticks.times.checked),
      read: () => this.pane.setAttribute('aria-live', this.ticks.read.checked ? 'polite' : 'off'),
      follow: () => {
        this.setFollow(this.ticks.follow.checked);
        if (this.follows) this.scrollTo(this.rows);
      },
      error: async () => {
        const { line } = await this.ask('/error');
        if (line) this.goTo(line, true);
        else this.found.textContent = 'no error found';
      },
      top: () => {
        this.setFollow(false);
        this.scrollTo(0);
      },
      end: () => {
        this.pill.hidden = true;
        if (this.open) this.setFollow(true);
        this.scrollTo(this.rows);
      },
    };
    acts[word]?.();
  }

  async seek(back) {
    if (this.find.value === '') return this.find.focus();
    const line = this.current || (back ? this.total + 1 : 0);
    this.found.textContent = 'looking…';
    const found = await this.ask('/find', back ? { line, back: '1' } : { line });
    if (!found.line) {
      this.found.textContent = 'no match';
      if (this.marked !== '') this.again();
      this.marked = '';
      return;
    }
    this.found.textContent = `${found.ordinal.toLocaleString('en')} of ${found.total.toLocaleString('en')}`;
    if (this.marked !== String(this.words())) this.pages.clear();
    this.marked = String(this.words());
    this.setFollow(false);
    this.current = found.line;
    this.choose(found.line, found.line);
    await this.scrollTo(found.index);
  }

  // Other lines fit now: how many, and where their pages begin.
  async filter() {
    const line = this.lineSeen();
    await this.measure();
    this.again();
    if (line && !this.follows) {
      const { index } = this.isWhole ? { index: line - 1 } : await this.ask('/place', { line });
      this.scrollTo(index);
    } else this.scrollTo(this.rows);
  }

  async measure() {
    if (this.isWhole) {
      this.marks = null;
      this.rows = this.total;
      return;
    }
    const { marks, matching, every, total_lines: total } = await this.ask('/marks', { every: PAGE });
    // Of very many lines only some pages are marked: then those in between begin where the one before ends, roughly.
    this.marks = every === PAGE ? marks : marks.flatMap((mark) => Array(every / PAGE).fill(mark));
    this.rows = matching;
    this.total = total;
  }

  lineSeen() {
    const first = Math.floor(this.top / ROW) - (this.begun ?? 0);
    return Number(this.shown[first]?.id.slice(1) ?? 0);
  }

  clicked(event) {
    const fold = event.target.closest('[data-fold]');
    if (fold) {
      const first = Number(fold.dataset.fold);
      if (!this.closed.delete(first)) this.closed.add(first);
      this.filter().then(() => this.goTo(first));
      return;
    }
    const number = event.target.closest('a.n');
    if (!number) return;
    event.preventDefault();
    const line = Number(number.textContent);
    const from = event.shiftKey && this.chosen ? this.chosen[0] : line;
    this.choose(Math.min(from, line), Math.max(from, line));
    this.current = line;
    const address = new URL(location.href);
    address.searchParams.set('step', this.root.dataset.step);
    address.searchParams.delete('line');
    address.hash = this.chosen[0] === this.chosen[1] ? `L${line}` : `L${this.chosen[0]}-L${this.chosen[1]}`;
    history.replaceState(history.state, '', address);
  }

  choose(first, last) {
    this.chosen = [first, last];
    for (const row of this.lines.children) {
      const n = Number(row.id.slice(1));
      row.classList.toggle('chosen', n >= first && n <= last);
    }
    this.pages.forEach((page) => page.then((rows) => rows.forEach((row) => {
      const n = Number(row.id.slice(1));
      row.classList.toggle('chosen', n >= first && n <= last);
    })));
  }

  goToHash() {
    const [, first, last] = /^#L(\d+)(?:-L?(\d+))?$/.exec(location.hash) ?? [];
    if (!first) return false;
    this.setFollow(false);
    this.choose(Number(first), Number(last ?? first));
    this.goTo(Number(first));
    this.root.scrollIntoView({ block: 'nearest' });
    return true;
  }

  pressed(event) {
    if (event.altKey) return;
    if ((event.ctrlKey || event.metaKey) && event.key === 'f') {
      event.preventDefault();
      this.find.focus();
      this.find.select();
      return;
    }
    if (event.ctrlKey || event.metaKey) return;
    if (event.key === 'End') this.act('end');
    else if (event.key === 'Home') this.act('top');
    else return;
    event.preventDefault();
  }

  // -- what comes

  async look() {
    if (this.isGone) return;
    try {
      if (!document.hidden && this.open) await this.grow();
    } catch {
      // It is asked again.
    }
    if (this.open) this.timer = setTimeout(() => this.look(), LOOK_MS);
  }

  async grow() {
    const words = new URLSearchParams({ attempt: this.root.dataset.attempt, from: Math.max(1, this.total), n: 1 });
    const { response, status } = await load(`${this.base}?${words}`);
    if (status !== 200) return;
    const { total } = response.querySelector('.lines').dataset;
    this.open = response.querySelector('main').dataset.open !== undefined;
    const came = Number(total) - this.total;
    if (came === 0 && this.open) return this.freshen();
    const before = this.rows;
    this.total = Number(total);
    await this.measure();
    // The last page had fewer lines, and its last one may have been half there.
    const last = Math.floor(Math.max(0, before - 1) / PAGE);
    for (const number of this.pages.keys()) if (number >= last) this.pages.delete(number);
    if (this.follows) await this.scrollTo(this.rows);
    else {
      this.place();
      this.pill.hidden = this.rows === before;
      this.missed = (this.missed ?? 0) + this.rows - before;
      this.pill.textContent = `${this.missed.toLocaleString('en')} new lines, to the end`;
    }
    if (this.follows) this.missed = 0;
    if (came > 0) this.loadGroupsSoon();
    if (!this.open) this.setFollow(false);
  }

  // The last line may grow without becoming two.
  freshen() {
    const last = this.shown.at(-1);
    if (!this.follows || !last || Number(last.id.slice(1)) !== this.total) return;
    this.pages.delete(Math.floor(Math.max(0, this.rows - 1) / PAGE));
    return this.draw();
  }

  loadGroupsSoon() {
    if (this.groupsDue) return;
    this.groupsDue = setTimeout(() => {
      this.groupsDue = 0;
      this.loadGroups();
    }, 3000);
  }

  async loadGroups() {
    let groups = [];
    try {
      ({ groups } = await this.ask('/groups'));
    } catch {
      return;
    }
    if (this.isGone || JSON.stringify(groups) === JSON.stringify(this.groups)) return;
    this.groups = groups;
    this.sections.hidden = groups.length === 0;
    const first = new Option(`${groups.length} ${groups.length === 1 ? 'section' : 'sections'}`, '');
    this.sections.replaceChildren(first, ...groups.map((group) => new Option(group.title, String(group.first))));
    this.again();
  }
}

let viewer = null;

function follow() {
  const root = document.querySelector('[data-log]');
  if (!root) {
    viewer = null;
    return;
  }
  if (!viewer || viewer.isGone || viewer.root !== root) viewer = new Viewer(root);
}

export function start() {
  follow();
  // Another step may be shown now, or another attempt of it.
  document.addEventListener('stepward:after', follow);
  addEventListener('hashchange', () => viewer?.goToHash());
  document.addEventListener('keydown', (event) => {
    const typing = event.target.closest?.('input:not([type=checkbox]), textarea, select');
    if (!viewer || typing || event.ctrlKey || event.metaKey || event.altKey || document.querySelector('dialog[open]')) return;
    let off = false;
    try {
      off = localStorage.getItem('stepward_keys') === 'off';
    } catch {
      // A browser that keeps nothing has them on.
    }
    if (off) return;
    if (event.key === 'f') viewer.ticks.follow.click();
    else if (event.key === 'n') viewer.act('next');
    else if (event.key === 'N') viewer.act('previous');
    else return;
    event.preventDefault();
  });
}
