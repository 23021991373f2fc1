// A page that asks before something is done is shown in front of the page that one is on.

import { load } from './live.js';

const dialog = document.getElementById('dialog');

async function open(address) {
  let asked = null;
  try {
    const answer = await load(address);
    asked = answer.status === 200 && answer.response?.querySelector('main form.ask');
  } catch {
    // The browser says better than we could what is the matter.
  }
  if (!asked) return location.assign(address);
  const form = document.importNode(asked, true);
  form.querySelector('h1')?.setAttribute('id', 'dialog-title');
  for (const link of form.querySelectorAll('a[data-back]')) {
    link.addEventListener('click', (event) => {
      event.preventDefault();
      dialog.close();
    });
  }
  dialog.replaceChildren(form);
  dialog.showModal();
  // What cannot be taken back is not one key away.
  if (form.querySelector('button.danger')) form.querySelector('input:not([type=hidden]), a[data-back]')?.focus();
  else form.querySelector('input:checked')?.focus();
}

export function start() {
  if (!dialog) return;
  document.addEventListener('click', (event) => {
    const link = event.target.closest?.('a[data-dialog]');
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
    event.preventDefault();
    open(link.href);
  });
  // Twice is once: a button that was pressed is not pressed again.
  document.addEventListener('submit', (event) => {
    if (event.target.method !== 'post' || event.defaultPrevented) return;
    const button = event.submitter;
    if (button) setTimeout(() => { button.disabled = true; });
  });
  addEventListener('pageshow', () => {
    for (const button of document.querySelectorAll('form[method=post] button:disabled')) button.disabled = false;
  });
}

export { open as openDialog };
