// Counts of things in words.

/** "1 host", "12,000 hosts". */
export function counted(n: number, thing: string, things = `${thing}s`): string {
  return `${n.toLocaleString('en')} ${n === 1 ? thing : things}`;
}
