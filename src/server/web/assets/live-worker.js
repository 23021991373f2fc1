// One stream for all tabs of a browser: plain HTTP allows six connections in all, and the seventh tab would hang.

import { Stream } from './stream.js';

const ports = new Set();
const stream = new Stream((news) => ports.forEach((port) => port.postMessage(news)));

self.addEventListener('error', (event) => console.error(event.message));
self.onconnect = ({ ports: [port] }) => {
  port.onmessage = ({ data }) => {
    if (data.bye) {
      ports.delete(port);
      if (ports.size === 0) stream.end();
      return;
    }
    // Also one that comes back: a browser may keep a page that was left, and show it again as it was.
    ports.add(port);
    stream.begin(data.place);
    port.postMessage({ state: stream.state, seen: stream.seen });
  };
};
