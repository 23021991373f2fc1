// The one stream of what happens. It resumes where it was, however often the server goes away, so nothing is missed.

const GATHER_MS = 40;
const NAMED_MAX = 200;
const RETRY_MS = [200, 400, 800, 1500, 3000];

export class Stream {
  // tell({state, seen}) when the connection changes; with {jobs, tasks, others} when something happened: to these jobs, of these
  // tasks (null: too many to name), and whether there was something that is about no job.
  constructor(tell) {
    this.tell = tell;
    this.place = null; // where to resume
    this.seen = [0, 0]; // the last event and the last change of a job that were heard
    this.state = 'connecting';
    this.source = null;
    this.failures = 0;
    this.news = null;
  }

  begin(place) {
    if (this.source || this.timer) return;
    this.place ??= place;
    this.open();
  }

  open() {
    this.timer = 0;
    const source = new EventSource(`/api/events?after=${encodeURIComponent(this.place)}`);
    this.source = source;
    source.onopen = () => {
      this.failures = 0;
      this.say('live');
    };
    source.onerror = () => {
      // The browser would wait for seconds, and give up for good at a wrong answer.
      source.close();
      this.source = null;
      const pause = RETRY_MS[Math.min(this.failures, RETRY_MS.length - 1)];
      this.failures += 1;
      this.say('lost');
      this.timer = setTimeout(() => this.open(), pause);
    };
    source.addEventListener('job', (event) => this.hear(event));
    source.addEventListener('event', (event) => this.hear(event));
  }

  hear(event) {
    this.place = event.lastEventId || this.place;
    const { job_id: job, task, seq = 0, change = 0 } = JSON.parse(event.data);
    this.seen = [Math.max(this.seen[0], seq), Math.max(this.seen[1], change)];
    this.news ??= { jobs: new Set(), tasks: new Set(), others: false };
    if (job === null || job === undefined) this.news.others = true;
    else this.news.jobs.add(job);
    if (task) this.news.tasks.add(task);
    this.gathering ??= setTimeout(() => this.pass(), GATHER_MS);
  }

  pass() {
    const { jobs, tasks, others } = this.news;
    const named = (names) => (names.size > NAMED_MAX ? null : [...names]);
    this.gathering = undefined;
    this.news = null;
    this.tell({ state: this.state, seen: this.seen, jobs: named(jobs), tasks: named(tasks), others });
  }

  say(state) {
    this.state = state;
    this.tell({ state, seen: this.seen });
  }

  end() {
    this.source?.close();
    clearTimeout(this.timer);
    this.source = null;
    this.timer = 0;
    this.place = null;
    this.state = 'connecting';
  }
}
