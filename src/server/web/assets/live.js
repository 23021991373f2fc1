// Keeps the page as the server would show it now: hears that something happened, fetches the page's own address again, and puts
// in place what is new.

import { morph } from './morph.js';
import { Stream } from './stream.js';
import { setClock } from './ticks.js';

const PAUSE_MS = 120;
const HIDDEN_PAUSE_MS = 1500;
const POLL_MS = 3000;

const body = document.body;
const shown = document.getElementById('live');
let port = null;
let state = 'connecting';
let paused = false;
let due = 0;
let loading = false;
let again = false;
let took = 0;
let heard = Date.now();

// A worker's address is the one thing here that could run code: only files of ours have one.
const policy = window.trustedTypes?.createPolicy('stepward', {
  createScriptURL(url) {
    if (new URL(url).origin !== location.origin) throw new TypeError(url);
    return url;
  },
});

export function load(address) {
  return new Promise((resolve, reject) => {
    // Not fetch: this one makes a document of the answer by itself, and no script in it would run.
    const request = new XMLHttpRequest();
    request.open('GET', address);
    request.responseType = 'document';
    request.setRequestHeader('accept', 'text/html');
    request.timeout = 15000;
    request.onload = () => resolve(request);
    request.onerror = request.ontimeout = () => reject(new Error('the server does not answer'));
    request.send();
  });
}

function wants({ jobs, others }) {
  const live = body.dataset.live;
  if (live === undefined) return false;
  if (live === 'all' || jobs === null) return true;
  const own = new Set(live.split(' ').map(Number));
  return others || jobs.some((job) => own.has(job));
}

function isBehind(place) {
  const [event, change] = (place ?? '0.0').split('.').map(Number);
  const [ownEvent, ownChange] = body.dataset.place.split('.').map(Number);
  return event > ownEvent || change > ownChange;
}

function hear(news) {
  if (news.state !== state) {
    state = news.state;
    if (state === 'live') heard = Date.now();
    show();
  }
  // What happened before this page listened is told by the place alone.
  const missed = !('others' in news) && isBehind(news.place);
  if (missed || ('others' in news && wants(news))) refresh();
}

function show() {
  const since = new Date(heard).toLocaleTimeString();
  const words = {
    connecting: '', live: paused ? 'paused' : 'live', lost: `reconnecting, data from ${since}`, polling: 'every 3 seconds',
  };
  shown.dataset.state = paused ? 'paused' : state;
  if (shown.textContent !== words[state]) shown.textContent = words[state];
}

// Soon, and then not more often than the server and this machine take well.
export function refresh() {
  if (body.dataset.live === undefined || paused) return;
  if (loading) {
    again = true;
    return;
  }
  if (due) return;
  const pause = document.hidden ? HIDDEN_PAUSE_MS : Math.max(PAUSE_MS, took * 3);
  due = setTimeout(run, Math.max(0, pause - (Date.now() - lastEnd)));
}
let lastEnd = 0;

async function run() {
  due = 0;
  loading = true;
  again = false;
  const begun = Date.now();
  try {
    await fetchAndPut();
    heard = Date.now();
    if (state === 'polling') show();
  } catch {
    // The stream says when the server is back.
  }
  took = Date.now() - begun;
  lastEnd = Date.now();
  loading = false;
  if (again) refresh();
}

async function fetchAndPut() {
  const address = location.pathname + location.search;
  const answer = await load(address);
  const fresh = answer.response;
  if (answer.status >= 500 || !fresh) return;
  // Logged out meanwhile, or gone: the browser shows what there is now.
  if (answer.responseURL && new URL(answer.responseURL).pathname !== location.pathname) return location.reload();
  if (address !== location.pathname + location.search) return;
  const main = fresh.querySelector('main');
  if (!main) return;
  setClock(Number(fresh.body.dataset.now));
  document.title = fresh.title;
  for (const name of ['place', 'live', 'refresh', 'now']) {
    if (fresh.body.dataset[name] === undefined) delete body.dataset[name];
    else body.dataset[name] = fresh.body.dataset[name];
  }
  const old = document.querySelector('main');
  document.dispatchEvent(new CustomEvent('stepward:before', { detail: main }));
  morph(old, main);
  document.dispatchEvent(new CustomEvent('stepward:after'));
}

export function pause() {
  paused = !paused;
  show();
  if (!paused) refresh();
}

function connect() {
  const place = body.dataset.place;
  if (window.SharedWorker) {
    const url = new URL('./live-worker.js', import.meta.url).href;
    const worker = new SharedWorker(policy ? policy.createScriptURL(url) : url, { type: 'module', name: 'stepward' });
    // A browser that cannot run it has the stream in each tab.
    worker.onerror = () => connectAlone(place);
    port = worker.port;
    port.onmessage = ({ data }) => hear(data);
    port.postMessage({ place });
    return;
  }
  connectAlone(place);
}

function connectAlone(place) {
  port = null;
  let stream = null;
  const begin = () => {
    stream ??= new Stream(hear);
    stream.begin(body.dataset.place ?? place);
  };
  // Few connections for many tabs: only the one that somebody sees has its own.
  document.addEventListener('visibilitychange', () => {
    if (document.hidden) {
      stream?.end();
      stream = null;
    } else {
      begin();
      refresh();
    }
  });
  if (!document.hidden) begin();
}

export function start() {
  if (body.dataset.place === undefined) return;
  connect();
  addEventListener('pagehide', () => port?.postMessage({ bye: true }));
  addEventListener('pageshow', (event) => {
    if (!event.persisted) return;
    if (port) port.postMessage({ place: body.dataset.place });
    refresh();
  });
  document.addEventListener('visibilitychange', () => document.hidden || refresh());
  // Without a stream, at least now and then.
  setInterval(() => {
    if (state === 'lost' && Date.now() - heard > POLL_MS) refresh();
  }, POLL_MS);
  setInterval(() => {
    const secs = Number(body.dataset.refresh);
    if (secs && !document.hidden && Date.now() - lastEnd >= secs * 1000) refresh();
  }, 1000);
}
