// Streams of server-sent events that say when they are lost, and heal. fetch reads them and not
// EventSource, which cannot send a body.

import { csrfHeader } from '../api/client';
import { session } from './session.svelte';

export interface Event {
  event: string; // "message" unless the server names one
  data: string;
  id: string;
}

/** A stream. It goes on until stop; onevent is told of each event. */
export class Live {
  state = $state<'connecting' | 'live' | 'lost' | 'over'>('connecting');
  since = $state(Date.now()); // of the state
  why = $state('');
  #id = '';
  #stop = new AbortController();
  #wait = 0.5; // seconds to the next try

  constructor(
    private readonly url: string | (() => string), // a function says it for each connection
    private readonly onevent: (event: Event) => void,
    private readonly body?: unknown,
  ) {
    void this.#run();
  }

  stop() {
    this.#stop.abort();
  }

  #is(state: Live['state'], why = '') {
    if (state !== this.state) this.since = Date.now();
    this.state = state;
    this.why = why;
  }

  async #run() {
    const stopped = this.#stop.signal;
    while (!stopped.aborted) {
      try {
        await this.#read(stopped);
        this.#is('lost', 'The server ended the stream.');
      } catch (error) {
        if (stopped.aborted) break;
        this.#is(
          'lost',
          error instanceof Error && error.name === 'Refused'
            ? error.message.replace(/\.?$/, '.')
            : 'The server does not answer.',
        );
      }
      const ms = this.#wait * 1000 * (0.5 + Math.random());
      this.#wait = Math.min(this.#wait * 2, 15);
      await new Promise<void>((done) => {
        const timer = setTimeout(done, ms);
        stopped.addEventListener('abort', () => (clearTimeout(timer), done()), { once: true });
      });
    }
    this.#is('over');
  }

  async #read(signal: AbortSignal) {
    const headers: Record<string, string> = { Accept: 'text/event-stream' };
    if (this.#id) headers['Last-Event-ID'] = this.#id;
    if (this.body !== undefined) {
      headers['Content-Type'] = 'application/json';
      headers[csrfHeader] = session.current?.csrf ?? '';
    }
    const answer = await fetch(typeof this.url === 'string' ? this.url : this.url(), {
      method: this.body === undefined ? 'GET' : 'POST',
      body: this.body === undefined ? undefined : JSON.stringify(this.body),
      headers,
      signal,
    });
    if (!answer.ok || !answer.body) {
      const said = (await answer.json().catch(() => ({}))) as { error?: string };
      const refused = new Error(said.error || `${answer.status} ${answer.statusText}`);
      refused.name = 'Refused';
      throw refused;
    }
    this.#is('live');
    this.#wait = 0.5;
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = '';
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      rest += value;
      let began = performance.now();
      for (let end = rest.indexOf('\n\n'); end >= 0; end = rest.indexOf('\n\n')) {
        this.#event(rest.slice(0, end));
        rest = rest.slice(end + 2);
        // Much that comes at once, such as what was kept, leaves the page its turn.
        if (performance.now() - began > 10) {
          await new Promise((turn) => setTimeout(turn));
          began = performance.now();
        }
      }
    }
  }

  #event(text: string) {
    const out: Event = { event: 'message', data: '', id: this.#id };
    for (const line of text.split('\n')) {
      const at = line.indexOf(':');
      if (at <= 0) continue;
      const name = line.slice(0, at);
      const value = line.slice(at + 1).replace(/^ /, '');
      if (name === 'event') out.event = value;
      else if (name === 'id') out.id = this.#id = value;
      else if (name === 'data') out.data += (out.data ? '\n' : '') + value;
    }
    if (out.data) this.onevent(out);
  }
}
