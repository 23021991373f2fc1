// Forms: copying what is to be typed, and the command that does what the form would.

async function copy(button) {
  const text = button.dataset.copy;
  let done = false;
  try {
    // Only where the connection is secure.
    await navigator.clipboard.writeText(text);
    done = true;
  } catch {
    const field = document.createElement('textarea');
    field.value = text;
    (button.closest('dialog') ?? document.body).append(field);
    field.select();
    done = document.execCommand('copy');
    field.remove();
    button.focus();
  }
  const word = button.textContent;
  button.textContent = done ? 'copied' : 'not copied';
  setTimeout(() => { button.textContent = word; }, 1500);
}

// As the shell reads it.
function quoted(word) {
  return /^[\w\-./:@=,+%]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

// What is in the fields and is not so by itself.
function inputs(form) {
  const words = [];
  for (const field of form.elements) {
    if (!field.name?.startsWith('input.') || field.type === 'hidden') continue;
    const name = field.name.slice('input.'.length);
    let values = [field.value];
    if (field.type === 'checkbox') values = [String(field.checked)];
    if (field.multiple) values = [...field.selectedOptions].map((option) => option.value);
    if (field.dataset.lines !== undefined) values = field.value.split('\n').filter(Boolean);
    const text = values.join('\n');
    // What is left empty is as by default, but for a list, which can be empty.
    const isEmptied = text === '' && (field.multiple || field.dataset.lines !== undefined) && field.dataset.default;
    if (isEmptied) words.push([name, '[]']);
    if (text === '' || text === field.dataset.default) continue;
    for (const value of values) words.push([name, field.type === 'password' ? 'SECRET' : value]);
  }
  return words;
}

function command(form) {
  const shown = form.querySelector('[data-command]');
  if (!shown) return;
  const words = inputs(form).map(([name, value]) => `-i ${quoted(`${name}=${value}`)}`);
  const { priority, labels } = form.elements;
  if (priority?.value) words.push(`--priority ${quoted(priority.value)}`);
  for (const label of (labels?.value ?? '').split('\n').filter(Boolean)) words.push(`--label ${quoted(label)}`);
  const text = [shown.dataset.command, ...words].join(' ');
  shown.querySelector('code').textContent = text;
  shown.querySelector('[data-copy]').dataset.copy = text;
}

function ready() {
  for (const button of document.querySelectorAll('[data-copy]')) button.hidden = false;
}

export function start() {
  ready();
  document.addEventListener('stepward:after', ready);
  document.addEventListener('click', (event) => {
    const button = event.target.closest?.('[data-copy]');
    if (button) copy(button);
  });
  // A page that the browser kept and shows again asks for a job of its own.
  addEventListener('pageshow', ({ persisted }) => {
    if (!persisted) return;
    for (const field of document.querySelectorAll('form[data-run] input[name=once]')) {
      field.value = [...crypto.getRandomValues(new Uint8Array(12))].map((byte) => byte.toString(16).padStart(2, '0')).join('');
    }
  });
  // Where something has to be mended, one begins.
  document.querySelector('[aria-invalid=true]')?.focus();
  for (const source of document.querySelectorAll('.source[data-line]')) {
    const line = source.querySelector(`#L${source.dataset.line}`);
    if (line && !location.hash) source.scrollTop = line.offsetTop;
  }
  for (const form of document.querySelectorAll('form[data-run]')) {
    form.addEventListener('input', () => command(form));
    command(form);
  }
}
