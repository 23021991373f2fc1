// The log of a step.

export function start() {}
