// The policy as it runs, and what somebody changes of it here. It lasts as long as the tab:
// nothing of it is kept anywhere else before somebody says so.

import { data, fleet, Host, type Agent, type Fleet } from '../api/client';
import { session } from './session.svelte';

/** One file of the policy. */
export interface Part {
  name: string;
  text: string;
  selector?: string; // of the hosts that it is for
  hosts?: number; // how many
}

/** A file that runs and is not on the disk yet. */
export interface Unsaved {
  name: string;
  text: string;
  was: string; // what it was edited from
}

/** What a draft begins from. */
export interface Base {
  number: number; // of the generation or the bundle
  words: string; // "generation 4"
  parts: Part[];
  signs?: boolean; // of a fleet: its controller has a key for policies
  main?: string; // of one host: the file that was applied, as it was named
  directory?: string; // that names of files are relative to
}

export type Finding = Agent['CheckFinding'] & { classes?: string[] };
export type Difference = Agent['DiffChange'];
export type Brief = Fleet['PolicyBrief'];

/** What hosts that change alike do otherwise. */
export interface Change {
  for?: string; // which they are
  hosts?: string[];
  opens: boolean;
  brief: Brief[];
  differences: Difference[];
  settings: string[];
}

export interface Changes {
  opens: boolean;
  changes: Change[];
  unchanged?: number; // hosts
  stages?: { name: string; hosts: number }[];
}

const key = () => `draft of ${session.current?.name} ${session.current?.namespace ?? ''}`;

class Draft {
  base = $state.raw<Base>();
  error = $state('');
  texts = $state.raw<Record<string, string>>({}); // those that differ from the base's
  began = $state(0); // number of the base that they were made from
  unsaved = $state.raw<Unsaved[]>([]);
  readonly changed = $derived(Object.keys(this.texts).sort());
  readonly parts = $derived.by((): Part[] => {
    const known = this.base?.parts ?? [];
    const fresh = this.changed.filter((name) => !known.some((p) => p.name === name));
    return [...known, ...fresh.map((name) => ({ name, text: '' }))];
  });

  /** Reads what runs, again; a draft of this tab stays. */
  async load(): Promise<void> {
    try {
      this.base = session.current?.mode === 'fleet' ? await ofFleet() : await ofHost();
      this.error = '';
    } catch (error) {
      this.error = error instanceof Error ? error.message : String(error);
      return;
    }
    if (this.changed.length === 0) this.#remembered();
    // What has become the policy meanwhile is no difference any more.
    this.#set(Object.fromEntries(Object.entries(this.texts).filter(([n, t]) => t !== this.#was(n))));
    // Nor is what no longer runs to be saved.
    this.applied(this.unsaved.filter((u) => u.text === this.#was(u.name)));
  }

  /** Remembers what runs and is not on the disk yet. */
  applied(files: Unsaved[]) {
    this.unsaved = files;
    this.#keep();
  }

  /** Reads what runs again, of which what was tried is a change once more. */
  async takenBack() {
    const tried = this.unsaved;
    this.applied([]);
    await this.load();
    if (this.error) return this.applied(tried);
    for (const { name, text } of tried) if (!(name in this.texts)) this.set(name, text);
  }

  #was(name: string): string | undefined {
    return this.base?.parts.find((p) => p.name === name)?.text;
  }

  /** The text of a file, as it is here. */
  text(name: string): string {
    return this.texts[name] ?? this.#was(name) ?? '';
  }

  /** The file of the policy that an answer names, where it is one: hosts of a fleet have them in a folder of their own. */
  named(file: string | undefined): string | undefined {
    return this.parts.find((p) => file === p.name || file?.endsWith(`/${p.name}`))?.name;
  }

  /** All texts, as they are here. */
  get all(): Record<string, string> {
    return Object.fromEntries(this.parts.map((p) => [p.name, this.text(p.name)]));
  }

  set(name: string, text: string) {
    const { [name]: _, ...rest } = this.texts;
    this.#set(text === this.#was(name) ? rest : { ...rest, [name]: text });
  }

  drop() {
    this.#set({});
  }

  #set(texts: Record<string, string>) {
    if (Object.keys(this.texts).length === 0) this.began = this.base?.number ?? 0;
    this.texts = texts;
    this.#keep();
  }

  #keep() {
    const { texts, began, unsaved } = this;
    try {
      if (Object.keys(texts).length > 0 || unsaved.length > 0)
        sessionStorage.setItem(key(), JSON.stringify({ texts, began, unsaved }));
      else sessionStorage.removeItem(key());
    } catch {
      // A browser that keeps nothing has it until the page is left.
    }
  }

  #remembered() {
    try {
      const had = sessionStorage.getItem(key());
      if (had) Object.assign(this, JSON.parse(had) as Pick<Draft, 'texts' | 'began' | 'unsaved'>);
    } catch {
      // nothing is remembered
    }
  }

  /** The policy as the agent is told of it. */
  get policy(): Agent['PolicyFile'] {
    return { file: this.base!.main!, directory: this.base!.directory, texts: this.all };
  }

  /** What is wrong with it. */
  async check(signal?: AbortSignal): Promise<Finding[]> {
    if (session.current?.mode === 'fleet') {
      const got = await data(fleet.POST('/api/v1/policy/check', { body: { texts: this.texts }, signal }));
      return got.findings as Finding[];
    }
    const host = new Host();
    const got = await data(
      host.api.POST('/v1/namespaces/{namespace}/check', {
        params: { path: host.path },
        body: { policy: this.policy },
        signal,
      }),
    );
    return got.findings;
  }

  /** What it opens and closes. */
  async diff(signal?: AbortSignal): Promise<Changes> {
    if (session.current?.mode === 'fleet')
      return (await data(
        fleet.POST('/api/v1/policy/diff', { body: { texts: this.texts }, signal }),
      )) as unknown as Changes;
    const host = new Host();
    const got = await data(
      host.api.POST('/v1/namespaces/{namespace}/diff', {
        params: { path: host.path },
        body: { policy: this.policy },
        signal,
      }),
    );
    const change = { ...got, differences: got.differences ?? [] } as unknown as Change;
    const same = change.differences.length === 0 && change.settings.length === 0;
    return { opens: got.opens, changes: same ? [] : [change] };
  }
}

async function ofFleet(): Promise<Base> {
  const got = await data(fleet.GET('/api/v1/policy'));
  return {
    number: got.bundle,
    words: `bundle ${got.bundle}`,
    parts: got.files,
    signs: got.signing === 'controller',
  };
}

async function ofHost(): Promise<Base> {
  const host = new Host();
  const history = await data(
    host.api.GET('/v1/namespaces/{namespace}/generations', { params: { path: host.path } }),
  );
  if (history.running === 0)
    throw new Error('No Sluice policy is loaded: sluice init writes a first one, and sluice apply loads it.');
  const got = await data(
    host.api.GET('/v1/namespaces/{namespace}/generations/{generation}', {
      params: { path: { ...host.path, generation: history.running } },
    }),
  );
  return {
    number: got.number,
    words: `generation ${got.number}`,
    main: got.policy,
    directory: got.dir,
    parts: Object.entries(got.texts)
      .filter(([name]) => /\.ya?ml$/.test(name))
      .map(([name, text]) => ({ name, text }))
      .sort(
        (a, b) => Number(b.name === got.policy) - Number(a.name === got.policy) || (a.name < b.name ? -1 : 1),
      ),
  };
}

export const draft = new Draft();
