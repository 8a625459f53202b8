// Answers of the agent that come in lines.

import { data, Failed, type Agent, type Host } from '../api/client';

/** What an operation is asked with, so that it answers in lines. */
export const inLines = { headers: { Accept: 'application/x-ndjson' }, parseAs: 'text' } as const;

/** The lines of an answer that has ended; what failed on the way is thrown. */
export function linesOf(text: unknown): Agent['Line'][] {
  const all = String(text)
    .split('\n')
    .filter(Boolean)
    .map((line) => JSON.parse(line) as Agent['Line']);
  for (const line of all) if (line.failure) throw new Failed(line.failure.error, 422, line.failure);
  return all;
}

/** A look, of a second, at what a host does with its packets. Few may look at a time: then it waits. */
export async function look(host: Host, signal: AbortSignal): Promise<Agent['Top']> {
  for (let tries = 1; ; tries++) {
    try {
      const text = await data(
        host.api.POST('/v1/namespaces/{namespace}/top', {
          params: { path: host.path },
          body: { 'every-ns': 1e9, once: true },
          ...inLines,
          signal,
        }),
      );
      const top = linesOf(text).find((line) => line.top)?.top;
      if (!top) throw new Failed('The host gave no answer.', 502);
      return top;
    } catch (error) {
      if (!(error instanceof Failed) || error.status !== 409 || tries === 5) throw error;
      await new Promise((done) => setTimeout(done, 500 + 1000 * Math.random()));
    }
  }
}
