// Single keys, for those who like them; never with a modifier, never while somebody types, and they can be turned off.

import { pause } from './live.js';
import { act } from './log.js';

const help = document.getElementById('help');
const off = document.getElementById('keys-off');
let goes = 0;

function stored(name) {
  try {
    return localStorage.getItem(name);
  } catch {
    return null;
  }
}

function store(name, value) {
  try {
    localStorage.setItem(name, value);
  } catch {
    // A browser that keeps nothing is asked again the next time.
  }
}

function theme() {
  const order = ['', 'dark', 'light'];
  const root = document.documentElement;
  const next = order[(order.indexOf(root.dataset.theme ?? '') + 1) % order.length];
  if (next) root.dataset.theme = next;
  else delete root.dataset.theme;
  // The server reads it, so that no page begins in the other one.
  document.cookie = `stepward_theme=${next}; path=/; max-age=${next ? 31536000 : 0}; samesite=lax`;
}

function filter() {
  const field = document.querySelector('[data-filter]');
  if (!field) return location.assign('/jobs#filter');
  field.focus();
  field.select();
}

// Rows that can be walked: of the table that one is in, or of the first.
function walk(step) {
  const links = [...document.querySelectorAll('tr [data-open], a.row')].filter((link) => link.offsetParent);
  if (!links.length) return;
  const row = document.activeElement?.closest('tr, a.row');
  const at = links.findIndex((link) => link.closest('tr, a.row') === row);
  links[Math.min(links.length - 1, Math.max(0, at + step))].focus();
}

function press(event) {
  const typing = event.target.closest?.('input:not([type=checkbox]), textarea, select, [contenteditable]');
  if (typing || event.ctrlKey || event.metaKey || event.altKey || stored('stepward_keys') === 'off') return;
  if (document.querySelector('dialog[open]') && event.key !== '?') return;
  const key = event.key;
  if (Date.now() - goes < 1500) {
    goes = 0;
    const way = document.querySelector(`[data-go="${CSS.escape(key)}"]`);
    if (way) {
      event.preventDefault();
      way.click();
      return;
    }
  }
  const keys = {
    g: () => { goes = Date.now(); },
    '/': filter,
    '?': () => (help.open ? help.close() : help.showModal()),
    j: () => walk(1),
    k: () => walk(-1),
    p: pause,
    t: theme,
    l: () => document.querySelector('[data-log] .pane')?.focus(),
    f: () => act('follow'),
    n: () => act('next'),
    N: () => act('previous'),
  };
  if (!Object.hasOwn(keys, key)) return;
  event.preventDefault();
  keys[key]();
}

export function start() {
  document.addEventListener('keydown', press);
  const button = document.getElementById('theme');
  if (button) {
    button.hidden = false;
    button.addEventListener('click', theme);
  }
  const opener = document.getElementById('help-open');
  if (opener && help) {
    opener.hidden = false;
    opener.addEventListener('click', () => help.showModal());
  }
  if (off) {
    off.checked = stored('stepward_keys') === 'off';
    off.addEventListener('change', () => store('stepward_keys', off.checked ? 'off' : 'on'));
  }
  if (location.hash === '#filter') filter();
  const here = document.querySelector('.top nav [aria-current]');
  if (here) here.parentElement.scrollLeft = here.offsetLeft - here.parentElement.clientWidth / 2;
}
