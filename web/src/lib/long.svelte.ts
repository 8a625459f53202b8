// Questions to the fleet's controller that may take long: how far it is comes before the answer.

import { csrfHeader, Failed } from '../api/client';
import { session } from './session.svelte';

interface Line {
  progress?: { done: number; of: number };
  result?: unknown;
  error?: { error: string };
}

/** How far a question is: "Computed for 12 of 30 classes of hosts…", "" where nothing is told. */
export class Progress {
  text = $state('');

  /** Asks, and has the text say how far it is. */
  async ask<T>(path: string, question: unknown, signal: AbortSignal): Promise<T> {
    this.text = '';
    let answer;
    try {
      answer = await fetch(path, {
        method: 'POST',
        headers: {
          Accept: 'application/x-ndjson',
          'Content-Type': 'application/json',
          [csrfHeader]: session.current?.csrf ?? '',
        },
        body: JSON.stringify(question),
        signal,
      });
    } catch (error) {
      if (signal.aborted) throw error;
      throw new Failed('The server does not answer.', 0);
    }
    if (!answer.ok || !answer.body) {
      const said = (await answer.json().catch(() => ({}))) as { error?: string };
      throw new Failed(said.error || `${answer.status} ${answer.statusText}`, answer.status, said);
    }
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = '';
    for (;;) {
      const { done, value } = await reader.read();
      rest += value ?? (done ? '\n' : '');
      for (let end = rest.indexOf('\n'); end >= 0; end = rest.indexOf('\n')) {
        const text = rest.slice(0, end);
        rest = rest.slice(end + 1);
        if (!text) continue;
        const line = JSON.parse(text) as Line;
        if (line.error || line.result !== undefined) this.text = '';
        if (line.error) throw new Failed(line.error.error, 422, line.error);
        if (line.result !== undefined) return line.result as T;
        if (line.progress)
          this.text = `Computed for ${line.progress.done} of ${line.progress.of} classes of hosts…`;
      }
      if (done) throw new Failed('The server ended before the answer was whole.', 0);
    }
  }
}
