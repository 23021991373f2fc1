// The log of a step: a window of a few hundred lines over a log of any length. Lines that do not fit a filter, and sections that
// are closed, take no room.

import { Pages, PAGE } from './log-pages.js';

const ROW = 20; // pixels, as in the stylesheet
const HIGHEST = 8_000_000; // pixels; browsers cannot scroll through much more
const LOOK_MS = 400; // how often a log that may grow is asked
const FLOW_MAX = 4; // pages in the document while lines wrap

const shown = (n) => n.toLocaleString('en');
const lineOf = (row) => Number(row.id.slice(1));

class Viewer {
  constructor(root) {
    this.root = root;
    this.key = root.dataset.keep;
    this.pane = root.querySelector('.pane');
    this.pages = new Pages(root.dataset.log, root.dataset.attempt, Number(root.dataset.total));
    this.space = document.createElement('div');
    this.space.className = 'space';
    this.lines = document.createElement('div');
    this.lines.className = 'lines';
    this.drawn = []; // rows in the document
    this.begun = 0; // the number of the first of them
    this.groups = [];
    this.closed = new Set(); // sections, by their first line
    this.isOpen = root.dataset.opensAt === 'follow';
    this.follows = this.isOpen;
    this.current = 0; // the line that a search goes on from
    this.chosen = null; // [first, last]
    this.scrolledTo = 0;
    this.missed = 0;
    this.setUp();
    this.trying(() => this.begin());
  }

  setUp() {
    const { root, pane } = this;
    root.querySelector('[data-log-tools]').hidden = false;
    root.querySelector('[data-log-paging]')?.remove();
    this.find = root.querySelector('#log-find');
    this.stream = root.querySelector('#log-stream');
    this.said = root.querySelector('[data-log-found]');
    this.counted = root.querySelector('[data-log-count]');
    this.sections = root.querySelector('#log-groups');
    this.ticks = {};
    for (const tool of root.querySelectorAll('[data-log-do]')) {
      const word = tool.dataset.logDo;
      if (tool.type === 'checkbox') this.ticks[word] = tool;
      tool.addEventListener(tool.type === 'checkbox' ? 'change' : 'click', () => this.act(word));
    }
    this.ticks.follow.checked = this.follows;
    this.find.addEventListener('keydown', (event) => {
      if (event.key !== 'Enter') return;
      event.preventDefault();
      this.act(event.shiftKey ? 'previous' : 'next');
    });
    this.find.addEventListener('search', () => this.find.value === '' && this.act('clear'));
    this.stream.addEventListener('change', () => this.act('filter'));
    this.sections.addEventListener('change', () => this.trying(() => this.goTo(Number(this.sections.value))));
    pane.addEventListener('scroll', () => this.scrolled(), { passive: true });
    pane.addEventListener('click', (event) => this.clicked(event));
    pane.addEventListener('keydown', (event) => this.pressed(event));
    pane.addEventListener('wheel', () => this.pin(), { passive: true });
    this.pill = document.createElement('button');
    this.pill.type = 'button';
    this.pill.className = 'pill';
    this.pill.hidden = true;
    this.pill.addEventListener('click', () => this.act('end'));
    pane.after(this.pill);
    this.space.append(this.lines);
    pane.replaceChildren(this.space);
    new ResizeObserver((_, observer) => (this.isGone ? observer.disconnect() : this.place())).observe(pane);
  }

  get isGone() {
    return !this.root.isConnected || this.root.dataset.keep !== this.key;
  }

  get wraps() {
    return this.ticks.wrap.checked;
  }

  // Whatever goes wrong is said where somebody looks; the next try may go better.
  async trying(work) {
    try {
      await work();
    } catch (error) {
      if (!this.isGone) this.said.textContent = error.message;
    }
  }

  async begin() {
    setTimeout(() => this.look(), LOOK_MS);
    this.trying(() => this.loadGroups());
    this.place();
    if (await this.goToHash()) return;
    if (this.root.dataset.opensAt === 'error') {
      const { line } = await this.pages.ask('/error');
      if (line) return this.goTo(line, true);
    }
    await this.scrollTo(this.pages.rows);
  }

  // -- where things are

  // How many pixels of log a pixel of scrolling is.
  get ratio() {
    const height = this.pages.rows * ROW;
    const view = this.pane.clientHeight;
    return height <= HIGHEST ? 1 : (height - view) / (HIGHEST - view);
  }

  get top() {
    return this.pane.scrollTop * this.ratio;
  }

  // The number of the first row that is seen.
  get first() {
    if (!this.wraps) return Math.max(0, Math.floor(this.top / ROW));
    const { top } = this.pane.getBoundingClientRect();
    const at = this.drawn.findIndex((row) => row.getBoundingClientRect().bottom > top);
    return this.begun + Math.max(0, at);
  }

  place() {
    const height = this.wraps ? '' : `${Math.min(this.pages.rows * ROW, HIGHEST)}px`;
    if (this.space.style.height !== height) this.space.style.height = height;
    if (!this.wraps) this.draw();
    this.count();
  }

  count() {
    const { isWhole, rows, total } = this.pages;
    const text = `${isWhole ? '' : `${shown(rows)} of `}${shown(total)} ${total === 1 ? 'line' : 'lines'}`;
    if (this.counted.textContent !== text) this.counted.textContent = text;
  }

  // The rows around what is seen, in the place where they belong.
  async draw() {
    const { first } = this;
    const near = Math.floor(first / PAGE);
    const begin = first % PAGE > PAGE / 2 ? near : Math.max(0, near - 1);
    await this.put([begin, begin + 1]);
    if (this.wraps) return;
    const top = this.pane.scrollTop - (this.top - this.begun * ROW);
    this.lines.style.top = `${top}px`;
  }

  async put(numbers) {
    const drawing = (this.drawing = Symbol('drawing'));
    const wanted = numbers.filter((number) => number * PAGE < this.pages.rows);
    const pages = await Promise.all(wanted.map((number) => this.pages.page(number)));
    if (this.drawing !== drawing || this.isGone) return false;
    const rows = pages.flat();
    this.begun = (wanted[0] ?? 0) * PAGE;
    this.flow = wanted;
    if (rows.length === this.drawn.length && rows.every((row, at) => row === this.drawn[at])) return true;
    rows.forEach((row) => this.dress(row));
    // Rows that stay are not touched: somebody may have selected something in them.
    const stays = new Set(rows);
    this.drawn.forEach((row) => stays.has(row) || row.remove());
    rows.forEach((row, at) => this.lines.children[at] === row || this.lines.insertBefore(row, this.lines.children[at] ?? null));
    this.drawn = rows;
    return true;
  }

  // With what only this viewer knows of a line.
  dress(row) {
    const n = lineOf(row);
    row.classList.toggle('chosen', this.chosen !== null && n >= this.chosen[0] && n <= this.chosen[1]);
    const group = this.groups.find(({ first, last }) => first === n && last > first);
    if (!group || row.querySelector('.fold')) return;
    const button = document.createElement('button');
    const isClosed = this.closed.has(n);
    row.classList.add('head');
    button.type = 'button';
    button.className = 'fold';
    button.dataset.fold = String(n);
    button.setAttribute('aria-expanded', String(!isClosed));
    button.setAttribute('aria-label', `section ${group.title}`);
    button.textContent = isClosed ? '▸' : '▾';
    row.children[1].after(button);
  }

  // Lines of different heights cannot be reckoned with: some pages in the usual flow, and more at either end when it is reached.
  async drawWrapped(row, block = 'center') {
    const page = Math.max(0, Math.floor(Math.min(row, this.pages.rows - 1) / PAGE));
    if (!(await this.put([Math.max(0, page - 1), page, page + 1].filter((number, at, all) => all.indexOf(number) === at)))) return;
    this.lines.style.top = '';
    this.drawn[Math.min(row - this.begun, this.drawn.length - 1)]?.scrollIntoView({ block });
    this.scrolledTo = this.pane.scrollTop;
  }

  async flowOn() {
    const { scrollTop, scrollHeight, clientHeight } = this.pane;
    const last = this.flow.at(-1);
    const isAtEnd = scrollTop + clientHeight > scrollHeight - 400 && (last + 1) * PAGE < this.pages.rows;
    const isAtTop = scrollTop < 400 && this.flow[0] > 0;
    if (this.flowing || (!isAtEnd && !isAtTop)) return;
    this.flowing = true;
    const anchor = this.drawn[this.first - this.begun];
    const before = anchor?.getBoundingClientRect().top;
    const pages = isAtEnd ? [...this.flow, last + 1].slice(-FLOW_MAX) : [this.flow[0] - 1, ...this.flow].slice(0, FLOW_MAX);
    await this.put(pages);
    // What somebody reads stays where it is.
    if (anchor?.isConnected) this.pane.scrollTop += anchor.getBoundingClientRect().top - before;
    this.scrolledTo = this.pane.scrollTop;
    this.flowing = false;
  }

  // -- going there

  scrolled() {
    const { scrollTop, scrollHeight, clientHeight } = this.pane;
    const isAtEnd = scrollTop + clientHeight >= scrollHeight - ROW;
    // Whoever scrolls up wants to read; whoever comes back to the end wants to see what comes.
    if (scrollTop < this.scrolledTo - 2 && !isAtEnd) {
      this.setFollow(false);
      this.pin();
    } else if (isAtEnd && this.isOpen && scrollTop > this.scrolledTo) this.setFollow(true);
    this.scrolledTo = scrollTop;
    if (isAtEnd) this.setMissed(0);
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => (this.wraps ? this.flowOn() : this.draw()));
  }

  setFollow(follows) {
    this.follows = follows;
    this.ticks.follow.checked = follows;
    if (follows) this.setMissed(0);
  }

  setMissed(missed) {
    this.missed = missed;
    this.pill.hidden = missed === 0;
    this.pill.textContent = `${shown(missed)} new ${missed === 1 ? 'line' : 'lines'}, to the end`;
  }

  // To the row of this number, which then is in the upper third.
  async scrollTo(row) {
    const isEnd = row >= this.pages.rows;
    this.place();
    if (this.wraps) return this.drawWrapped(row, isEnd ? 'end' : 'center');
    this.pane.scrollTop = isEnd ? this.pane.scrollHeight : Math.max(0, row * ROW - this.pane.clientHeight / 3) / this.ratio;
    this.scrolledTo = this.pane.scrollTop;
    await this.draw();
  }

  async goTo(line, marks = false) {
    if (!line) return;
    const row = await this.pages.rowOf(line);
    this.setFollow(false);
    this.current = line;
    if (marks) this.choose(line, line);
    await this.scrollTo(row);
  }

  choose(first, last) {
    this.chosen = [first, last];
    this.drawn.forEach((row) => this.dress(row));
  }

  async goToHash() {
    const [, first, last] = /^#L(\d+)(?:-L?(\d+))?$/.exec(location.hash) ?? [];
    if (!first) return false;
    this.choose(Number(first), Number(last ?? first));
    await this.goTo(Number(first));
    this.root.scrollIntoView({ block: 'nearest' });
    return true;
  }

  // Which step is shown follows the job, until somebody reads.
  pin(hash = location.hash) {
    const address = new URL(location.href);
    address.searchParams.set('step', this.root.dataset.step);
    if (hash.startsWith('#L')) address.searchParams.set('attempt', this.root.dataset.attempt);
    address.searchParams.delete('line');
    address.hash = hash;
    if (address.href !== location.href) history.replaceState(history.state, '', address);
  }

  // -- what somebody does

  act(word) {
    const acts = {
      next: () => this.seek(false),
      previous: () => this.seek(true),
      clear: () => {
        this.said.textContent = '';
        this.ticks.only.checked = false;
        return this.refilter();
      },
      filter: () => this.refilter(),
      only: () => this.refilter(),
      case: () => (this.ticks.only.checked ? this.refilter() : this.find.value && this.seek(false)),
      wrap: () => {
        // Where it was, by the manner that it had until now.
        this.ticks.wrap.checked = !this.wraps;
        const row = this.first;
        this.ticks.wrap.checked = !this.wraps;
        this.pane.classList.toggle('wraps', this.wraps);
        return this.follows ? this.scrollTo(this.pages.rows) : this.scrollTo(row);
      },
      times: () => this.pane.classList.toggle('times', this.ticks.times.checked),
      read: () => this.pane.setAttribute('aria-live', this.ticks.read.checked ? 'polite' : 'off'),
      follow: () => {
        this.setFollow(this.ticks.follow.checked);
        return this.follows && this.scrollTo(this.pages.rows);
      },
      error: async () => {
        const { line } = await this.pages.ask('/error');
        if (line) return this.goTo(line, true);
        this.said.textContent = 'no error found';
      },
      top: () => {
        this.setFollow(false);
        return this.scrollTo(0);
      },
      end: () => {
        this.setMissed(0);
        if (this.isOpen) this.setFollow(true);
        return this.scrollTo(this.pages.rows);
      },
    };
    this.pin();
    this.trying(acts[word]);
  }

  // What the controls say.
  wanted() {
    const skip = this.groups
      .filter((group) => this.closed.has(group.first) && group.last > group.first)
      .map((group) => `${group.first + 1}-${group.last}`);
    return {
      stream: this.stream.value,
      only: this.ticks.only.checked ? this.find.value : '',
      find: this.find.value,
      case: this.ticks.case.checked ? '1' : '',
      skip: skip.join(','),
    };
  }

  // Other lines fit now. What was seen stays in sight, as far as it fits.
  async refilter(line = this.follows ? 0 : lineOf(this.drawn[this.first - this.begun] ?? { id: 'L0' })) {
    if (!(await this.pages.set(this.wanted()))) return;
    this.redraw();
    await (line ? this.scrollTo(await this.pages.rowOf(line)) : this.scrollTo(this.pages.rows));
  }

  redraw() {
    this.drawn.forEach((row) => row.remove());
    this.drawn = [];
  }

  async seek(back) {
    if (this.find.value === '') return this.find.focus();
    const line = this.searchFrom(back);
    this.said.textContent = 'looking…';
    if (this.pages.filter.find !== this.find.value || this.pages.filter.case !== this.wanted().case) {
      if (!(await this.pages.set(this.wanted()))) return;
      this.redraw();
    }
    const found = await this.pages.ask('/find', back ? { line, back: '1' } : { line });
    if (!found.line) {
      this.said.textContent = 'no match';
      return this.place();
    }
    this.said.textContent = `${shown(found.ordinal)} of ${shown(found.total)}`;
    this.setFollow(false);
    this.current = found.line;
    this.choose(found.line, found.line);
    await this.scrollTo(found.index);
  }

  // From the match that is in sight; else from what is.
  searchFrom(back) {
    const { top, bottom } = this.pane.getBoundingClientRect();
    const inSight = this.drawn.filter((row) => {
      const box = row.getBoundingClientRect();
      return box.bottom > top && box.top < bottom;
    });
    if (!inSight.length || inSight.some((row) => lineOf(row) === this.current)) return this.current;
    return back ? lineOf(inSight.at(-1)) + 1 : lineOf(inSight[0]) - 1;
  }

  clicked(event) {
    const fold = event.target.closest('[data-fold]');
    if (fold) {
      const first = Number(fold.dataset.fold);
      if (!this.closed.delete(first)) this.closed.add(first);
      this.setFollow(false);
      this.trying(() => this.refilter(first));
      return;
    }
    const number = event.target.closest('a.n');
    if (!number) return;
    event.preventDefault();
    const line = Number(number.textContent);
    const from = event.shiftKey && this.chosen ? this.chosen[0] : line;
    this.choose(Math.min(from, line), Math.max(from, line));
    this.current = line;
    const [first, last] = this.chosen;
    this.pin(first === last ? `#L${first}` : `#L${first}-L${last}`);
  }

  pressed(event) {
    if (event.altKey) return;
    if ((event.ctrlKey || event.metaKey) && event.key === 'f') {
      event.preventDefault();
      this.find.focus();
      this.find.select();
      return;
    }
    if (event.ctrlKey || event.metaKey || !['Home', 'End'].includes(event.key)) return;
    event.preventDefault();
    this.act(event.key === 'End' ? 'end' : 'top');
  }

  // -- what comes

  async look() {
    if (this.isGone) return;
    try {
      if (!document.hidden && this.isOpen) await this.grow();
    } catch {
      // It is asked again.
    }
    if (this.isOpen) setTimeout(() => this.look(), LOOK_MS);
  }

  async grow() {
    const { total, isOpen, last: now } = await this.pages.end();
    if (this.isGone) return;
    const last = this.drawn.at(-1);
    if (total === this.pages.total) {
      // The last line may grow without becoming two.
      const isDrawn = now && last && lineOf(last) === total;
      if (isDrawn && last.lastElementChild.textContent !== now.lastElementChild.textContent) {
        last.lastElementChild.replaceWith(document.importNode(now.lastElementChild, true));
      } else if (!isDrawn) this.pages.forget(Math.floor(Math.max(0, this.pages.rows - 1) / PAGE));
      this.isOpen = isOpen;
      if (!isOpen) this.setFollow(false);
      return;
    }
    const before = this.pages.rows;
    await this.pages.grow(total);
    this.isOpen = isOpen;
    if (this.follows) await this.scrollTo(this.pages.rows);
    else {
      this.place();
      if (this.wraps) await this.put(this.flow?.length ? this.flow : [0]);
      this.setMissed(this.missed + Math.max(0, this.pages.rows - before));
    }
    if (!isOpen) this.setFollow(false);
    this.loadGroupsSoon();
  }

  loadGroupsSoon() {
    this.groupsDue ??= setTimeout(() => {
      this.groupsDue = undefined;
      this.trying(() => this.loadGroups());
    }, 5000);
  }

  async loadGroups() {
    const { groups } = await this.pages.ask('/groups');
    if (this.isGone || JSON.stringify(groups) === JSON.stringify(this.groups)) return;
    this.groups = groups;
    this.sections.hidden = groups.length === 0;
    const first = new Option(`${groups.length} ${groups.length === 1 ? 'section' : 'sections'}`, '');
    this.sections.replaceChildren(first, ...groups.map((group) => new Option(group.title, String(group.first))));
    if (this.closed.size) return this.refilter();
    this.drawn.forEach((row) => this.dress(row));
  }
}

let viewer = null;

function follow() {
  const root = document.querySelector('[data-log]');
  if (root && (!viewer || viewer.isGone || viewer.root !== root)) viewer = new Viewer(root);
}

export function start() {
  follow();
  // Another step may be shown now, or another attempt of it.
  document.addEventListener('stepward:after', follow);
  addEventListener('hashchange', () => viewer?.trying(() => viewer.goToHash()));
}

// For the keys of the page.
export function act(word) {
  if (!viewer || viewer.isGone) return;
  if (word === 'follow') viewer.ticks.follow.click();
  else viewer.act(word);
}
