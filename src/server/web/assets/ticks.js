// Ages, durations and countdowns go on while nothing else happens. The server's clock counts, wherever the browser is.

let ahead = 0;

export function setClock(serverNow) {
  if (serverNow) ahead = serverNow - Date.now();
}

export function now() {
  return Date.now() + ahead;
}

// As the server writes it: 0.4s, 12s, 2m 14s, 3h 5m, 2d 4h.
export function span(ms) {
  ms = Math.max(0, ms);
  const secs = Math.floor(ms / 1000);
  const two = (small, per, large, unit) => {
    const rest = small % per;
    return `${Math.floor(small / per)}${large}${rest ? ` ${rest}${unit}` : ''}`;
  };
  if (secs < 10) return `${secs}.${Math.floor((ms % 1000) / 100)}s`;
  if (secs < 60) return `${secs}s`;
  if (secs < 3600) return two(secs, 60, 'm', 's');
  if (secs < 86400) return two(Math.floor(secs / 60), 60, 'h', 'm');
  return two(Math.floor(secs / 3600), 24, 'd', 'h');
}

function put(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function local(ms) {
  const date = new Date(ms);
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  return `${date.toLocaleString()} ${zone} · ${date.toISOString()}`;
}

export function tick() {
  const time = now();
  // Whole seconds once it is running: tenths that change once a second only flicker.
  const whole = (ms) => span(ms < 10000 ? Math.floor(ms / 1000) * 1000 : ms).replace('.0s', 's');
  for (const element of document.querySelectorAll('[data-ago]')) put(element, `${whole(time - element.dataset.ago)} ago`);
  for (const element of document.querySelectorAll('[data-for]')) put(element, whole(time - element.dataset.for));
  for (const element of document.querySelectorAll('[data-in]')) {
    const left = element.dataset.in - time;
    put(element, left > 0 ? `in ${whole(left)}` : 'now');
  }
  for (const bar of document.querySelectorAll('[data-beat]')) {
    const share = Math.min(1, (time - bar.dataset.beat) / bar.dataset.limit);
    bar.querySelector('.age')?.setAttribute('width', String(Math.round(share * 100)));
    bar.classList.toggle('late', share > 0.5 && share < 1);
    bar.classList.toggle('lost', share >= 1);
  }
}

function titles() {
  for (const element of document.querySelectorAll('time[datetime]')) {
    const ms = Date.parse(element.dateTime);
    if (!Number.isNaN(ms)) element.title = local(ms);
  }
}

export function start() {
  setClock(Number(document.body.dataset.now));
  const all = () => {
    tick();
    titles();
  };
  all();
  document.addEventListener('stepward:after', all);
  setInterval(tick, 1000);
}
