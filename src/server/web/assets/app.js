// What every page does. Each module starts by itself and does nothing on a page that has no use for it.

import { start as startDialogs } from './dialog.js';
import { start as startForms } from './form.js';
import { start as startJobs } from './jobs.js';
import { start as startKeys } from './keys.js';
import { start as startLive } from './live.js';
import { start as startLog } from './log.js';
import { start as startTicks } from './ticks.js';

startTicks();
startLive();
startKeys();
startDialogs();
startForms();
startJobs();
startLog();

// What was done is said once: whoever loads or shares the page later did not do it.
const address = new URL(location.href);
if (address.searchParams.has('said')) {
  address.searchParams.delete('said');
  history.replaceState(history.state, '', address);
}
