// A question that is asked again at intervals while the page is seen, with the age of its answer.

import { Failed } from '../api/client';

const heals = 3; // seconds to the next try where the server does not answer
const gathers = 2; // seconds in which events ask once

/** What was answered last, when, and why nothing newer is there. */
export class Asked<T> {
  value = $state.raw<T>();
  at = $state(0); // ms, of value
  error = $state('');
  busy = $state(false);
  #ask: (signal: AbortSignal) => Promise<T>;
  #now = new AbortController();
  #timer: ReturnType<typeof setInterval> | undefined;
  #heals: ReturnType<typeof setTimeout> | undefined;
  #soon: ReturnType<typeof setTimeout> | undefined;

  /** Asks at once, and each so many seconds; 0 asks once. */
  constructor(ask: (signal: AbortSignal) => Promise<T>, seconds = 0) {
    this.#ask = ask;
    void this.again();
    if (seconds > 0)
      this.#timer = setInterval(() => {
        if (!document.hidden && !this.busy) void this.again();
      }, seconds * 1000);
  }

  /** Asks again; the latest question wins. */
  async again(): Promise<void> {
    clearTimeout(this.#heals);
    this.#now.abort();
    const mine = (this.#now = new AbortController());
    this.busy = true;
    try {
      const value = await this.#ask(mine.signal);
      if (mine.signal.aborted) return;
      this.value = value;
      this.at = Date.now();
      this.error = '';
    } catch (error) {
      if (mine.signal.aborted) return;
      this.error = error instanceof Error ? error.message : String(error);
      if (error instanceof Failed && error.status === 0)
        this.#heals = setTimeout(() => void this.again(), heals * 1000);
    } finally {
      if (mine === this.#now) this.busy = false;
    }
  }

  /** Asks again in a moment: what many events change is asked once. */
  soon() {
    this.#soon ??= setTimeout(() => {
      this.#soon = undefined;
      void this.again();
    }, gathers * 1000);
  }

  stop() {
    clearTimeout(this.#soon);
    clearInterval(this.#timer);
    clearTimeout(this.#heals);
    this.#now.abort();
  }
}

/** An Asked of a component, which ends with it and starts again when what ask reads of the state changes. */
export function asked<T>(
  ask: () => (signal: AbortSignal) => Promise<T>,
  seconds = 0,
): { readonly now: Asked<T> | undefined } {
  let now = $state.raw<Asked<T>>();
  $effect(() => {
    const one = new Asked(ask(), seconds);
    now = one;
    return () => one.stop();
  });
  return {
    get now() {
      return now;
    },
  };
}
