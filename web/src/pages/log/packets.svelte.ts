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

/** A stream of packets. What is shown of it changes a frame at a time. */
export class Packets {
  frame = $state(0); // rises as what is kept changes
  at = $state(0); // ms, when one came last
  failed = $state('');
  skipped = $state.raw<{ at: number; packets: number }[]>([]); // sampled away, within a minute
  lost = $state(0); // logged, and neither kept by the agent nor sent
  readonly live: Live;
  readonly seconds = new Map<number, Span>(); // by their beginning, in seconds since 1970
  readonly minutes = new Map<number, Span>();
  #ring: Packet[] = [];
  #next = 0; // how many came
  #last = new Map<string, number>(); // number of the last one, by host
  #since: string;
  #drawing = 0;

  /** Reads what an address gives, which is asked anew from the last packet on after a stream was lost. */
  constructor(
    url: (since: string) => string,
    since: string,
    private readonly until = Infinity, // ms
  ) {
    this.#since = since;
    this.live = new Live(
      () => url(this.#since),
      (event) => this.#line(event.data),
    );
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
    this.live.stop();
    cancelAnimationFrame(this.#drawing);
  }

  #line(text: string) {
    const line = JSON.parse(text) as Agent['Line'] & { skipped?: number };
    if (line.logged) this.#packet(line.logged as Packet);
    else if (line.skipped) {
      const now = Date.now();
      this.skipped = [...this.skipped.filter((s) => now - s.at < 60_000), { at: now, packets: line.skipped }];
    } else if (line.failure) {
      this.failed = line.failure.error;
      this.live.stop();
    } else if ('result' in line) this.live.stop();
  }

  #packet(p: Packet) {
    const host = p.host ?? '';
    const number = p.number ?? 0;
    if (number && number <= (this.#last.get(host) ?? 0)) return; // it came before the stream was lost
    this.#last.set(host, number);
    const second = Math.floor(Date.parse(p.time) / 1000);
    if (second * 1000 > this.until) {
      this.live.stop();
      return;
    }
    this.#since = p.time;
    this.lost += p.lost ?? 0;
    this.#ring[this.#next++ % most] = p;
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
