// Numbers as people read them.

const whole = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });

/** "1,234". */
export function count(n: number): string {
  return whole.format(n);
}

/** "1 host", "3 hosts". */
export function plural(n: number, one: string, many = `${one}s`): string {
  return `${count(n)} ${n === 1 ? one : many}`;
}

/** Of something in a second: "0", "0.4/s", "12/s", "1,234/s". */
export function rate(n: number): string {
  if (n === 0) return '0';
  return `${n < 10 ? n.toFixed(1) : count(n)}/s`;
}

/** Bytes: "812 B", "1.4 kB", "23 MB". */
export function bytes(n: number): string {
  const units = ['B', 'kB', 'MB', 'GB', 'TB'];
  let at = 0;
  while (n >= 1000 && at < units.length - 1) {
    n /= 1000;
    at++;
  }
  return `${n < 10 && at > 0 ? n.toFixed(1) : count(n)} ${units[at]}`;
}
