// The packets that came, the newest of them, with what is counted of those.

import { Live } from '../../lib/live.svelte';
import type { Agent } from '../../api/client';
import type { Packet } from './packet';

/** How many are kept here. */
export const most = 20_000;

// How many seconds and minutes are counted apart.
const seconds = 700;
const minutes = 1500;

/** What came in a second or a minute. */
export interface Span {
  packets: number;
  countries: Map<string, number>; // by code; "" is none
}

/** Where packets come from. */
export interface Origin {
  host: string; // of a fleet; "" is this host, or all of the fleet, as they come
  url: (since: string) => string;
}

/** What the controller adds to lines of several hosts. */
interface Merged {
  host?: string;
  skipped?: number;
}

/** Packets of one or several hosts. What is shown of them changes a frame at a time. */
export class Packets {
  frame = $state(0); // rises as what is kept changes
  at = $state(0); // ms, when one came last
  failed = $state('');
  lost = $state(0); // logged, and neither kept by the agent nor sent
  skipped = $state(0); // sampled away by the controller or an agent
  readonly streams: { host: string; live: Live }[];
  readonly seconds = new Map<number, Span>(); // by their beginning, in seconds since 1970
  readonly minutes = new Map<number, Span>();
  #ring: Packet[] = [];
  #next = 0; // how many came
  #drawing = 0;

  /** Reads each origin, and after a stream was lost goes on behind the last packet of it. */
  constructor(
    origins: Origin[],
    since: string,
    private readonly until = Infinity, // ms
  ) {
    this.streams = origins.map(({ host, url }) => {
      const last = { time: since, number: 0 };
      const live: Live = new Live(
        () => url(last.time),
        (event) => this.#line(event.data, host, last, live),
      );
      return { host, live };
    });
  }

  /** How many came, those that are not kept any more too. */
  get came(): number {
    void this.frame;
    return this.#next;
  }
  /** Those of them that are kept, from the first-th on; 0 is the oldest. */
  kept(first = 0, end = most): Packet[] {
    const length = Math.min(this.#next, most);
    const oldest = this.#next - length;
    return Array.from(
      { length: Math.min(end, length) - first },
      (_, i) => this.#ring[(oldest + first + i) % most]!,
    );
  }

  stop() {
    for (const s of this.streams) s.live.stop();
    cancelAnimationFrame(this.#drawing);
  }

  #line(text: string, host: string, last: { time: string; number: number }, live: Live) {
    const line = JSON.parse(text) as Agent['Line'] & Merged;
    if (line.skipped) {
      this.skipped += line.skipped;
      return;
    }
    if (line.host) {
      if (typeof line.failure === 'string') this.failed = `${line.host}: ${line.failure}`;
      if (line.logged) this.#add({ ...line.logged, host: line.host });
      return;
    }
    if (line.failure) this.failed = (host && `${host}: `) + line.failure.error;
    if (line.failure || 'result' in line) live.stop();
    if (!line.logged) return;
    const p: Packet = line.logged;
    if (p.number && p.number <= last.number) return; // it came before the stream was lost
    if (Date.parse(p.time) > this.until) {
      live.stop();
      return;
    }
    last.number = p.number ?? 0;
    last.time = p.time;
    if (host) p.host = host;
    this.#add(p);
  }

  #add(p: Packet) {
    this.lost += p.lost ?? 0;
    // Of several hosts one may tell later what came before.
    const oldest = Math.max(0, this.#next - most + 1);
    let i = this.#next++;
    for (; i > oldest && this.#ring[(i - 1) % most]!.time > p.time; i--)
      this.#ring[i % most] = this.#ring[(i - 1) % most]!;
    this.#ring[i % most] = p;
    const second = Math.floor(Date.parse(p.time) / 1000);
    count(this.seconds, second, seconds, p.country ?? '');
    count(this.minutes, second - (second % 60), minutes, p.country ?? '');
    this.#drawing ||= requestAnimationFrame(() => {
      this.#drawing = 0;
      this.at = Date.now();
      this.frame++;
    });
  }
}

function count(spans: Map<number, Span>, at: number, limit: number, country: string) {
  let span = spans.get(at);
  if (!span) {
    spans.set(at, (span = { packets: 0, countries: new Map() }));
    if (spans.size > limit) spans.delete(spans.keys().next().value!);
  }
  span.packets++;
  span.countries.set(country, (span.countries.get(country) ?? 0) + 1);
}
