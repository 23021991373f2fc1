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
let lastEnd = Date.now();
let fresh = Date.now(); // when the page was last as the server would show it

// A worker's address is the one thing here that could run code: only files of ours have one.
const policy = window.trustedTypes?.createPolicy('stepward', {
  createScriptURL(url) {
    if (new URL(url).origin !== location.origin) throw new TypeError(url);
    return url;
  },
});

export function load(address, accept = 'text/html') {
  return new Promise((resolve, reject) => {
    // Not fetch: this one makes a document of the answer by itself, and no script in it would run.
    const request = new XMLHttpRequest();
    request.open('GET', address);
    request.responseType = 'document';
    request.setRequestHeader('accept', accept);
    request.timeout = 15000;
    request.onload = () => resolve(request);
    request.onerror = request.ontimeout = request.onabort = () => reject(new Error('the server does not answer'));
    request.send();
  });
}

function wants({ jobs, tasks, others }) {
  const { live } = body.dataset;
  if (live === undefined) return false;
  if (live === 'all' || jobs === null || tasks === null) return true;
  if (others) return true;
  if (live.startsWith('task:')) return tasks.includes(live.slice('task:'.length));
  const own = new Set(live.split(' ').map(Number));
  return jobs.some((job) => own.has(job));
}

function isBehind([event, change]) {
  const [ownEvent, ownChange] = (body.dataset.place ?? '0.0').split('.').map(Number);
  return event > ownEvent || change > ownChange;
}

function hear(news) {
  if (news.state !== state) {
    if (state === 'live') fresh = Date.now();
    state = news.state;
    show();
  }
  const happened = 'others' in news;
  // What happened before this page listened is told by where the stream is.
  if (happened ? wants(news) : isBehind(news.seen)) refresh();
}

function show() {
  const since = new Date(fresh).toLocaleTimeString();
  const words = { connecting: '', live: paused ? 'paused' : 'live', lost: `reconnecting, data from ${since}` };
  shown.dataset.state = paused && state === 'live' ? 'paused' : state;
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

async function run() {
  due = 0;
  loading = true;
  again = false;
  const begun = Date.now();
  try {
    await fetchAndPut();
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
  const answer = await load(address, 'text/html;live=1');
  const page = answer.response;
  // Logged out meanwhile: the browser shows what there is now.
  if (answer.responseURL && new URL(answer.responseURL).pathname !== location.pathname) return location.reload();
  const main = page?.querySelector('main');
  // What is gone for the moment, a task whose file is being edited, may come back.
  if (answer.status !== 200 || !main || address !== location.pathname + location.search || paused) return;
  setClock(Number(page.body.dataset.now));
  document.title = page.title;
  for (const name of ['place', 'live', 'refresh', 'now']) {
    if (page.body.dataset[name] === undefined) delete body.dataset[name];
    else body.dataset[name] = page.body.dataset[name];
  }
  document.dispatchEvent(new CustomEvent('stepward:before', { detail: main }));
  morph(document.querySelector('main'), main);
  document.dispatchEvent(new CustomEvent('stepward:after'));
  fresh = Date.now();
  if (state === 'lost') show();
}

export function pause() {
  paused = !paused;
  show();
  if (!paused) refresh();
}

function connect() {
  const { place } = body.dataset;
  if (!window.SharedWorker) return connectAlone(place);
  const url = new URL('./live-worker.js', import.meta.url).href;
  const worker = new SharedWorker(policy ? policy.createScriptURL(url) : url, { type: 'module', name: 'stepward' });
  // A browser that cannot run it has the stream in each tab.
  worker.onerror = () => connectAlone(place);
  port = worker.port;
  port.onmessage = ({ data }) => hear(data);
  port.postMessage({ place });
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
    loading = false;
    port?.postMessage({ place: body.dataset.place });
    refresh();
  });
  document.addEventListener('visibilitychange', () => {
    if (document.hidden) return;
    // What was put off because nobody looked is not put off any longer.
    clearTimeout(due);
    due = 0;
    refresh();
  });
  // Without a stream, at least now and then.
  setInterval(() => {
    if (state === 'lost' && Date.now() - lastEnd > POLL_MS) refresh();
  }, POLL_MS);
  setInterval(() => {
    const secs = Number(body.dataset.refresh);
    if (secs && !document.hidden && Date.now() - lastEnd >= secs * 1000) refresh();
  }, 1000);
}
