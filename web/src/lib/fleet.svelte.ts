// The hosts of the fleet, asked once and followed by what the controller tells as it changes.
// One for all pages.

import { data, fleet, type Fleet } from '../api/client';
import { Live } from './live.svelte';

type Told = (kind: string, of: unknown) => void;

class Hosts {
  all = $state.raw<Fleet['Host'][]>([]); // by name
  at = $state(0); // ms, when they were asked last; 0: not yet
  error = $state('');
  database = $state(''); // why the controller's database does not answer
  live = $state.raw<Live>();
  #of = new Map<string, Fleet['Host']>();
  #meanwhile: [string, unknown][] | undefined; // what was told while they are asked
  #frame = 0;
  #others = new Set<Told>();

  /** What is shown is what is: it was asked, and changes are heard of. */
  get current(): boolean {
    return this.at > 0 && !this.error && !this.database && this.live?.state !== 'lost';
  }

  /** Begins, unless it has begun. The stream begins with a reset, at which the hosts are asked. */
  begin() {
    this.live ??= new Live('/api/v1/events', ({ event, data }) => this.#told(event, JSON.parse(data)));
  }

  /** Has somebody hear of the other things that change, until the function is called. */
  hear(told: Told): () => void {
    this.begin();
    this.#others.add(told);
    return () => this.#others.delete(told);
  }

  async ask() {
    const meanwhile = (this.#meanwhile = []);
    try {
      const got = await data(fleet.GET('/api/v1/hosts'));
      if (meanwhile !== this.#meanwhile) return; // asked again since
      this.#of = new Map(got.hosts.map((h) => [h.host, h]));
      this.all = got.hosts;
      this.database = got.database ?? '';
      this.at = Date.now();
      this.error = '';
      for (const [event, of] of this.#meanwhile) this.#host(event, of);
    } catch (error) {
      this.error = error instanceof Error ? error.message : String(error);
    }
    if (meanwhile === this.#meanwhile) this.#meanwhile = undefined;
  }

  #told(event: string, of: unknown) {
    if (event === 'host' || event === 'host-gone') {
      this.#meanwhile?.push([event, of]);
      this.#host(event, of);
      return;
    }
    if (event === 'reset') void this.ask();
    for (const told of this.#others) told(event, of);
  }

  #host(event: string, of: unknown) {
    const h = of as Fleet['Host'];
    const was = this.#of.get(h.host);
    // What is told leaves out what changes all the time. Who is proved now was proved when that began.
    if (event === 'host') {
      const verified = [was?.verified, h.state === 'proved' ? h.since : undefined]
        .filter(Boolean)
        .sort()
        .at(-1);
      this.#of.set(h.host, { ...h, seen: was?.seen, verified });
    } else this.#of.delete(h.host);
    this.#frame ||= requestAnimationFrame(() => {
      this.#frame = 0;
      const all = [...this.#of.values()];
      if (all.length !== this.all.length) all.sort((a, b) => (a.host < b.host ? -1 : 1));
      this.all = all;
    });
  }
}

export const hosts = new Hosts();
