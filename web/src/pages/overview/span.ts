// How much of the traffic is drawn: by "hours" of the address.

export const spans: Record<string, number> = { '1': 3600, '6': 6 * 3600, '24': 24 * 3600 }; // s

export const spanOf = (hours: string) => (Object.hasOwn(spans, hours) ? hours : '1');

/** The first moment that is drawn, and two minutes before, since the last ones are not whole. */
export const since = (span: string) => new Date(Date.now() - (spans[span]! + 120) * 1000).toISOString();
