import type { Fleet } from '../api/client';

/** What is said where an operation waits for the approval of a second person, "" where it was done. */
export function waits(answer: unknown): string {
  const r = answer as Partial<Fleet['Request']> | undefined;
  return r?.asks !== undefined && r.state === 'waiting'
    ? `It waits for a second person to approve it (request ${r.id}).`
    : '';
}
