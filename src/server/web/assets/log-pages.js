// The lines of a log that fit, page by page: fetched when somebody looks at them, some of them kept. What is asked of the whole log
// is answered by the server.

import { load } from './live.js';

export const PAGE = 200; // lines that are fetched at a time
const KEPT = 8; // pages that are kept

export class Pages {
  constructor(base, attempt, total) {
    this.base = base;
    this.attempt = attempt;
    this.total = total; // lines that there are
    this.rows = total; // lines that fit
    this.marks = null; // where every so many lines that fit begin; null: all lines fit
    this.every = PAGE;
    this.filter = {}; // stream, only, find, case, skip
    this.age = 0; // what was asked before is of no use any more
    this.kept = new Map();
  }

  words(more = {}) {
    const all = { attempt: this.attempt, ...this.filter, ...more };
    return new URLSearchParams(Object.entries(all).filter(([, value]) => value !== '' && value !== undefined));
  }

  get isWhole() {
    const { stream, only, skip } = this.filter;
    return !stream && !only && !skip;
  }

  async ask(what, more) {
    const answer = await fetch(`${this.base}${what}?${this.words(more)}`);
    if (!answer.ok) throw new Error(answer.status === 503 ? 'the server is busy' : `the server says ${answer.status}`);
    return answer.json();
  }

  // Other lines fit, or are marked, from now on. `false`: meanwhile others do.
  async set(filter) {
    const before = this.filter;
    this.filter = filter;
    this.age += 1;
    const { age } = this;
    let measured = null;
    try {
      measured = await this.measured(1);
    } catch (error) {
      // What is shown is as it was.
      if (age === this.age) this.filter = before;
      throw error;
    }
    if (age !== this.age) return false;
    this.kept.clear();
    Object.assign(this, measured);
    return true;
  }

  // How many lines fit and where their pages begin. What is known of the lines before one stays so.
  async measured(from) {
    if (this.isWhole) return { marks: null, every: PAGE, rows: this.total };
    const found = await this.ask('/marks', { every: this.every, from });
    return { marks: found.marks, every: found.every, rows: found.matching, total: found.total_lines };
  }

  // There are more lines now.
  async grow(total) {
    const { age, rows: before, total: had } = this;
    this.total = total;
    const known = this.marks?.length ? this.marks.length - 1 : 0;
    let found = null;
    try {
      found = await this.measured(known ? this.marks[known] : 1);
    } catch (error) {
      // It is asked again.
      this.total = had;
      throw error;
    }
    const { marks, every, rows } = found;
    if (age !== this.age) return;
    if (!marks || !known || every !== this.every) Object.assign(this, { marks, every, rows });
    else Object.assign(this, { marks: [...this.marks.slice(0, known), ...marks], rows: known * every + rows });
    // The last page had fewer lines, and its last one may have been half there.
    this.forget(Math.floor(Math.max(0, before - 1) / PAGE));
  }

  forget(first) {
    for (const number of this.kept.keys()) if (number >= first) this.kept.delete(number);
  }

  // Where a line is among those that fit, or where it would be.
  async rowOf(line) {
    return this.isWhole ? line - 1 : (await this.ask('/place', { line })).index;
  }

  page(number) {
    let page = this.kept.get(number);
    if (page) return page;
    page = this.fetched(number).catch(() => {
      // What is missing is fetched when it is looked at again.
      this.kept.delete(number);
      return [];
    });
    this.kept.set(number, page);
    for (const known of this.kept.keys()) {
      if (this.kept.size <= KEPT) break;
      if (Math.abs(known - number) > 3) this.kept.delete(known);
    }
    return page;
  }

  async fetched(number) {
    const expected = Math.min(PAGE, this.rows - number * PAGE);
    // Of very many lines only some pages are marked: those between are behind the ones before.
    const perMark = this.every / PAGE;
    const before = this.marks ? (number % perMark) * PAGE : 0;
    let from = this.marks ? this.marks[Math.floor(number / perMark)] : number * PAGE + 1;
    const rows = [];
    // Long lines come fewer at a time.
    while (rows.length < before + expected && from) {
      const { response, status } = await load(`${this.base}?${this.words({ from, n: before + expected - rows.length })}`);
      if (status !== 200) throw new Error(String(status));
      const { children, dataset } = response.querySelector('.lines');
      rows.push(...[...children].map((line) => document.importNode(line, true)));
      from = Number(dataset.next) > Number(dataset.total) || !children.length ? 0 : Number(dataset.next);
    }
    return rows.slice(before);
  }

  // The last line as it is now, and whether more may come.
  async end() {
    const words = new URLSearchParams({ attempt: this.attempt, from: Math.max(1, this.total), n: 1 });
    const { response, status } = await load(`${this.base}?${words}`);
    if (status !== 200) throw new Error(String(status));
    const lines = response.querySelector('.lines');
    return {
      total: Number(lines.dataset.total),
      isOpen: response.querySelector('main').dataset.open !== undefined,
      last: lines.lastElementChild,
    };
  }
}
