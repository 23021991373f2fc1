// One stream for all tabs of a browser: plain HTTP allows six connections in all, and the seventh tab would hang.

import { Stream } from './stream.js';

const ports = new Set();
const stream = new Stream((news) => ports.forEach((port) => port.postMessage(news)));

self.onconnect = ({ ports: [port] }) => {
  ports.add(port);
  port.onmessage = ({ data }) => {
    if (data.bye) {
      ports.delete(port);
      if (ports.size === 0) stream.end();
      return;
    }
    stream.begin(data.place);
    port.postMessage({ state: stream.state, place: stream.place });
  };
};
