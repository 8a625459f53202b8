// Times as the commands print them, and a clock by which ages grow while one looks.

class Clock {
  now = $state(Date.now());
  constructor() {
    setInterval(() => (this.now = Date.now()), 1000);
  }
}

export const clock = new Clock();

/** "12 s", "5 min", "3 h", "2 d": how long, of milliseconds. */
export function duration(ms: number): string {
  const s = Math.max(0, Math.round(ms / 1000));
  if (s < 90) return `${s} s`;
  const min = Math.round(s / 60);
  if (min < 90) return `${min} min`;
  const h = Math.round(min / 60);
  return h < 48 ? `${h} h` : `${Math.round(h / 24)} d`;
}

/** How long ago, by the clock of this browser. */
export function age(at: string | number | Date): string {
  return `${duration(clock.now - new Date(at).getTime())} ago`;
}

/** How long until then; "over" afterwards. */
export function left(at: string | number | Date): string {
  const ms = new Date(at).getTime() - clock.now;
  return ms <= 0 ? 'over' : duration(ms);
}

/** The moment itself, "2026-11-29 10:51:29". */
export function moment(at: string | number | Date): string {
  const d = new Date(at);
  const two = (n: number) => String(n).padStart(2, '0');
  return `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())} ${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`;
}
