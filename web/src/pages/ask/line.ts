// A question in one line, as a form has it.

export type Question = Record<string, string>;

const address = /^(\d{1,3}(\.\d{1,3}){3}|[0-9a-f]*:[0-9a-f:.]+)$/i;

/** What a line asks; undefined where it asks nothing that is known. */
export function read(line: string): Question | undefined {
  const text = line.trim().replace(/\?$/, '').trim();
  // who reaches SERVICE [of WHOM]
  let found = /^who (?:can |may )?(?:reach(?:es)?|use[s]?) (.+?)(?: (?:of|on|at|to) (\S+))?$/i.exec(text);
  if (found) {
    const [, service = '', whom = ''] = found;
    const here = whom === '' || /^(here|this|me|us)$/i.test(whom);
    return {
      kind: 'query',
      service: service.replace(/^any(thing)?$/i, ''),
      verdict: 'accept',
      ...(here ? {} : { to: whom, hook: 'forward' }),
    };
  }
  // what does WHO reach [of WHOM]
  found = /^what (?:can |may |does |do )?(\S+)(?: reach(?:es)?| use[s]?| do)?(?: (?:of|on|at) (\S+))?$/i.exec(
    text,
  );
  if (found && !/^(changed|differs|changes|is)$/i.test(found[1]!)) {
    const [, from = '', whom = ''] = found;
    return { kind: 'query', from, verdict: 'accept', ...(whom ? { to: whom, hook: 'forward' } : {}) };
  }
  if (/^(diff|what (changed|differs|changes))$/i.test(text)) return { kind: 'diff' };
  // [protocol] ADDRESS to [ADDRESS[:PORT]] [SERVICE]
  found = /^(?:(tcp|udp|icmp|sctp) )?(?:from )?(\S+) (?:to|->|→) (\S+)(?: (\S+))?$/i.exec(text);
  if (found && address.test(found[2]!)) {
    const [, named = '', source = '', first = '', second = ''] = found;
    const whole = /^(\d[\d.]*|\[[0-9a-f:.]+\]):(\w+)$/i.exec(first);
    const destination = whole ? whole[1]!.replace(/[[\]]/g, '') : address.test(first) ? first : '';
    let port = whole ? whole[2]! : destination ? second : first;
    let protocol = named.toLowerCase();
    const slash = /^(tcp|udp|sctp)\/(\w+)$/.exec(port);
    if (slash) [, protocol = '', port = ''] = slash;
    if (port === 'ping') return { kind: 'explain', source, destination, protocol: 'icmp' };
    return { kind: 'explain', source, destination, port, protocol };
  }
  return undefined;
}
