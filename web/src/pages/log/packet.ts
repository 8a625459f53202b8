// What is said of a packet that was logged.

import type { Agent } from '../../api/client';

/** A packet, of a fleet with the host that logged it. */
export type Packet = Agent['Logged'] & { host?: string };

/** Where it went, exactly, as rules name it: "tcp/22", "icmp 8/0". */
export function service(p: Packet): string {
  if (p.icmp) return `${p.protocol} ${p.icmp}`;
  return p.port ? `${p.protocol}/${p.port}` : (p.protocol ?? '');
}

/** The same as commands take it; "" where none of them can name it alone. */
export function letIn(p: Packet): string {
  const type = p.icmp?.split('/')[0];
  if (type) return type === '8' || type === '128' ? 'icmp echo-request' : '';
  if (p.port) return `${p.protocol}/${p.port}`;
  return p.protocol && /^\d+$/.test(p.protocol) ? `proto/${p.protocol}` : '';
}

/** What its line did with it, by what the line says; "" where it is not known. */
export function verdict(p: Packet): '' | 'let in' | 'dropped' | 'refused' {
  const word = /^(?:default: )?(\w+)/.exec(p.rule ?? '')?.[1];
  if (word === 'allow') return 'let in';
  if (word === 'drop') return 'dropped';
  return word === 'reject' ? 'refused' : '';
}

/** "policy.yaml:28", without the folder. */
export function place(p: Packet): string {
  return p.file ? `${p.file.split('/').at(-1)}:${p.line}` : '';
}

/** What explain is to be asked about it, or why it cannot be. */
export function question(p: Packet): Agent['ExplainRequest'] | string {
  if (!p.source || !p.destination) return 'Its addresses are not known: it was cut off.';
  const q: Agent['ExplainRequest'] = { protocol: p.protocol, source: p.source, destination: p.destination };
  if (p.in && !p.in.startsWith('#')) q.in = p.in; // "#" and a number: the interface was gone
  if (p.out && !p.out.startsWith('#')) q.out = p.out;
  if (['input', 'forward', 'output'].includes(p.hook)) q.hook = p.hook;
  if (p.icmp) q['icmp-type'] = p.icmp.split('/')[0];
  else if (p.protocol && ['tcp', 'udp', 'sctp', 'dccp', 'udplite'].includes(p.protocol)) {
    if (!p.port) return 'Its ports are not known: it is a later fragment, or was cut off.';
    q.port = String(p.port);
    if (p['source-port']) q['source-port'] = String(p['source-port']);
    if (p.protocol === 'tcp') q.flags = p.flags || 'none';
  }
  return q;
}
