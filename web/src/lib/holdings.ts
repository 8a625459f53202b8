// Bans and allows beside the policy: on one host by its agent, in a fleet by its controller.

import { data, fleet, Host, type Agent, type Fleet } from '../api/client';
import { plural } from './numbers';
import { session } from './session.svelte';
import { waits } from './waits';

export type Kind = 'ban' | 'allow';

/** What is to hold. */
export interface Wanted {
  what: string; // an address, a prefix or a range
  service?: string; // of an allow, as rules write it; every one unless given
  seconds?: number; // until it is lifted unless given, in a fleet as long as fleet.yaml allows
  hosts?: string; // of a fleet, a selector; every host unless given
  reason: string;
}

/** One that holds. */
export interface Holding {
  key: string; // tells it from the others
  what: string;
  service?: string;
  hosts?: string; // of a fleet
  who: string;
  reason: string;
  since?: string;
  until?: string;
  packets?: number; // that a ban dropped
  by: string; // "command", "limit" or "fleet"
  rule?: string; // of a limit
  held: 'yes' | 'no' | 'partly'; // the kernel does it
  proved?: { hosts: number; of: number }; // of a fleet
}

/** Where something holds, in words, by the selector of a fleet. */
export function where(hosts: string | undefined): string {
  if (session.current?.mode !== 'fleet') return session.current?.name ?? '';
  if (!hosts) return 'every host';
  const one = /^host=([^\s()]+)$/.exec(hosts);
  return one ? one[1]! : `hosts with ${hosts}`;
}

/** Has it hold, and says what came of it. */
export async function hold(kind: Kind, w: Wanted): Promise<string> {
  const { what, service, seconds, reason } = w;
  if (session.current?.mode === 'fleet') {
    const body: Fleet['NewHoldings'] = { entries: [{ what, service }], hosts: w.hosts || undefined, reason };
    if (seconds) body['for-seconds'] = seconds;
    const done = await data<Fleet['Held'] | Fleet['Request']>(
      kind === 'ban' ? fleet.POST('/api/v1/bans', { body }) : fleet.POST('/api/v1/allows', { body }),
    );
    if ('asks' in done) return waits(done);
    if (done.refused?.length) throw new Error(done.refused.map((r) => `${r.what}: ${r.why}`).join('\n'));
    const written = done.written[0];
    return written?.of
      ? `Written: ${plural(written.of, 'host')} ${written.of === 1 ? 'is' : 'are'} being notified.`
      : 'It is in force already.';
  }
  const host = new Host();
  const params = { path: host.path, query: reason ? { reason } : {} };
  if (kind === 'ban') {
    const done = await data(
      host.api.POST('/v1/namespaces/{namespace}/bans', {
        params,
        body: { bans: [{ what, for: seconds, reason: reason || undefined }] },
      }),
    );
    if (done.refused?.length) throw new Error(done.refused.map((r) => `${r.what}: ${r.why}`).join('\n'));
    if (!done['in-force']) throw new Error('It is banned, but the rules that run do not check bans.');
    return ['It is banned now.', ...(done.notes ?? [])].join(' ');
  }
  const done = await data(
    host.api.POST('/v1/namespaces/{namespace}/allows', { params, body: { what, service, for: seconds } }),
  );
  return [`It is let in now, by generation ${done.generation}.`, ...(done.notes ?? [])].join(' ');
}

/** Lifts one that holds, and says what came of it. */
export async function lift(kind: Kind, h: Holding, reason: string): Promise<string> {
  if (session.current?.mode === 'fleet') {
    const body: Fleet['Lift'] = { what: [h.what], hosts: h.hosts, service: h.service, reason };
    const done = await data<Fleet['Lifted'] | Fleet['Request']>(
      kind === 'ban'
        ? fleet.POST('/api/v1/bans/lift', { body })
        : fleet.POST('/api/v1/allows/lift', { body }),
    );
    if ('asks' in done) return waits(done);
    return done.lifted.length ? 'Lifted: its hosts are being notified.' : 'It was lifted already.';
  }
  const host = new Host();
  const params = { path: host.path, query: reason ? { reason } : {} };
  if (kind === 'ban') {
    const done = await data(
      host.api.POST('/v1/namespaces/{namespace}/bans/lift', { params, body: { what: [h.what] } }),
    );
    if (done['of-fleet']?.length) throw new Error('The fleet bans it: only its controller can lift that.');
    return done.lifted ? 'It is lifted.' : 'It was lifted already.';
  }
  const done = await data(
    host.api.POST('/v1/namespaces/{namespace}/allows/lift', {
      params,
      body: { what: h.what, service: h.service },
    }),
  );
  if (done['locked-out'])
    throw new Error(`Nothing was changed: ${done['locked-out']} is logged in over ssh through it.`);
  return [`It is lifted, by generation ${done.generation}.`, ...(done.notes ?? [])].join(' ');
}

/** Those that hold; of a fleet the first thousand, with what says that there are more. */
export async function holdings(
  kind: Kind,
  what: string,
  signal: AbortSignal,
): Promise<{ list: Holding[]; more: boolean }> {
  if (session.current?.mode === 'fleet') {
    const asked = { params: { query: { what: what || undefined } }, signal };
    const got = await data(
      kind === 'ban' ? fleet.GET('/api/v1/bans', asked) : fleet.GET('/api/v1/allows', asked),
    );
    return { list: got.entries.map(ofFleet), more: !!got.next };
  }
  const host = new Host();
  const asked = { params: { path: host.path }, signal };
  const list: Holding[] =
    kind === 'ban'
      ? (await data(host.api.GET('/v1/namespaces/{namespace}/bans', asked))).map(banned)
      : (await data(host.api.GET('/v1/namespaces/{namespace}/allows', asked))).map(allowed);
  return { list: list.filter((h) => !what || h.what.includes(what)), more: false };
}

function ofFleet(h: Fleet['Holding']): Holding {
  const [proved, of] = [h.proved ?? 0, h.of ?? 0];
  return {
    key: h.id,
    what: h.what,
    service: h.service,
    hosts: h.hosts,
    who: h.who ?? '',
    reason: h.reason ?? '',
    since: h.made,
    until: h.expires,
    by: 'fleet',
    held: of > 0 && proved === of ? 'yes' : proved > 0 ? 'partly' : 'no',
    proved: { hosts: proved, of },
  };
}

function banned(b: Agent['BanEntry']): Holding {
  return {
    key: `${b.by} ${b.what}`,
    what: b.what,
    who: b.by === 'limit' ? '' : who(b.author),
    reason: b.reason ?? '',
    since: b.since,
    until: b.until,
    packets: b.packets,
    by: b.by,
    rule: b.rule,
    held: b['in-force'] ? (b.exempt?.length ? 'partly' : 'yes') : 'no',
  };
}

function allowed(a: Agent['Allows'][number]): Holding {
  return {
    key: `${a.what} ${a.service ?? ''}`,
    what: a.what,
    service: a.service,
    who: who(a.by),
    reason: a.by.reason ?? '',
    since: a.since,
    until: a.until,
    by: a.id ? 'fleet' : 'command',
    held: a['in-force'] ? 'yes' : 'no',
  };
}

function who(a: Agent['Author'] | undefined): string {
  if (!a) return '';
  return [a.user ?? 'root', a.from && `from ${a.from}`, a.via && `by ${a.via}`].filter(Boolean).join(' ');
}
