// The list of jobs: what is ticked, what is suggested, and rows that stay where they are.

import { openDialog } from './dialog.js';
import { span } from './ticks.js';

function list() {
  return document.querySelector('form[data-jobs]');
}

function ticked() {
  return [...(list()?.querySelectorAll('input[name=job]:checked') ?? [])];
}

function count() {
  const n = ticked().length;
  for (const button of list()?.querySelectorAll('button[data-bulk]') ?? []) {
    button.disabled = n === 0;
    button.textContent = n === 0 ? button.dataset.bulk : `${button.dataset.bulk} ${n} ${n === 1 ? 'job' : 'jobs'}…`;
  }
  const all = list()?.querySelector('#all-jobs');
  const boxes = list()?.querySelectorAll('input[name=job]') ?? [];
  if (all) {
    all.checked = n > 0 && n === boxes.length;
    all.indeterminate = n > 0 && n < boxes.length;
  }
}

// Somebody may be about to click: rows keep their places. New ones wait until they are asked for; those that do not fit the
// filter any more say so.
function holdRows(fresh) {
  const old = document.querySelector('tbody[data-hold]');
  if (!old?.rows.length) return;
  let next = fresh.querySelector('tbody[data-hold]');
  if (!next) {
    // None fits any more: the table stays all the same.
    const frame = old.closest('.scroll').cloneNode(true);
    next = frame.querySelector('tbody');
    next.replaceChildren();
    fresh.querySelector('form[data-jobs] .empty')?.replaceWith(frame);
  }
  // Only a page that goes on can have pushed older rows off.
  const goesOn = fresh.querySelector('form[data-jobs] .paging') !== null;
  const rows = new Map([...next.rows].map((row) => [row.id, row]));
  const oldest = goesOn ? Math.min(...[...rows.keys()].map(number)) : 0;
  const last = number(old.rows[old.rows.length - 1].id);
  const kept = [];
  for (const row of old.rows) {
    const known = rows.get(row.id);
    if (known) {
      kept.push(known);
      rows.delete(row.id);
      continue;
    }
    const stays = row.cloneNode(true);
    const fits = number(row.id) < oldest;
    const isOver = /state-(completed|failed|cancelled|skipped)\b/.test(row.querySelector('.state')?.className ?? '');
    if (!isOver) tellState(row.id);
    stays.classList.toggle('left', !fits);
    if (!fits) stays.title = 'does not fit the filter any more';
    kept.push(stays);
  }
  const news = [...rows.keys()].filter((id) => !goesOn || number(id) > last).length;
  next.replaceChildren(...kept);
  const pill = fresh.querySelector('#new-jobs');
  if (pill && news) {
    pill.hidden = false;
    pill.textContent = `${news} new`;
  }
}

// A row that stays though it does not fit says what became of its job.
const asked = new Map();

async function tellState(id) {
  if (Date.now() - (asked.get(id) ?? 0) < 2000) return;
  asked.set(id, Date.now());
  const answer = await fetch(`/api/jobs/${number(id)}`).catch(() => null);
  const shown = document.querySelector(`#${id} .state`);
  if (!answer?.ok || !shown) return;
  const { status, ended_at: ended } = await answer.json();
  shown.className = `state state-${status}`;
  shown.querySelector('use')?.setAttribute('href', `#sign-${status}`);
  shown.lastChild.nodeValue = status;
  if (!ended) return;
  for (const took of document.querySelectorAll(`#${id} [data-for]`)) {
    took.textContent = span(Date.parse(ended) - took.dataset.for);
    delete took.dataset.for;
  }
}

function number(id) {
  return Number(id.replace('job-', ''));
}

// The last word is what is being written; what stands before it stays.
function suggest(field) {
  const words = JSON.parse(field.dataset.words);
  const before = field.value.replace(/\S*$/, '');
  const begun = field.value.slice(before.length);
  const offered = document.getElementById(field.getAttribute('list'));
  const fitting = words.filter((word) => word.startsWith(begun) && word !== begun).slice(0, 30);
  offered.replaceChildren(...fitting.map((word) => new Option('', before + word)));
}

export function start() {
  document.addEventListener('stepward:before', ({ detail }) => holdRows(detail));
  document.addEventListener('stepward:after', count);
  document.addEventListener('click', (event) => {
    if (event.target.closest?.('#new-jobs')) location.reload();
  });
  document.addEventListener('change', (event) => {
    if (event.target.id === 'all-jobs') {
      for (const box of list().querySelectorAll('input[name=job]')) box.checked = event.target.checked;
    }
    if (event.target.closest?.('form[data-jobs]')) count();
  });
  document.addEventListener('submit', (event) => {
    const form = event.target.closest?.('form[data-jobs]');
    if (!form || !event.submitter) return;
    event.preventDefault();
    const words = new URLSearchParams(ticked().map((box) => ['job', box.value]));
    words.append('do', event.submitter.value);
    words.append('q', form.elements.q.value);
    openDialog(`${form.getAttribute('action')}?${words}`);
  });
  const field = document.querySelector('[data-words]');
  if (field) {
    suggest(field);
    field.addEventListener('input', () => suggest(field));
  }
  count();
}
