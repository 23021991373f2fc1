// The list of jobs: what is ticked, what is suggested, and rows that stay where they are.

import { openDialog } from './dialog.js';

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
  const next = fresh.querySelector('tbody[data-hold]');
  if (!old || !next) return;
  const rows = new Map([...next.rows].filter((row) => row.id).map((row) => [row.id, row]));
  const kept = [];
  const oldest = Math.min(...[...rows.keys()].map(number));
  for (const row of old.rows) {
    if (!row.id) continue;
    const known = rows.get(row.id);
    if (known) {
      kept.push(known);
      rows.delete(row.id);
      continue;
    }
    const stays = row.cloneNode(true);
    const fits = number(row.id) < oldest;
    if (!fits && !stays.classList.contains('left')) tellState(row.id);
    stays.classList.toggle('left', !fits);
    if (!fits) stays.title = 'does not fit the filter any more';
    kept.push(stays);
  }
  const first = number(old.rows[0]?.id ?? 'job-0');
  const news = [...rows.keys()].filter((id) => number(id) > first).length;
  if (!old.rows.length || !old.rows[0].id) return;
  next.replaceChildren(...kept);
  const pill = fresh.querySelector('#new-jobs');
  if (pill && news) {
    pill.hidden = false;
    pill.textContent = `${news} new`;
  }
}

// A row that stays though it does not fit says what became of its job.
async function tellState(id) {
  const answer = await fetch(`/api/jobs/${number(id)}`);
  if (!answer.ok) return;
  const { status } = await answer.json();
  const shown = document.querySelector(`#${id} .state`);
  if (!shown) return;
  shown.className = `state state-${status}`;
  shown.querySelector('use')?.setAttribute('href', `#sign-${status}`);
  shown.lastChild.nodeValue = status;
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
