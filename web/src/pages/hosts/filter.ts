import type { Fleet } from '../../api/client';

/** What is asked of hosts; "" is anything. */
export interface Filter {
  q: string; // in the name, the reason or the address
  state: string;
  labels: string; // "role=web env=prod": each of them
  version: string;
  kernel: string;
  backend: string;
}

/** The names of a Filter, as the query has them. */
export const filterNames = ['q', 'state', 'labels', 'version', 'kernel', 'backend'] as const;

/** Those that a filter matches. */
export function matching(all: Fleet['Host'][], f: Filter): Fleet['Host'][] {
  const q = f.q.toLowerCase();
  const labels = f.labels
    .split(/[\s,]+/)
    .filter(Boolean)
    .map((text) => text.split('=', 2) as [string, string?]);
  return all.filter(
    (h) =>
      (!f.state || h.state === f.state) &&
      (!f.version || h.version === f.version) &&
      (!f.kernel || h.kernel === f.kernel) &&
      (!f.backend || h.backend === f.backend) &&
      labels.every(
        ([name, value]) =>
          Object.hasOwn(h.labels ?? {}, name) && (value === undefined || h.labels?.[name] === value),
      ) &&
      (!q ||
        h.host.toLowerCase().includes(q) ||
        h.reason?.toLowerCase().includes(q) ||
        h.address?.includes(q)),
  );
}

/** The values that hosts have, most hosts first. */
export function valuesOf(all: Fleet['Host'][], of: (h: Fleet['Host']) => string | undefined): string[] {
  const counts = new Map<string, number>();
  for (const h of all) {
    const value = of(h);
    if (value) counts.set(value, (counts.get(value) ?? 0) + 1);
  }
  return [...counts].sort((a, b) => b[1] - a[1]).map(([value]) => value);
}
